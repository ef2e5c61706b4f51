//! Where a lane of an end lies in this process.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crosslane_ctl::lane::LaneControl;
use crosslane_ring::WindowLane;

/// A lane's address in atomics: replaced when an end is granted rings.
#[derive(Default)]
pub(crate) struct LaneCell {
    control: AtomicPtr<LaneControl>,
    ring: AtomicPtr<u8>,
    /// How many there are, and how many may be on their way.
    lines: [AtomicU32; 2],
}

impl LaneCell {
    #[inline]
    pub(crate) fn get(&self) -> Option<WindowLane> {
        let control = self.control.load(Ordering::Acquire); // SYNC: lanes
        if control.is_null() {
            return None;
        }
        let ring = self.ring.load(Ordering::Relaxed);
        let lines = self
            .lines
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed));
        // SAFETY: `set` took them from a lane; arenas keep their addresses mapped for ever (see
        // `control`), so that a stale lane is wrong but never outside of memory.
        Some(unsafe { WindowLane::from_raw(control, ring, lines) })
    }

    pub(crate) fn set(&self, lane: WindowLane) {
        let (control, ring, lines) = lane.into_raw();
        for (word, lines) in self.lines.iter().zip(lines) {
            word.store(lines, Ordering::Relaxed);
        }
        self.ring.store(ring, Ordering::Relaxed);
        self.control.store(control, Ordering::Release); // SYNC: lanes
    }

    /// The same lane, with another capacity. The caller holds the sending direction.
    pub(crate) fn resize(&self, is_small: bool) {
        if let Some(lane) = self.get() {
            let (.., [_, capacity]) = lane.with_capacity(is_small).into_raw();
            self.lines[1].store(capacity, Ordering::Relaxed);
        }
    }

    pub(crate) fn clear(&self) {
        self.control.store(core::ptr::null_mut(), Ordering::Relaxed);
    }
}
