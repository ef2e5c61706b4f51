//! Sleeps in poll(2) by a number that another thread may take away.
//!
//! The kernel looks the numbers of a poll up each time that it is woken, and sleeps on if one names another socket by
//! then that has nothing. So such a sleep also watches an event of the process, which whoever takes a number away
//! raises; the sleep goes on by the descriptor that is kept for it ([`crate::close`]). Whoever shuts the connection down raises it,
//! too. The event counts those ends whose sleeps have not all gone on.

use core::sync::atomic::{AtomicI32, Ordering};
use std::os::fd::RawFd;

use crosslane_sys::kernel;

use crate::End;
use crate::control::{self, OwnFd};

/// The event's number; 0 if none has been needed yet.
static EVENT: AtomicI32 = AtomicI32::new(0);

/// A sleep in poll(2) by the program's own number.
pub struct Sleep {
    end: End,
    /// What it is to watch, too.
    pub event: RawFd,
}

impl Sleep {
    /// `None` if nobody can take the number away any more, or there is no descriptor for an event.
    pub fn begin(end: &End) -> Option<Self> {
        let sleep = Self::begin_kept(end)?;
        let is_kept = end.local.kept.load(Ordering::SeqCst) != 0; // SYNC: stir
        (!is_kept).then_some(sleep)
    }

    /// By a descriptor that is kept: a shutdown has it look again.
    pub fn begin_kept(end: &End) -> Option<Self> {
        let event = current().or_else(create)?;
        end.local.polls.fetch_add(1, Ordering::SeqCst); // SYNC: stir
        Some(Self { end: *end, event })
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if self.end.local.polls.fetch_sub(1, Ordering::SeqCst) == 1 {
            settle(&self.end, self.event);
        }
    }
}

/// A name of `end` goes, and a descriptor of our own is kept: whoever sleeps by the name is to look again.
pub(crate) fn wake(end: &End) {
    if !is_anybody_asleep(end) {
        return;
    }
    let Some(event) = current() else { return };
    if kernel::raise_event(event).is_err() {
        return;
    }
    if end.local.stirred.swap(1, Ordering::SeqCst) == 1 {
        // It has been raised for this end, and those sleeps have not gone on yet.
        kernel::lower_event(event);
    }
    if !is_anybody_asleep(end) {
        settle(end, event);
    }
}

fn is_anybody_asleep(end: &End) -> bool {
    end.local.polls.load(Ordering::SeqCst) > 0 // SYNC: stir
}

/// All sleeps of the end have gone on.
fn settle(end: &End, event: RawFd) {
    if end.local.stirred.swap(0, Ordering::SeqCst) == 1 && !control::is_handed_over(event) {
        kernel::lower_event(event);
    }
}

fn current() -> Option<RawFd> {
    let is_ours = |event: &RawFd| *event != 0 && !control::is_handed_over(*event);
    Some(EVENT.load(Ordering::Acquire)).filter(is_ours)
}

fn create() -> Option<RawFd> {
    let own = OwnFd::new(kernel::event_semaphore().ok()?);
    let number = own.number();
    match EVENT.compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => core::mem::forget(own),
        Err(faster) => return Some(faster),
    }
    Some(number)
}

/// A child that has been forked makes its own.
pub(crate) fn leave_behind() {
    if let Some(inherited) = current() {
        EVENT.store(0, Ordering::Release);
        drop(OwnFd::known(inherited));
    }
}
