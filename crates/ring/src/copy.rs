//! Copying between buffers and the ring.
//!
//! The sender writes lines that the receiver's cache holds, and each has to be taken from there.
//! Small pieces are copied in words, without a call. Large ones have two ways into the ring:
//! through the cache as usual, or around it with stores that only throw the receiver's copy away,
//! after which the receiver fetches them from memory. Which is faster depends on how far apart
//! the two processors are; a virtual machine does not know, and its hypervisor moves it. So the
//! sender measures (docs/decisions/copying.md).

use crosslane_ctl::lane::LINE_BYTES;

const WORD_BYTES: usize = 8;
const PAIR_BYTES: usize = 2 * WORD_BYTES;

/// So many are copied in words, without a call: a function that calls nothing keeps its values in registers.
const FEW_BYTES: usize = 4 * LINE_BYTES;

/// Copy out of the ring.
///
/// # Safety
/// As [`core::ptr::copy_nonoverlapping`], but the peer may spoil the bytes in the ring meanwhile.
#[inline]
pub(crate) unsafe fn out_of_ring(from: *const u8, to: *mut u8, bytes: usize) {
    if bytes <= FEW_BYTES {
        // SAFETY: the caller's promise.
        unsafe { few(from, to, bytes) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { many(from, to, bytes) };
    }
}

/// Copy more than a few bytes. Cold is not what it is: callers shall keep their registers for few bytes.
///
/// # Safety
/// As [`out_of_ring`].
#[cold]
unsafe fn many(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(from, to, bytes) };
}

/// Copy into the ring, in an order that a store with release order ends.
///
/// # Safety
/// As [`out_of_ring`].
#[inline]
pub(crate) unsafe fn into_ring(from: *const u8, to: *mut u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if bytes >= large::LEAST_BYTES {
        // SAFETY: the caller's promise.
        return unsafe { large::into_ring(from, to, bytes) };
    }
    // SAFETY: the caller's promise.
    unsafe { out_of_ring(from, to, bytes) }
}

/// Copy a few bytes, either way. Pieces may overlap.
///
/// # Safety
/// As [`out_of_ring`].
#[inline]
pub(crate) unsafe fn few(from: *const u8, to: *mut u8, bytes: usize) {
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
}

/// Copy a half word, a quarter, a byte, as the bits of `bytes` say.
///
/// # Safety
/// As [`out_of_ring`]; `bytes` must be less than a word.
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
/// As [`out_of_ring`]; `bytes` must be at least a pair of words.
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
/// As [`out_of_ring`], for these bytes.
#[inline(always)]
unsafe fn copy_piece<const BYTES: usize>(from: *const u8, to: *mut u8, at: usize) {
    let (from, to) = (from.wrapping_add(at), to.wrapping_add(at));
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(from, to, BYTES) };
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod large {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    use core::cell::Cell;

    use crosslane_ctl::lane::LINE_BYTES;
    use crosslane_sys::cpu::ticks;

    use crate::header::MAX_RECORD_BYTES;
    use crate::memory::full_fence;

    /// Below this, going around the cache costs more than it saves.
    pub(super) const LEAST_BYTES: usize = 4096;

    /// One copy in so many is measured for each of the two ways, the first ones more often.
    const PERIOD: u32 = 512;

    /// What the two ways have cost this thread, in ticks per 64 lines.
    #[derive(Clone, Copy, Default)]
    struct Costs {
        copies: u32,
        through: u64,
        around: u64,
    }

    thread_local! {
        static COSTS: Cell<Costs> = const {
            Cell::new(Costs { copies: 0, through: 0, around: 0 })
        };
    }

    impl Costs {
        /// Whether the next copy is to be measured: through the cache, then around it.
        fn is_measured(&self) -> bool {
            let pair = self.copies / 2;
            pair.is_power_of_two() || pair.is_multiple_of(PERIOD / 2)
        }

        /// Whether to go around the cache. The receiver then waits for memory, which a message of
        /// several records hides and a small one does not: there the gain must be a clear one.
        fn favours_around(&self, bytes: usize) -> bool {
            let handicap = if bytes < MAX_RECORD_BYTES { 2 } else { 1 };
            self.around * handicap < self.through
        }
    }

    /// What a way costs after one more measurement. Page faults and lost processors only make
    /// copies slower, so the fastest counts, and is forgotten slowly.
    fn settle(old: u64, new: u64) -> u64 {
        if old == 0 {
            return new;
        }
        new.min(old + old.div_ceil(8))
    }

    /// Copy a large piece in the way that has cost less lately.
    ///
    /// # Safety
    /// As [`super::into_ring`].
    pub(super) unsafe fn into_ring(from: *const u8, to: *mut u8, bytes: usize) {
        let mut costs = COSTS.get();
        costs.copies = costs.copies.wrapping_add(1);
        if !costs.is_measured() {
            let way = if costs.favours_around(bytes) {
                around
            } else {
                through
            };
            // SAFETY: the caller's promise.
            unsafe { way(from, to, bytes) };
        } else if costs.copies.is_multiple_of(2) {
            // SAFETY: the caller's promise.
            let cost = unsafe { measure(through, from, to, bytes) };
            costs.through = settle(costs.through, cost);
        } else {
            // SAFETY: the caller's promise.
            let cost = unsafe { measure(around, from, to, bytes) };
            costs.around = settle(costs.around, cost);
        }
        COSTS.set(costs);
    }

    /// Copy, and return the ticks per 64 lines until all is written.
    ///
    /// # Safety
    /// As [`super::into_ring`].
    unsafe fn measure(
        way: unsafe fn(*const u8, *mut u8, usize),
        from: *const u8,
        to: *mut u8,
        bytes: usize,
    ) -> u64 {
        full_fence();
        let start = ticks();
        // SAFETY: the caller's promise.
        unsafe { way(from, to, bytes) };
        full_fence();
        ticks().saturating_sub(start) * 64 / (bytes / LINE_BYTES) as u64
    }

    /// Copy through the cache.
    ///
    /// # Safety
    /// As [`super::into_ring`].
    unsafe fn through(from: *const u8, to: *mut u8, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(from, to, bytes) };
    }

    /// Copy around the cache. Only whole lines: one that is written both ways goes back and forth.
    ///
    /// # Safety
    /// As [`super::into_ring`].
    pub(super) unsafe fn around(from: *const u8, to: *mut u8, bytes: usize) {
        let head = to.align_offset(LINE_BYTES).min(bytes);
        let lines = (bytes - head) / LINE_BYTES;
        let tail = head + lines * LINE_BYTES;
        // SAFETY: the caller's promise, for the first `head` bytes.
        unsafe { through(from, to, head) };
        for line in 0..lines {
            let offset = head + line * LINE_BYTES;
            // SAFETY: the line ends at `tail` at most, and is one of the target's.
            unsafe { stream_line(from.wrapping_add(offset), to.wrapping_add(offset)) };
        }
        let (from, to) = (from.wrapping_add(tail), to.wrapping_add(tail));
        // SAFETY: the caller's promise, for what is left.
        unsafe { through(from, to, bytes - tail) };
        // SAFETY: every x86-64 has SSE. Streaming stores are ordered by this fence only.
        unsafe { _mm_sfence() };
    }

    /// Write one line.
    ///
    /// # Safety
    /// As [`super::into_ring`] for a line; `to` must be aligned to it.
    #[inline]
    unsafe fn stream_line(from: *const u8, to: *mut u8) {
        let (from, to) = (from.cast::<__m128i>(), to.cast::<__m128i>());
        for quarter in 0..LINE_BYTES / size_of::<__m128i>() {
            // SAFETY: a quarter of the line that the caller vouches for.
            let value = unsafe { _mm_loadu_si128(from.wrapping_add(quarter)) };
            // SAFETY: as above, and aligned.
            unsafe { _mm_stream_si128(to.wrapping_add(quarter), value) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARGIN: usize = 130;

    type Way = unsafe fn(*const u8, *mut u8, usize);

    /// Copy at every alignment, and look at what was written and what was not.
    fn check(way: Way, bytes: usize) {
        let source: Vec<u8> = (0..=250).cycle().take(bytes + MARGIN).collect();
        for shift in 0..=LINE_BYTES {
            let (from, to) = (shift % 17, shift);
            let mut target = vec![0xee; to + bytes + MARGIN];
            // SAFETY: both vectors reach further than the copy.
            unsafe { way(source[from..].as_ptr(), target[to..].as_mut_ptr(), bytes) };
            assert_eq!(target[to..to + bytes], source[from..from + bytes]);
            let untouched = target[..to].iter().chain(&target[to + bytes..]);
            assert!(
                untouched.copied().all(|byte| byte == 0xee),
                "{bytes} bytes at {to}"
            );
        }
    }

    #[test]
    fn small_copies_write_exactly_their_bytes() {
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
}
