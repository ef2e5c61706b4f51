//! Short messages while nothing is unusual: one buffer, one record, both lanes in use and nobody
//! waiting for anything. What is not done here is done, with the same outcome, by [`crate::send`]
//! and [`crate::receive`].

use core::sync::atomic::Ordering;

use crosslane_ctl::lane::receiver_flags::{CLOSED, STOP_WANTED};
use crosslane_ctl::slab::{EndPhase, Mode, end_flags};
use crosslane_ring::Part;
use crosslane_ring::short::{SHORT_BYTES, Whole};
use crosslane_ring::trace::{Point, mark};

use crate::end::add;
use crate::{End, asleep, bell, place, send, wait};

/// What another call has to look at first.
pub(crate) const UNUSUAL: u32 = end_flags::PINNED
    | end_flags::SHUT_WRITE
    | end_flags::SHUT_READ
    | end_flags::FROZEN
    | end_flags::RESTING
    | end_flags::FAR
    | end_flags::UNIX;

/// Whether nothing is unusual, and `also` is 0.
#[inline]
fn is_usual(end: &End, also: u32) -> bool {
    let local = end.local;
    let unusual = [&end.entry.wait.ending, &local.chaos, &local.kept];
    end.phase() == EndPhase::Granted
        && local.adopted.load(Ordering::Acquire) != 0
        && end.entry.id.flags.load(Ordering::Relaxed) & UNUSUAL == 0
        // One branch for all of them.
        && unusual.iter().fold(also, |sum, cell| sum | cell.load(Ordering::Relaxed)) == 0
}

/// Send all of `part`. False if it was not sent.
///
/// # Safety
/// The part must be valid for reads.
#[inline(always)]
pub unsafe fn send(end: &End, part: Part) -> bool {
    let blocked = end.local.blocked.load(Ordering::Relaxed);
    if part.bytes > SHORT_BYTES || !is_usual(end, blocked) {
        return false;
    }
    let _tx = end.lock_tx();
    mark(Point::Locked);
    let Some(lane) = end.tx_lane() else {
        return false;
    };
    let flags = &lane.control().receiver.flags;
    let is_to_stop = flags.load(Ordering::Relaxed) & (CLOSED | STOP_WANTED) != 0;
    // Another thread may have shut down before the direction was ours.
    if is_to_stop || end.has_flags(end_flags::SHUT_WRITE) {
        return false;
    }
    let mut cursor = end.tx_cursor();
    let before = cursor.tail;
    // SAFETY: the caller's promise.
    let is_written =
        end.tx_mode() == Mode::Ring && unsafe { cursor.write_short(&lane, part.start, part.bytes) };
    if is_written {
        end.set_tx_cursor(cursor);
        add(&end.entry.tx.ring_bytes, part.bytes as u64);
        send::note_published(end, &lane, before);
    }
    is_written
}

/// Why nothing was received the short way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// Something is unusual.
    Unusual,
    /// Nothing has come in the moment that an answer takes.
    Late,
}

/// Receive into `part`, waiting for the moment that an answer takes if the call `waits`.
///
/// # Errors
/// If nothing was received.
///
/// # Safety
/// The part must be valid for writes.
#[inline(always)]
pub unsafe fn receive(end: &End, part: Part, waits: bool) -> Result<usize, Missed> {
    if !is_usual(end, 0) {
        return Err(Missed::Unusual);
    }
    let mut may_wait = waits;
    let taken = loop {
        // SAFETY: the caller's promise.
        if let Some(taken) = unsafe { take(end, part) } {
            break taken;
        }
        if !may_wait || end.has_record() {
            return Err(Missed::Unusual);
        }
        if !comes_soon(end) {
            return Err(Missed::Late);
        }
        may_wait = false;
    };
    Ok(note_taken(end, taken))
}

/// Wait for a record for the moment that an answer takes, and copy it to the front of `room`. Nothing is looked
/// for behind it: that would take a line away from the sender, who is about to write there. `None` if none has come, or
/// one that does not fit.
pub fn receive_next(end: &End, room: &mut [u8]) -> Option<usize> {
    if !is_usual(end, 0) || !comes_soon(end) {
        return None;
    }
    let bytes = end.rx_cursor().whole_bytes(&end.rx_lane()?)?;
    let part = Part::of_mut(room.get_mut(..bytes)?);
    // SAFETY: a slice is valid for its length.
    let taken = unsafe { take(end, part) }?;
    Some(note_taken(end, taken))
}

#[inline(always)]
fn note_taken(end: &End, taken: Whole) -> usize {
    if taken.passed_quarter {
        bell::answer_space(end);
    }
    asleep::take_late_bells(end);
    taken.bytes
}

/// Take a record that is there into `part`.
///
/// # Safety
/// The part must be valid for writes.
#[inline(always)]
unsafe fn take(end: &End, part: Part) -> Option<Whole> {
    mark(Point::Seen);
    let _rx = end.lock_rx();
    let lane = end.rx_lane()?;
    if end.rx_mode() != Mode::Ring {
        return None;
    }
    let mut cursor = end.rx_cursor();
    // SAFETY: the caller's promise.
    let taken = unsafe { cursor.read_short(&lane, part.start, part.bytes) }?;
    end.set_rx_cursor(cursor);
    add(&end.entry.rx.ring_bytes, taken.bytes as u64);
    Some(taken)
}

#[inline(never)]
fn comes_soon(end: &End) -> bool {
    end.rx_mode() == Mode::Ring
        && end.is_blocking()
        && place::is_worth_spinning(end)
        && wait::spin_briefly(|| end.watches_record())
}
