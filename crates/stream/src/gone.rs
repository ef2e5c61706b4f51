//! The peer of an AF_UNIX stream has shut down, closed, or died.
//!
//! Its close ends both directions at once, and leaves ECONNRESET behind if it had not read all: the kernel sets the
//! peer's `sk_err` if the closing socket's `sk_receive_queue` holds anything, whatever has been shut down before, and
//! shuts both directions of the peer down (unix_release_sock in net/unix/af_unix.c). The error is told once, to whoever
//! asks for it first: a receive behind all data, recvmmsg before them, SO_ERROR, a send that is waiting for room. Later sends say
//! EPIPE and leave it.
//!
//! The kernel knows that of what is in the kernel only: doorbells that were not taken count there, and
//! what is in the ring does not. So the lane decides: the receiver tells with each read how far it is. What stands in
//! the kernel's queue without being a doorbell is told by the kernel itself, as an end that closes takes the doorbells
//! first ([`crate::close`]).

use core::sync::atomic::{AtomicU64, Ordering};

use crosslane_ctl::lane::receiver_flags::{CLOSED, SHUT};
use crosslane_ctl::slab::{EndPhase, Ending, Mode, end_flags};
use crosslane_ring::WindowLane;
use crosslane_sys::{Errno, cpu, kernel};

use crate::family::Family;
use crate::{End, ending, stir, unconsumed};

/// What the kernel tells of a peer that is not there any more, and of two shutdowns.
const BROKEN: i16 = libc::POLLHUP | libc::POLLERR;

/// A process that is killed needs longer than this until its sockets are closed, and longer still until
/// anybody is told that it is dead. So a send that has asked the kernel less than this ago need not
/// ask again.
const LIFE_SIGN_US: u64 = 10;

/// Who has seen the peer move since need not, either, but for once in so long: until a peer that moved and died at
/// once is found out, as many lines as between two looks go to it.
const MOVING_US: u64 = 1_000;

/// The kernel has told the end of the stream, or an error (`told`).
pub(crate) fn note(end: &End, told: Option<Errno>) {
    let found = kernel::poll_now(end.fd(), libc::POLLRDHUP);
    if told.is_none() && found & BROKEN == 0 {
        end.note_ending(Ending::Eof);
        return;
    }
    judge(end, told);
    end.note_ending(Ending::Reset);
}

/// Where the kernel may have seen the peer close: what the program is to be told of it, if that is not known yet.
/// POLLHUP alone need not be a close: both directions may have been shut down before.
pub fn look_again(end: &End) {
    let is_open_question = end.family() == Family::Unix
        && end.phase() == EndPhase::Granted
        && !end.has_flags(end_flags::JUDGED);
    if is_open_question && kernel::poll_now(end.fd(), 0) & BROKEN != 0 {
        note(end, None);
    }
}

/// Once, when the peer has closed: keep the error that its close left behind for the program.
fn judge(end: &End, told: Option<Errno>) {
    if end.has_flags(end_flags::JUDGED) {
        return;
    }
    let told = told.or_else(|| {
        let error = kernel::getsockopt::<i32>(end.fd(), libc::SOL_SOCKET, libc::SO_ERROR);
        error.ok().filter(|error| *error != 0).map(Errno)
    });
    let lane = end.tx_lane().filter(|_| end.phase() == EndPhase::Granted);
    let lane = lane.filter(|_| told.is_none_or(|told| told == Errno::CONNRESET));
    if told.is_none() && !lane.is_some_and(|lane| is_closed(end, &lane)) {
        return;
    }
    let judged = end_flags::JUDGED;
    let flags = &end.entry.id.flags;
    if lane.is_some() && flags.fetch_or(judged, Ordering::Relaxed) & judged != 0 {
        return;
    }
    if let Some(errno) = lane.map_or(told, |lane| error(end, &lane, told)) {
        end.entry.wait.error.store(errno.0, Ordering::Relaxed);
    }
}

/// The error that the peer's close has left behind, given what the kernel says.
fn error(end: &End, lane: &WindowLane, told: Option<Errno>) -> Option<Errno> {
    let tail = end.entry.tx.tail.load(Ordering::Relaxed);
    let has_all = tail > 0 && unconsumed::is_none(end, lane);
    if unconsumed::in_lane(end, lane) > 0 {
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

/// Above the flags of an end that shutdowns set.
const TIMES_SHIFT: u32 = 6;

/// Somebody shuts down the end, perhaps what is shut: the kernel wakes everybody for it, and our polls look at what their
/// numbers name by now.
pub(crate) fn note_shutdown(end: &End) {
    end.entry.wait.shutdowns.fetch_add(1, Ordering::Relaxed);
    stir::wake(end);
}

/// What has been shut down and how often, for which the kernel wakes everybody: by whatever process has the end, and
/// reading by the peer of an AF_UNIX stream. Only good to be compared.
pub fn shutdowns(end: &End) -> u32 {
    let own =
        end.entry.id.flags.load(Ordering::Relaxed) & (end_flags::SHUT_READ | end_flags::SHUT_WRITE);
    let times = end.entry.wait.shutdowns.load(Ordering::Relaxed);
    times << TIMES_SHIFT | own | u32::from(has_shut(end))
}

/// Whether the peer of an AF_UNIX stream has shut down reading.
fn has_shut(end: &End) -> bool {
    let has_said =
        |lane: WindowLane| lane.control().receiver.flags.load(Ordering::Relaxed) & SHUT != 0;
    end.family() == Family::Unix && end.tx_lane().is_some_and(has_said)
}

/// The kernel has `sent` so much of `bytes` over AF_UNIX, perhaps after having waited for room: then it has taken what the peer's
/// close has left behind, whether it tells that or what it has sent before.
pub(crate) fn note_sent(end: &End, sent: Result<usize, Errno>, bytes: usize) {
    // An error that still stands there came later.
    let is_closed = || kernel::poll_now(end.fd(), 0) & BROKEN == libc::POLLHUP;
    match sent {
        Err(errno @ Errno::CONNRESET) => {
            let _ = take_by_send(end, errno);
        }
        Ok(sent) if sent < bytes && bytes < usize::MAX && is_closed() => {
            let _ = ending::take_error(end);
        }
        _ => {}
    }
}

/// Whether it is a close, or a shutdown, by which a send over AF_UNIX is refused.
pub(crate) fn is_refusal(end: &End, errno: Errno) -> bool {
    end.family() == Family::Unix && matches!(errno, Errno::PIPE | Errno::CONNRESET)
}

/// A send over AF_UNIX is refused by `errno` while it waits for room. Returns what the peer's close has left behind, which it takes,
/// unlike a send that comes later (sock_alloc_send_pskb in net/core/sock.c).
pub(crate) fn take_by_send(end: &End, errno: Errno) -> Option<Errno> {
    if errno == Errno::CONNRESET {
        // The kernel has told it already.
        note(end, Some(errno));
    }
    ending::take_error(end)
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
    if kernel::poll_now(end.fd(), 0) & BROKEN != 0 {
        note(end, None);
    } else {
        // As in the kernel, where the peer's SHUT_RD is the same as our SHUT_WR.
        end.add_flags(end_flags::SHUT_WRITE);
    }
}

/// Whether the kernel has not been asked for long.
#[inline]
pub(crate) fn is_look_due(end: &End) -> bool {
    unasked(end) > LIFE_SIGN_US * cpu::ticks_per_us()
}

/// Ticks since the kernel was asked.
fn unasked(end: &End) -> u64 {
    cpu::ticks().wrapping_sub(end.local.life_seen.load(Ordering::Relaxed))
}

/// Whether the peer has sent or taken something since this was last asked, which tells no less than the kernel would.
pub(crate) fn has_moved(end: &End) -> bool {
    let [sent, taken] = &end.local.life_signs;
    let is_new = |sign: &AtomicU64, now: u64| sign.swap(now, Ordering::Relaxed) != now;
    // What it has taken is in its own line, which is fetched only where it need be.
    let has_sent = is_new(sent, end.entry.rx.head.load(Ordering::Relaxed));
    let consumed = |lane: WindowLane| lane.control().credit.consumed.load(Ordering::Relaxed);
    let has_taken = || {
        end.tx_lane()
            .is_some_and(|lane| is_new(taken, consumed(lane)))
    };
    unasked(end) < MOVING_US * cpu::ticks_per_us() && (has_sent || has_taken())
}
