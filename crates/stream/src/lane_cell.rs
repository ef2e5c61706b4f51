//! Where a lane of an end lies in this process.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crosslane_ctl::lane::LaneControl;
use crosslane_ctl::layout::PARTS;
use crosslane_ring::WindowLane;

/// A lane's address in atomics: replaced when an end is granted rings.
#[derive(Default)]
pub(crate) struct LaneCell {
    control: AtomicPtr<LaneControl>,
    ring: [AtomicPtr<u8>; PARTS],
    lines: AtomicU32,
    is_bounded: AtomicBool,
}

impl LaneCell {
    #[inline]
    pub(crate) fn get(&self) -> Option<WindowLane> {
        let control = self.control.load(Ordering::Acquire); // SYNC: lanes
        if control.is_null() {
            return None;
        }
        let ring = self.ring.each_ref();
        let ring = ring.map(|part| part.load(Ordering::Relaxed));
        let lines = self.lines.load(Ordering::Relaxed);
        // SAFETY: `set` took them from a lane; arenas keep their addresses mapped for ever (see
        // `control`), so that a stale lane is wrong but never outside of memory.
        let lane = unsafe { WindowLane::from_raw(control, ring, lines) };
        Some(lane.bounded(self.is_bounded.load(Ordering::Relaxed)))
    }

    pub(crate) fn set(&self, lane: WindowLane) {
        let (control, ring, lines) = lane.into_raw();
        self.lines.store(lines, Ordering::Relaxed);
        for (cell, part) in self.ring.iter().zip(ring) {
            cell.store(part, Ordering::Relaxed);
        }
        self.control.store(control, Ordering::Release); // SYNC: lanes
    }

    /// Whether the sender wants little on its way, in this lane and any other.
    pub(crate) fn bound(&self, is_bounded: bool) {
        self.is_bounded.store(is_bounded, Ordering::Relaxed);
    }

    pub(crate) fn clear(&self) {
        self.control.store(core::ptr::null_mut(), Ordering::Relaxed);
    }
}
