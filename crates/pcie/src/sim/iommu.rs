//! Translation: the IO-TLB, the walker's own cache behind it, and one port between them.
//!
//! Two tables because the published data need two. Under load, reads collapse as a table of 64
//! entries predicts, whatever the window; but single reads, and writes, still find about 117 pages
//! translated. So a miss in the first table always costs a turn at the walker's port, and only a miss
//! in the walker's cache costs the walk. docs/pcie.md has the rows that show it.

use super::rng::Rng;
use super::{Ps, ps};
use crate::profile::Iommu as Profile;

/// A small fully associative table with least-recently-used replacement.
#[derive(Debug, Clone)]
struct Table {
    pages: Vec<u64>,
    used: Vec<u64>,
    ready: Vec<Ps>,
    clock: u64,
}

impl Table {
    fn new(entries: usize) -> Self {
        Self {
            pages: vec![u64::MAX; entries],
            used: vec![0; entries],
            ready: vec![0; entries],
            clock: 0,
        }
    }

    fn find(&mut self, page: u64) -> Option<Ps> {
        let slot = self.pages.iter().position(|&p| p == page)?;
        self.clock += 1;
        self.used[slot] = self.clock;
        Some(self.ready[slot])
    }

    fn insert(&mut self, page: u64, ready: Ps) {
        let oldest = self
            .used
            .iter()
            .enumerate()
            .min_by_key(|(_, used)| **used)
            .map_or(0, |(slot, _)| slot);
        self.clock += 1;
        (self.pages[oldest], self.used[oldest], self.ready[oldest]) = (page, self.clock, ready);
    }
}

/// What translations there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Found in the IO-TLB.
    pub hits: u64,
    /// Found in the walker's cache.
    pub walker_hits: u64,
    /// Walked.
    pub walks: u64,
}

/// An IOMMU that translates every request.
#[derive(Debug, Clone)]
pub struct Iommu {
    first: Table,
    second: Table,
    page_shift: u32,
    walk: Ps,
    slots: [(f64, f64); 2],
    port_free_at: Ps,
    counts: Counts,
    rng: Rng,
    again_ns: f64,
}

impl Iommu {
    /// An empty one.
    #[must_use]
    pub fn new(profile: &Profile, seed: u64) -> Self {
        Self {
            first: Table::new(profile.entries),
            second: Table::new(profile.walker_entries),
            page_shift: profile.page_bytes.trailing_zeros(),
            walk: ps(profile.walk_ns),
            slots: [
                (profile.read_hit_slot_ns, profile.read_walk_slot_ns),
                (profile.write_hit_slot_ns, profile.write_walk_slot_ns),
            ],
            rng: Rng::new(seed),
            again_ns: profile.again_ns,
            port_free_at: 0,
            counts: Counts::default(),
        }
    }

    /// When the translation of `address`, asked for now, is there. A request that the root complex
    /// serves in pieces asks for each, and each further asking takes the port's time on a miss.
    pub fn translate(&mut self, now: Ps, address: u64, is_write: bool, lookups: u32) -> Ps {
        let page = address >> self.page_shift;
        if let Some(ready) = self.first.find(page) {
            self.counts.hits += 1;
            // A hit on an entry whose walk is still under way waits for that walk.
            return ready.max(now);
        }
        let (hit_slot, walk_slot) = self.slots[usize::from(is_write)];
        let start = self.port_free_at.max(now);
        let again = ps(f64::from(lookups - 1) * self.again_ns);
        let ready = if let Some(ready) = self.second.find(page) {
            self.counts.walker_hits += 1;
            self.port_free_at = start + ps(self.rng.exponential(hit_slot)) + again;
            ready.max(start)
        } else {
            self.counts.walks += 1;
            self.port_free_at = start + ps(self.rng.exponential(walk_slot)) + again;
            self.second.insert(page, start + self.walk);
            start + self.walk
        };
        self.first.insert(page, ready);
        ready
    }

    /// What translations there were so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iommu() -> Iommu {
        Iommu::new(&crate::profile::Host::load("e5-2630v4").unwrap().iommu, 1)
    }

    #[test]
    fn sixty_four_pages_fit_and_one_more_does_not() {
        let mut unit = iommu();
        let mut at = 0;
        for round in 0..4 {
            for page in 0..64 {
                at += 1_000_000;
                unit.translate(at, page << 12, false, 1);
            }
            assert_eq!(unit.counts().walks, 64, "round {round}");
        }
        assert_eq!(unit.counts().hits, 3 * 64);
        // 65 pages in turn defeat a least-recently-used table of 64 altogether.
        let mut unit = iommu();
        for step in 0..65 * 3 {
            unit.translate(step * 1_000_000, (step % 65) << 12, false, 1);
        }
        assert_eq!(unit.counts().hits, 0);
    }

    #[test]
    fn a_second_request_waits_for_the_walk_under_way() {
        let mut unit = iommu();
        let ready = unit.translate(0, 0x1000, false, 1);
        assert_eq!(unit.translate(10, 0x1800, false, 1), ready);
        assert_eq!(unit.counts().walks, 1);
    }
}
