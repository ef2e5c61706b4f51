//! Copying between buffers and the ring.
//!
//! The sender writes lines that the receiver's cache holds, and each has to be taken from there.
//! Small pieces are copied in words, without a call. Large ones have two ways into the ring:
//! through the cache as usual, or around it with stores that only throw the receiver's copy away,
//! after which the receiver fetches them from memory. Which is faster depends on how far apart
//! the two processors are; a virtual machine does not know, and its hypervisor moves it. So the
//! sender measures (docs/decisions/copying.md).
//!
//! Buffers are where the program says, which may be nowhere. The instructions that touch them may fault
//! ([`crosslane_sys::program`]), those that touch the ring may not.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod large;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[path = "copy/plain.rs"]
mod pieces;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod pieces;

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_sys::program::Fault;

use crate::header::HEADER_BYTES;

/// So many are copied in words, without a call: a function that calls nothing keeps its values in registers.
const FEW_BYTES: usize = 4 * LINE_BYTES;

/// What the first line of a record has room for.
pub(crate) const FIRST_BYTES: usize = LINE_BYTES - HEADER_BYTES;

/// Into the ring: what is read is the program's.
const IN: bool = true;

/// Out of the ring: what is written is the program's.
const OUT: bool = false;

/// Copy out of the ring.
///
/// # Errors
/// If the program's buffer is not there; then some of it may be spoilt.
///
/// # Safety
/// As [`core::ptr::copy_nonoverlapping`], but the peer may spoil the bytes in the ring meanwhile, and the program's may not
/// be there.
#[inline(always)]
pub(crate) unsafe fn out_of_ring(from: *const u8, to: *mut u8, bytes: usize) -> Result<(), Fault> {
    if bytes <= FEW_BYTES {
        // SAFETY: the caller's promise.
        unsafe { pieces::few::<OUT>(from, to, bytes) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { many::<OUT>(from, to, bytes) }
    }
}

/// Copy more than a few bytes. Cold is not what it is: callers shall keep their registers for few bytes.
///
/// # Errors
/// As [`out_of_ring`].
///
/// # Safety
/// As [`out_of_ring`].
#[cold]
#[inline(never)]
unsafe fn many<const INTO: bool>(from: *const u8, to: *mut u8, bytes: usize) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { pieces::many::<INTO>(from, to, bytes) }
}

/// Copy into the ring, in an order that a store with release order ends.
///
/// # Errors
/// As [`out_of_ring`]; then some of the ring is spoilt.
///
/// # Safety
/// As [`out_of_ring`].
#[inline(always)]
pub(crate) unsafe fn into_ring(from: *const u8, to: *mut u8, bytes: usize) -> Result<(), Fault> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if bytes >= large::LEAST_BYTES {
        // SAFETY: the caller's promise.
        return unsafe { large::into_ring(from, to, bytes) };
    }
    // SAFETY: the caller's promise.
    unsafe { through(from, to, bytes) }
}

/// Copy into the ring through the cache.
///
/// # Errors
/// As [`into_ring`].
///
/// # Safety
/// As [`out_of_ring`].
#[inline]
pub(crate) unsafe fn through(from: *const u8, to: *mut u8, bytes: usize) -> Result<(), Fault> {
    if bytes <= FEW_BYTES {
        // SAFETY: the caller's promise.
        unsafe { pieces::few::<IN>(from, to, bytes) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { many::<IN>(from, to, bytes) }
    }
}

/// Copy a few bytes into the ring. Pieces may overlap.
///
/// # Errors
/// As [`into_ring`].
///
/// # Safety
/// As [`out_of_ring`].
#[inline(always)]
pub(crate) unsafe fn few_in(from: *const u8, to: *mut u8, bytes: usize) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { pieces::few::<IN>(from, to, bytes) }
}

/// Copy [`FIRST_BYTES`] into the ring.
///
/// # Errors
/// As [`into_ring`].
///
/// # Safety
/// As [`out_of_ring`].
#[inline(always)]
pub(crate) unsafe fn first_in(from: *const u8, to: *mut u8) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { pieces::first_in(from, to) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARGIN: usize = 130;

    type Way = unsafe fn(*const u8, *mut u8, usize) -> Result<(), Fault>;

    /// Copy at every alignment, and look at what was written and what was not.
    fn check(way: Way, bytes: usize) {
        let source: Vec<u8> = (0..=250).cycle().take(bytes + MARGIN).collect();
        for shift in 0..=LINE_BYTES {
            let (from, to) = (shift % 17, shift);
            let mut target = vec![0xee; to + bytes + MARGIN];
            // SAFETY: both vectors reach further than the copy.
            let copied = unsafe { way(source[from..].as_ptr(), target[to..].as_mut_ptr(), bytes) };
            assert_eq!(copied, Ok(()));
            assert_eq!(target[to..to + bytes], source[from..from + bytes]);
            let untouched = target[..to].iter().chain(&target[to + bytes..]);
            assert!(
                untouched.copied().all(|byte| byte == 0xee),
                "{bytes} bytes at {to}"
            );
        }
    }

    unsafe fn first(from: *const u8, to: *mut u8, _: usize) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        unsafe { first_in(from, to) }
    }

    #[test]
    fn small_copies_write_exactly_their_bytes() {
        check(first, FIRST_BYTES);
        for bytes in 0..FEW_BYTES + 20 {
            check(out_of_ring, bytes);
            check(into_ring, bytes);
        }
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    fn large_copies_write_exactly_their_bytes() {
        for bytes in (0..200).chain(8000..8200).step_by(7) {
            check(large::around, bytes);
        }
        for bytes in 4090..4110 {
            check(into_ring, bytes);
        }
    }

    /// Of buffers that end at a page that is not there, and begin there or some bytes before.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    fn what_is_not_there_is_told() {
        const PAGE: usize = 1 << 14;
        crosslane_sys::fault::take(libc::SIGSEGV).unwrap();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping.
        let start =
            unsafe { libc::mmap(core::ptr::null_mut(), 2 * PAGE, protection, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let end = start.cast::<u8>().wrapping_add(PAGE);
        // SAFETY: the second half of the mapping.
        let closed = unsafe { libc::mprotect(end.cast(), PAGE, libc::PROT_NONE) };
        assert_eq!(closed, 0);
        let mut ring = vec![7; PAGE];
        let ring = ring.as_mut_ptr();
        let ways: [(Way, bool); 3] = [(out_of_ring, OUT), (into_ring, IN), (large::around, IN)];
        for bytes in (1..300).chain([4090, 4096, 5000, 8184]) {
            for there in [0, 1, bytes / 2, bytes - 1, bytes] {
                let program = end.wrapping_sub(there);
                for (way, into) in ways {
                    let (from, to) = if into {
                        (program, ring)
                    } else {
                        (ring, program)
                    };
                    // SAFETY: the ring is there, and the program's buffer or not.
                    let copied = unsafe { way(from, to, bytes) };
                    let is_there = there == bytes;
                    assert_eq!(copied.is_ok(), is_there, "{there} of {bytes} bytes, {into}");
                }
            }
        }
    }
}
