//! What a lane needs of the memory it lives in.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use crosslane_ctl::lane::{
    LANE_CONTROL_BYTES, LINE_BYTES, LaneControl, MAX_RING_LINES, MIN_RING_LINES, PAGE_BYTES,
};
use crosslane_ctl::layout::{LanePlace, PARTS, part_ends, part_of};
use crosslane_sys::program::Fault;
use crosslane_sys::store_wait::StoreWait;
use crosslane_window::arena::LaneView;
use crosslane_window::bytes::Bytes;
use crosslane_window::view::View;

use crate::copy;
use crate::reserve::Piece;
use crate::together::{Lines, Spot};

/// The memory of one lane. The algorithms of this crate are generic over it, so that the same
/// code runs on a window, under the model checker and on simulated windows.
pub trait LaneMemory {
    /// No ring of this kind has fewer lines.
    const LEAST_LINES: u32 = 1;

    /// Lines in the ring, a power of two.
    fn lines(&self) -> u32;

    /// Whether a sender may go on at the start of the next lap before it has filled this one.
    fn may_turn(&self) -> bool {
        true
    }

    /// Whether its sender, who may turn, wants little on its way: it never uses more than a small ring.
    fn is_bounded(&self) -> bool {
        false
    }

    /// Lines beyond a small ring are used from now on, by a sender that may turn.
    fn note_growth(&self) {}

    /// Lines that lie together: [`ByLine`](crate::together::ByLine) where they have no address.
    type Lines<'a>: Lines
    where
        Self: 'a;

    /// The lines from `line` on, if so many lie together.
    fn together(&self, line: u32, lines: u64) -> Option<Self::Lines<'_>>;

    /// Read the header at a line, with acquire order.
    fn header(&self, line: u32) -> u64;

    /// Write 0 as the header at a line; ordered before the next `publish`.
    fn clear(&self, line: u32);

    /// Write a header that the receiver does not look at before it has seen the next one that is
    /// published; ordered before that `publish`.
    fn set_header(&self, line: u32, header: u64);

    /// Write a header with release order; what the caller reads afterwards is read after the
    /// header has become visible (a full fence).
    fn publish(&self, line: u32, header: u64);

    /// Copy into the ring, from byte `offset` of the ring on, which is not wrapped here; ordered
    /// before the next `publish`.
    ///
    /// # Errors
    /// If the buffer is not there. Then some of the ring may be spoilt.
    ///
    /// # Safety
    /// `from` must be valid for reads of `bytes`, or where the program says that its buffer is.
    unsafe fn copy_in(&self, offset: usize, from: *const u8, bytes: usize) -> Result<(), Fault>;

    /// Copy out of the ring, from byte `offset` of the ring on, which is not wrapped here.
    ///
    /// # Errors
    /// If the buffer is not there. Then some of it may be spoilt.
    ///
    /// # Safety
    /// `to` must be valid for writes of `bytes`, or where the program says that its buffer is.
    unsafe fn copy_out(&self, offset: usize, to: *mut u8, bytes: usize) -> Result<(), Fault>;

    /// What the receiver has said it has consumed.
    fn consumed(&self) -> u64;

    /// Say what has been consumed. With `fenced`, what the caller reads afterwards is read after
    /// it has become visible.
    fn set_consumed(&self, consumed: u64, fenced: bool);
}

/// A lane in a window.
#[derive(Clone, Copy, Debug)]
pub struct WindowLane {
    control: *const LaneControl,
    /// For each part, where the ring's first line would lie: [`LanePlace::ring`].
    ring: [*mut u8; PARTS],
    lines: u32,
    is_bounded: bool,
}

// SAFETY: a lane is two addresses; every access through them is atomic or a raw copy.
unsafe impl Send for WindowLane {}
// SAFETY: as above.
unsafe impl Sync for WindowLane {}

impl WindowLane {
    /// The lane that lies in `view` in one piece, or `None` if it is too small or not aligned to a line, or if
    /// no ring has so many lines.
    pub fn new(view: View, lines: u32) -> Option<Self> {
        let place = LanePlace {
            control: 0,
            ring: [LANE_CONTROL_BYTES; PARTS],
        };
        Self::in_arena(LaneView { arena: view, place }, lines)
    }

    /// The lane that lies there in its arena; `None` as for [`WindowLane::new`].
    pub fn in_arena(LaneView { arena, place }: LaneView, lines: u32) -> Option<Self> {
        // In a smaller ring, a header that lies about its length would reach over a whole lap.
        let is_ring = lines.is_power_of_two() && (MIN_RING_LINES..=MAX_RING_LINES).contains(&lines);
        if !is_ring || !arena.start().addr().get().is_multiple_of(LINE_BYTES) {
            return None;
        }
        let control = arena.part(place.control, LANE_CONTROL_BYTES)?.start();
        let mut first = 0;
        for (end, start) in part_ends(lines).into_iter().zip(place.ring) {
            let [offset, bytes] = [first, end - first].map(|lines| lines as usize * LINE_BYTES);
            arena.part(start.checked_add(offset)?, bytes)?;
            first = end;
        }
        let is_line = |offset: &usize| offset.is_multiple_of(LINE_BYTES);
        let is_aligned = is_line(&place.control) && place.ring.iter().all(is_line);
        let start = arena.start().as_ptr();
        is_aligned.then(|| Self {
            control: control.cast().as_ptr(),
            ring: place.ring.map(|offset| start.wrapping_add(offset)),
            lines,
            is_bounded: false,
        })
    }

    /// The control lines of this lane, and the ring of another one, which must be as long.
    #[must_use]
    pub fn with_ring_of(self, other: &Self) -> Option<Self> {
        let ring = other.ring;
        (self.lines == other.lines).then_some(Self { ring, ..self })
    }

    /// The lane of a sender that wants little on its way, or does not.
    #[must_use]
    pub fn bounded(self, is_bounded: bool) -> Self {
        Self { is_bounded, ..self }
    }

    /// The addresses and size of the lane, for keeping it in atomics.
    pub fn into_raw(self) -> (*mut LaneControl, [*mut u8; PARTS], u32) {
        (self.control.cast_mut(), self.ring, self.lines)
    }

    /// The lane again.
    ///
    /// # Safety
    /// The three must come from [`WindowLane::into_raw`], and the memory must still be mapped.
    #[inline]
    pub unsafe fn from_raw(control: *mut LaneControl, ring: [*mut u8; PARTS], lines: u32) -> Self {
        Self {
            control,
            ring,
            lines,
            is_bounded: false,
        }
    }

    /// The control lines.
    #[inline]
    pub fn control(&self) -> &LaneControl {
        // SAFETY: `new` checked bounds and alignment, the view's owner keeps the memory mapped,
        // and every field is an atomic, so that changes by the peer are allowed.
        unsafe { &*self.control }
    }

    /// Rest until the header at a line is written, for `ticks` at most, unless `is_due` says that there is
    /// something already.
    pub fn rest(&self, how: StoreWait, line: u32, ticks: u64, is_due: impl FnOnce() -> bool) {
        how.rest(self.header_cell(line), ticks, is_due);
    }

    /// Whether it is not one [`WindowLane::with_ring_of`] another.
    #[inline]
    fn has_own_ring(&self) -> bool {
        // Control lines and head of one lane are less than a page apart, and memory of another arena is further away.
        let [head, ..] = self.ring;
        head.addr().wrapping_sub(self.control.addr()) < PAGE_BYTES
    }

    #[inline]
    fn header_cell(&self, line: u32) -> &AtomicU64 {
        // SAFETY: inside the ring, aligned to a line, and an atomic may be changed by the peer.
        unsafe { &*self.line(line).cast::<AtomicU64>() }
    }

    /// Where the ring would begin if all of it lay where this line does, and the line behind that part of it. Told apart by
    /// branches, so that all stays in registers.
    #[inline]
    fn part(&self, line: u32) -> (*mut u8, u32) {
        let ([head, near, far], ends) = (self.ring, part_ends(self.lines));
        match part_of(line) {
            0 => (head, ends[0]),
            1 => (near, ends[1]),
            _ => (far, ends[2]),
        }
    }

    /// Where a line of the ring lies.
    #[inline]
    fn line(&self, line: u32) -> *mut u8 {
        let line = line & (self.lines - 1);
        let (start, _) = self.part(line);
        // Masked to lie inside the ring, the bounds of whose parts `in_arena` checked.
        start.wrapping_add(line as usize * LINE_BYTES)
    }

    /// Ask for a line that is about to be read.
    #[inline]
    pub fn prefetch(&self, line: u32) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let cell = core::ptr::from_ref(self.header_cell(line));
            // SAFETY: every x86-64 has SSE, and a prefetch is a hint only.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(cell.cast()) };
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = line;
    }

    /// Ask for the line so many lines behind one, if it lies together with that, as it is about to be written: so that
    /// the write does not wait until the peer has given it up.
    #[inline]
    pub fn prefetch_to_write(&self, line: u32, ahead: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let cell = self.line(line).wrapping_add(ahead * LINE_BYTES);
            // SAFETY: a hint only, for processors that know it; the others take it as no operation.
            unsafe {
                core::arch::asm!(
                    "prefetchw byte ptr [{}]",
                    in(reg) cell,
                    options(nostack, preserves_flags, readonly)
                );
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = (line, ahead);
    }

    /// Where a piece of the ring lies, or `None` if it does not lie inside and together.
    #[inline]
    pub fn view(&self, piece: Piece) -> Option<View> {
        let ring_bytes = self.lines as usize * LINE_BYTES;
        let (start, room) = self.from(piece.offset);
        if piece.offset >= ring_bytes || piece.bytes > room {
            return None;
        }
        // SAFETY: `in_arena` checked that the ring has so many bytes there; the view's owner keeps them
        // mapped, and others reach them through atomics and raw copies only.
        Some(unsafe { View::from_raw(NonNull::new(start)?, piece.bytes) })
    }

    /// The pieces of the ring that `bytes` from `offset` on consist of.
    pub fn pieces(&self, offset: usize, bytes: usize) -> impl Iterator<Item = Piece> {
        let (lane, ring_bytes) = (*self, self.lines as usize * LINE_BYTES);
        let (mut offset, mut left) = (offset, bytes);
        core::iter::from_fn(move || {
            offset &= ring_bytes - 1;
            let piece = Piece {
                offset,
                bytes: left.min(lane.from(offset).1),
            };
            (offset, left) = (offset + piece.bytes, left - piece.bytes);
            (piece.bytes > 0).then_some(piece)
        })
    }

    /// Copy bytes, perhaps of another lane, into a piece of the ring, in the way that is fastest for
    /// so many; ordered before the next `publish`.
    ///
    /// # Panics
    /// If they do not fit there.
    #[inline]
    pub fn put(&self, piece: Piece, from: Bytes<'_>) {
        assert!(from.len() <= piece.bytes);
        // SAFETY: the bytes are valid for as long as they are lent; `copy_in` checks the piece.
        let copied = unsafe { self.copy_in(piece.offset, from.as_ptr(), from.len()) };
        copied.expect("what is lent is there");
    }

    /// Copy out what lies in several pieces.
    ///
    /// # Errors
    /// As [`LaneMemory::copy_out`].
    ///
    /// # Safety
    /// As [`LaneMemory::copy_out`]; the ring must have so many bytes.
    #[cold]
    unsafe fn copy_pieces_out(
        &self,
        offset: usize,
        to: *mut u8,
        bytes: usize,
    ) -> Result<(), Fault> {
        let mut done = 0;
        for piece in self.pieces(offset, bytes) {
            // The pieces are `bytes` in all.
            let rest = to.wrapping_add(done);
            // SAFETY: the caller's promise; the ring is no Rust object, so a racing peer can only spoil bytes.
            unsafe { copy::out_of_ring(self.from(piece.offset).0, rest, piece.bytes) }?;
            done += piece.bytes;
        }
        Ok(())
    }

    /// Copy into a part of the ring: of another lane's, which nobody else looks at, through the cache.
    ///
    /// # Errors
    /// As [`LaneMemory::copy_in`].
    ///
    /// # Safety
    /// As [`LaneMemory::copy_in`]; the part must have so many bytes.
    #[inline]
    unsafe fn copy_part_in(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<(), Fault> {
        match self.has_own_ring() {
            // SAFETY: the caller's promise; the ring is no Rust object, so a racing peer can only spoil bytes.
            true => unsafe { copy::into_ring(from, to, bytes) },
            // SAFETY: as above.
            false => unsafe { copy::through(from, to, bytes) },
        }
    }

    /// As [`WindowLane::copy_pieces_out`], into the ring.
    ///
    /// # Errors
    /// As [`LaneMemory::copy_in`].
    ///
    /// # Safety
    /// As [`LaneMemory::copy_in`]; the ring must have so many bytes.
    #[cold]
    unsafe fn copy_pieces_in(
        &self,
        offset: usize,
        from: *const u8,
        bytes: usize,
    ) -> Result<(), Fault> {
        let mut done = 0;
        for piece in self.pieces(offset, bytes) {
            // The pieces are `bytes` in all.
            let rest = from.wrapping_add(done);
            // SAFETY: the caller's promise.
            unsafe { self.copy_part_in(rest, self.from(piece.offset).0, piece.bytes) }?;
            done += piece.bytes;
        }
        Ok(())
    }

    /// Where a byte of the ring lies, and how many lie together from there on.
    #[inline]
    fn from(&self, offset: usize) -> (*mut u8, usize) {
        let offset = offset & (self.lines as usize * LINE_BYTES - 1);
        // Less than 2^18 lines.
        let (start, end) = self.part(u32::try_from(offset / LINE_BYTES).unwrap_or(0));
        (
            start.wrapping_add(offset),
            end as usize * LINE_BYTES - offset,
        )
    }
}

/// A full fence that is cheaper than `mfence`.
#[inline]
pub fn full_fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: it changes nothing. A locked operation is a full fence for the processor, and a
    // block that may touch any memory is one for the compiler.
    unsafe {
        core::arch::asm!("lock or dword ptr [rsp], 0", options(nostack));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    core::sync::atomic::fence(Ordering::SeqCst);
}

impl LaneMemory for WindowLane {
    /// What [`WindowLane::new`] demands.
    const LEAST_LINES: u32 = MIN_RING_LINES;

    type Lines<'a> = Spot;

    #[inline]
    fn lines(&self) -> u32 {
        self.lines
    }

    /// Not with the ring of another lane, which is posted line by line.
    fn may_turn(&self) -> bool {
        self.has_own_ring()
    }

    #[inline]
    fn is_bounded(&self) -> bool {
        self.is_bounded && self.may_turn()
    }

    fn note_growth(&self) {
        let grown = &self.control().sender.grown;
        if self.may_turn() && grown.load(Ordering::Relaxed) == 0 {
            grown.store(1, Ordering::Relaxed);
        }
    }

    #[inline]
    fn together(&self, line: u32, lines: u64) -> Option<Spot> {
        let (start, end) = self.part(line);
        let is_together = u64::from(line) + lines <= u64::from(end);
        is_together.then(|| Spot::at(start.wrapping_add(line as usize * LINE_BYTES)))
    }

    #[inline]
    fn header(&self, line: u32) -> u64 {
        self.header_cell(line).load(Ordering::Acquire) // SYNC: record
    }

    #[inline]
    fn clear(&self, line: u32) {
        self.header_cell(line).store(0, Ordering::Relaxed);
    }

    #[inline]
    fn set_header(&self, line: u32, header: u64) {
        self.header_cell(line).store(header, Ordering::Relaxed);
    }

    #[inline]
    fn publish(&self, line: u32, header: u64) {
        // Exchanging the header itself would make it wait for all stores before it.
        self.header_cell(line).store(header, Ordering::Release); // SYNC: record
        full_fence();
    }

    #[inline]
    unsafe fn copy_in(&self, offset: usize, from: *const u8, bytes: usize) -> Result<(), Fault> {
        let (target, together) = self.from(offset);
        if bytes <= together {
            // SAFETY: the range lies inside the ring; the source is the caller's promise.
            return unsafe { self.copy_part_in(from, target, bytes) };
        }
        assert!(bytes <= self.lines as usize * LINE_BYTES);
        // SAFETY: the caller's promise, and just checked.
        unsafe { self.copy_pieces_in(offset, from, bytes) }
    }

    #[inline(always)]
    unsafe fn copy_out(&self, offset: usize, to: *mut u8, bytes: usize) -> Result<(), Fault> {
        let (source, together) = self.from(offset);
        if bytes <= together {
            // SAFETY: the range lies inside the ring; the target is the caller's promise.
            return unsafe { copy::out_of_ring(source, to, bytes) };
        }
        assert!(bytes <= self.lines as usize * LINE_BYTES);
        // A copy, so that the lane itself stays in registers.
        // SAFETY: the caller's promise, and just checked.
        unsafe { { *self }.copy_pieces_out(offset, to, bytes) }
    }

    #[inline]
    fn consumed(&self) -> u64 {
        self.control().credit.consumed.load(Ordering::Acquire) // SYNC: credit
    }

    #[inline]
    fn set_consumed(&self, consumed: u64, fenced: bool) {
        let cell = &self.control().credit.consumed;
        cell.store(consumed, Ordering::Release); // SYNC: credit
        if fenced {
            full_fence();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone)]
    #[repr(C, align(64))]
    struct Line {
        bytes: [u8; LINE_BYTES],
    }

    #[test]
    fn what_is_no_ring_is_refused() {
        let bytes = LANE_CONTROL_BYTES + 2 * MIN_RING_LINES as usize * LINE_BYTES;
        let mut lines = vec![
            Line {
                bytes: [0; LINE_BYTES]
            };
            bytes / LINE_BYTES
        ];
        let start = NonNull::from(lines.as_mut_slice()).cast::<u8>();
        // SAFETY: the vector has so many bytes and outlives the view.
        let view = unsafe { View::from_raw(start, bytes) };

        assert!(WindowLane::new(view, MIN_RING_LINES).is_some());
        assert!(WindowLane::new(view, 2 * MIN_RING_LINES).is_some());
        // A header may announce a record longer than these rings are.
        for lines in [0, 1, 2, 64, 128, MIN_RING_LINES / 2] {
            assert!(WindowLane::new(view, lines).is_none(), "{lines} lines");
        }
        for lines in [MIN_RING_LINES + 1, 4 * MIN_RING_LINES, MAX_RING_LINES * 2] {
            assert!(WindowLane::new(view, lines).is_none(), "{lines} lines");
        }
        let shifted = view.part(8, bytes - 8).unwrap();
        assert!(WindowLane::new(shifted, MIN_RING_LINES).is_none());
    }
}
