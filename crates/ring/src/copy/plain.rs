//! Pieces of a copy, where nothing says how to go on after a fault: that is the program's.

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_sys::program::Fault;

const WORD_BYTES: usize = 8;
const PAIR_BYTES: usize = 2 * WORD_BYTES;

/// # Safety
/// As [`super::out_of_ring`].
pub(super) unsafe fn many<const INTO: bool>(
    from: *const u8,
    to: *mut u8,
    bytes: usize,
) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(from, to, bytes) };
    Ok(())
}

/// # Safety
/// As [`super::out_of_ring`], for what the first line of a record has room for.
#[inline]
pub(super) unsafe fn first_in(from: *const u8, to: *mut u8) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { few::<{ super::IN }>(from, to, super::FIRST_BYTES) }
}

/// # Safety
/// As [`super::out_of_ring`].
#[inline]
pub(super) unsafe fn few<const INTO: bool>(
    from: *const u8,
    to: *mut u8,
    bytes: usize,
) -> Result<(), Fault> {
    if bytes >= PAIR_BYTES {
        // SAFETY: the caller's promise, and there is at least a pair of words.
        unsafe { copy_pairs(from, to, bytes) };
    } else if bytes >= WORD_BYTES {
        // SAFETY: the caller's promise; the second word ends with the bytes.
        unsafe { copy_piece::<WORD_BYTES>(from, to, 0) };
        // SAFETY: as above.
        unsafe { copy_piece::<WORD_BYTES>(from, to, bytes - WORD_BYTES) };
    } else {
        // SAFETY: the caller's promise, and there is less than a word.
        unsafe { copy_less_than_word(from, to, bytes) };
    }
    Ok(())
}

/// Copy a half word, a quarter, a byte, as the bits of `bytes` say.
///
/// # Safety
/// As [`super::out_of_ring`]; `bytes` must be less than a word.
#[inline]
unsafe fn copy_less_than_word(from: *const u8, to: *mut u8, bytes: usize) {
    if bytes & 4 != 0 {
        // SAFETY: the caller's promise.
        unsafe { copy_piece::<4>(from, to, 0) };
    }
    if bytes & 2 != 0 {
        // SAFETY: as above.
        unsafe { copy_piece::<2>(from, to, bytes & 4) };
    }
    if bytes & 1 != 0 {
        // SAFETY: as above.
        unsafe { copy_piece::<1>(from, to, bytes & 6) };
    }
}

/// Copy in pairs of words, of which the last may overlap those before.
///
/// # Safety
/// As [`super::out_of_ring`]; `bytes` must be at least a pair of words.
#[inline]
unsafe fn copy_pairs(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise; a piece ends at `bytes` at most.
    let pair = |at| unsafe { copy_piece::<PAIR_BYTES>(from, to, at) };
    // SAFETY: as above.
    let line = |at| unsafe { copy_piece::<LINE_BYTES>(from, to, at) };
    if bytes > LINE_BYTES {
        let last = bytes - LINE_BYTES;
        for at in (0..last).step_by(LINE_BYTES) {
            line(at);
        }
        return line(last);
    }
    pair(0);
    if bytes > 2 * PAIR_BYTES {
        pair(PAIR_BYTES);
        pair(bytes - 2 * PAIR_BYTES);
    }
    pair(bytes - PAIR_BYTES);
}

/// Copy `BYTES` bytes that begin at `at`.
///
/// # Safety
/// As [`super::out_of_ring`], for these bytes.
#[inline(always)]
unsafe fn copy_piece<const BYTES: usize>(from: *const u8, to: *mut u8, at: usize) {
    let (from, to) = (from.wrapping_add(at), to.wrapping_add(at));
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(from, to, BYTES) };
}
