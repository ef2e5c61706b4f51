//! Where a lane of an end lies in this process.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crosslane_ctl::lane::LaneControl;
use crosslane_ctl::layout::PARTS;
use crosslane_ring::WindowLane;

/// A lane's address in atomics: replaced when an end is granted rings.
#[derive(Default)]
pub(crate) struct LaneCell {
    control: AtomicPtr<LaneControl>,
    ring: [AtomicPtr<u8>; PARTS],
    /// And [`BOUNDED`], which stays when the lane is replaced.
    lines: AtomicU32,
}

/// The sender wants little on its way. No ring has an odd number of lines.
const BOUNDED: u32 = 1;

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
        let lane = unsafe { WindowLane::from_raw(control, ring, lines & !BOUNDED) };
        Some(lane.bounded(lines & BOUNDED != 0))
    }

    pub(crate) fn set(&self, lane: WindowLane) {
        let (control, ring, lines) = lane.into_raw();
        let replace = |old: u32| Some(lines | old & BOUNDED);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        // Another thread may change the bound meanwhile.
        let _ = self.lines.fetch_update(set, fetch, replace);
        for (cell, part) in self.ring.iter().zip(ring) {
            cell.store(part, Ordering::Relaxed);
        }
        self.control.store(control, Ordering::Release); // SYNC: lanes
    }

    /// Whether the sender wants little on its way, in this lane and any other.
    pub(crate) fn bound(&self, is_bounded: bool) {
        match is_bounded {
            true => self.lines.fetch_or(BOUNDED, Ordering::Relaxed),
            false => self.lines.fetch_and(!BOUNDED, Ordering::Relaxed),
        };
    }

    pub(crate) fn clear(&self) {
        self.control.store(core::ptr::null_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use crosslane_ctl::lane::LANE_CONTROL_BYTES;
    use crosslane_ring::LaneMemory;

    use super::*;

    #[test]
    fn what_a_sender_wants_outlasts_its_lanes() {
        let control = core::ptr::without_provenance_mut::<LaneControl>(1 << 20);
        let ring = control.cast::<u8>().wrapping_add(LANE_CONTROL_BYTES);
        // SAFETY: nothing looks at the memory.
        let lane = |lines| unsafe { WindowLane::from_raw(control, [ring; PARTS], lines) };
        let cell = LaneCell::default();
        let found = || cell.get().map(|lane| (lane.lines(), lane.is_bounded()));
        assert_eq!(found(), None);
        cell.bound(true);
        cell.set(lane(512));
        assert_eq!(found(), Some((512, true)));
        cell.set(lane(1024));
        assert_eq!(found(), Some((1024, true)));
        cell.bound(false);
        assert_eq!(found(), Some((1024, false)));
    }
}
