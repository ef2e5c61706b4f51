//! Messages that are one record, from or into one buffer, in few instructions. What is not
//! done here is for [`TxCursor::write_record`] and [`RxCursor::read`], which do all.

use crate::copy::FIRST_BYTES;
use crate::header::{self, HEADER_BYTES, MAX_RECORD_BYTES, Record, lines_for};
use crate::memory::LaneMemory;
use crate::receive::RxCursor;
use crate::send::{TxCursor, worth_waking};
use crate::together::Lines;
use crate::trace::{Point, mark};
use crosslane_ctl::lane::LINE_BYTES;
use crosslane_sys::program::Fault;

/// Most bytes of a short message.
pub const SHORT_BYTES: usize = MAX_RECORD_BYTES;

/// So many lines are written one by one.
pub const FEW_LINES: usize = 4;

/// Most payload of few lines.
const FEW_BYTES: usize = FEW_LINES * LINE_BYTES - HEADER_BYTES;

/// A record that has been taken whole, with nothing behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    /// Bytes copied.
    pub bytes: usize,
    /// As [`crate::receive::Taken::passed_quarter`].
    pub passed_quarter: bool,
}

impl TxCursor {
    /// Append `bytes` as one record. False, with nothing written, if they are none or too
    /// many, if there is not known to be room, if it would not lie together, or if they are not there.
    ///
    /// # Safety
    /// `from` must be valid for reads of `bytes`, or where the program says that its buffer is.
    #[inline(always)]
    pub unsafe fn write_short(
        &mut self,
        lane: &impl LaneMemory,
        from: *const u8,
        bytes: usize,
    ) -> bool {
        let lines = lines_for(bytes);
        let is_short = bytes.wrapping_sub(1) < SHORT_BYTES;
        if !is_short || !self.has_free(lane, lines) || self.is_at_turn(lane) {
            return false;
        }
        let tail = self.tail;
        // With the header behind the record.
        let Some(spot) = lane.together(Self::wrapped(lane, tail), lines + 1) else {
            return false;
        };
        let header = header::data(bytes, tail, lane.lines());
        // SAFETY: the caller's promise, and the spot has the record's lines and one more.
        if unsafe { put(spot, from, bytes) }.is_err() {
            return false;
        }
        mark(Point::CopiedIn);
        // SAFETY: as above.
        unsafe { spot.publish(header) };
        mark(Point::Published);
        self.tail = tail + lines;
        true
    }

    /// As [`TxCursor::write_short`], into our own copy of a ring and into the window, where the receiver finds it. Such a
    /// lane does not turn.
    ///
    /// # Safety
    /// As [`TxCursor::write_short`].
    #[inline]
    pub unsafe fn write_short_twice<L: LaneMemory>(
        &mut self,
        [own, window]: [&L; 2],
        from: *const u8,
        bytes: usize,
    ) -> bool {
        let lines = lines_for(bytes);
        let is_short = bytes.wrapping_sub(1) < SHORT_BYTES;
        if !is_short || !self.has_free(own, lines) {
            return false;
        }
        let (tail, next) = (self.tail, self.tail + lines);
        // With the header behind the record.
        let Some(spot) = window.together(Self::wrapped(window, tail), lines + 1) else {
            return false;
        };
        own.clear(Self::wrapped(own, next));
        let offset = Self::offset(own, tail) + HEADER_BYTES;
        // SAFETY: the caller's promise.
        let is_kept = unsafe { own.copy_in(offset, from, bytes) }.is_ok();
        // SAFETY: the caller's promise, and the spot has the record's lines and one more.
        if !is_kept || unsafe { put(spot, from, bytes) }.is_err() {
            return false;
        }
        mark(Point::CopiedIn);
        let header = header::data(bytes, tail, own.lines());
        own.set_header(Self::wrapped(own, tail), header);
        // SAFETY: as above.
        unsafe { spot.publish(header) };
        mark(Point::Published);
        self.tail = next;
        true
    }
}

/// Copy the payload of a record, and clear the header behind it.
///
/// # Safety
/// As [`TxCursor::write_short`], and the spot must have the record's lines and one more.
#[inline]
unsafe fn put(spot: impl Lines, from: *const u8, bytes: usize) -> Result<(), Fault> {
    let next = lines_for(bytes);
    if bytes > FEW_BYTES {
        // SAFETY: the caller's promise.
        unsafe { put_many(spot, from, bytes) }?;
        // SAFETY: the caller's promise.
        unsafe { spot.clear(next) };
        return Ok(());
    }
    // The receiver polls the first line and takes it away at every look. So it is written at last
    // and at once.
    if bytes <= FIRST_BYTES {
        // SAFETY: the caller's promise.
        unsafe { spot.clear(next) };
        // SAFETY: the caller's promise.
        return unsafe { spot.copy_few_in(HEADER_BYTES, from, bytes) };
    }
    let mut done = FIRST_BYTES;
    while done < bytes {
        let (rest, piece) = (from.wrapping_add(done), (bytes - done).min(LINE_BYTES));
        // SAFETY: the caller's promise, from `done` on.
        unsafe { spot.copy_few_in(HEADER_BYTES + done, rest, piece) }?;
        done += piece;
    }
    // SAFETY: the caller's promise.
    unsafe { spot.clear(next) };
    // SAFETY: the caller's promise, of a whole line.
    unsafe { spot.copy_first_in(from) }
}

/// Copy a payload of many lines. Not cold at all, but what few lines take shall be in registers.
///
/// # Safety
/// As [`put`].
#[cold]
unsafe fn put_many(spot: impl Lines, from: *const u8, bytes: usize) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { spot.copy_in(HEADER_BYTES, from, bytes) }
}

impl RxCursor {
    /// Bytes of the record at the cursor, if it is one of data of which nothing has been taken.
    #[inline]
    pub fn whole_bytes(&self, lane: &impl LaneMemory) -> Option<usize> {
        let found = lane.header(Self::wrapped(lane, self.head));
        match header::check(found, self.head, lane.lines()) {
            Ok(Record::Data { bytes }) if found != 0 && self.taken == 0 => Some(bytes),
            _ => None,
        }
    }

    /// Take one record, whole, and tell the sender. `None`, with nothing read, if there is none, if
    /// it has more than `most` bytes, or if a receive of so many goes on behind it, or may, as its message does. A lie is left for
    /// [`RxCursor::read`] to find.
    ///
    /// # Safety
    /// `to` must be valid for writes of `most` bytes, or where the program says that its buffer is.
    #[inline(always)]
    pub unsafe fn read_short<L: LaneMemory>(
        &mut self,
        lane: &L,
        to: *mut u8,
        most: usize,
    ) -> Option<Whole> {
        // SAFETY: the caller's promise.
        unsafe { self.read_short_if(lane, to, most, || true) }
    }

    /// As [`RxCursor::read_short`], unless `is_valid`, asked after all has been read and before anybody is told, says that
    /// this is nothing.
    ///
    /// # Safety
    /// As [`RxCursor::read_short`].
    #[inline(always)]
    pub unsafe fn read_short_if<L: LaneMemory>(
        &mut self,
        lane: &L,
        to: *mut u8,
        most: usize,
        is_valid: impl FnOnce() -> bool,
    ) -> Option<Whole> {
        let line = Self::wrapped(lane, self.head);
        let found = lane.header(line);
        // No record is no record of data.
        let bytes = header::last_data(found, self.head, lane.lines())?;
        let lines = lines_for(bytes);
        // With the header behind the record.
        let spot = lane.together(line, lines + 1)?;
        // SAFETY: the spot has the record's lines and one more.
        let is_followed = || bytes < most && unsafe { spot.header(lines) } != 0;
        if self.taken != 0 || bytes > most || is_followed() {
            return None;
        }
        mark(Point::Found);
        // SAFETY: the caller's promise, there are at most `most`, and the spot has the record's lines.
        unsafe { spot.copy_out(HEADER_BYTES, to, bytes) }.ok()?;
        mark(Point::CopiedOut);
        if !is_valid() {
            return None;
        }
        let next = self.head + lines;
        let passed = self.head ^ next;
        // No ring has a smaller quarter.
        let least = u64::from(L::LEAST_LINES / 4);
        let passed_quarter = passed >= least && passed >= worth_waking(lane);
        self.head = next;
        lane.set_consumed(self.position(), passed_quarter);
        Some(Whole {
            bytes,
            passed_quarter,
        })
    }
}
