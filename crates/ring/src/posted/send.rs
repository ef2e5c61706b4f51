//! The sending side of a posted lane.

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_ctl::place::Place;
use crosslane_ctl::posted::{Mark, receiver};

use super::Slot;
use super::gather::Gather;
use super::memory::{Local, Remote};
use crate::header::lines_for;
use crate::header::{self, ASKS_FOR_CREDIT, Control, HEADER_BYTES, MAX_RECORD_BYTES, PeerLied};
use crate::parts::{Parts, of_slice};

/// Lines that data may not take: the receiver has not cleared the one that it polls when the ring is
/// full, and one is kept for a control record, so that a sender can always stop.
const RESERVED_LINES: u64 = 2;

/// Where the sender stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PostedTx {
    /// Line of the next record, never wrapped.
    pub tail: u64,
    /// Line up to which the receiver has consumed, as last seen and checked; at most `tail`.
    pub credit: u64,
    /// Line behind the last record that asked for credit.
    pub asked: u64,
    /// The receiver's `ARMED` that was last answered.
    pub(super) answered: Mark,
    /// Whether the receiver must be rung for a record behind `answered`.
    pub(super) owes_bell: bool,
    /// Our own last request for space.
    pub(super) wish: Mark,
}

impl PostedTx {
    /// A sender that begins at `line` of an empty ring.
    pub fn at(line: u64) -> Self {
        Self {
            tail: line,
            credit: line,
            asked: line,
            ..Self::default()
        }
    }

    /// Lines free for data as far as is known.
    #[inline]
    fn free<L: Local, R: Remote>(&self, slot: &Slot<L, R>) -> u64 {
        (u64::from(slot.lines()) - RESERVED_LINES).saturating_sub(self.tail - self.credit)
    }

    /// Look at the credit that has arrived.
    ///
    /// # Errors
    /// If the receiver claims to have consumed what was never sent, or to have gone back.
    #[inline]
    pub fn refresh<L: Local, R: Remote>(&mut self, slot: &Slot<L, R>) -> Result<(), PeerLied> {
        slot.local.refresh(receiver::CONSUMED, 8);
        let told = slot.local.load(receiver::CONSUMED); // SYNC: posted credit
        let line = Place::near(told, self.tail).line;
        if line < self.credit || line > self.tail {
            return Err(PeerLied::Credit { line });
        }
        self.credit = line;
        Ok(())
    }

    /// Whether so much is free that a sleeping writer should go on: a quarter of the ring.
    ///
    /// # Errors
    /// As [`PostedTx::refresh`].
    pub fn writable<L: Local, R: Remote>(&mut self, slot: &Slot<L, R>) -> Result<bool, PeerLied> {
        let wanted = u64::from(slot.lines()) / 4;
        if self.free(slot) < wanted {
            self.refresh(slot)?;
        }
        Ok(self.free(slot) >= wanted)
    }

    /// Append one data record with as much of `parts` as fits: 0 when the ring is full.
    ///
    /// # Errors
    /// As [`PostedTx::refresh`].
    #[inline]
    pub fn write_record<L: Local, R: Remote>(
        &mut self,
        slot: &Slot<L, R>,
        parts: &mut Parts<'_>,
    ) -> Result<usize, PeerLied> {
        let wanted = parts.left().min(MAX_RECORD_BYTES);
        if wanted == 0 {
            return Ok(0);
        }
        if self.free(slot) < lines_for(wanted) {
            self.refresh(slot)?;
        }
        let room = usize::try_from(self.free(slot)).unwrap_or(0) * LINE_BYTES;
        let bytes = wanted.min(room.saturating_sub(HEADER_BYTES));
        if bytes > 0 {
            Gather::into_record(slot, self.tail).write(parts, bytes);
            let header = header::data(bytes, self.tail, slot.lines());
            self.publish(slot, header, lines_for(bytes));
        }
        Ok(bytes)
    }

    /// Append one data record with as much of a slice as fits: 0 when the ring is full.
    ///
    /// # Errors
    /// As [`PostedTx::refresh`].
    #[inline]
    pub fn write_slice<L: Local, R: Remote>(
        &mut self,
        slot: &Slot<L, R>,
        bytes: &[u8],
    ) -> Result<usize, PeerLied> {
        of_slice(bytes, |parts| self.write_record(slot, parts))
    }

    /// Append a control record; `false` if even the line kept for it is taken.
    ///
    /// # Errors
    /// As [`PostedTx::refresh`].
    pub fn write_control<L: Local, R: Remote>(
        &mut self,
        slot: &Slot<L, R>,
        kind: Control,
        value: u64,
    ) -> Result<bool, PeerLied> {
        if self.free(slot) == 0 {
            self.refresh(slot)?;
        }
        if self.tail - self.credit + 2 > u64::from(slot.lines()) {
            return Ok(false);
        }
        let value = value.to_ne_bytes();
        of_slice(&value, |parts| {
            Gather::into_record(slot, self.tail).write(parts, value.len());
        });
        let header = header::control(kind, self.tail, slot.lines());
        self.publish(slot, header, 1);
        Ok(true)
    }

    /// Write the header of the record at the tail, whose payload is written.
    ///
    /// It asks for credit if no other one does within half a ring. So there is always one among the
    /// records that fill a ring, and less than half of a ring after the last one: when all has been read,
    /// half of the ring is free and known to be.
    #[inline]
    fn publish<L: Local, R: Remote>(&mut self, slot: &Slot<L, R>, header: u64, lines: u64) {
        let next = self.tail + lines;
        let asks = next - self.credit.max(self.asked) > u64::from(slot.lines()) / 2;
        let header = if asks {
            header | ASKS_FOR_CREDIT
        } else {
            header
        };
        slot.remote.fence();
        slot.remote.store(slot.at(self.tail), header); // SYNC: posted record
        // Without this one, the header may stay in a write-combining buffer for as long as it likes.
        slot.remote.fence();
        self.tail = next;
        if asks {
            self.asked = next;
        }
    }
}
