//! Sending what somebody else puts into the lane, such as the kernel from a file: one copy where
//! two would be needed.
//!
//! The direction is held while that is done, so that the room stays ours whoever else sends; who
//! fills it must not sleep. Only while nothing is unusual, as [`crate::short`]: what is not done
//! here is done, with the same outcome, by [`crate::send`].

use core::sync::atomic::Ordering;

use crosslane_ctl::lane::receiver_flags::HEEDED;
use crosslane_ctl::slab::{EndPhase, Ending, Mode, end_flags};
use crosslane_ring::{MAX_RECORD_BYTES, Part, Reservation, WindowLane};
use crosslane_sys::Errno;

use crate::end::add;
use crate::family::Family;
use crate::interrupt::Portions;
use crate::short::UNUSUAL;
use crate::{End, gone, send};

/// The most that is filled at a time. All of it appears at once, so the receiver copies one while
/// the next is filled.
pub const MOST_BYTES: usize = 8 * MAX_RECORD_BYTES;

/// A record for each 8 KiB, one of them over the end of the ring.
const MOST_PIECES: usize = MOST_BYTES / MAX_RECORD_BYTES + 1;

/// What has been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// So many bytes were sent.
    Bytes(usize),
    /// The lane has no room for a record.
    Full,
    /// Nothing: send in the usual way.
    Elsewhere,
}

/// Have `source` write up to `most` bytes into the lane and say how many it has written; they are
/// sent. Never waits.
///
/// # Errors
/// That of `source`; nothing is sent then.
pub fn fill(
    end: &End,
    most: usize,
    source: impl FnOnce(&[Part]) -> Result<usize, Errno>,
) -> Result<Filled, Errno> {
    if !end.tx_lane().is_some_and(|lane| is_usual(end, &lane)) {
        return Ok(Filled::Elsewhere);
    }
    let filled = fill_locked(end, most.min(MOST_BYTES), source)?;
    send::after_sending(end, most);
    Ok(filled)
}

fn is_usual(end: &End, lane: &WindowLane) -> bool {
    if end.family() == Family::Unix {
        gone::look_before_send(end);
    }
    let flags = end.entry.id.flags.load(Ordering::Relaxed);
    end.phase() == EndPhase::Granted
        && end.local.adopted.load(Ordering::Acquire) != 0
        && flags & UNUSUAL & !end_flags::UNIX == 0
        && end.ending() == Ending::Open
        && end.local.kept.load(Ordering::Relaxed) == 0
        && lane.control().receiver.flags.load(Ordering::Relaxed) & HEEDED == 0
}

fn fill_locked(
    end: &End,
    most: usize,
    source: impl FnOnce(&[Part]) -> Result<usize, Errno>,
) -> Result<Filled, Errno> {
    let held = end.hold_tx_lane();
    let may_fill = || {
        let is_shut = end.has_flags(end_flags::SHUT_WRITE);
        end.tx_mode() == Mode::Ring && !is_shut && !end.is_reserved()
    };
    let Some((lane, _tx)) = held.filter(|_| may_fill()) else {
        return Ok(Filled::Elsewhere);
    };
    let mut cursor = end.tx_cursor();
    let before = cursor.tail;
    let Ok(reservation) = cursor.reserve(&lane, most) else {
        // A lie, which the next send finds as well.
        return Ok(Filled::Elsewhere);
    };
    end.set_tx_cursor(cursor);
    if reservation.bytes() < most.min(MAX_RECORD_BYTES) {
        return Ok(Filled::Full);
    }
    let mut pieces = [Part::EMPTY; MOST_PIECES];
    let count = cut(&lane, &reservation, &mut pieces);
    let bytes = source(&pieces[..count])?.min(reservation.bytes());
    if bytes > 0 {
        cursor.commit(&lane, &reservation, bytes);
        end.set_tx_cursor(cursor);
        add(&end.entry.tx.ring_bytes, bytes as u64);
        send::note_published(end, &lane, [before, end.tx_cursor().tail]);
    }
    Ok(Filled::Bytes(bytes))
}

/// The pieces of memory that make up a reservation, in order. Returns how many there are.
fn cut(lane: &WindowLane, reservation: &Reservation, pieces: &mut [Part]) -> usize {
    use crosslane_ring::LaneMemory;
    let (mut at, mut count) = (0, 0);
    while count < pieces.len()
        && let Some(piece) = reservation.piece(lane.lines(), at)
        && let Some(view) = lane.view(piece)
    {
        pieces[count] = Part {
            start: view.start().as_ptr(),
            bytes: view.bytes(),
        };
        at += view.bytes();
        count += 1;
    }
    count
}

/// Wait for room as another portion does, of which nothing is sent.
///
/// # Errors
/// As send(2), which is told by this.
pub fn wait_for_room(end: &End, portions: &mut Portions) -> Result<(), Errno> {
    let waited = send::wait_for_room(end, end.is_nonblocking(), portions.begin());
    if let Err(errno) = waited {
        send::note_missed(end, errno);
        if gone::is_refusal(end, errno) {
            gone::take_by_send(end, errno);
        }
    }
    waited
}
