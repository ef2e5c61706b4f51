//! Records of few lines to or from one buffer, the usual ones, in few instructions. What is not
//! done here is for [`TxCursor::write_record`] and [`RxCursor::read`], which do all.

use crate::header::{self, HEADER_BYTES, Record, lines_for};
use crate::memory::LaneMemory;
use crate::receive::{RxCursor, Taken};
use crate::send::{TxCursor, worth_waking};
use crate::trace::{Point, mark};
use crosslane_ctl::lane::LINE_BYTES;

/// Most lines of a short record.
pub const SHORT_LINES: usize = 4;

/// Most payload of a short record.
pub const SHORT_BYTES: usize = SHORT_LINES * LINE_BYTES - HEADER_BYTES;

/// Payload of a record's first line.
const FIRST_BYTES: usize = LINE_BYTES - HEADER_BYTES;

impl TxCursor {
    /// Append `bytes` as one short record. False, with nothing written, if they are none or too
    /// many, or if there is not known to be room.
    ///
    /// # Safety
    /// `from` must be valid for reads of `bytes`.
    #[inline]
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
        // The receiver polls the first line and takes it away at every look. So it is written at last
        // and at once.
        let first = bytes.min(FIRST_BYTES);
        let (mut line, mut done) = (tail + 1, first);
        while done < bytes {
            let (rest, piece) = (from.wrapping_add(done), (bytes - done).min(LINE_BYTES));
            // SAFETY: the caller's promise, from `done` on.
            unsafe { lane.copy_into_line(Self::wrapped(lane, line), 0, rest, piece) };
            (line, done) = (line + 1, done + piece);
        }
        lane.clear(Self::wrapped(lane, next));
        // SAFETY: the caller's promise.
        unsafe { lane.copy_into_line(Self::wrapped(lane, tail), HEADER_BYTES, from, first) };
        mark(Point::CopiedIn);
        lane.publish(Self::wrapped(lane, tail), header);
        mark(Point::Published);
        self.tail = next;
        true
    }
}

impl RxCursor {
    /// Take one short record, whole, and tell the sender. `None`, with nothing read, if there is none, if
    /// it has more than `most` bytes, or if a receive of so many goes on behind it. A lie is left for
    /// [`RxCursor::read`] to find.
    ///
    /// # Safety
    /// `to` must be valid for writes of `most` bytes.
    #[inline]
    pub unsafe fn read_short(
        &mut self,
        lane: &impl LaneMemory,
        to: *mut u8,
        most: usize,
    ) -> Option<Taken> {
        let found = lane.header(Self::wrapped(lane, self.head));
        if found == 0 || self.taken != 0 {
            return None;
        }
        let Ok(Record::Data { bytes }) = header::check(found, self.head, lane.lines()) else {
            return None;
        };
        let next = self.head + lines_for(bytes);
        let goes_on = || bytes < most && lane.header(Self::wrapped(lane, next)) != 0;
        if bytes > most || bytes > SHORT_BYTES || goes_on() {
            return None;
        }
        mark(Point::Found);
        let offset = Self::offset(lane, self.head) + HEADER_BYTES;
        // SAFETY: the caller's promise, and there are at most `most`.
        unsafe { lane.copy_out(offset, to, bytes) };
        mark(Point::CopiedOut);
        let quarter = worth_waking(lane);
        let passed_quarter = (self.head ^ next) & quarter != 0;
        self.head = next;
        lane.set_consumed(self.position(), passed_quarter);
        Some(Taken {
            bytes,
            passed_quarter,
        })
    }
}
