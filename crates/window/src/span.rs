//! Window memory that is written and read as a file would be: headers, and zeroes before use.
//!
//! A PCI region in sysfs can be mapped only; `read` and `write` on it fail. Its device may be removed:
//! then it is as if nothing lay inside.

use std::io;
use std::os::fd::BorrowedFd;

use crosslane_sys::fault::Watch;
use crosslane_sys::memory::Mapping;

use crate::bytes::{Bytes, BytesMut};
use crate::outbound::Outbound;
use crate::policy::Traits;
use crate::view::View;

/// A mapped range of a file.
#[derive(Debug)]
pub struct Span {
    watch: Watch,
    mapping: Mapping,
}

impl Span {
    /// Map `bytes` from `offset` of a file, both whole pages.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(fd: BorrowedFd<'_>, offset: usize, bytes: usize) -> io::Result<Self> {
        let mapping = Mapping::shared_at(fd, offset, bytes)?;
        let watch = Watch::new(mapping.start().addr().get(), bytes)?;
        Ok(Self { watch, mapping })
    }

    /// Copy `from` to `at` and on. Returns whether that lies inside.
    pub fn write(&self, at: u64, from: &[u8]) -> bool {
        let to = self.part(at, from.len() as u64);
        to.map(|view| BytesMut::of_view(view).copy_from(0, from))
            .is_some()
            && !self.watch.is_lost()
    }

    /// Copy what is at `at` and on. Returns whether that lies inside.
    pub fn read(&self, at: u64, to: &mut [u8]) -> bool {
        let from = self.part(at, to.len() as u64);
        from.map(|view| Bytes::of_view(view).copy_to(to)).is_some() && !self.watch.is_lost()
    }

    /// Write zeroes to `bytes` at `at` and on. Returns whether that lies inside.
    pub fn clear(&self, at: u64, bytes: u64) -> bool {
        let to = self.part(at, bytes);
        to.map(|view| BytesMut::of_view(view).fill(0)).is_some() && !self.watch.is_lost()
    }

    /// Write whole words to `at` and on, which leave this processor now and are seen in this order, as into another
    /// host's memory. Returns whether that lies inside.
    pub fn post(&self, at: u64, words: &[u64], traits: Traits) -> bool {
        let bytes = size_of_val(words) as u64;
        let to = self.part(at, bytes);
        let outbound = to.and_then(|view| Outbound::new(view, traits));
        let Some(outbound) = outbound else {
            return false;
        };
        for (index, word) in words.iter().enumerate() {
            outbound.store(index * size_of::<u64>(), *word);
            outbound.fence();
        }
        !self.watch.is_lost()
    }

    /// What is derived from this must not outlive `self`.
    fn part(&self, at: u64, bytes: u64) -> Option<View> {
        // SAFETY: the callers copy while `self` keeps the mapping.
        let whole = unsafe { View::of(&self.mapping) };
        whole.part(usize::try_from(at).ok()?, usize::try_from(bytes).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::memory::create_sealed;

    #[test]
    fn spans_of_one_file_show_what_the_other_has_written() {
        let file = create_sealed("test-span", 3 * 4096).unwrap();
        let all = Span::open(file.as_fd(), 0, 3 * 4096).unwrap();
        let last = Span::open(file.as_fd(), 2 * 4096, 4096).unwrap();
        assert!(all.write(2 * 4096 + 5, b"header"));
        let mut found = [0; 8];
        assert!(last.read(4, &mut found));
        assert_eq!(&found, b"\0header\0");
        assert!(last.clear(6, 2));
        assert!(all.read(2 * 4096 + 4, &mut found));
        assert_eq!(&found, b"\0h\0\0der\0");
    }

    #[test]
    fn what_is_posted_shows_whatever_way_it_goes() {
        let file = create_sealed("test-span", 4096).unwrap();
        let span = Span::open(file.as_fd(), 0, 4096).unwrap();
        for (at, traits) in [(0, Traits::MEMORY), (64, Traits::COMBINED_BAR)] {
            assert!(span.post(at, &[7, 1 << 56], traits));
            let mut found = [0; 16];
            assert!(span.read(at, &mut found));
            assert_eq!((found[0], found[15]), (7, 1));
        }
        assert!(!span.post(4092, &[7], Traits::MEMORY) && !span.post(4, &[7], Traits::MEMORY));
    }

    #[test]
    fn what_does_not_lie_inside_is_not_touched() {
        let file = create_sealed("test-span", 4096).unwrap();
        let span = Span::open(file.as_fd(), 0, 4096).unwrap();
        assert!(!span.write(4090, b"too long"));
        assert!(!span.clear(4095, 2) && !span.clear(u64::MAX, 1));
        let mut found = [1; 6];
        assert!(!span.read(4091, &mut found));
        assert!(span.read(4090, &mut found));
        assert_eq!(found, [0; 6]);
    }
}
