//! The short way between hosts whose memory is one: a record is written into our own copy of the lane and into the window, and
//! what has been read counts only if the window is still there.

use core::sync::atomic::Ordering;

use crosslane_ctl::lane::receiver_flags::{CLOSED, STOP_WANTED};
use crosslane_ctl::slab::{EndPhase, Mode, end_flags};
use crosslane_ring::Part;
use crosslane_ring::short::Whole;

use super::{Missed, UNUSUAL, note_taken};
use crate::end::add;
use crate::lock::Guard;
use crate::{End, ahead, posted, send, spare, watcher};

/// What another call has to look at first, of an end whose other end is on another host.
const UNUSUAL_FAR: u32 = UNUSUAL & !end_flags::FAR | end_flags::LOST;

/// Send all of `part`.
///
/// # Errors
/// If it was not sent.
///
/// # Safety
/// The part must be valid for reads.
#[inline]
pub unsafe fn send(end: &End, part: Part) -> Result<(), Missed> {
    if !end.has_flags(end_flags::FAR) {
        return Err(Missed::Unusual);
    }
    // SAFETY: the caller's promise.
    unsafe { send_far(end, part) }
}

/// # Safety
/// As [`send`].
#[inline(never)]
unsafe fn send_far(end: &End, part: Part) -> Result<(), Missed> {
    if end.is_blocked() || end.has_flags(end_flags::AWAITED) {
        return Err(Missed::Unusual);
    }
    let _tx = hold(end, End::try_lock_tx)?;
    let (Some(own), Some(window)) = (end.tx_lane(), spare::window(end)) else {
        return Err(Missed::Unusual);
    };
    let objections = own.control().receiver.flags.load(Ordering::Relaxed);
    if objections & (CLOSED | STOP_WANTED) != 0 || end.tx_mode() != Mode::Ring {
        return Err(Missed::Unusual);
    }
    let mut cursor = end.tx_cursor();
    let before = cursor.tail;
    // SAFETY: the caller's promise.
    if !unsafe { cursor.write_short_twice([&own, &window], part.start, part.bytes) } {
        return Err(Missed::Unusual);
    }
    end.set_near_tx_cursor(cursor);
    add(&end.entry.tx.ring_bytes, part.bytes as u64);
    send::note_published(end, &own, [before, cursor.tail]);
    ahead::prepare_next(&window, [before, cursor.tail]);
    Ok(())
}

/// Receive into `part` what is there.
///
/// # Errors
/// If nothing was received.
///
/// # Safety
/// The part must be valid for writes.
#[inline]
pub unsafe fn receive(end: &End, part: Part) -> Result<usize, Missed> {
    if !end.has_flags(end_flags::FAR) {
        return Err(Missed::Unusual);
    }
    // SAFETY: the caller's promise.
    let taken = unsafe { take_far(end, part) }?;
    Ok(note_taken(end, taken))
}

/// # Safety
/// As [`receive`].
#[inline(never)]
unsafe fn take_far(end: &End, part: Part) -> Result<Whole, Missed> {
    let _rx = hold(end, End::try_lock_rx)?;
    let lane = end.rx_lane().ok_or(Missed::Unusual)?;
    if end.rx_mode() != Mode::Ring {
        return Err(Missed::Unusual);
    }
    let mut cursor = end.rx_cursor();
    let is_there = || !spare::is_window_lost(end);
    // SAFETY: the caller's promise.
    let taken = unsafe { cursor.read_short_if(&lane, part.start, part.bytes, is_there) };
    let taken = taken.ok_or(Missed::Unusual)?;
    end.set_near_rx_cursor(cursor);
    add(&end.entry.rx.ring_bytes, taken.bytes as u64);
    Ok(taken)
}

/// Whether a record may be received this way.
pub(super) fn is_in_ring(end: &End) -> bool {
    is_usual(end) && end.rx_mode() == Mode::Ring
}

/// Hold a direction of an end of which nothing is unusual, if nobody else holds it. That is asked behind the lock: before it the
/// entry may become another end's.
#[inline]
fn hold(
    end: &End,
    direction: impl FnOnce(&End) -> Option<Guard<'static>>,
) -> Result<Guard<'static>, Missed> {
    let held = direction(end).ok_or(Missed::Unusual)?;
    match is_usual(end) {
        true => Ok(held),
        false => Err(Missed::Unusual),
    }
}

/// Whether the end is in a window of which both hosts see the same memory, which is still there, with the library's thread at work.
#[inline]
fn is_usual(end: &End) -> bool {
    end.phase() == EndPhase::Granted
        && end.local.adopted.load(Ordering::Acquire) != 0
        && end.flags() & (UNUSUAL_FAR | end_flags::FAR) == end_flags::FAR
        && watcher::is_at_work()
        && !posted::is_posted(end)
        && !spare::is_window_lost(end)
}
