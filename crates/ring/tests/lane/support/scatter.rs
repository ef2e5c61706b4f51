//! Buffers of given sizes with canaries between them.

use std::ops::Range;

use crosslane_ring::{Part, Parts};

const CANARY: u8 = 0xc5;

/// Bytes around every buffer.
const GAP_BYTES: usize = 16;

/// Buffers as a program would hand them over, scattered in memory.
pub struct Scatter {
    memory: Vec<u8>,
    ranges: Vec<Range<usize>>,
}

impl Scatter {
    /// Buffers of these sizes, full of canaries.
    pub fn empty(sizes: &[usize]) -> Self {
        let (mut ranges, mut end) = (Vec::new(), GAP_BYTES);
        for &size in sizes {
            ranges.push(end..end + size);
            end += size + GAP_BYTES;
        }
        let memory = vec![CANARY; end];
        Self { memory, ranges }
    }

    /// Buffers of these sizes that hold `bytes` in order.
    pub fn filled(sizes: &[usize], mut bytes: &[u8]) -> Self {
        let mut scatter = Self::empty(sizes);
        for range in &scatter.ranges {
            let (head, rest) = bytes.split_at(range.len());
            scatter.memory[range.clone()].copy_from_slice(head);
            bytes = rest;
        }
        scatter
    }

    /// Hand a cursor over the buffers to `work`. An empty buffer has no address, as in C.
    pub fn with_parts<T>(&mut self, work: impl FnOnce(&mut Parts<'_>) -> T) -> T {
        let start = self.memory.as_mut_ptr();
        let part = |range: &Range<usize>| Part {
            start: match range.len() {
                0 => core::ptr::null_mut(),
                _ => start.wrapping_add(range.start),
            },
            bytes: range.len(),
        };
        let parts: Vec<Part> = self.ranges.iter().map(part).collect();
        // SAFETY: the parts are disjoint ranges of `memory`, which nobody else touches until
        // `work` has returned.
        let mut parts = unsafe { Parts::new(&parts) }.expect("sizes of a test are small");
        work(&mut parts)
    }

    /// The bytes of the buffers in order.
    pub fn gathered(&self) -> Vec<u8> {
        let buffers = self.ranges.iter().map(|range| &self.memory[range.clone()]);
        buffers.flatten().copied().collect()
    }

    /// That nothing outside of the buffers was written to.
    pub fn check_gaps(&self) {
        let mut gap = 0;
        for range in &self.ranges {
            self.check_canaries(gap..range.start);
            gap = range.end;
        }
        self.check_canaries(gap..self.memory.len());
    }

    /// That no more than the first `bytes` of the buffers were written to.
    pub fn check_beyond(&self, mut bytes: usize) {
        for range in &self.ranges {
            let taken = bytes.min(range.len());
            self.check_canaries(range.start + taken..range.end);
            bytes -= taken;
        }
    }

    fn check_canaries(&self, range: Range<usize>) {
        let untouched = self.memory[range.clone()]
            .iter()
            .all(|&byte| byte == CANARY);
        assert!(
            untouched,
            "bytes {range:?} were written to, outside of {:?}",
            self.ranges
        );
    }
}
