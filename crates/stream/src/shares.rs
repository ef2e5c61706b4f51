//! Counts in the slab of what all processes do with an end: sleep on it, hold it in epoll sets.
//!
//! A process that is killed leaves its share of them behind. So each knows its own, and once it is the only holder takes off
//! what is nobody's. Calls inside the kernel it does not: a process that has closed the end may still be in one
//! ([`crate::raw`]).

use core::sync::atomic::{AtomicU32, Ordering};

use crosslane_ctl::slab::end_flags;
use crosslane_sys::kernel::SignalsHeld;

use crate::process::Process;
use crate::{End, heir};

/// This process's share of a count: never less than what it has added and not taken off.
#[derive(Debug, Default)]
pub(crate) struct Share {
    begun: AtomicU32,
    ended: AtomicU32,
}

impl Share {
    pub(crate) fn begin(&self, count: &AtomicU32) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        count.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn end(&self, count: &AtomicU32) {
        count.fetch_sub(1, Ordering::SeqCst);
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    /// There is none, in a new end or a forked child.
    pub(crate) fn forget(&self) {
        if self.begun.load(Ordering::Relaxed) != 0 {
            self.begun.store(0, Ordering::Relaxed);
            self.ended.store(0, Ordering::Relaxed);
        }
    }

    fn look(&self) -> (u32, u32) {
        let begun = self.begun.load(Ordering::SeqCst);
        (begun, self.ended.load(Ordering::SeqCst))
    }

    fn has_excess(&self, count: &AtomicU32) -> bool {
        let (begun, ended) = self.look();
        count.load(Ordering::SeqCst) > begun.wrapping_sub(ended)
    }

    /// Take off what exceeds the share, if nobody else has counted meanwhile.
    fn correct(&self, count: &AtomicU32, is_alone: impl FnOnce() -> bool) {
        let (begun, ended) = self.look();
        let found = count.load(Ordering::SeqCst);
        let own = begun.wrapping_sub(ended);
        let excess = found.saturating_sub(own);
        if excess > 0 && is_alone() && self.look() == (begun, ended) {
            count.fetch_sub(excess, Ordering::SeqCst);
        }
    }
}

/// What this process has of an end's counts.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    sleeps: Share,
    sets: Share,
}

impl Shares {
    pub(crate) fn forget(&self) {
        for share in [&self.sleeps, &self.sets] {
            share.forget();
        }
    }
}

impl End {
    /// A thread is about to sleep in the kernel on the socket, outside of epoll.
    pub(crate) fn begin_sleep(&self) {
        self.local.shares.sleeps.begin(&self.entry.wait.sleepers);
    }

    /// It is awake.
    pub(crate) fn end_sleep(&self) {
        self.local.shares.sleeps.end(&self.entry.wait.sleepers);
    }

    /// An epoll set waits for the end.
    pub fn begin_set(&self) {
        self.local.shares.sets.begin(&self.entry.wait.epolls);
    }

    /// It does so no more.
    pub fn end_set(&self) {
        self.local.shares.sets.end(&self.entry.wait.epolls);
    }
}

/// Take off what processes that have ended have left in the counts of an end that is ours alone by now. The caller holds no
/// direction.
#[cold]
pub(crate) fn correct(end: &End) {
    if !end.has_flags(end_flags::FORKED) {
        return;
    }
    let (shares, entry) = (&end.local.shares, end.entry);
    let counts = [
        (&shares.sleeps, &entry.wait.sleepers),
        (&shares.sets, &entry.wait.epolls),
    ];
    if !counts.iter().any(|(share, count)| share.has_excess(count)) {
        return;
    }
    if alone_since(end).is_none() {
        return;
    }
    // One thread at a time: two would take the same off twice. Nobody is waited for, and a handler must not find the
    // direction held by its own thread.
    let _held = SignalsHeld::hold();
    let Some(_rx) = end.try_lock_rx() else {
        return;
    };
    let is_the_same = core::ptr::eq(end.process().entry(end.index), entry);
    let Some(since) = alone_since(end).filter(|_| is_the_same) else {
        return;
    };
    for (share, count) in counts {
        share.correct(count, || alone_since(end) == Some(since));
    }
}

/// If no other process has the end: how many members the family has had by now. One that has come and gone is among them.
fn alone_since(end: &End) -> Option<u32> {
    let process = end.process();
    let members = end.table().header().members.load(Ordering::SeqCst);
    (process.holds(end.index) && !process.is_shared(end.index)).then_some(members)
}

/// Look at all ends. Called now and then, where a call sleeps anyway.
pub(crate) fn look(process: &'static Process) {
    for end in process.ends() {
        heir::look(&end);
        correct(&end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::both::ends;

    #[test]
    fn what_the_dead_have_counted_is_taken_off_by_who_is_alone() {
        let ([end, _peer], _sockets) = ends();
        let counts = [&end.entry.wait.sleepers, &end.entry.wait.epolls];
        end.begin_sleep();
        end.begin_set();
        let table = end.table();
        let (_, at) = end.process().home(end.index);
        let other = table.expect();
        table.lend(at, other);
        end.add_flags(end_flags::FORKED);
        for count in counts {
            count.fetch_add(2, Ordering::SeqCst);
        }
        let found = || counts.map(|count| count.load(Ordering::SeqCst));
        look(end.process());
        assert_eq!(found(), [3, 3], "while the other one lives");
        table.family().forget(other);
        look(end.process());
        assert_eq!(found(), [1, 1]);
        end.end_sleep();
        end.end_set();
        assert_eq!(found(), [0; 2]);
    }
}
