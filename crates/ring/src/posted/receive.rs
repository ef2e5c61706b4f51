//! The receiving side of a posted lane.

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_ctl::place::Place;
use crosslane_ctl::posted::{Mark, receiver};

use super::Slot;
use super::memory::{Local, Remote};
use crate::header::{self, ASKS_FOR_CREDIT, HEADER_BYTES, PeerLied, Record, lines_for};
use crate::parts::{Parts, of_slice_mut};
use crate::receive::Next;

/// Where the receiver stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PostedRx {
    /// Line of the next record, never wrapped.
    pub head: u64,
    /// Bytes already taken from the record at `head`.
    pub taken: usize,
    /// Line up to which lines were cleared and credit returned; at most `head`.
    pub credited: u64,
    /// Whether a record that was read has asked for credit.
    asked: bool,
    /// Our own last request for a doorbell.
    pub(super) armed: Mark,
    /// The sender's `SPACE_WANTED` that was last answered.
    pub(super) answered: Mark,
    /// Whether the sender must be rung when a quarter behind `answered` is free.
    pub(super) owes_bell: bool,
    /// Number of the last freeze or withdrawal.
    pub(super) frozen: u64,
}

impl PostedRx {
    /// A receiver that begins at `line` of an empty ring.
    pub fn at(line: u64) -> Self {
        Self {
            head: line,
            credited: line,
            ..Self::default()
        }
    }

    /// Whether there is a record: one look at the line in which it would arrive.
    #[inline]
    pub fn has_record<L: Local, R: Remote>(&self, slot: &Slot<L, R>) -> bool {
        self.header(slot) != 0
    }

    #[inline]
    fn header<L: Local, R: Remote>(&self, slot: &Slot<L, R>) -> u64 {
        let at = slot.at(self.head);
        slot.local.refresh(at, LINE_BYTES);
        slot.local.load(at) // SYNC: posted record
    }

    /// What comes next.
    ///
    /// # Errors
    /// If the header is none that a correct sender writes here.
    pub fn peek<L: Local, R: Remote>(&self, slot: &Slot<L, R>) -> Result<Next, PeerLied> {
        Ok(match self.record(slot)? {
            None | Some((Record::Turn, _)) => Next::Empty,
            Some((Record::Data { bytes }, _)) => Next::Data(bytes - self.taken),
            Some((Record::Control(kind), _)) => {
                Next::Control(kind, slot.local.load(slot.at(self.head) + HEADER_BYTES))
            }
        })
    }

    /// The record at the cursor, checked, and whether it asks for credit.
    #[inline]
    fn record<L: Local, R: Remote>(
        &self,
        slot: &Slot<L, R>,
    ) -> Result<Option<(Record, bool)>, PeerLied> {
        let found = self.header(slot);
        if found == 0 {
            return Ok(None);
        }
        let record = header::check(found & !ASKS_FOR_CREDIT, self.head, slot.lines())?;
        let (lines, has_more) = match record {
            Record::Data { bytes } => (lines_for(bytes), bytes > self.taken),
            Record::Control(_) => (1, self.taken == 0),
            // A posted ring is as long as its credit is worth.
            Record::Turn => (1, false),
        };
        // One line less than the ring has: the sender never fills the one that is polled next.
        let has_credit = self.head + lines - self.credited < u64::from(slot.lines());
        if !has_more || !has_credit {
            return Err(PeerLied::Header {
                header: found,
                line: self.head,
            });
        }
        Ok(Some((record, found & ASKS_FOR_CREDIT != 0)))
    }

    /// Copy bytes out until `parts` is full, the ring is empty or a control record comes. Credit is
    /// returned if one of the records asked for it.
    ///
    /// # Errors
    /// If a header is none that a correct sender writes. What was copied before it stays unread.
    #[inline]
    pub fn read<L: Local, R: Remote>(
        &mut self,
        slot: &Slot<L, R>,
        parts: &mut Parts<'_>,
    ) -> Result<usize, PeerLied> {
        let mut cursor = *self;
        let mut total = 0;
        // This ends: there is at most a lap to which the sender has credit.
        loop {
            let bytes = cursor.take(slot, parts)?;
            if bytes == 0 {
                break;
            }
            total += bytes;
        }
        *self = cursor;
        if self.asked {
            self.credit(slot);
        }
        Ok(total)
    }

    /// The same into a slice.
    ///
    /// # Errors
    /// As [`PostedRx::read`].
    #[inline]
    pub fn read_slice<L: Local, R: Remote>(
        &mut self,
        slot: &Slot<L, R>,
        bytes: &mut [u8],
    ) -> Result<usize, PeerLied> {
        of_slice_mut(bytes, |parts| self.read(slot, parts))
    }

    /// Move over the control record at the cursor.
    ///
    /// # Errors
    /// As [`PostedRx::peek`]; if there is none, nothing happens.
    pub fn pass_control<L: Local, R: Remote>(&mut self, slot: &Slot<L, R>) -> Result<(), PeerLied> {
        if self.skip_control(slot)? && self.asked {
            self.credit(slot);
        }
        Ok(())
    }

    /// Copy out of the record at the cursor and move on, telling nobody; 0 if it is none of data.
    #[inline]
    pub(super) fn take<L: Local, R: Remote>(
        &mut self,
        slot: &Slot<L, R>,
        parts: &mut Parts<'_>,
    ) -> Result<usize, PeerLied> {
        if parts.left() == 0 {
            return Ok(0);
        }
        let Some((Record::Data { bytes }, asks)) = self.record(slot)? else {
            return Ok(0);
        };
        let piece = parts.left().min(bytes - self.taken);
        self.copy(slot, parts, piece);
        self.taken += piece;
        if self.taken == bytes {
            self.head += lines_for(bytes);
            self.taken = 0;
            self.asked |= asks;
        }
        Ok(piece)
    }

    /// Move over a control record, telling nobody; `false` if there is none.
    pub(super) fn skip_control<L: Local, R: Remote>(
        &mut self,
        slot: &Slot<L, R>,
    ) -> Result<bool, PeerLied> {
        let Some((Record::Control(_), asks)) = self.record(slot)? else {
            return Ok(false);
        };
        self.head += 1;
        self.asked |= asks;
        Ok(true)
    }

    /// Clear the lines that have been read, then tell the sender that they are free. In between the
    /// sender could write a record there, which a late clear would wipe out; and old payload that was
    /// not cleared could be read as a header in the next lap.
    #[inline]
    pub fn credit<L: Local, R: Remote>(&mut self, slot: &Slot<L, R>) {
        for line in self.credited..self.head {
            slot.local.clear(slot.at(line));
        }
        slot.remote.fence();
        slot.remote.store(receiver::CONSUMED, self.position()); // SYNC: posted credit
        slot.remote.fence();
        self.credited = self.head;
        self.asked = false;
    }

    /// The position that the sender is told.
    pub fn position(&self) -> u64 {
        Place::word(self.head, u16::try_from(self.taken).unwrap_or(0))
    }

    #[inline]
    fn copy<L: Local, R: Remote>(&self, slot: &Slot<L, R>, parts: &mut Parts<'_>, bytes: usize) {
        let mut done = 0;
        while done < bytes {
            let skipped = HEADER_BYTES + self.taken + done;
            let (at, together) = slot.split(self.head, skipped, bytes - done);
            let Some((to, piece)) = parts.take(together) else {
                return;
            };
            // The header's line was refreshed when it was looked at.
            slot.local.refresh(at, piece);
            // SAFETY: `take` hands out valid pieces, by the promise of whoever made it.
            unsafe { slot.local.copy_out(at, to, piece) };
            done += piece;
        }
    }
}
