//! This host's own memory, into which another host writes.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::cache::{Flush, GOES_AROUND, load_fence, store_around};
use crate::policy::Traits;
use crate::view::View;

const WORD: usize = size_of::<u64>();

/// A range of memory that a peer writes and we read. What we read is an allegation.
#[derive(Clone, Copy, Debug)]
pub struct Inbound {
    view: View,
    refreshes: bool,
    fences_loads: bool,
    flush: Flush,
}

impl Inbound {
    /// Our memory that `view` shows, or `None` if it does not begin and end on a word.
    pub fn new(view: View, traits: Traits) -> Option<Self> {
        view.is_of_words().then_some(Self {
            view,
            refreshes: traits.refreshes,
            fences_loads: traits.fences_loads,
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

    /// The address of some bytes.
    ///
    /// # Panics
    /// If they are not all inside. That is our own fault, never the peer's.
    #[inline]
    fn address(&self, at: usize, bytes: usize) -> *mut u8 {
        let Some(part) = self.view.part(at, bytes) else {
            panic!("{bytes} bytes at {at} of {} bytes", self.bytes());
        };
        part.start().as_ptr()
    }

    #[inline]
    fn word(&self, at: usize) -> *mut u64 {
        assert!(at.is_multiple_of(WORD), "a word at {at}");
        self.address(at, WORD).cast::<u64>()
    }

    /// Forget what this processor's caches hold of a range; nothing where they are kept coherent.
    #[inline]
    pub fn refresh(&self, at: usize, bytes: usize) {
        if self.refreshes {
            let start = self.address(at, bytes);
            // SAFETY: checked to lie inside, and mapped.
            unsafe { self.flush.lines(start, bytes) };
        }
    }

    /// Read an aligned word with acquire order.
    ///
    /// # Panics
    /// If it does not lie inside.
    #[inline]
    pub fn load(&self, at: usize) -> u64 {
        // SAFETY: checked to lie inside, aligned, and an atomic may be changed by the peer.
        let cell = unsafe { AtomicU64::from_ptr(self.word(at)) };
        let word = cell.load(Ordering::Acquire); // SYNC: posted record
        if self.fences_loads {
            load_fence();
        }
        word
    }

    /// Copy out of the range.
    ///
    /// # Safety
    /// `to` must be valid for writes of `bytes`.
    ///
    /// # Panics
    /// If they are not all inside.
    #[inline]
    pub unsafe fn copy_out(&self, at: usize, to: *mut u8, bytes: usize) {
        let from = self.address(at, bytes);
        // SAFETY: the source was checked, the target is the caller's promise; the range is no Rust
        // object, so a racing peer can only spoil bytes.
        unsafe { core::ptr::copy_nonoverlapping(from, to, bytes) };
    }

    /// Copy words out of the range.
    ///
    /// # Panics
    /// If they are not all inside.
    #[inline]
    pub fn take(&self, at: usize, words: &mut [u64]) {
        let to = words.as_mut_ptr().cast::<u8>();
        // SAFETY: a slice is valid for its length.
        unsafe { self.copy_out(at, to, size_of_val(words)) };
    }

    /// Copy bytes out of the range.
    ///
    /// # Panics
    /// If they are not all inside.
    #[inline]
    pub fn take_bytes(&self, at: usize, bytes: &mut [u8]) {
        // SAFETY: a slice is valid for its length.
        unsafe { self.copy_out(at, bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Make an aligned word 0; before what is written after the next fence of the outbound side.
    ///
    /// # Panics
    /// If it does not lie inside.
    #[inline]
    pub fn clear(&self, at: usize) {
        let word = self.word(at);
        if self.refreshes {
            // SAFETY: checked to lie inside and to be aligned.
            unsafe { store_around(word, 0) };
            if !GOES_AROUND {
                self.refresh(at, WORD);
            }
        } else {
            // SAFETY: checked to lie inside, aligned, and an atomic may be changed by the peer.
            let cell = unsafe { AtomicU64::from_ptr(word) };
            cell.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::ptr::NonNull;

    use super::*;
    use crate::cache::LOAD_FENCES;

    /// Such loads are done early; what a word announces would be read before it was there.
    #[test]
    fn a_look_through_write_combining_memory_ends_with_a_fence() {
        let mut words = [7_u64; 8];
        // SAFETY: the words outlive the view, and are reached through it only.
        let view = unsafe { View::from_raw(NonNull::from(&mut words).cast(), 64) };
        for (traits, fences) in [
            (Traits::COMBINED_BAR, 1),
            (Traits::COMBINED_BRIDGE, 0),
            (Traits::UNCACHED_BAR, 0),
            (Traits::MEMORY, 0),
        ] {
            let local = Inbound::new(view, traits).unwrap();
            let before = LOAD_FENCES.get();
            assert_eq!(local.part(8, 8).unwrap().load(0), 7);
            assert_eq!(LOAD_FENCES.get() - before, fences, "{traits:?}");
        }
    }
}
