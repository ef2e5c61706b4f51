//! What a posted lane needs of the two memories it lives in.

use crosslane_window::inbound::Inbound;
use crosslane_window::outbound::Outbound;

/// This host's own memory, into which the peer writes. Offsets are those of `ctl::posted`.
pub trait Local {
    /// Forget what caches of this processor may hold of the range, where the memory is not kept
    /// coherent with the peer's writes; called before each look.
    fn refresh(&self, at: usize, bytes: usize);

    /// Read an aligned word, with acquire order: what it announces is there.
    fn load(&self, at: usize) -> u64;

    /// Copy out of the memory.
    ///
    /// # Safety
    /// `to` must be valid for writes of `bytes`.
    unsafe fn copy_out(&self, at: usize, to: *mut u8, bytes: usize);

    /// Make an aligned word 0, before what is written after the next [`Remote::fence`].
    fn clear(&self, at: usize);
}

/// The peer's memory. Writes into it are posted: they arrive some time, in the order of the fences
/// between them. There is nothing here to read it with, and that is meant.
pub trait Remote {
    /// Write whole words, in any order.
    ///
    /// # Safety
    /// `from`, which need not be aligned, must be valid for reads of so many words.
    unsafe fn write(&self, at: usize, from: *const u8, words: usize);

    /// Write one aligned word, which arrives at once.
    fn store(&self, at: usize, word: u64);

    /// Whatever was written before, here or to this host's own memory, is seen by the peer before what
    /// is written afterwards; and it leaves this processor now, not at some time.
    fn fence(&self);
}

impl Local for Inbound {
    #[inline]
    fn refresh(&self, at: usize, bytes: usize) {
        Inbound::refresh(self, at, bytes);
    }

    #[inline]
    fn load(&self, at: usize) -> u64 {
        Inbound::load(self, at)
    }

    #[inline]
    unsafe fn copy_out(&self, at: usize, to: *mut u8, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { Inbound::copy_out(self, at, to, bytes) }
    }

    #[inline]
    fn clear(&self, at: usize) {
        Inbound::clear(self, at);
    }
}

impl Remote for Outbound {
    #[inline]
    unsafe fn write(&self, at: usize, from: *const u8, words: usize) {
        // SAFETY: the caller's promise.
        unsafe { Outbound::write(self, at, from, words) }
    }

    #[inline]
    fn store(&self, at: usize, word: u64) {
        Outbound::store(self, at, word);
    }

    #[inline]
    fn fence(&self) {
        Outbound::fence(self);
    }
}
