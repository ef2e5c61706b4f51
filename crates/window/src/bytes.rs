//! Bytes that somebody else may change while they are looked at: what a program gets to see of a
//! window. They are copied in or out, never borrowed as a slice.

use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{Ordering, compiler_fence};

use crate::view::View;

/// Bytes to be read. What has been read once may be different the next time: read, check what was
/// read, and use that.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a> {
    start: NonNull<u8>,
    bytes: usize,
    lent: PhantomData<&'a ()>,
}

// SAFETY: an address range; every access through it is a raw copy.
unsafe impl Send for Bytes<'_> {}
// SAFETY: as above.
unsafe impl Sync for Bytes<'_> {}

impl<'a> Bytes<'a> {
    /// The bytes of a view, whose owner keeps the mapping for as long as views are used.
    #[inline]
    pub fn of_view(view: View) -> Self {
        Self {
            start: view.start(),
            bytes: view.bytes(),
            lent: PhantomData,
        }
    }

    /// Private bytes, which nobody changes meanwhile.
    #[inline]
    pub fn of_slice(slice: &'a [u8]) -> Self {
        Self {
            start: NonNull::from(slice).cast(),
            bytes: slice.len(),
            lent: PhantomData,
        }
    }

    /// How many.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The address of the first, for code that takes care of itself.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// The first `middle` bytes, and the rest.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    pub fn split_at(&self, middle: usize) -> (Self, Self) {
        assert!(middle <= self.bytes, "no byte {middle} of {}", self.bytes);
        // SAFETY: inside the range, or at its end, as just checked.
        let start = unsafe { self.start.add(middle) };
        let first = Self {
            bytes: middle,
            ..*self
        };
        let rest = Self {
            start,
            bytes: self.bytes - middle,
            ..*self
        };
        (first, rest)
    }

    /// Copy as many from the first on as `to` takes. Returns how many.
    #[inline]
    pub fn copy_to(&self, to: &mut [u8]) -> usize {
        let bytes = self.bytes.min(to.len());
        // SAFETY: both ranges have so many bytes, and a slice that is borrowed mutably is no
        // window's. A peer can only spoil bytes.
        unsafe { core::ptr::copy_nonoverlapping(self.as_ptr(), to.as_mut_ptr(), bytes) };
        // What was copied is not fetched again.
        compiler_fence(Ordering::SeqCst);
        bytes
    }

    /// `N` bytes from `offset` on, read once; `None` if there are not so many.
    #[inline]
    pub fn get<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        if offset.checked_add(N)? > self.bytes {
            return None;
        }
        let mut value = [0; N];
        self.split_at(offset).1.copy_to(&mut value);
        Some(value)
    }

    /// Each of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u8> + use<'a> {
        let all = *self;
        (0..all.bytes).map(move |at| all.get(at).map_or(0, |[byte]: [u8; 1]| byte))
    }

    /// A copy.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = vec![0; self.bytes];
        self.copy_to(&mut copy);
        copy
    }
}

/// Bytes to be written.
#[derive(Debug)]
pub struct BytesMut<'a> {
    start: NonNull<u8>,
    bytes: usize,
    lent: PhantomData<&'a mut ()>,
}

// SAFETY: an address range; every access through it is a raw copy.
unsafe impl Send for BytesMut<'_> {}

impl<'a> BytesMut<'a> {
    /// The bytes of a view, as [`Bytes::of_view`].
    #[inline]
    pub fn of_view(view: View) -> Self {
        Self {
            start: view.start(),
            bytes: view.bytes(),
            lent: PhantomData,
        }
    }

    /// Private bytes.
    #[inline]
    pub fn of_slice(slice: &'a mut [u8]) -> Self {
        let bytes = slice.len();
        Self {
            start: NonNull::from(slice).cast(),
            bytes,
            lent: PhantomData,
        }
    }

    /// How many.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The address of the first, for code that takes care of itself.
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Write `from` to `offset` and on.
    ///
    /// # Panics
    /// If it does not fit there.
    #[inline]
    pub fn copy_from(&mut self, offset: usize, from: &[u8]) {
        let end = offset.checked_add(from.len());
        assert!(
            end.is_some_and(|end| end <= self.bytes),
            "{} bytes do not fit at {offset} of {}",
            from.len(),
            self.bytes
        );
        // SAFETY: inside the range, as just checked.
        let to = unsafe { self.start.add(offset) };
        // SAFETY: both ranges have so many bytes; a borrowed slice is no window's.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
    }

    /// Write what stands in `from`, perhaps in another window, to `offset` and on.
    ///
    /// # Panics
    /// If it does not fit there.
    #[inline]
    pub fn copy_bytes(&mut self, offset: usize, from: Bytes<'_>) {
        let end = offset.checked_add(from.len());
        assert!(
            end.is_some_and(|end| end <= self.bytes),
            "{} bytes do not fit at {offset} of {}",
            from.len(),
            self.bytes
        );
        // SAFETY: inside the range, as just checked.
        let to = unsafe { self.start.add(offset) };
        // SAFETY: both ranges have so many bytes. They may overlap where a program copies within
        // one window.
        unsafe { core::ptr::copy(from.as_ptr(), to.as_ptr(), from.len()) };
    }

    /// Write `byte` to all of them.
    pub fn fill(&mut self, byte: u8) {
        // SAFETY: the range has so many bytes.
        unsafe { self.start.write_bytes(byte, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_inside_their_bounds_only() {
        let all = [1, 2, 3, 4, 5];
        let bytes = Bytes::of_slice(&all);
        assert_eq!(bytes.get(0), Some([1, 2]));
        assert_eq!(bytes.get(3), Some([4, 5]));
        assert_eq!(bytes.get::<2>(4), None);
        assert_eq!(bytes.get::<1>(usize::MAX), None);
        assert_eq!(bytes.get::<0>(5), Some([]));
        let (first, rest) = bytes.split_at(2);
        assert_eq!((first.to_vec(), rest.to_vec()), (vec![1, 2], vec![3, 4, 5]));
        assert_eq!(bytes.iter().map(u32::from).sum::<u32>(), 15);
        let mut short = [0; 3];
        assert_eq!((bytes.copy_to(&mut short), short), (3, [1, 2, 3]));
        let mut long = [9; 7];
        assert_eq!((bytes.copy_to(&mut long), long), (5, [1, 2, 3, 4, 5, 9, 9]));
    }

    #[test]
    fn bytes_are_written_inside_their_bounds_only() {
        let mut all = [0; 5];
        let mut bytes = BytesMut::of_slice(&mut all);
        bytes.fill(7);
        bytes.copy_from(3, &[1, 2]);
        bytes.copy_from(5, &[]);
        bytes.copy_bytes(0, Bytes::of_slice(&[8, 9]));
        assert_eq!(all, [8, 9, 7, 1, 2]);
    }

    #[test]
    #[should_panic(expected = "2 bytes do not fit at 4 of 5")]
    fn what_does_not_fit_is_not_written() {
        BytesMut::of_slice(&mut [0; 5]).copy_from(4, &[1, 2]);
    }
}
