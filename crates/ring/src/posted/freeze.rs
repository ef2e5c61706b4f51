//! Bringing a direction back to TCP when the receiver, or nobody but the sender, wants it.
//!
//! The receiver publishes how far it has read, then the number of its freeze. The sender answers with
//! the count of bytes that it had put on TCP, and sends what was not consumed again, from its own
//! [copy](Mirrored): the ring is the receiver's memory, which may have gone with its host.
//!
//! In a coherent lane both set bits in one word to settle whether a freeze can still be taken back.
//! Here a word has one writer, and a freeze cannot be taken back (docs/windows.md).

use crosslane_ctl::place::Place;
use crosslane_ctl::posted::{receiver, sender};

use super::memory::{Local, Remote};
use super::{PostedRx, PostedTx, Slot};
use crate::header::PeerLied;
use crate::parts::Parts;

/// The sender's answer to a freeze.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Bytes that the sender had put on TCP in all before the replayed ones, or `NO_REPLAY`.
    pub at: u64,
    /// Line behind the last record that the answer is about.
    pub end: u64,
}

/// What a freeze demands of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// Its number.
    pub number: u64,
    /// Line at which the receiver has stopped.
    pub line: u64,
    /// Bytes of the record there that it has taken.
    pub taken: usize,
}

impl PostedRx {
    /// Read no more records: what has not been read must come by TCP.
    pub fn freeze<L: Local, R: Remote>(&mut self, slot: &Slot<L, R>) {
        self.credit(slot);
        self.frozen += 1;
        slot.remote.store(receiver::FROZEN, self.frozen); // SYNC: posted freeze
        slot.remote.fence();
    }

    /// The sender's answer, if it has come.
    ///
    /// # Errors
    /// If the sender claims an end behind which we have read.
    pub fn replay<L: Local, R: Remote>(
        &self,
        slot: &Slot<L, R>,
    ) -> Result<Option<Replay>, PeerLied> {
        slot.local.refresh(sender::REPLAY_SEQ, 24);
        if slot.local.load(sender::REPLAY_SEQ) != self.frozen {
            return Ok(None);
        }
        let at = slot.local.load(sender::REPLAY_AT);
        let end = slot.local.load(sender::REPLAY_END);
        if end < self.head {
            return Err(PeerLied::Answer { line: end });
        }
        Ok(Some(Replay { at, end }))
    }
}

impl PostedTx {
    /// The receiver's freeze, if there is one after `answered`.
    ///
    /// # Errors
    /// As [`PostedTx::refresh`].
    pub fn frozen<L: Local, R: Remote>(
        &mut self,
        slot: &Slot<L, R>,
        answered: u64,
    ) -> Result<Option<Freeze>, PeerLied> {
        slot.local.refresh(receiver::FROZEN, 8);
        let number = slot.local.load(receiver::FROZEN); // SYNC: posted freeze
        if number == answered {
            return Ok(None);
        }
        self.refresh(slot)?;
        let Place { line, taken } = Place::near(slot.local.load(receiver::CONSUMED), self.tail);
        let freeze = Freeze {
            number,
            line,
            taken: taken.into(),
        };
        // Read twice, a liar's word may differ.
        match freeze.line == self.credit {
            true => Ok(Some(freeze)),
            false => Err(PeerLied::Credit { line: freeze.line }),
        }
    }

    /// Answer a freeze: what is behind it comes by TCP, after so many bytes there.
    pub fn answer_freeze<L: Local, R: Remote>(
        &self,
        slot: &Slot<L, R>,
        freeze: &Freeze,
        tcp_total: u64,
    ) {
        slot.remote.store(sender::REPLAY_AT, tcp_total);
        slot.remote.store(sender::REPLAY_END, self.tail);
        slot.remote.fence();
        slot.remote.store(sender::REPLAY_SEQ, freeze.number);
        slot.remote.fence();
    }
}

/// The peer's memory and a copy of this host's own of all that was written there, so that a sender can
/// send again what the receiver has not read.
#[derive(Clone, Copy, Debug)]
pub struct Mirrored<R, C> {
    /// The peer's memory.
    pub remote: R,
    /// The copy.
    pub copy: C,
}

impl<R: Remote, C: Remote> Remote for Mirrored<R, C> {
    #[inline]
    unsafe fn write(&self, at: usize, from: *const u8, words: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.remote.write(at, from, words) };
        // SAFETY: the caller's promise.
        unsafe { self.copy.write(at, from, words) };
    }

    #[inline]
    fn store(&self, at: usize, word: u64) {
        self.remote.store(at, word);
        self.copy.store(at, word);
    }

    #[inline]
    fn fence(&self) {
        self.remote.fence();
    }
}

/// Walks through the records that a receiver has not read, in the sender's copy.
#[derive(Clone, Copy, Debug)]
pub struct Unread {
    cursor: PostedRx,
    end: u64,
}

impl Unread {
    /// All between where the receiver stopped and the sender's tail.
    pub fn of(freeze: &Freeze, tx: &PostedTx) -> Self {
        let mut cursor = PostedRx::at(freeze.line);
        cursor.taken = freeze.taken;
        Self {
            cursor,
            end: tx.tail,
        }
    }

    /// Copy bytes of data until `parts` is full or there are no more; control records are passed over.
    ///
    /// # Errors
    /// If the receiver claimed to have stopped where no record begins, or behind its end.
    pub fn copy(
        &mut self,
        copy: impl Local,
        lines: u32,
        parts: &mut Parts<'_>,
    ) -> Result<usize, PeerLied> {
        let slot = Slot::new(copy, Nowhere, lines);
        let mut total = 0;
        while self.cursor.head < self.end && parts.left() > 0 {
            let bytes = self.cursor.take(&slot, parts)?;
            if bytes == 0 && !self.cursor.skip_control(&slot)? {
                let line = self.cursor.head;
                return Err(PeerLied::Credit { line });
            }
            total += bytes;
        }
        Ok(total)
    }
}

/// The other side of a copy: there is none.
struct Nowhere;

impl Remote for Nowhere {
    unsafe fn write(&self, _at: usize, _from: *const u8, _words: usize) {}

    fn store(&self, _at: usize, _word: u64) {}

    fn fence(&self) {}
}
