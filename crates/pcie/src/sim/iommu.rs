//! Translation: the IO-TLB, the walker's own cache behind it, and a port between them.
//!
//! Two tables because the published data need two. Under load, reads collapse as a table of 64
//! entries predicts, whatever the window; but single reads, and writes, still find about 117 pages
//! translated. So a miss in the first table always costs a turn at the port, and only a miss in the
//! walker's cache costs a walk. Two limits for the same reason: misses queue for the port, walks queue
//! behind it, and no more than about six are under way. docs/pcie.md has the rows that show it.

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
    /// Mean turn at the port, and time from one walk's start to the next, of reads and of writes.
    turns: [(f64, Ps); 2],
    port_free_at: Ps,
    walker_free_at: Ps,
    counts: Counts,
    rng: Rng,
    again: Ps,
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
            turns: [
                (profile.read_port_ns, ps(profile.read_walk_slot_ns)),
                (profile.write_port_ns, ps(profile.write_walk_slot_ns)),
            ],
            rng: Rng::new(seed),
            again: ps(profile.again_ns),
            port_free_at: 0,
            walker_free_at: 0,
            counts: Counts::default(),
        }
    }

    /// When the translation of `address`, asked for now, is there. A request that the root complex
    /// serves in pieces asks for each, and on a miss each further asking takes time of the port and of
    /// the walk.
    pub fn translate(&mut self, now: Ps, address: u64, is_write: bool, lookups: u32) -> Ps {
        let page = address >> self.page_shift;
        if let Some(ready) = self.first.find(page) {
            self.counts.hits += 1;
            // A hit on an entry whose walk is still under way waits for that walk.
            return ready.max(now);
        }
        let (port_ns, walk_slot) = self.turns[usize::from(is_write)];
        let again = Ps::from(lookups - 1) * self.again;
        let start = self.port_free_at.max(now);
        self.port_free_at = start + ps(self.rng.exponential(port_ns)) + again;
        let ready = if let Some(ready) = self.second.find(page) {
            self.counts.walker_hits += 1;
            ready.max(start)
        } else {
            self.counts.walks += 1;
            let begun = self.walker_free_at.max(start);
            self.walker_free_at = begun + walk_slot + again;
            self.second.insert(page, begun + self.walk);
            begun + self.walk
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

    #[test]
    fn walks_begin_one_after_another_and_known_pages_do_not_wait_for_them() {
        let mut profile = crate::profile::Host::load("e5-2630v4").unwrap().iommu;
        (profile.entries, profile.read_port_ns) = (1, 0.0);
        let mut unit = Iommu::new(&profile, 1);
        let ready = [1, 2, 3].map(|page| unit.translate(0, page << 12, false, 1));
        let slot = ps(profile.read_walk_slot_ns);
        assert_eq!(ready.map(|at| at - unit.walk), [0, slot, 2 * slot]);
        // The walker's cache still has the first page, though the IO-TLB of one entry has not.
        let later = ready[0] + 1;
        assert_eq!(unit.translate(later, 1 << 12, false, 1), later);
        assert_eq!(unit.counts().walker_hits, 1);
    }
}
