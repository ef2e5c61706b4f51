//! Short messages while nothing is unusual: one buffer, one record, both lanes in use and nobody
//! waiting for anything. What is not done here is done, with the same outcome, by [`crate::send`]
//! and [`crate::receive`].

pub mod far;

use core::sync::atomic::{AtomicU32, Ordering};

use crosslane_ctl::lane::receiver_flags::HEEDED;
use crosslane_ctl::slab::{EndPhase, Mode, end_flags};
use crosslane_ring::Part;
use crosslane_ring::short::{SHORT_BYTES, Whole};
use crosslane_ring::trace::{Point, mark};
use crosslane_sys::process;

use crate::end::add;
use crate::lock::{self, Guard};
use crate::{End, ahead, asleep, bell, place, send, wait};

/// What another call has to look at first.
pub(crate) const UNUSUAL: u32 = end_flags::PINNED
    | end_flags::SHUT_WRITE
    | end_flags::SHUT_READ
    | end_flags::FROZEN
    | end_flags::RESTING
    | end_flags::FAR
    | end_flags::UNIX
    | end_flags::ENDED
    | end_flags::CHAOS;

/// Who may use a direction meanwhile. Each of the two ways has its own code, so that nothing is asked twice.
pub trait Company {
    /// Flags of an end that may have other company.
    const SHARES: u32;

    /// Hold a direction, if nobody holds it.
    fn lock(word: &'static AtomicU32, owner: u16) -> Option<Guard<'static>>;
}

/// Nobody: the caller [is alone](process::is_alone), and shares the end with no other process.
#[derive(Debug)]
pub struct Alone;

impl Company for Alone {
    const SHARES: u32 = end_flags::FORKED;

    #[inline(always)]
    fn lock(word: &'static AtomicU32, owner: u16) -> Option<Guard<'static>> {
        lock::lock_alone(word, owner)
    }
}

/// Other threads, or other processes.
#[derive(Debug)]
pub struct Shared;

impl Company for Shared {
    const SHARES: u32 = 0;

    #[inline(always)]
    fn lock(word: &'static AtomicU32, owner: u16) -> Option<Guard<'static>> {
        lock::try_lock(word, owner)
    }
}

/// Hold a direction of an end of which nothing is unusual, if nobody else holds it.
#[inline(always)]
fn hold<C: Company>(end: &End, word: &'static AtomicU32) -> Result<Guard<'static>, Missed> {
    let is_in_rings =
        end.phase() == EndPhase::Granted && end.local.adopted.load(Ordering::Acquire) != 0;
    if !is_in_rings {
        return Err(Missed::Unusual);
    }
    // At last, so that a signal has little time to fork.
    match end.flags() & (UNUSUAL | C::SHARES) {
        0 => C::lock(word, end.table().member().number()).ok_or(Missed::Unusual),
        flags if flags & UNUSUAL == 0 => Err(Missed::Shared),
        _ => Err(Missed::Unusual),
    }
}

/// Send all of `part`.
///
/// # Errors
/// If it was not sent.
///
/// # Safety
/// The part must be valid for reads, and the company as it is said.
#[inline(always)]
pub unsafe fn send<C: Company>(end: &End, part: Part) -> Result<(), Missed> {
    let is_blocked = end.local.blocked.load(Ordering::Relaxed) != 0;
    if part.bytes > SHORT_BYTES || is_blocked {
        return Err(Missed::Unusual);
    }
    let _tx = hold::<C>(end, &end.entry.tx.lock)?;
    mark(Point::Locked);
    let lane = end.tx_lane().ok_or(Missed::Unusual)?;
    let objections = lane.control().receiver.flags.load(Ordering::Relaxed);
    // Another thread may have shut down before the direction was ours, or the entry may be another end's.
    if objections & HEEDED | end.flags() & UNUSUAL != 0 || end.tx_mode() != Mode::Ring {
        return Err(Missed::Unusual);
    }
    let mut cursor = end.tx_cursor();
    let before = cursor.tail;
    // SAFETY: the caller's promise.
    if !unsafe { cursor.write_short(&lane, part.start, part.bytes) } {
        return Err(Missed::Unusual);
    }
    end.set_near_tx_cursor(cursor);
    add(&end.entry.tx.ring_bytes, part.bytes as u64);
    send::note_published(end, &lane, [before, cursor.tail]);
    ahead::prepare_next(&lane, [before, cursor.tail]);
    Ok(())
}

/// As [`send`], in whatever company.
///
/// # Errors
/// If it was not sent.
///
/// # Safety
/// The part must be valid for reads.
#[inline(always)]
pub unsafe fn send_in_any(end: &End, part: Part) -> Result<(), Missed> {
    if process::is_alone() {
        // SAFETY: the caller's promise, and nobody else is there.
        let sent = unsafe { send::<Alone>(end, part) };
        if sent != Err(Missed::Shared) {
            return sent;
        }
    }
    // SAFETY: the caller's promise.
    match unsafe { send::<Shared>(end, part) } {
        // SAFETY: as above.
        Err(_) => unsafe { far::send(end, part) },
        sent => sent,
    }
}

/// Why nothing went the short way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// Something is unusual.
    Unusual,
    /// The caller is not [`Alone`] with the end.
    Shared,
    /// Nothing has come in the moment that an answer takes.
    Late,
}

/// Receive into `part` what is there.
///
/// # Errors
/// If nothing was received.
///
/// # Safety
/// The part must be valid for writes, and the company as it is said.
#[inline(always)]
pub unsafe fn receive<C: Company>(end: &End, part: Part) -> Result<usize, Missed> {
    // SAFETY: the caller's promise.
    let taken = unsafe { take::<C>(end, part) }?;
    Ok(note_taken(end, taken))
}

/// As [`receive`], in whatever company.
///
/// # Errors
/// If nothing was received.
///
/// # Safety
/// The part must be valid for writes.
#[inline(always)]
pub unsafe fn receive_in_any(end: &End, part: Part) -> Result<usize, Missed> {
    if process::is_alone() {
        // SAFETY: the caller's promise, and nobody else is there.
        let received = unsafe { receive::<Alone>(end, part) };
        if received != Err(Missed::Shared) {
            return received;
        }
    }
    // SAFETY: the caller's promise.
    match unsafe { receive::<Shared>(end, part) } {
        // SAFETY: as above.
        Err(_) => unsafe { far::receive(end, part) },
        received => received,
    }
}

/// As [`receive`], of which nothing came, once more after the moment that an answer takes if the call `waits`.
///
/// # Errors
/// If nothing was received.
///
/// # Safety
/// As [`receive`].
#[inline]
pub unsafe fn receive_soon(end: &End, part: Part, waits: bool) -> Result<usize, Missed> {
    if !waits || !is_in_ring(end) || end.has_record() {
        return Err(Missed::Unusual);
    }
    if !comes_soon(end) {
        return Err(Missed::Late);
    }
    // SAFETY: the caller's promise.
    unsafe { receive_in_any(end, part) }
}

/// Wait for a record for the moment that an answer takes, and copy it to the front of `room`. Nothing is looked
/// for behind it: that would take a line away from the sender, who is about to write there. `None` if none has come, or
/// one that does not fit.
pub fn receive_next(end: &End, room: &mut [u8]) -> Option<usize> {
    if !is_in_ring(end) || !comes_soon(end) {
        return None;
    }
    let bytes = end.rx_cursor().whole_bytes(&end.rx_lane()?)?;
    let part = Part::of_mut(room.get_mut(..bytes)?);
    // SAFETY: a slice is valid for its length.
    unsafe { receive_in_any(end, part) }.ok()
}

#[inline(always)]
fn note_taken(end: &End, taken: Whole) -> usize {
    if taken.passed_quarter {
        // A copy, so that the end itself stays in registers.
        bell::answer_space(&{ *end });
    }
    asleep::take_late_bells(end);
    taken.bytes
}

/// Take a record that is there into `part`.
///
/// # Safety
/// The part must be valid for writes, and the company as it is said.
#[inline(always)]
unsafe fn take<C: Company>(end: &End, part: Part) -> Result<Whole, Missed> {
    mark(Point::Seen);
    let _rx = hold::<C>(end, &end.entry.rx.lock)?;
    let lane = end.rx_lane().ok_or(Missed::Unusual)?;
    // The entry may have become another end's.
    if end.flags() & UNUSUAL != 0 || end.rx_mode() != Mode::Ring {
        return Err(Missed::Unusual);
    }
    let mut cursor = end.rx_cursor();
    // SAFETY: the caller's promise.
    let taken = unsafe { cursor.read_short(&lane, part.start, part.bytes) };
    let taken = taken.ok_or(Missed::Unusual)?;
    end.set_near_rx_cursor(cursor);
    add(&end.entry.rx.ring_bytes, taken.bytes as u64);
    Ok(taken)
}

/// Whether a record may be received the short way.
fn is_in_ring(end: &End) -> bool {
    let is_near = || {
        end.phase() == EndPhase::Granted
            && end.local.adopted.load(Ordering::Acquire) != 0
            && end.flags() & UNUSUAL == 0
            && end.rx_mode() == Mode::Ring
    };
    is_near() || far::is_in_ring(end)
}

#[inline(never)]
fn comes_soon(end: &End) -> bool {
    end.is_blocking()
        && place::is_worth_spinning(end)
        && wait::spin_briefly(|| end.watches_record())
}
