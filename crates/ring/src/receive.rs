//! The receiving side of a lane.

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_ctl::place::Place;

use crate::header::{self, Control, Failed, HEADER_BYTES, PeerLied, Record, lines_for};
use crate::memory::LaneMemory;
use crate::moment::Moment;
use crate::parts::{Parts, of_slice_mut};
use crate::send::worth_waking;
use crate::trace::{Point, mark};

/// Where the receiver stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxCursor {
    /// Line of the next record, never wrapped.
    pub head: u64,
    /// Bytes already taken from the record at `head`.
    pub taken: usize,
}

/// What comes next in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing yet.
    Empty,
    /// So many bytes of the record are left.
    Data(usize),
    /// A control record and its number.
    Control(Control, u64),
}

/// What a read has done besides copying.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Bytes copied.
    pub bytes: usize,
    /// A quarter of the ring, or of its small part, has been passed: if the sender waits for space, it
    /// must be rung.
    pub passed_quarter: bool,
    /// Nothing more was there, but the sender is about to write more of the same message.
    pub goes_on: bool,
}

impl RxCursor {
    /// Whether there is a record. One load, of the line in which it would arrive.
    #[inline]
    pub fn has_record(&self, lane: &impl LaneMemory) -> bool {
        lane.header(Self::wrapped(lane, self.head)) != 0
    }

    /// Whether what comes next says that it is data. Only a hint: [`RxCursor::peek`] checks it.
    #[inline]
    pub fn has_data(&self, lane: &impl LaneMemory) -> bool {
        header::claims_data(lane.header(Self::wrapped(lane, self.head)))
    }

    /// When what comes next was written, if anything is there. What the peer says, and no more.
    #[inline]
    pub fn moment(&self, lane: &impl LaneMemory) -> Moment {
        Moment::of(lane.header(Self::wrapped(lane, self.head)))
    }

    /// What comes next.
    ///
    /// # Errors
    /// If the header is none that a correct sender writes here.
    #[inline]
    pub fn peek(&self, lane: &impl LaneMemory) -> Result<Next, PeerLied> {
        let mut at = *self;
        at.come_to_next(lane)
    }

    /// As [`RxCursor::peek`]. The cursor is at what comes next then, which may be in the next lap: needed
    /// before [`RxCursor::pass`].
    ///
    /// # Errors
    /// As [`RxCursor::peek`].
    #[inline]
    pub fn come_to_next(&mut self, lane: &impl LaneMemory) -> Result<Next, PeerLied> {
        let found = lane.header(Self::wrapped(lane, self.head));
        if found == 0 {
            return Ok(Next::Empty);
        }
        let lie = PeerLied::Header {
            header: found,
            line: self.head,
        };
        match header::check(found, self.head, lane.lines())? {
            Record::Data { bytes } if self.taken < bytes => Ok(Next::Data(bytes - self.taken)),
            Record::Data { .. } => Err(lie),
            Record::Turn => self.turn(lane).ok_or(lie),
            Record::Control(kind) => {
                let mut value = [0; 8];
                let offset = Self::offset(lane, self.head) + HEADER_BYTES;
                // SAFETY: the array is valid for its length.
                let copied = unsafe { lane.copy_out(offset, value.as_mut_ptr(), value.len()) };
                copied.expect("the array is there");
                Ok(Next::Control(kind, u64::from_ne_bytes(value)))
            }
        }
    }

    /// Go on in the next lap, where a record of data stands already; `None` if it does not.
    #[cold]
    fn turn(&mut self, lane: &impl LaneMemory) -> Option<Next> {
        let head = header::next_lap(self.head, lane.lines());
        let found = lane.header(Self::wrapped(lane, head));
        match header::check(found, head, lane.lines()) {
            Ok(Record::Data { bytes }) if self.taken == 0 => {
                self.head = head;
                Some(Next::Data(bytes))
            }
            _ => None,
        }
    }

    /// Move over the control record at the cursor and tell the sender, fenced: as after a read
    /// that has passed a quarter, a sender that waits for space must be rung.
    pub fn pass_control(&mut self, lane: &impl LaneMemory) {
        self.head += 1;
        self.taken = 0;
        lane.set_consumed(self.position(), true);
    }

    /// Copy bytes out until `parts` is full, the ring is empty or a control record comes, and
    /// tell the sender.
    ///
    /// # Errors
    /// If a header is none that a correct sender writes. What was copied before it stays unread.
    #[inline]
    pub fn read(&mut self, lane: &impl LaneMemory, parts: &mut Parts<'_>) -> Result<Taken, Failed> {
        let taken = self.read_if(lane, parts, || true)?;
        Ok(taken.unwrap_or_default())
    }

    /// As [`RxCursor::read`], if what was copied `is_valid`, which is asked before the sender is told. `None`
    /// if it is not: then only `parts` has moved.
    ///
    /// # Errors
    /// As [`RxCursor::read`], if `is_valid`.
    #[inline]
    pub fn read_if(
        &mut self,
        lane: &impl LaneMemory,
        parts: &mut Parts<'_>,
        is_valid: impl FnOnce() -> bool,
    ) -> Result<Option<Taken>, Failed> {
        let start = *self;
        let mut cursor = *self;
        let copied = cursor.copy(lane, parts);
        if !is_valid() {
            return Ok(None);
        }
        let (bytes, goes_on) = copied?;
        if bytes == 0 {
            return Ok(Some(Taken::default()));
        }
        let quarter = worth_waking(lane);
        let passed_quarter = start.head / quarter != cursor.head / quarter;
        *self = cursor;
        lane.set_consumed(self.position(), passed_quarter);
        Ok(Some(Taken {
            bytes,
            passed_quarter,
            goes_on,
        }))
    }

    /// The same into a slice.
    ///
    /// # Errors
    /// As [`RxCursor::read`].
    #[inline]
    pub fn read_slice(
        &mut self,
        lane: &impl LaneMemory,
        bytes: &mut [u8],
    ) -> Result<Taken, Failed> {
        of_slice_mut(bytes, |parts| self.read(lane, parts))
    }

    /// Copy bytes out as `read` does, but leave them in the ring.
    ///
    /// # Errors
    /// As [`RxCursor::read`].
    pub fn copy_only(
        &self,
        lane: &impl LaneMemory,
        parts: &mut Parts<'_>,
    ) -> Result<usize, Failed> {
        let mut cursor = *self;
        cursor.copy(lane, parts).map(|(bytes, _)| bytes)
    }

    /// Copy bytes out as `read` does and move over them, telling nobody: for looking further. Returns how many, and
    /// [`Taken::goes_on`].
    ///
    /// # Errors
    /// As [`RxCursor::read`].
    pub fn copy_on(
        &mut self,
        lane: &impl LaneMemory,
        parts: &mut Parts<'_>,
    ) -> Result<(usize, bool), Failed> {
        self.copy(lane, parts)
    }

    /// Bytes of data up to the next control record, counted up to `most`.
    ///
    /// # Errors
    /// As [`RxCursor::read`].
    pub fn readable(&self, lane: &impl LaneMemory, most: usize) -> Result<usize, PeerLied> {
        let (mut cursor, mut total) = (*self, 0);
        // Only a liar has more than a lap: it could write headers as fast as they are read here.
        let lap_end = self.head + u64::from(lane.lines());
        while total < most && cursor.head < lap_end {
            let Next::Data(left) = cursor.come_to_next(lane)? else {
                break;
            };
            total += left;
            cursor.advance(left, left);
        }
        Ok(total.min(most))
    }

    /// Move over `bytes` of the `left` in the data record that [`RxCursor::come_to_next`] has found,
    /// telling nobody.
    pub fn pass(&mut self, bytes: usize, left: usize) {
        self.advance(bytes, left);
    }

    /// A receiver that stands there.
    pub fn at(place: Place) -> Self {
        Self {
            head: place.line,
            taken: place.taken.into(),
        }
    }

    /// Where it stands.
    pub fn place(&self) -> Place {
        Place {
            line: self.head,
            // Less than a record has.
            taken: u16::try_from(self.taken).unwrap_or(0),
        }
    }

    /// What the sender is told: [`crosslane_ctl::lane::CreditLine::consumed`].
    pub fn position(&self) -> u64 {
        let Place { line, taken } = self.place();
        Place::word(line, taken)
    }

    /// Copy what there is room for. Returns how many bytes, and [`Taken::goes_on`].
    fn copy(
        &mut self,
        lane: &impl LaneMemory,
        parts: &mut Parts<'_>,
    ) -> Result<(usize, bool), Failed> {
        let (mut total, mut goes_on) = (0, false);
        while parts.left() > 0 {
            let Next::Data(left) = self.come_to_next(lane)? else {
                break;
            };
            goes_on = header::goes_on(lane.header(Self::wrapped(lane, self.head)));
            mark(Point::Found);
            let bytes = left.min(parts.left());
            let mut offset = Self::offset(lane, self.head) + HEADER_BYTES + self.taken;
            let (mut rest, before) = (bytes, parts.clone());
            while let Some((to, piece)) = parts.take(rest) {
                // SAFETY: `take` hands out valid pieces, by the promise of whoever made it.
                if unsafe { lane.copy_out(offset, to, piece) }.is_err() {
                    *parts = before;
                    // As the kernel: of what was copied before it tells now, and the next call finds out.
                    return match total {
                        0 => Err(Failed::Fault),
                        _ => Ok((total, goes_on)),
                    };
                }
                offset += piece;
                rest -= piece;
            }
            mark(Point::CopiedOut);
            self.advance(bytes, left);
            total += bytes;
        }
        Ok((total, goes_on && parts.left() > 0))
    }

    /// Move over `bytes` of the `left` in the record at the cursor.
    #[inline]
    fn advance(&mut self, bytes: usize, left: usize) {
        self.taken += bytes;
        if bytes == left {
            self.head += lines_for(self.taken);
            self.taken = 0;
        }
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
