//! The lines that the next message will need, asked for before it comes.

use crosslane_ring::short::FEW_LINES;
use crosslane_ring::{LaneMemory, WindowLane};

/// A short message is often followed by another one of its size: have its lines, but for the
/// first, which the receiver takes away with every look. Nearly all have one line or two.
#[inline]
pub(crate) fn prepare_next(lane: &WindowLane, [before, tail]: [u64; 2]) {
    let lines = tail - before;
    let line = u32::try_from(tail & u64::from(lane.lines() - 1)).unwrap_or(0);
    let have = |ahead| lane.prefetch_to_write(line, ahead);
    match usize::try_from(lines) {
        Ok(..=1) => have(1),
        Ok(2) => {
            have(1);
            have(2);
        }
        Ok(lines @ ..=FEW_LINES) => (1..=lines).for_each(have),
        _ => {}
    }
}
