//! Giving back what a busy time has left of a ring, once all of it has been read.
//!
//! A ring that has grown would keep its memory until the connection ends, and a server has many connections that
//! were busy once.

use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use crosslane_ctl::lane::{LINE_BYTES, PAGE_BYTES, SMALL_RING_LINES};
use crosslane_ctl::slab::{EndPhase, Mode, end_flags};
use crosslane_ring::{LaneMemory, Piece, WindowLane};
use crosslane_sys::kernel::SignalsHeld;
use crosslane_sys::memory;

use crate::End;
use crate::process::Process;

/// Look at all connections. Called now and then, where a call sleeps anyway.
pub(crate) fn look(process: &'static Process) {
    // A word in a window is far to read, and may be missing.
    let here = |end: &End| !end.has_flags(end_flags::FAR);
    for end in process.ends().filter(here) {
        let grown = |lane: WindowLane| lane.control().sender.grown.load(Ordering::Relaxed);
        if end.tx_lane().map(grown).is_some_and(|grown| grown != 0) {
            relieve(&end);
        }
    }
}

/// Give the sending lane's memory back, if nothing of it is read or built any more.
fn relieve(end: &End) {
    // A handler that sends must not find the direction held by its own thread for so long.
    let _held = SignalsHeld::hold();
    let Some(_tx) = end.try_lock_tx() else {
        return;
    };
    let Some(lane) = end.tx_lane().filter(|_| is_ours(end)) else {
        return;
    };
    let mut cursor = end.tx_cursor();
    let is_read = cursor.refresh(&lane).is_ok() && cursor.credit == cursor.tail;
    if !is_read || end.is_reserved() || end.tx_mode() == Mode::Replay {
        return;
    }
    lane.control().sender.grown.store(0, Ordering::Relaxed);
    if let Some((start, bytes)) = spare_pages(&lane) {
        // SAFETY: the lane is mapped. Its receiver has read everything, and the next header, which it
        // waits for, is 0 as before; nobody builds there, and who would send waits for the lock.
        let _ = unsafe { memory::give_back(start, bytes) };
    }
}

/// Whether the end stays as it is for as long as the sending direction is held: whoever closes its last
/// descriptor says so first, and then waits for the direction before the memory may be another's.
fn is_ours(end: &End) -> bool {
    end.phase() == EndPhase::Granted
        && end.local.names() > 0
        && !end.process().is_shared(end.index)
        && !end.has_flags(end_flags::FAR)
}

/// The pages behind the part of the ring that is used all the time.
fn spare_pages(lane: &WindowLane) -> Option<(NonNull<u8>, usize)> {
    let ring_bytes = lane.lines() as usize * LINE_BYTES;
    let offset = SMALL_RING_LINES as usize * LINE_BYTES;
    let bytes = ring_bytes.checked_sub(offset)?;
    let start = lane.view(Piece { offset, bytes })?.start();
    let skipped = start.addr().get().wrapping_neg() % PAGE_BYTES;
    let whole = bytes.checked_sub(skipped)? / PAGE_BYTES * PAGE_BYTES;
    // SAFETY: inside the view.
    (whole > 0).then(|| (unsafe { start.add(skipped) }, whole))
}
