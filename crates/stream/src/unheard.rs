//! What a peer on another host has not read. By TCP its kernel would say that it has it, or nobody would: then TCP sends it
//! again, and ends the connection when the host has crashed, as TCP_USER_TIMEOUT has it or because the host is back and knows
//! nothing of it. In a lane nothing is under way while the peer's program is busy.
//!
//! So a doorbell that nobody asked for follows by TCP what has stood unread for a while, once: what is sent later by a
//! program that does not read gets one of its own. The library's thread sees to it ([`crate::watcher`]).

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use crosslane_ctl::lane::receiver_flags::{CLOSED, FROZEN};
use crosslane_ctl::place::Place;
use crosslane_ctl::slab::{Mode, end_flags};
use crosslane_ring::{LaneMemory, WindowLane};
use crosslane_sys::{cpu, kernel};

use crate::{End, bell, ending, lost};

/// What has stood so long is followed by a doorbell, when the thread looks. It has come into the window by then, or beats have
/// found that lost: a peer that did not see it, and a START before it, could take the doorbell for data.
const PATIENCE: Duration = Duration::from_millis(1500);

/// What this process remembers of the sending lane of an end.
#[derive(Default)]
pub(crate) struct Clock {
    /// Which lanes.
    pair: AtomicU64,
    /// How far they were filled when it was last seen that the peer reads.
    mark: AtomicU64,
    /// When that was, or when a doorbell was sent since, or could not be, in ticks.
    since: AtomicU64,
    /// How far they were filled when that one was sent; 0 for none.
    followed: AtomicU64,
}

impl Clock {
    /// The lanes are filled up to `tail`, and read up to `read`. Whether a doorbell is due.
    fn is_due(&self, pair: u64, tail: u64, read: u64) -> bool {
        let is_same = self.pair.swap(pair, Ordering::Relaxed) == pair;
        let mark = self.mark.load(Ordering::Relaxed);
        if is_same && read < mark && mark <= tail {
            let has_stood = || lost::has_passed(self.since.load(Ordering::Relaxed), PATIENCE);
            return self.followed.load(Ordering::Relaxed) != tail && has_stood();
        }
        self.mark.store(tail, Ordering::Relaxed);
        self.followed.store(0, Ordering::Relaxed);
        self.since.store(cpu::ticks(), Ordering::Relaxed);
        false
    }

    /// The end is a new one.
    pub(crate) fn forget(&self) {
        self.mark.store(0, Ordering::Relaxed);
    }

    fn note_followed(&self, tail: u64) {
        self.followed.store(tail, Ordering::Relaxed);
        self.put_off();
    }

    /// Something is under way: to ask anew at each look would cost calls, and the direction.
    fn put_off(&self) {
        self.since.store(cpu::ticks(), Ordering::Relaxed);
    }
}

/// Have a doorbell follow what has stood unread for long, unless something is under way on TCP, or the peer takes no doorbells.
/// By the library's thread, for an end whose peer is on another host; it holds neither direction.
pub(crate) fn tend(end: &End) {
    let is_due = |lane: &WindowLane| {
        let (tail, read) = filled(end, lane);
        let is_due = end.local.unheard.is_due(lost::pair_of(end), tail, read);
        let flags = lane.control().receiver.flags.load(Ordering::Relaxed);
        is_due && may_ring(end) && flags & (FROZEN | CLOSED) == 0
    };
    if end.tx_mode() == Mode::Ring && end.tx_lane().is_some_and(|lane| is_due(&lane)) {
        follow(end);
    }
}

/// How far the lane is filled, and read.
fn filled(end: &End, lane: &WindowLane) -> (u64, u64) {
    let tail = end.entry.tx.tail.load(Ordering::Relaxed);
    (tail, Place::near(lane.consumed(), tail).line)
}

fn may_ring(end: &End) -> bool {
    // One that has left a lost window has been rung for then. Behind our own end the kernel sends nothing.
    let is_there = !end.has_flags(end_flags::LOST) && !lost::is_found(end);
    is_there && !end.has_flags(end_flags::SHUT_WRITE) && !ending::is_broken(end)
}

#[cold]
fn follow(end: &End) {
    let Some((lane, _tx)) = end.hold_tx_lane() else {
        return;
    };
    // It may have been closed while the direction was waited for, and its number be another connection's.
    let is_named = end.process().index_of(end.fd) == Some(end.index);
    let is_under_way = || kernel::queued(end.fd(), libc::TIOCOUTQ).is_ok_and(|bytes| bytes > 0);
    let (tail, read) = filled(end, &lane);
    let is_asked = end.tx_mode() == Mode::Ring && is_named && read < tail;
    let may = is_asked && may_ring(end) && !is_under_way();
    let clock = &end.local.unheard;
    match may && bell::probe_unless(end, &lane, FROZEN | CLOSED) {
        true => clock.note_followed(tail),
        false => clock.put_off(),
    }
}

#[cfg(test)]
mod tests;
