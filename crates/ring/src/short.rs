//! Messages that are one record, from or into one buffer, in few instructions. What is not
//! done here is for [`TxCursor::write_record`] and [`RxCursor::read`], which do all.

use crate::header::{self, HEADER_BYTES, MAX_RECORD_BYTES, Record, lines_for};
use crate::memory::LaneMemory;
use crate::receive::RxCursor;
use crate::send::{TxCursor, worth_waking};
use crate::trace::{Point, mark};
use crosslane_ctl::lane::LINE_BYTES;

/// Most bytes of a short message.
pub const SHORT_BYTES: usize = MAX_RECORD_BYTES;

/// So many lines are written one by one.
pub const FEW_LINES: usize = 4;

/// Most payload of few lines.
const FEW_BYTES: usize = FEW_LINES * LINE_BYTES - HEADER_BYTES;

/// Payload of a record's first line.
const FIRST_BYTES: usize = LINE_BYTES - HEADER_BYTES;

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
    /// many, or if there is not known to be room.
    ///
    /// # Safety
    /// `from` must be valid for reads of `bytes`.
    #[inline(always)]
    pub unsafe fn write_short(
        &mut self,
        lane: &impl LaneMemory,
        from: *const u8,
        bytes: usize,
    ) -> bool {
        let lines = lines_for(bytes);
        let is_short = bytes.wrapping_sub(1) < SHORT_BYTES;
        if !is_short || self.free(lane) < lines || self.is_at_turn(lane) {
            return false;
        }
        let (tail, next) = (self.tail, self.tail + lines);
        let header = header::data(bytes, tail, lane.lines());
        // SAFETY: the caller's promise.
        unsafe { Self::put(lane, tail, from, bytes) };
        mark(Point::CopiedIn);
        lane.publish(Self::wrapped(lane, tail), header);
        mark(Point::Published);
        self.tail = next;
        true
    }

    /// Copy the payload of a record at `tail`, and clear the header behind it.
    ///
    /// # Safety
    /// As [`TxCursor::write_short`].
    #[inline]
    unsafe fn put(lane: &impl LaneMemory, tail: u64, from: *const u8, bytes: usize) {
        let next = Self::wrapped(lane, tail + lines_for(bytes));
        if bytes > FEW_BYTES {
            // SAFETY: the caller's promise.
            unsafe { Self::put_many(lane, tail, from, bytes) };
            return lane.clear(next);
        }
        // The receiver polls the first line and takes it away at every look. So it is written at last
        // and at once.
        if bytes <= FIRST_BYTES {
            lane.clear(next);
            // SAFETY: the caller's promise.
            return unsafe {
                lane.copy_into_line(Self::wrapped(lane, tail), HEADER_BYTES, from, bytes)
            };
        }
        let (mut line, mut done) = (tail + 1, FIRST_BYTES);
        while done < bytes {
            let (rest, piece) = (from.wrapping_add(done), (bytes - done).min(LINE_BYTES));
            // SAFETY: the caller's promise, from `done` on.
            unsafe { lane.copy_into_line(Self::wrapped(lane, line), 0, rest, piece) };
            (line, done) = (line + 1, done + piece);
        }
        lane.clear(next);
        // SAFETY: the caller's promise, of a whole line.
        unsafe { lane.copy_into_line(Self::wrapped(lane, tail), HEADER_BYTES, from, FIRST_BYTES) };
    }

    /// Copy a payload of many lines. Not cold at all, but what few lines take shall be in registers.
    ///
    /// # Safety
    /// As [`TxCursor::write_short`].
    #[cold]
    unsafe fn put_many(lane: &impl LaneMemory, tail: u64, from: *const u8, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { lane.copy_in(Self::offset(lane, tail) + HEADER_BYTES, from, bytes) };
    }
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
    /// it has more than `most` bytes, or if a receive of so many goes on behind it, or may. A lie is left for
    /// [`RxCursor::read`] to find.
    ///
    /// # Safety
    /// `to` must be valid for writes of `most` bytes.
    #[inline(always)]
    pub unsafe fn read_short(
        &mut self,
        lane: &impl LaneMemory,
        to: *mut u8,
        most: usize,
    ) -> Option<Whole> {
        let found = lane.header(Self::wrapped(lane, self.head));
        if found == 0 || self.taken != 0 {
            return None;
        }
        let Ok(Record::Data { bytes }) = header::check(found, self.head, lane.lines()) else {
            return None;
        };
        let next = self.head + lines_for(bytes);
        let is_part = header::goes_on(found);
        let goes_on = || bytes < most && (is_part || lane.header(Self::wrapped(lane, next)) != 0);
        if bytes > most || goes_on() {
            return None;
        }
        mark(Point::Found);
        let offset = Self::offset(lane, self.head) + HEADER_BYTES;
        // SAFETY: the caller's promise, and there are at most `most`.
        unsafe { lane.copy_out(offset, to, bytes) };
        mark(Point::CopiedOut);
        let quarter = worth_waking(lane);
        let passed_quarter = (self.head ^ next) >= quarter;
        self.head = next;
        lane.set_consumed(self.position(), passed_quarter);
        Some(Whole {
            bytes,
            passed_quarter,
        })
    }
}
