//! The peer of an AF_UNIX stream has shut down, closed, or died.
//!
//! Its close ends both directions at once, and leaves ECONNRESET behind if it had not read all. The
//! kernel knows that of what is in the kernel only: doorbells that were not taken count there, and
//! what is in the ring does not. So the lane decides: the receiver tells with each read how far it is.

use core::sync::atomic::Ordering;

use crosslane_ctl::lane::receiver_flags::{CLOSED, SHUT};
use crosslane_ctl::slab::{EndPhase, Ending, Mode, end_flags};
use crosslane_ring::{LaneMemory, WindowLane};
use crosslane_sys::{Errno, cpu, kernel};

use crate::{End, unconsumed};

/// A process that is killed needs longer than this until its sockets are closed, and longer still until
/// anybody is told that it is dead. So a send that has asked the kernel less than this ago need not
/// ask again.
const LIFE_SIGN_US: u64 = 10;

/// The kernel has told the end of the stream, or an error (`told`).
pub(crate) fn note(end: &End, told: Option<Errno>) {
    if end.ending() == Ending::Reset {
        return;
    }
    let found = kernel::poll_now(end.fd(), libc::POLLRDHUP);
    if told.is_none() && found & (libc::POLLHUP | libc::POLLERR) == 0 {
        end.note_ending(Ending::Eof);
        return;
    }
    let told = told.or_else(|| {
        let error = kernel::getsockopt::<i32>(end.fd(), libc::SOL_SOCKET, libc::SO_ERROR);
        error.ok().filter(|error| *error != 0).map(Errno)
    });
    if let Some(errno) = error(end, told) {
        end.entry.wait.error.store(errno.0, Ordering::Relaxed);
    }
    end.note_ending(Ending::Reset);
}

/// What a receive is told after all data, given what the kernel would tell it.
fn error(end: &End, told: Option<Errno>) -> Option<Errno> {
    let lane = end.tx_lane().filter(|_| end.phase() == EndPhase::Granted);
    let Some(lane) = lane.filter(|_| told.is_none_or(|told| told == Errno::CONNRESET)) else {
        return told;
    };
    let tail = end.entry.tx.tail.load(Ordering::Relaxed);
    let has_all = tail > 0 && lane.consumed() >> 16 == tail;
    if unconsumed::in_lane(end, &lane) > 0 && is_closed(end, &lane) {
        Some(Errno::CONNRESET)
    } else if has_all && end.tx_mode() == Mode::Ring {
        // Doorbells were left.
        None
    } else {
        told
    }
}

/// Whether the peer has closed, rather than both directions having been shut down.
fn is_closed(end: &End, lane: &WindowLane) -> bool {
    let flags = lane.control().receiver.flags.load(Ordering::SeqCst);
    let shut = end_flags::SHUT_READ | end_flags::SHUT_WRITE;
    let by_us = end.entry.id.flags.load(Ordering::Relaxed) & shut != 0;
    flags & CLOSED != 0 || !by_us && flags & SHUT == 0
}

/// Before a send: ask the kernel whether it would take anything, if the peer says that it might not,
/// or now and then.
#[inline]
pub(crate) fn look_before_send(end: &End) {
    let flags = |lane: WindowLane| lane.control().receiver.flags.load(Ordering::Relaxed);
    let has_hint = end
        .tx_lane()
        .is_some_and(|lane| flags(lane) & (CLOSED | SHUT) != 0);
    if has_hint || is_look_due(end) {
        look(end);
    }
}

/// Ask the kernel whether it would take anything.
pub(crate) fn look(end: &End) {
    end.local.life_seen.store(cpu::ticks(), Ordering::Relaxed);
    if kernel::can_send_unix(end.fd()) {
        return;
    }
    if kernel::poll_now(end.fd(), 0) & (libc::POLLHUP | libc::POLLERR) != 0 {
        note(end, None);
    } else {
        // As in the kernel, where the peer's SHUT_RD is the same as our SHUT_WR.
        end.add_flags(end_flags::SHUT_WRITE);
    }
}

/// Whether the kernel has not been asked for long.
#[inline]
pub(crate) fn is_look_due(end: &End) -> bool {
    let since = cpu::ticks().wrapping_sub(end.local.life_seen.load(Ordering::Relaxed));
    since > LIFE_SIGN_US * cpu::ticks_per_us()
}
