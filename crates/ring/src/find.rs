//! Records that the receiver's program reads in the lane itself.
//!
//! Each header is read and checked once, when its record is found; moving over the record later
//! uses what was found then, whatever the peer has written over it meanwhile.

use crate::header::PeerLied;
use crate::memory::LaneMemory;
use crate::receive::{Next, RxCursor, Taken};
use crate::reserve::Piece;
use crate::send::worth_waking;

/// The rest of a data record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Where the cursor stands before it.
    from: RxCursor,
    at: RxCursor,
    left: usize,
}

impl Found {
    /// Bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.left
    }

    /// Where the cursor stands before it.
    pub fn cursor(&self) -> RxCursor {
        self.from
    }

    /// Where its bytes from `skipped` on lie in a ring of `lines`, as many as lie together; `None`
    /// at its end.
    #[inline]
    pub fn piece(&self, lines: u32, skipped: usize) -> Option<Piece> {
        let left = self.left.checked_sub(skipped).filter(|left| *left > 0)?;
        let skipped = self.at.taken + skipped;
        Some(Piece::in_record(lines, self.at.head, skipped, left))
    }
}

impl RxCursor {
    /// Find the data records from the cursor on, up to a control record, the end of `found` or
    /// that of the lap. Returns how many.
    ///
    /// # Errors
    /// If the first header is none that a correct sender writes here. Behind good records, a bad
    /// one is left to be found when they have been taken.
    #[inline]
    pub fn find(&self, lane: &impl LaneMemory, found: &mut [Found]) -> Result<usize, PeerLied> {
        let lap_end = self.head + u64::from(lane.lines());
        let (mut at, mut count) = (*self, 0);
        for place in found {
            let from = at;
            let left = match at.come_to_next(lane) {
                Ok(Next::Data(left)) if at.head < lap_end => left,
                Err(lie) if count == 0 => return Err(lie),
                _ => break,
            };
            *place = Found { from, at, left };
            count += 1;
            at.pass(left, left);
        }
        Ok(count)
    }

    /// Move over the first `bytes` of `found`, which begins at the cursor, and tell the sender.
    ///
    /// # Panics
    /// If it does not begin there, or has fewer bytes.
    #[inline]
    pub fn consume(&mut self, lane: &impl LaneMemory, found: &[Found], bytes: usize) -> Taken {
        let start = *self;
        let mut left = bytes;
        for record in found {
            if left == 0 {
                break;
            }
            assert!(record.from == *self, "found somewhere else");
            *self = record.at;
            let taken = left.min(record.left);
            self.pass(taken, record.left);
            left -= taken;
        }
        assert!(left == 0, "{left} bytes more than were found");
        if bytes == 0 {
            return Taken::default();
        }
        let quarter = worth_waking(lane);
        let passed_quarter = start.head / quarter != self.head / quarter;
        lane.set_consumed(self.position(), passed_quarter);
        Taken {
            bytes,
            passed_quarter,
            goes_on: false,
        }
    }
}
