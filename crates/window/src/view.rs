//! A range of window memory whose bounds have been checked once.

use core::ptr::NonNull;

use crosslane_sys::memory::Mapping;

/// A range of window memory. Holding one proves that the range lay inside a mapping when it was
/// made; the owner of the mapping keeps it alive as long as views are used.
#[derive(Clone, Copy, Debug)]
pub struct View {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a view is an address range; every access through it is atomic or a raw copy.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl View {
    /// The whole of a mapping.
    ///
    /// # Safety
    /// The mapping must outlive every use of the view and of what is derived from it.
    pub unsafe fn of(mapping: &Mapping) -> Self {
        Self {
            start: mapping.start(),
            bytes: mapping.bytes(),
        }
    }

    /// A view over memory that is not a mapping of ours, such as a test's buffer.
    ///
    /// # Safety
    /// `bytes` from `start` must be valid for reads and writes as long as the view is used, and
    /// be accessed by others only through atomics or other views.
    pub unsafe fn from_raw(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes }
    }

    /// Part of this view, or `None` if it does not lie inside.
    #[inline]
    pub fn part(&self, offset: usize, bytes: usize) -> Option<Self> {
        if offset.checked_add(bytes)? > self.bytes {
            return None;
        }
        // SAFETY: the offset was just checked to lie inside the range.
        let start = unsafe { self.start.add(offset) };
        Some(Self { start, bytes })
    }

    /// Whether it begins and ends on a word of 8 bytes.
    #[inline]
    pub fn is_of_words(&self) -> bool {
        const WORD: usize = size_of::<u64>();
        self.start.addr().get().is_multiple_of(WORD) && self.bytes.is_multiple_of(WORD)
    }

    /// First byte.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes in the range.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_reaches_outside() {
        let mut buffer = [0u8; 64];
        let start = NonNull::from(&mut buffer).cast::<u8>();
        // SAFETY: the buffer outlives the view.
        let view = unsafe { View::from_raw(start, 64) };
        assert!(view.part(0, 64).is_some());
        assert!(view.part(64, 0).is_some());
        assert!(view.part(1, 64).is_none());
        assert!(view.part(65, 0).is_none());
        assert!(view.part(usize::MAX, 2).is_none());
    }
}
