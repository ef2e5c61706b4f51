//! Memory of this host that stands behind the lanes of a connection to another host.
//!
//! A window between hosts may go away with what stands in it. So a sender writes its records into a
//! ring of its own first, and posts them from there into the window ([`crosslane_ring::mirror`]); and
//! there is a lane to receive in when the window is gone. Both are one object of memory, which forked
//! children share.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::os::fd::AsFd;
use std::sync::PoisonError;

use crosslane_sys::busy::{Mutex, MutexGuard};

use crosslane_ctl::lane::{Geometry, Location};
use crosslane_ctl::slab::end_flags;
use crosslane_ring::{WindowLane, mirror};
use crosslane_sys::memory::create_sealed;
use crosslane_window::arena::Arena;

use crate::End;
use crate::lane_cell::LaneCell;
use crate::{entering, posted};

/// The lanes of our own.
const SENT: u32 = 0;
const RECEIVED: u32 = 1;

/// What stands behind the lanes of an end.
#[derive(Default)]
pub(crate) struct Behind {
    /// The sending lane in the window.
    window: LaneCell,
    /// Points to a word that is not 0 once the window has been found missing.
    lost: AtomicPtr<AtomicU32>,
    /// An arena of one slot, never freed.
    memory: AtomicPtr<Arena>,
    /// The other host's memory, where it is not the same.
    pub(crate) beyond: posted::Beyond,
    pub(crate) started: entering::Started,
}

/// What has been given back.
static FREE: Mutex<Vec<&'static Arena>> = Mutex::new(Vec::new());

/// Memory of our own, or `None` if there is none.
pub(crate) fn make(geometry: Geometry) -> Option<&'static Arena> {
    let bytes = Location::Sealed.layout().arena_bytes(&geometry);
    let fd = create_sealed(c"crosslane-spare", bytes).ok()?;
    let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = free
        .iter()
        .position(|old| old.is_like(geometry, Location::Sealed));
    if let Some(old) = place.map(|place| free.swap_remove(place)) {
        return old
            .reuse(fd.as_fd(), None, Location::Sealed)
            .ok()
            .map(|()| old);
    }
    let new = Arena::open(fd.as_fd(), geometry, Location::Sealed).ok()?;
    Some(Box::leak(Box::new(new)))
}

/// This memory stands behind the end's lanes in `arena` from now on, in which it sends and receives.
/// Returns the lane to send in: controlled in the window, with our own ring.
pub(crate) fn keep(
    end: &End,
    arena: &'static Arena,
    [window, receiving]: [WindowLane; 2],
    memory: &'static Arena,
) -> Option<WindowLane> {
    let lost = arena.lost()?;
    let behind = &end.local.behind;
    behind.window.set(window);
    behind.started.forget();
    posted::keep(end, arena, [&window, &receiving]);
    behind
        .lost
        .store(core::ptr::from_ref(lost).cast_mut(), Ordering::Relaxed);
    let before = behind
        .memory
        .swap(core::ptr::from_ref(memory).cast_mut(), Ordering::AcqRel);
    retire(before);
    window.with_ring_of(&lane_of(memory, SENT)?)
}

/// The end needs it no more. Of several callers one is told that it has been given back.
pub(crate) fn give_back(end: &End) -> bool {
    posted::forget(end);
    let memory = &end.local.behind.memory;
    let memory = memory.swap(core::ptr::null_mut(), Ordering::AcqRel);
    retire(memory);
    !memory.is_null()
}

fn retire(memory: *mut Arena) {
    // SAFETY: `keep` has stored a reference that lives for ever.
    if let Some(memory) = unsafe { memory.as_ref() } {
        put_back(memory);
    }
}

/// Nobody needs this memory any more.
pub(crate) fn put_back(memory: &'static Arena) {
    if memory.retire().is_ok() {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(memory);
    }
}

fn lane_of(memory: &'static Arena, role: u32) -> Option<WindowLane> {
    // SAFETY: it is never unmapped.
    let place = unsafe { memory.lane(0, role) }?;
    WindowLane::in_arena(place, memory.geometry().ring_lines)
}

fn lane(end: &End, role: u32) -> Option<WindowLane> {
    let memory = end.local.behind.memory.load(Ordering::Acquire);
    // SAFETY: `keep` has stored a reference that lives for ever.
    lane_of(unsafe { memory.as_ref() }?, role)
}

/// Our copy of what we send.
pub(crate) fn sent(end: &End) -> Option<WindowLane> {
    lane(end, SENT)
}

/// Where the receiver finds what we send.
#[inline]
pub(crate) fn window(end: &End) -> Option<WindowLane> {
    end.local.behind.window.get()
}

/// Where we receive when the window is gone.
pub(crate) fn received(end: &End) -> Option<WindowLane> {
    lane(end, RECEIVED)
}

/// Whether the end's lanes are this memory already.
pub(crate) fn is_used(end: &End) -> bool {
    let address = |lane: WindowLane| lane.into_raw().0;
    end.rx_lane().map(address) == received(end).map(address)
}

/// Whether this process still has the lanes of the window, and could have these.
pub(crate) fn is_left_behind(end: &End) -> bool {
    received(end).is_some() && !is_used(end)
}

/// Held while the process forks, so that the child finds the list whole.
pub(crate) fn hold() -> MutexGuard<'static, Vec<&'static Arena>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the window of a far end has been found missing.
#[inline]
pub(crate) fn is_window_lost(end: &End) -> bool {
    let lost = end.local.behind.lost.load(Ordering::Relaxed);
    // SAFETY: `keep` has stored a reference that lives for ever; zeroed memory is null.
    unsafe { lost.as_ref() }.is_some_and(|lost| lost.load(Ordering::SeqCst) != 0)
        || posted::is_lost(end)
        || reads_ones(end)
}

/// Whether the lane reads as a PCI device that does not answer: all ones. These flags are never all set.
#[inline]
fn reads_ones(end: &End) -> bool {
    let flags = |lane: WindowLane| lane.control().receiver.flags.load(Ordering::Relaxed);
    end.rx_lane().is_some_and(|lane| flags(lane) == u32::MAX)
}

/// Post what stands between the sender's cursor and `tail`, unless there is no window any more. The
/// caller holds the sending direction.
#[inline]
pub(crate) fn post(end: &End, tail: u64) {
    let first = end.entry.tx.tail.load(Ordering::Relaxed);
    if first == tail || end.has_flags(end_flags::LOST) {
        return;
    }
    let Some(own) = end.tx_lane() else { return };
    if !posted::post(end, &own, first, tail)
        && let Some(window) = window(end)
    {
        mirror::post(&own, &window, first, tail);
    }
}
