//! Memory for a lane that notices every access outside of it.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use crosslane_ctl::lane::{LANE_CONTROL_BYTES, LINE_BYTES};
use crosslane_ring::WindowLane;
use crosslane_window::view::View;

/// At which edge of its pages the lane lies; the other edge is filled up with canaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// A byte before the lane is in a page that nobody may touch.
    First,
    /// A byte after the lane is in such a page.
    Last,
}

const CANARY: u64 = 0x5aa5_5aa5_5aa5_5aa5;

/// A lane's memory between two pages that raise SIGSEGV.
pub struct Memory {
    pages: pages::Pages,
    first: usize,
    lines: u32,
}

impl Memory {
    /// Zeroed memory for a ring of `lines`.
    pub fn new(lines: u32, edge: Edge) -> Self {
        let bytes = LANE_CONTROL_BYTES + lines as usize * LINE_BYTES;
        let pages = pages::Pages::new(bytes);
        let first = match edge {
            Edge::First => 0,
            Edge::Last => pages.bytes() - bytes,
        };
        let memory = Self {
            pages,
            first,
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
        WindowLane::new(self.view(), self.lines).expect("the pages have room for the lane")
    }

    /// The lane's bytes.
    pub fn view(&self) -> View {
        let start = self.pages.start();
        // SAFETY: the pages are valid as long as `self`; whoever keeps the view longer has to do
        // with a test that fails. Everybody else reaches them through atomics.
        let view = unsafe { View::from_raw(start, self.pages.bytes()) };
        let view = view.part(self.first, self.lane_words() * 8);
        view.expect("the pages have room for the lane")
    }

    /// Every word of the lane, control lines first: what a peer could write to.
    pub fn words(&self) -> impl Iterator<Item = &AtomicU64> {
        (0..self.lane_words()).map(|index| self.word(self.first / 8 + index))
    }

    /// A word of the lane, counted from its first control line.
    pub fn lane_word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.lane_words());
        self.word(self.first / 8 + index)
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

    /// The words of the pages that are not the lane's.
    fn slack(&self) -> impl Iterator<Item = &AtomicU64> {
        let (first, last) = (self.first / 8, self.first / 8 + self.lane_words());
        let all = self.pages.bytes() / 8;
        (0..first).chain(last..all).map(|index| self.word(index))
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
