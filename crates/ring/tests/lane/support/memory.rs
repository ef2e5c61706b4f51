//! Memory for a lane that notices every access outside of it.

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use crosslane_ctl::lane::{Geometry, LANE_CONTROL_BYTES, LINE_BYTES};
use crosslane_ctl::layout::{LanePlace, Layout, PARTS, part_ends, part_of};
use crosslane_ring::WindowLane;
use crosslane_window::arena::LaneView;
use crosslane_window::view::View;

/// At which edge of its pages the lane lies; the other edge is filled up with canaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// A byte before the lane is in a page that nobody may touch.
    First,
    /// A byte after the lane is in such a page.
    Last,
    /// A byte after its last part is. It is the last lane of an arena whose lanes lie in parts; the others are canaries.
    Parted,
}

const CANARY: u64 = 0x5aa5_5aa5_5aa5_5aa5;

/// A lane's memory between two pages that raise SIGSEGV.
pub struct Memory {
    pages: pages::Pages,
    /// Where the arena begins in them, and how long it is.
    first: usize,
    bytes: usize,
    place: LanePlace,
    lines: u32,
}

impl Memory {
    /// Zeroed memory for a ring of `lines`.
    pub fn new(lines: u32, edge: Edge) -> Self {
        let bytes = LANE_CONTROL_BYTES + lines as usize * LINE_BYTES;
        let whole = LanePlace {
            control: 0,
            ring: [LANE_CONTROL_BYTES; PARTS],
        };
        let geometry = Geometry {
            ring_lines: lines,
            slots: 2,
        };
        let (bytes, place) = match edge {
            Edge::First | Edge::Last => (bytes, whole),
            Edge::Parted => {
                let place = Layout::Parted.lane(&geometry, 1, 1);
                let place = place.expect("an arena of two slots has a second one");
                (Layout::Parted.arena_bytes(&geometry), place)
            }
        };
        let pages = pages::Pages::new(bytes);
        let first = match edge {
            Edge::First => 0,
            Edge::Last | Edge::Parted => pages.bytes() - bytes,
        };
        let memory = Self {
            pages,
            first,
            bytes,
            place,
            lines,
        };
        memory
            .slack()
            .for_each(|word| word.store(CANARY, Ordering::Relaxed));
        memory
    }

    /// The same with a ring full of words that depend on where they lie.
    pub fn filled(lines: u32, edge: Edge, word: impl Fn(usize) -> u64) -> Self {
        let memory = Self::new(lines, edge);
        for (index, cell) in memory.words().skip(LANE_CONTROL_BYTES / 8).enumerate() {
            cell.store(word(index), Ordering::Relaxed);
        }
        memory
    }

    /// The lane.
    pub fn lane(&self) -> WindowLane {
        let (arena, place) = (self.view(), self.place);
        let lane = WindowLane::in_arena(LaneView { arena, place }, self.lines);
        lane.expect("the pages have room for the lane")
    }

    /// The arena: the lane's bytes, if it lies in one piece.
    pub fn view(&self) -> View {
        let start = self.pages.start();
        // SAFETY: the pages are valid as long as `self`; whoever keeps the view longer has to do
        // with a test that fails. Everybody else reaches them through atomics.
        let view = unsafe { View::from_raw(start, self.pages.bytes()) };
        let view = view.part(self.first, self.bytes);
        view.expect("the pages have room for the arena")
    }

    /// Every word of the lane, control lines first: what a peer could write to.
    pub fn words(&self) -> impl Iterator<Item = &AtomicU64> {
        (0..self.lane_words()).map(|index| self.lane_word(index))
    }

    /// A word of the lane, counted from its first control line.
    pub fn lane_word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.lane_words());
        let Some(in_ring) = (index * 8).checked_sub(LANE_CONTROL_BYTES) else {
            return self.word((self.first + self.place.control) / 8 + index);
        };
        let line = u32::try_from(in_ring / LINE_BYTES).expect("a ring has fewer");
        self.word((self.first + self.place.ring[part_of(line)] + in_ring) / 8)
    }

    /// Words of the lane.
    pub fn lane_words(&self) -> usize {
        (LANE_CONTROL_BYTES + self.lines as usize * LINE_BYTES) / 8
    }

    /// That nothing beside the lane was written to.
    pub fn check_canaries(&self) {
        let untouched = self
            .slack()
            .all(|word| word.load(Ordering::Relaxed) == CANARY);
        assert!(untouched, "memory beside the lane was written to");
    }

    /// Which words of the pages are the lane's, in order.
    fn own(&self) -> Vec<Range<usize>> {
        let control = self.place.control..self.place.control + LANE_CONTROL_BYTES;
        let mut first = 0;
        let parts = part_ends(self.lines).into_iter().zip(self.place.ring);
        let parts = parts.map(|(end, start)| {
            let lines = first..end as usize;
            first = lines.end;
            start + lines.start * LINE_BYTES..start + lines.end * LINE_BYTES
        });
        let all = std::iter::once(control).chain(parts);
        let words = |bytes: Range<usize>| {
            let [start, end] = [bytes.start, bytes.end].map(|byte| (self.first + byte) / 8);
            start..end
        };
        let mut own: Vec<_> = all.filter(|bytes| !bytes.is_empty()).map(words).collect();
        own.sort_by_key(|words| words.start);
        own
    }

    /// The words of the pages that are not the lane's.
    fn slack(&self) -> impl Iterator<Item = &AtomicU64> {
        let own = self.own();
        let starts: Vec<_> = std::iter::once(0)
            .chain(own.iter().map(|words| words.end))
            .collect();
        let all = self.pages.bytes() / 8;
        let ends = own.into_iter().map(|words| words.start).chain([all]);
        let gaps = starts.into_iter().zip(ends);
        gaps.flat_map(|(start, end)| (start..end).map(|index| self.word(index)))
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.pages.bytes() / 8);
        // SAFETY: inside the pages, as just checked.
        let word = unsafe { self.pages.start().cast::<AtomicU64>().add(index) };
        // SAFETY: aligned like a page, valid as long as `self`, and an atomic.
        unsafe { word.as_ref() }
    }
}

#[cfg(not(miri))]
mod pages {
    use super::NonNull;
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

    const PAGE_BYTES: usize = 4096;

    /// Whole pages between two that nobody may touch.
    pub struct Pages {
        guard: NonNull<u8>,
        bytes: usize,
    }

    // SAFETY: an address range; every access through it is atomic or a raw copy.
    unsafe impl Send for Pages {}
    // SAFETY: as above.
    unsafe impl Sync for Pages {}

    impl Pages {
        pub fn new(bytes: usize) -> Self {
            let bytes = bytes.next_multiple_of(PAGE_BYTES);
            let (none, all) = (core::ptr::null_mut(), bytes + 2 * PAGE_BYTES);
            // SAFETY: a new mapping at an address of the kernel's choice.
            let mapped = unsafe { mmap_anonymous(none, all, ProtFlags::empty(), MapFlags::SHARED) };
            let guard = NonNull::new(mapped.expect("some pages can be mapped").cast::<u8>());
            let guard = guard.expect("the kernel maps nothing at 0");
            let pages = Self { guard, bytes };
            let access = MprotectFlags::READ | MprotectFlags::WRITE;
            // SAFETY: the pages between the guards are ours and not used yet.
            unsafe { mprotect(pages.start().as_ptr().cast(), bytes, access) }
                .expect("our own pages can be opened");
            pages
        }

        pub fn start(&self) -> NonNull<u8> {
            // SAFETY: the mapping has the guard page, `bytes`, and another guard page.
            unsafe { self.guard.add(PAGE_BYTES) }
        }

        pub fn bytes(&self) -> usize {
            self.bytes
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: the mapping that `new` made, which nobody uses any more.
            let _ = unsafe { munmap(self.guard.as_ptr().cast(), self.bytes + 2 * PAGE_BYTES) };
        }
    }
}

/// Miri has no mappings to protect, and notices by itself.
#[cfg(miri)]
mod pages {
    use super::NonNull;
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    pub struct Pages {
        start: NonNull<u8>,
        layout: Layout,
    }

    // SAFETY: an address range; every access through it is atomic or a raw copy.
    unsafe impl Send for Pages {}
    // SAFETY: as above.
    unsafe impl Sync for Pages {}

    impl Pages {
        pub fn new(bytes: usize) -> Self {
            let layout = Layout::from_size_align(bytes, 64).expect("a small layout");
            // SAFETY: the layout is not empty.
            let start = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory");
            Self { start, layout }
        }

        pub fn start(&self) -> NonNull<u8> {
            self.start
        }

        pub fn bytes(&self) -> usize {
            self.layout.size()
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: allocated by `new` with this layout, and nobody uses it any more.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}
