//! Sending and receiving without a copy: the program builds its bytes in the lane and reads them
//! there. For the native interface; a socket call has its bytes elsewhere already.
//!
//! No lock is held while a program fills a reservation. So that nothing is written where it
//! builds, the direction puts off what would need a record of its own (START, STOP) until the
//! reservation is committed or cancelled.

use core::sync::atomic::Ordering;

use crosslane_ctl::slab::{Mode, end_flags};
use crosslane_ring::{Found, Reservation, WindowLane};
use crosslane_sys::Errno;

use crate::end::add;
use crate::interrupt::Waits;
use crate::{End, asleep, bell, ending, place, send, stay, wait};

/// Room in a lane.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// The lane.
    pub lane: WindowLane,
    /// The room.
    pub reservation: Reservation,
}

/// The longest reservation that is always whole: a record, which is what a writer that waits for
/// room is woken for at least.
pub const WHOLE_BYTES: usize = crosslane_ring::MAX_RECORD_BYTES;

/// Room for `bytes` in the lane, or for as many as fit if these are [`WHOLE_BYTES`] or more;
/// waits for it as a send would. `None`: the direction is on TCP. An earlier reservation of this
/// end is void.
///
/// # Errors
/// As send(2).
pub fn reserve(end: &End, bytes: usize, dont_wait: bool) -> Result<Option<Room>, Errno> {
    cancel(end);
    // As the kernel, which looks when a call begins.
    let dont_wait = dont_wait || end.is_nonblocking();
    loop {
        match reserve_once(end, bytes, dont_wait) {
            // The connection is the caller's, whatever its descriptor names.
            Err(Errno::RESTART) => {}
            outcome => return outcome,
        }
    }
}

/// As [`reserve`], and [`Errno::RESTART`] where a signal begins the call again.
fn reserve_once(end: &End, bytes: usize, dont_wait: bool) -> Result<Option<Room>, Errno> {
    let mut waits = Waits::default();
    loop {
        if end.tx_mode() != Mode::Ring {
            // What follows may wait in the kernel.
            waits.interrupt.let_in()?;
            if !send::enter(end, dont_wait)? {
                return Ok(None);
            }
        }
        send::check_ring(end)?;
        if let Some(room) = reserve_now(end, bytes)? {
            return Ok(Some(room));
        }
        if end.tx_mode() == Mode::Ring {
            send::wait_or_begin_again(end, dont_wait, &mut waits)?;
        }
    }
}

fn reserve_now(end: &End, bytes: usize) -> Result<Option<Room>, Errno> {
    let _tx = end.lock_tx();
    let Some(lane) = end.tx_lane() else {
        return stay::check_lane(end).map(|()| None);
    };
    if end.tx_mode() != Mode::Ring {
        return Ok(None);
    }
    let mut cursor = end.tx_cursor();
    let reservation = cursor
        .reserve(&lane, bytes)
        .map_err(|lie| ending::lied_to_sender(end, lie))?;
    end.set_tx_cursor(cursor);
    if reservation.bytes() < bytes.min(WHOLE_BYTES) {
        return Ok(None);
    }
    end.local.reserved.store(1, Ordering::Relaxed);
    Ok(Some(Room { lane, reservation }))
}

/// Whether the direction is in the lane, with so much room that a short message needs no waiting.
#[inline]
pub fn is_roomy(end: &End) -> bool {
    // What is known without a lock is enough mostly: nobody else sends.
    let is_known = || {
        end.tx_lane()
            .is_some_and(|lane| end.tx_cursor().is_roomy(&lane))
    };
    end.tx_mode() == Mode::Ring && (is_known() || send::is_writable(end))
}

/// Send the first `bytes` of a reservation. Returns whether that could be done: the direction may
/// have left the lane meanwhile, which has not touched the bytes; they must be sent from there. They stay
/// untouched until [`cancel`].
///
/// # Errors
/// As send(2).
pub fn commit(end: &End, room: &Room, bytes: usize) -> Result<bool, Errno> {
    let committed = {
        let _tx = end.lock_tx();
        let mut cursor = end.tx_cursor();
        let before = cursor.tail;
        let may = end.tx_mode() == Mode::Ring && cursor.still_has(&room.reservation);
        let is_open = send::check_open(end);
        if may || is_open.is_err() {
            end.local.reserved.store(0, Ordering::Relaxed);
        }
        is_open?;
        if may && bytes > 0 {
            // The same ring, with what controls it now.
            let lane = end.tx_lane().unwrap_or(room.lane);
            cursor.commit(&lane, &room.reservation, bytes);
            end.set_tx_cursor(cursor);
            add(&end.entry.tx.ring_bytes, bytes as u64);
            send::note_published(end, &lane, [before, end.tx_cursor().tail]);
        }
        may
    };
    send::after_sending(end, bytes);
    Ok(committed)
}

/// The reservation, if there is one, will not be committed.
pub fn cancel(end: &End) {
    if end.local.reserved.load(Ordering::Relaxed) != 0 {
        let _tx = end.lock_tx();
        end.local.reserved.store(0, Ordering::Relaxed);
    }
}

/// Find what stands in the lane, and wait for it for a moment, as a receive does. Returns how many
/// of `found` were filled; 0 where the stream goes on elsewhere, or nothing has come.
///
/// What was waited for is one record: to look behind it would take a line away from the sender, who
/// is about to write there. Where there is something at once, the sender is ahead and there may be
/// more.
///
/// # Errors
/// If the peer has broken the ring's rules.
#[inline]
pub fn find(end: &End, found: &mut [Found], dont_wait: bool) -> Result<usize, Errno> {
    let count = find_now(end, found)?;
    if count == 0
        && end.rx_mode() == Mode::Ring
        && !dont_wait
        && end.is_blocking()
        && place::is_worth_spinning(end)
        && wait::spin_briefly(|| end.watches_record())
    {
        return find_one(end, found);
    }
    Ok(count)
}

/// As [`find`], of the next record only and without waiting.
///
/// # Errors
/// As [`find`].
#[inline]
pub fn find_one(end: &End, found: &mut [Found]) -> Result<usize, Errno> {
    let most = found.len().min(1);
    find_now(end, &mut found[..most])
}

#[inline]
fn find_now(end: &End, found: &mut [Found]) -> Result<usize, Errno> {
    // What is read in place might be gone while it is read.
    let _rx = end.lock_rx();
    let Some(lane) = end.rx_lane().filter(|_| !end.has_flags(end_flags::FAR)) else {
        return Ok(0);
    };
    if end.rx_mode() != Mode::Ring {
        return Ok(0);
    }
    let count = end.rx_cursor().find(&lane, found);
    count.map_err(|lie| ending::lied(end, lie))
}

/// Take the first `bytes` of what was found.
///
/// # Errors
/// ESTALE if somebody else has received meanwhile.
#[inline]
pub fn consume(end: &End, found: &[Found], bytes: usize) -> Result<(), Errno> {
    let stale = Errno(libc::ESTALE);
    let first = found.first().ok_or(stale)?;
    let taken = {
        let (lane, _rx) = end.hold_rx_lane().ok_or(stale)?;
        let mut cursor = end.rx_cursor();
        if end.rx_mode() != Mode::Ring || cursor != first.cursor() {
            return Err(stale);
        }
        let taken = cursor.consume(&lane, found, bytes);
        end.set_rx_cursor(cursor);
        add(&end.entry.rx.ring_bytes, taken.bytes as u64);
        taken
    };
    if taken.passed_quarter {
        bell::answer_space(end);
    }
    asleep::take_late_bells(end);
    Ok(())
}
