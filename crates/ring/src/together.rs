//! Lines of a ring that lie together, as those of nearly all messages do: found once, and then used without asking for each where
//! it lies.

use core::sync::atomic::{AtomicU64, Ordering};

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_sys::program::Fault;

use crate::copy;
use crate::header::HEADER_BYTES;
use crate::memory::{LaneMemory, full_fence};

/// Lines of a ring that lie together, counted from the first.
pub trait Lines: Copy {
    /// As [`LaneMemory::header`].
    ///
    /// # Safety
    /// There must be that line.
    unsafe fn header(self, line: u64) -> u64;

    /// As [`LaneMemory::clear`].
    ///
    /// # Safety
    /// There must be that line.
    unsafe fn clear(self, line: u64);

    /// As [`LaneMemory::publish`], at the first line.
    ///
    /// # Safety
    /// There must be a line.
    unsafe fn publish(self, header: u64);

    /// Copy into the lines, from byte `at` on; ordered before the next `publish`.
    ///
    /// # Errors
    /// As [`LaneMemory::copy_in`].
    ///
    /// # Safety
    /// There must be so many bytes, and `from` must be as [`LaneMemory::copy_in`] demands.
    unsafe fn copy_in(self, at: usize, from: *const u8, bytes: usize) -> Result<(), Fault>;

    /// As [`Lines::copy_in`], at most a line.
    ///
    /// # Errors
    /// As [`LaneMemory::copy_in`].
    ///
    /// # Safety
    /// As [`Lines::copy_in`].
    #[inline]
    unsafe fn copy_few_in(self, at: usize, from: *const u8, bytes: usize) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        unsafe { self.copy_in(at, from, bytes) }
    }

    /// As [`Lines::copy_in`], what the first line has room for behind its header.
    ///
    /// # Errors
    /// As [`LaneMemory::copy_in`].
    ///
    /// # Safety
    /// As [`Lines::copy_in`].
    #[inline]
    unsafe fn copy_first_in(self, from: *const u8) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        unsafe { self.copy_in(HEADER_BYTES, from, copy::FIRST_BYTES) }
    }

    /// Copy out of the lines, from byte `at` on.
    ///
    /// # Errors
    /// As [`LaneMemory::copy_out`].
    ///
    /// # Safety
    /// There must be so many bytes, and `to` must be as [`LaneMemory::copy_out`] demands.
    unsafe fn copy_out(self, at: usize, to: *mut u8, bytes: usize) -> Result<(), Fault>;
}

/// Lines of a lane that have no address.
#[derive(Debug)]
pub struct ByLine<'a, L>(pub &'a L, pub u32);

impl<L> Clone for ByLine<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for ByLine<'_, L> {}

impl<L: LaneMemory> ByLine<'_, L> {
    fn line(self, line: u64) -> u32 {
        let line = u64::from(self.1) + line;
        // Masked to the ring, which has at most 2^18 lines.
        u32::try_from(line & u64::from(self.0.lines() - 1)).unwrap_or(0)
    }

    fn offset(self, at: usize) -> usize {
        self.1 as usize * LINE_BYTES + at
    }
}

impl<L: LaneMemory> Lines for ByLine<'_, L> {
    unsafe fn header(self, line: u64) -> u64 {
        self.0.header(self.line(line))
    }

    unsafe fn clear(self, line: u64) {
        self.0.clear(self.line(line));
    }

    unsafe fn publish(self, header: u64) {
        self.0.publish(self.1, header);
    }

    unsafe fn copy_in(self, at: usize, from: *const u8, bytes: usize) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        unsafe { self.0.copy_in(self.offset(at), from, bytes) }
    }

    unsafe fn copy_out(self, at: usize, to: *mut u8, bytes: usize) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        unsafe { self.0.copy_out(self.offset(at), to, bytes) }
    }
}

/// Where lines of a window lie.
#[derive(Clone, Copy, Debug)]
pub struct Spot(*mut u8);

impl Spot {
    /// Where the first of them lies.
    #[inline]
    pub(crate) fn at(first: *mut u8) -> Self {
        Self(first)
    }

    /// # Safety
    /// There must be that line.
    #[inline]
    unsafe fn cell<'a>(self, line: u64) -> &'a AtomicU64 {
        let line = usize::try_from(line).unwrap_or(0);
        let cell = self.0.wrapping_add(line * LINE_BYTES);
        // SAFETY: inside the ring by the caller's promise, aligned to a line, and an atomic may be changed by the peer.
        unsafe { &*cell.cast::<AtomicU64>() }
    }
}

impl Lines for Spot {
    #[inline]
    unsafe fn header(self, line: u64) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { self.cell(line) }.load(Ordering::Acquire) // SYNC: record
    }

    #[inline]
    unsafe fn clear(self, line: u64) {
        // SAFETY: the caller's promise.
        unsafe { self.cell(line) }.store(0, Ordering::Relaxed);
    }

    #[inline]
    unsafe fn publish(self, header: u64) {
        // Exchanging the header itself would make it wait for all stores before it.
        // SAFETY: the caller's promise.
        unsafe { self.cell(0) }.store(header, Ordering::Release); // SYNC: record
        full_fence();
    }

    #[inline]
    unsafe fn copy_in(self, at: usize, from: *const u8, bytes: usize) -> Result<(), Fault> {
        // SAFETY: the caller's promise; the ring is no Rust object, so a racing peer can only spoil bytes.
        unsafe { copy::into_ring(from, self.0.wrapping_add(at), bytes) }
    }

    #[inline]
    unsafe fn copy_few_in(self, at: usize, from: *const u8, bytes: usize) -> Result<(), Fault> {
        // SAFETY: as above.
        unsafe { copy::few_in(from, self.0.wrapping_add(at), bytes) }
    }

    #[inline]
    unsafe fn copy_first_in(self, from: *const u8) -> Result<(), Fault> {
        // SAFETY: as above.
        unsafe { copy::first_in(from, self.0.wrapping_add(HEADER_BYTES)) }
    }

    #[inline(always)]
    unsafe fn copy_out(self, at: usize, to: *mut u8, bytes: usize) -> Result<(), Fault> {
        // SAFETY: as above.
        unsafe { copy::out_of_ring(self.0.wrapping_add(at), to, bytes) }
    }
}
