//! The other side's memory: written, never read.
//!
//! A read across a PCIe bridge takes a microsecond, during which the processor stands still, and from a
//! host that has died it returns ones or ends the program. So this type has no function that reads, and
//! no way to get at the address:
//!
//! ```compile_fail
//! # use crosslane_window::outbound::Outbound;
//! fn look(remote: Outbound) -> u64 {
//!     remote.load(0)
//! }
//! ```

use core::sync::atomic::{AtomicU64, Ordering, fence};

use crate::cache::{Flush, GOES_AROUND, store_around, store_fence};
use crate::policy::{Traits, Writes};
use crate::view::View;

const WORD: usize = size_of::<u64>();

/// A range of another host's memory.
#[derive(Clone, Copy, Debug)]
pub struct Outbound {
    view: View,
    writes: Writes,
    flush: Flush,
}

impl Outbound {
    /// The other side's memory that `view` shows, or `None` if it does not begin and end on a word.
    pub fn new(view: View, traits: Traits) -> Option<Self> {
        view.is_of_words().then_some(Self {
            view,
            writes: traits.writes,
            flush: Flush::here(),
        })
    }

    /// Bytes in the range.
    pub fn bytes(&self) -> usize {
        self.view.bytes()
    }

    /// Whole words of this range, or `None` if they do not lie inside.
    pub fn part(&self, at: usize, bytes: usize) -> Option<Self> {
        let view = self.view.part(at, bytes).filter(View::is_of_words)?;
        Some(Self { view, ..*self })
    }

    /// The address of some words.
    ///
    /// # Panics
    /// If they are not all inside. That is our own fault, never the peer's.
    #[inline]
    fn words(&self, at: usize, words: usize) -> *mut u64 {
        let part = words
            .checked_mul(WORD)
            .and_then(|bytes| self.view.part(at, bytes))
            .filter(View::is_of_words);
        let Some(part) = part else {
            panic!("{words} words at {at} of {} bytes", self.bytes());
        };
        part.start().cast::<u64>().as_ptr()
    }

    /// Write whole words, in any order up to the next [`Outbound::fence`].
    ///
    /// # Safety
    /// `from`, which need not be aligned, must be valid for reads of so many words.
    ///
    /// # Panics
    /// If they do not fit there.
    #[inline]
    pub unsafe fn write(&self, at: usize, from: *const u8, words: usize) {
        let to = self.words(at, words);
        match self.writes {
            // SAFETY: the source is the caller's promise, the target was checked.
            Writes::Coherent => unsafe {
                core::ptr::copy_nonoverlapping(from, to.cast::<u8>(), words * WORD);
            },
            // The library's copy may store bytes, each a transaction of its own, or some twice.
            Writes::Uncached | Writes::Combined | Writes::Flushed => {
                self.forget_unless_around(to, words);
                for index in 0..words {
                    let from = from.wrapping_add(index * WORD).cast::<u64>();
                    // SAFETY: the caller's promise for word `index`.
                    let word = unsafe { from.read_unaligned() };
                    // SAFETY: word `index` of those checked.
                    unsafe { store_around(to.wrapping_add(index), word) };
                }
                self.flush_unless_around(to, words);
            }
        }
    }

    /// Write whole words, in any order up to the next [`Outbound::fence`].
    ///
    /// # Panics
    /// If they do not fit there.
    #[inline]
    pub fn put(&self, at: usize, words: &[u64]) {
        // SAFETY: a slice is valid for its length.
        unsafe { self.write(at, words.as_ptr().cast::<u8>(), words.len()) };
    }

    /// The same from bytes, which must be whole words.
    ///
    /// # Panics
    /// If they are not, or do not fit there.
    #[inline]
    pub fn put_bytes(&self, at: usize, bytes: &[u8]) {
        assert!(bytes.len().is_multiple_of(WORD), "{} bytes", bytes.len());
        // SAFETY: a slice is valid for its length.
        unsafe { self.write(at, bytes.as_ptr(), bytes.len() / WORD) };
    }

    /// Write one word, which arrives at once.
    ///
    /// # Panics
    /// If it does not lie inside.
    #[inline]
    pub fn store(&self, at: usize, word: u64) {
        let to = self.words(at, 1);
        match self.writes {
            Writes::Coherent => {
                // SAFETY: checked to lie inside, aligned, and an atomic may be changed by others.
                let cell = unsafe { AtomicU64::from_ptr(to) };
                cell.store(word, Ordering::Release); // SYNC: posted record
            }
            Writes::Uncached | Writes::Combined | Writes::Flushed => {
                self.forget_unless_around(to, 1);
                // SAFETY: checked to lie inside and to be aligned.
                unsafe { store_around(to, word) };
                self.flush_unless_around(to, 1);
            }
        }
    }

    /// Whatever was written before is seen before what is written afterwards, and leaves now.
    #[inline]
    pub fn fence(&self) {
        match self.writes {
            // The stores that follow are atomic, and stay in order among each other.
            Writes::Coherent => fence(Ordering::Release),
            Writes::Uncached | Writes::Combined | Writes::Flushed => store_fence(),
        }
    }

    /// A line that is written in part through a cache would bring its old other part along.
    #[inline]
    fn forget_unless_around(&self, to: *mut u64, words: usize) {
        if self.writes == Writes::Flushed && !GOES_AROUND {
            // SAFETY: the range was checked by the caller; it is mapped.
            unsafe { self.flush.lines(to.cast::<u8>(), words * WORD) };
        }
    }

    #[inline]
    fn flush_unless_around(&self, to: *mut u64, words: usize) {
        self.forget_unless_around(to, words);
    }
}

#[cfg(test)]
mod tests {
    use core::ptr::NonNull;

    use super::*;
    use crate::inbound::Inbound;

    #[derive(Clone)]
    #[repr(C, align(64))]
    struct Line([u64; 8]);

    /// Whatever way they go, the same bytes arrive.
    #[test]
    fn every_way_of_writing_writes_the_same() {
        let all = [
            Traits::MEMORY,
            Traits::UNCACHED_BAR,
            Traits::COMBINED_BAR,
            Traits::COMBINED_BRIDGE,
            Traits::FLUSHED,
        ];
        for traits in all {
            let mut lines = vec![Line([u64::MAX; 8]); 4];
            let start = NonNull::from(lines.as_mut_slice()).cast::<u8>();
            // SAFETY: the lines outlive the view, and are reached through it only.
            let view = unsafe { View::from_raw(start, 256) };
            let remote = Outbound::new(view, traits).unwrap();
            let local = Inbound::new(view, traits).unwrap();
            let source: Vec<u8> = (0..100).collect();
            // SAFETY: twelve words from byte 1 on are inside.
            unsafe { remote.write(56, source.as_ptr().wrapping_add(1), 12) };
            remote.store(8, 7);
            local.clear(16);
            remote.fence();
            local.refresh(0, 256);
            let mut copy = [0; 96];
            // SAFETY: the array has so many bytes.
            unsafe { local.copy_out(56, copy.as_mut_ptr(), 96) };
            assert_eq!(copy, source[1..97], "{traits:?}");
            let words = [0, 8, 16, 48, 152].map(|at| local.load(at));
            assert_eq!(words, [u64::MAX, 7, 0, u64::MAX, u64::MAX], "{traits:?}");
        }
    }

    #[test]
    #[should_panic(expected = "2 words at 56 of 64 bytes")]
    fn nothing_is_written_outside() {
        let mut line = Line([0; 8]);
        // SAFETY: the line outlives the view.
        let view = unsafe { View::from_raw(NonNull::from(&mut line).cast(), 64) };
        let remote = Outbound::new(view, Traits::COMBINED_BAR).unwrap();
        // SAFETY: sixteen bytes of the array.
        unsafe { remote.write(56, [0; 16].as_ptr(), 2) };
    }
}
