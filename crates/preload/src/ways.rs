//! Which way from a file or a pipe into a lane is faster, as this thread has measured it lately.
//!
//! The kernel's copy takes each line from the receiver's cache, which costs what the two processors
//! are apart; the library's own copy may go around the cache, but is a second one
//! (docs/decisions/copying.md). A virtual machine does not know how far apart they are.

use core::cell::Cell;

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_sys::cpu::ticks;

/// A way into the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The kernel's copy.
    Direct,
    /// By a buffer.
    Buffer,
}

/// Less takes the buffer: there is little to save, and the receiver keeps looking at the first of the
/// lines that the kernel would write to.
pub const LEAST_BYTES: usize = 4 * crosslane_stream::reserve::WHOLE_BYTES;

/// One piece in so many is measured for each of the two ways, the first ones more often.
const PERIOD: u32 = 256;

/// What the two ways have cost this thread, in ticks per 64 lines.
#[derive(Clone, Copy, Default)]
struct Costs {
    pieces: u32,
    direct: u64,
    buffer: u64,
}

thread_local! {
    static COSTS: Cell<Costs> = const { Cell::new(Costs { pieces: 0, direct: 0, buffer: 0 }) };
}

/// One piece on its way.
#[derive(Clone, Copy)]
pub struct Measure {
    /// The way that it should take.
    pub way: Way,
    /// When it began, if it is measured.
    start: Option<u64>,
}

impl Costs {
    /// Whether the next piece is to be measured, each way in turn.
    fn is_measured(&self) -> bool {
        let pair = self.pieces / 2;
        pair.is_power_of_two() || pair.is_multiple_of(PERIOD / 2)
    }

    fn next(&mut self) -> (Way, bool) {
        self.pieces = self.pieces.wrapping_add(1);
        let is_measured = self.is_measured();
        let way = match is_measured {
            true if self.pieces.is_multiple_of(2) => Way::Direct,
            true => Way::Buffer,
            false if self.buffer < self.direct => Way::Buffer,
            false => Way::Direct,
        };
        (way, is_measured)
    }

    /// Others only make copies slower, so the fastest counts, and is forgotten slowly.
    fn settle(&mut self, way: Way, new: u64) {
        let cost = match way {
            Way::Direct => &mut self.direct,
            Way::Buffer => &mut self.buffer,
        };
        *cost = match *cost {
            0 => new,
            old => new.min(old + old.div_ceil(8)),
        };
    }
}

impl Measure {
    /// A piece of so many bytes is about to be copied.
    pub fn begin(bytes: usize) -> Self {
        if bytes < LEAST_BYTES {
            return Self {
                way: Way::Buffer,
                start: None,
            };
        }
        let mut costs = COSTS.get();
        let (way, is_measured) = costs.next();
        COSTS.set(costs);
        Self {
            way,
            start: is_measured.then(ticks),
        }
    }

    /// The same measurement if the piece takes this way.
    pub fn of(self, way: Way) -> Option<Self> {
        (self.way == way).then_some(self)
    }

    /// So many bytes have been copied.
    pub fn end(self, bytes: usize) {
        let Some(start) = self.start.filter(|_| bytes >= LEAST_BYTES) else {
            return;
        };
        let lines = (bytes / LINE_BYTES) as u64;
        let mut costs = COSTS.get();
        costs.settle(self.way, ticks().saturating_sub(start) * 64 / lines);
        COSTS.set(costs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What pieces cost each way; the costs are those of a machine that changes in the middle.
    #[test]
    fn the_faster_way_is_taken_and_taken_again_when_it_changes() {
        let mut costs = Costs::default();
        let mut share_of_direct = |direct: u64, buffer: u64| {
            let mut taken = 0;
            for _ in 0..10_000 {
                let (way, is_measured) = costs.next();
                taken += u32::from(way == Way::Direct);
                if is_measured {
                    costs.settle(way, if way == Way::Direct { direct } else { buffer });
                }
            }
            taken
        };
        assert!(share_of_direct(100, 200) > 9_900);
        assert!(share_of_direct(900, 200) < 5_000);
        assert!(share_of_direct(900, 200) < 100);
        assert!(share_of_direct(100, 200) > 9_000);
    }
}
