//! Sealed memory objects: the backend of windows inside one machine.

use core::sync::atomic::{AtomicU32, Ordering};
use std::ffi::CString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use crosslane_ctl::lane::PAGE_BYTES;
use crosslane_sys::memory::Mapping;

/// Make a memory object of `bytes` that nobody can resize. It has no name in any file system and
/// goes away with its last descriptor and mapping; `name` is shown in `/proc` only.
///
/// # Errors
/// The kernel's, when descriptors or memory are exhausted, or a NUL in `name`.
pub fn create_sealed(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let name = CString::new(name)?;
    Ok(crosslane_sys::memory::create_sealed(&name, bytes)?)
}

/// Set `bits` in the word at `offset`, a multiple of four, of a sealed object that others use.
///
/// # Errors
/// The kernel's, when the page cannot be mapped.
///
/// # Panics
/// If the word is not aligned.
pub fn set_bits(fd: BorrowedFd<'_>, offset: usize, bits: u32) -> io::Result<()> {
    assert!(
        offset.is_multiple_of(size_of::<u32>()),
        "a word at {offset}"
    );
    let within = offset % PAGE_BYTES;
    let page = Mapping::shared_at(fd, offset - within, PAGE_BYTES)?;
    // SAFETY: within the mapped page.
    let word = unsafe { page.start().add(within) }.cast();
    // SAFETY: aligned, and changed by atomic operations only; a sealed object keeps its size.
    let word = unsafe { AtomicU32::from_ptr(word.as_ptr()) };
    word.fetch_or(bits, Ordering::SeqCst);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn bits_are_set_beside_those_of_others() {
        let bytes = 2 * PAGE_BYTES;
        let fd = create_sealed("test", bytes).unwrap();
        for bits in [1, 4] {
            set_bits(fd.as_fd(), PAGE_BYTES + 64, bits).unwrap();
        }
        let all = Mapping::shared(fd.as_fd(), bytes).unwrap();
        // SAFETY: nobody else has the memory.
        let all = unsafe { std::slice::from_raw_parts(all.start().as_ptr(), bytes) };
        assert_eq!(all[PAGE_BYTES + 64], 5);
        assert_eq!(all.iter().filter(|byte| **byte != 0).count(), 1);
    }
}
