//! The sending side of a lane.

use crate::header::{self, Control, Failed, HEADER_BYTES, MAX_RECORD_BYTES, PeerLied, lines_for};
use crate::memory::LaneMemory;
use crate::parts::{Parts, of_slice};
use crate::trace::{Point, mark};
use crosslane_ctl::lane::{LINE_BYTES, SMALL_RING_LINES};
use crosslane_ctl::place::Place;
use crosslane_sys::program::Fault;

/// Lines that data may not take: one that stays cleared after the last record, and one kept for a
/// control record, so that a sender can always stop.
const RESERVED_LINES: u64 = 2;

/// A receiver keeps up if so much at most is on its way to it.
const NEARLY_EMPTY: u64 = SMALL_RING_LINES as u64 / 4;

/// A sleeping writer is told of so much (64 KiB) that being woken is a small part of filling it.
const WORTH_WAKING: u64 = 1 << 10;

/// Who has so much to send uses all of the ring: lines that the receiver's cache has lost are written faster.
const BULK_BYTES: usize = 2 * MAX_RECORD_BYTES;

/// Free lines that are worth telling a sleeping writer about, a power of two. A receiver looks for
/// one whenever it passes a multiple.
#[inline]
pub fn worth_waking(lane: &impl LaneMemory) -> u64 {
    u64::from(lane.lines() / 4).min(WORTH_WAKING)
}

/// Whether a data record may not start at `line`: beyond the small ring that a bounded sender keeps to.
#[inline]
fn is_confined(lane: &impl LaneMemory, line: u64) -> bool {
    header::is_spare(line, lane.lines()) && lane.is_bounded()
}

/// Whether a sender at `tail` may go on while so many lines are on their way. At the end of its small ring a bounded one
/// waits for its receiver to keep up, and turns.
#[inline]
pub fn may_go_on(lane: &impl LaneMemory, tail: u64, on_their_way: u64) -> bool {
    on_their_way <= NEARLY_EMPTY || !is_confined(lane, tail)
}

/// Where the sender stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxCursor {
    /// Line of the next record, never wrapped.
    pub tail: u64,
    /// Line up to which the receiver has consumed, as last seen and checked; at most `tail`.
    pub credit: u64,
}

impl TxCursor {
    /// Lines free for data as far as is known without looking at the receiver's line.
    #[inline]
    pub(crate) fn free(&self, lane: &impl LaneMemory) -> u64 {
        (u64::from(lane.lines()) - RESERVED_LINES)
            .saturating_sub(self.tail.wrapping_sub(self.credit))
    }

    /// Whether so many lines are known to be free for data, as [`TxCursor::free`] tells.
    #[inline]
    pub(crate) fn has_free(&self, lane: &impl LaneMemory, lines: u64) -> bool {
        let used = self.tail.wrapping_sub(self.credit).saturating_add(lines);
        used <= u64::from(lane.lines()) - RESERVED_LINES
    }

    /// Look at what the receiver has consumed.
    ///
    /// # Errors
    /// If it claims to have consumed what was never sent, or to have gone back.
    pub fn refresh(&mut self, lane: &impl LaneMemory) -> Result<(), PeerLied> {
        let line = Place::near(lane.consumed(), self.tail).line;
        if line < self.credit || line > self.tail {
            return Err(PeerLied::Credit { line });
        }
        self.credit = line;
        Ok(())
    }

    /// Lines free for data now, looking at the receiver's line only if fewer than `wanted` are
    /// known to be.
    ///
    /// # Errors
    /// As [`TxCursor::refresh`].
    pub fn free_lines(&mut self, lane: &impl LaneMemory, wanted: u64) -> Result<u64, PeerLied> {
        if self.free(lane) < wanted {
            self.refresh(lane)?;
        }
        Ok(self.free(lane))
    }

    /// Whether so much is free that a sleeping writer should be told: [`worth_waking`].
    ///
    /// # Errors
    /// As [`TxCursor::refresh`].
    pub fn writable(&mut self, lane: &impl LaneMemory) -> Result<bool, PeerLied> {
        let wanted = worth_waking(lane);
        Ok(self.free_lines(lane, wanted)? >= wanted && self.may_go_on(lane)?)
    }

    /// Whether a writer that has found room until now finds some again: less than what is worth waking one,
    /// as so much is not free behind a TURN before its receiver has passed it.
    ///
    /// # Errors
    /// As [`TxCursor::refresh`].
    pub fn has_room(&mut self, lane: &impl LaneMemory) -> Result<bool, PeerLied> {
        let wanted = worth_waking(lane) / 4;
        Ok(self.free_lines(lane, wanted)? >= wanted && self.may_go_on(lane)?)
    }

    fn may_go_on(&mut self, lane: &impl LaneMemory) -> Result<bool, PeerLied> {
        if !may_go_on(lane, self.tail, self.tail - self.credit) {
            self.refresh(lane)?;
        }
        Ok(may_go_on(lane, self.tail, self.tail - self.credit))
    }

    /// Whether what is worth waking a writer is known to be free without looking at the receiver's line.
    #[inline]
    pub fn is_roomy(&self, lane: &impl LaneMemory) -> bool {
        self.free(lane) >= worth_waking(lane)
            && may_go_on(lane, self.tail, self.tail.wrapping_sub(self.credit))
    }

    /// Whether this is where a sender asks if its receiver keeps up: a few lines, so that at least one
    /// record starts there, at each multiple of a small ring; a bounded one anywhere beyond its first.
    #[inline]
    pub(crate) fn is_at_turn(&self, lane: &impl LaneMemory) -> bool {
        let is_near = || self.tail % u64::from(SMALL_RING_LINES) < lines_for(MAX_RECORD_BYTES);
        header::is_spare(self.tail, lane.lines()) && (is_near() || lane.is_bounded())
    }

    /// Where the next data record of the `bytes` that are left to send starts: at the tail, or at the
    /// start of the next lap if they are few and the receiver keeps up, so that few lines are used and
    /// stay in caches. A ring so grows under load and shrinks after it, without a word to the receiver
    /// but where to go on. `None` where it may not grow, and the receiver is behind.
    ///
    /// # Errors
    /// As [`TxCursor::refresh`].
    #[inline]
    pub(crate) fn start(
        &mut self,
        lane: &impl LaneMemory,
        bytes: usize,
    ) -> Result<Option<u64>, PeerLied> {
        match self.is_at_turn(lane) {
            false => Ok(Some(self.tail)),
            true => self.start_at_turn(lane, bytes),
        }
    }

    #[cold]
    fn start_at_turn(
        &mut self,
        lane: &impl LaneMemory,
        bytes: usize,
    ) -> Result<Option<u64>, PeerLied> {
        if lane.is_bounded() || bytes < BULK_BYTES && lane.may_turn() {
            self.refresh(lane)?;
            if self.tail - self.credit <= NEARLY_EMPTY {
                return Ok(Some(header::next_lap(self.tail, lane.lines())));
            }
        }
        if lane.is_bounded() {
            return Ok(None);
        }
        lane.note_growth();
        Ok(Some(self.tail))
    }

    /// Publish the record at `start`, which is all there but for its header.
    #[inline]
    pub(crate) fn publish(&self, lane: &impl LaneMemory, start: u64, header: u64) {
        let line = Self::wrapped(lane, start);
        if start == self.tail {
            return lane.publish(line, header);
        }
        lane.set_header(line, header);
        let turn = header::turn(self.tail, lane.lines());
        lane.publish(Self::wrapped(lane, self.tail), turn);
    }

    /// Append one data record with as much of `parts` as fits: 0 when the ring is full.
    ///
    /// # Errors
    /// As [`TxCursor::refresh`].
    #[inline]
    pub fn write_record(
        &mut self,
        lane: &impl LaneMemory,
        parts: &mut Parts<'_>,
    ) -> Result<usize, Failed> {
        let wanted = parts.left().min(MAX_RECORD_BYTES);
        if wanted == 0 {
            return Ok(0);
        }
        let Some(start) = self.start(lane, parts.left())? else {
            return Ok(0);
        };
        let skipped = start - self.tail;
        let free = self
            .free_lines(lane, skipped + lines_for(wanted) + 1)?
            .saturating_sub(skipped);
        if free == 0 {
            return Ok(0);
        }
        let room = usize::try_from(free)
            .unwrap_or(usize::MAX)
            .saturating_mul(LINE_BYTES);
        let bytes = wanted.min(room - HEADER_BYTES);
        let (lines, next) = (lines_for(bytes), start + lines_for(bytes));
        let has_more = parts.left() > bytes && free > lines;
        let goes_on = bytes == MAX_RECORD_BYTES && has_more && !is_confined(lane, next);
        let flag = if goes_on { header::GOES_ON } else { 0 };
        let header = header::data(bytes, start, lane.lines()) | flag;
        let offset = Self::offset(lane, start) + HEADER_BYTES;
        let before = parts.clone();
        // The receiver polls the first line and takes it away at every look. So a record of one
        // line is written at last and at once, with the next header cleared before.
        if lines == 1 {
            lane.clear(Self::wrapped(lane, next));
        }
        if let Err(fault) = Self::copy_in(lane, offset, parts, bytes) {
            *parts = before;
            return Err(fault.into());
        }
        if lines > 1 {
            lane.clear(Self::wrapped(lane, next));
        }
        mark(Point::CopiedIn);
        self.publish(lane, start, header);
        mark(Point::Published);
        self.tail = next;
        Ok(bytes)
    }

    /// Append one data record with as much of a slice as fits: 0 when the ring is full.
    ///
    /// # Errors
    /// As [`TxCursor::refresh`].
    #[inline]
    pub fn write_slice(&mut self, lane: &impl LaneMemory, bytes: &[u8]) -> Result<usize, Failed> {
        of_slice(bytes, |parts| self.write_record(lane, parts))
    }

    /// Append a control record; `false` if even the line kept for it is taken.
    ///
    /// # Errors
    /// As [`TxCursor::refresh`].
    pub fn write_control(
        &mut self,
        lane: &impl LaneMemory,
        kind: Control,
        value: u64,
    ) -> Result<bool, PeerLied> {
        if self.free(lane) == 0 {
            self.refresh(lane)?;
        }
        // Control records may take the reserved line, but never the cleared one.
        if self.tail - self.credit + 2 > u64::from(lane.lines()) {
            return Ok(false);
        }
        let value = value.to_ne_bytes();
        let offset = Self::offset(lane, self.tail) + HEADER_BYTES;
        // SAFETY: the array is valid for its length.
        let copied = unsafe { lane.copy_in(offset, value.as_ptr(), value.len()) };
        copied.expect("the array is there");
        lane.clear(Self::wrapped(lane, self.tail + 1));
        let header = header::control(kind, self.tail, lane.lines());
        lane.publish(Self::wrapped(lane, self.tail), header);
        self.tail += 1;
        Ok(true)
    }

    /// Copy the next `bytes` of `parts` to `offset` of the ring.
    #[inline]
    fn copy_in(
        lane: &impl LaneMemory,
        mut offset: usize,
        parts: &mut Parts<'_>,
        bytes: usize,
    ) -> Result<(), Fault> {
        let mut rest = bytes;
        while let Some((from, piece)) = parts.take(rest) {
            // SAFETY: `take` hands out valid pieces, by the promise of whoever made the cursor.
            unsafe { lane.copy_in(offset, from, piece) }?;
            offset += piece;
            rest -= piece;
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn wrapped(lane: &impl LaneMemory, line: u64) -> u32 {
        // Masked to the ring, which has at most 2^18 lines.
        u32::try_from(line & u64::from(lane.lines() - 1)).unwrap_or(0)
    }

    #[inline]
    pub(crate) fn offset(lane: &impl LaneMemory, line: u64) -> usize {
        Self::wrapped(lane, line) as usize * LINE_BYTES
    }
}
