//! Requests to be woken, and their answers.
//!
//! On one machine a sleeper asks, fences, looks once more and sleeps. Here its request may be under way
//! to a sender whose record is under way to it: both have looked, and nobody rings. So the answer to a
//! request carries the tail. It is written after all records up to that tail, and posted writes arrive
//! in order: who sees the answer sees the records. From then on, the sender knows of the request and
//! rings with the next one.
//!
//! A sender that makes no call does not answer. What it had sent before is under way for some
//! microseconds at most; it is found by looking again after a safety timer, which is set until the
//! answer has come.

use crosslane_ctl::posted::{Mark, next_number, receiver, sender};

use super::memory::{Local, Remote};
use super::{PostedRx, PostedTx, Slot};
use crate::header::PeerLied;

/// How one may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// Not at all: there is something to do.
    No,
    /// Until the safety timer rings at most: the other side may not know of the request.
    Lightly,
    /// Until the doorbell rings.
    Soundly,
}

/// The line of a request that has been taken back: no cursor gets there.
const NOWHERE: u64 = u64::MAX;

/// Read a word that the peer writes, which is about a line near this one.
fn mark<L: Local>(local: &L, at: usize, near: u64) -> Mark {
    local.refresh(at, 8);
    Mark::near(local.load(at), near) // SYNC: posted request
}

fn say<R: Remote>(remote: &R, at: usize, mark: Mark) {
    remote.store(at, mark.word()); // SYNC: posted request
    remote.fence();
}

impl PostedRx {
    /// Ask for a doorbell with the next record; anew after each doorbell, which uses the request up: on
    /// its own way, it may overtake the record that it announces.
    pub fn arm<L: Local, R: Remote>(&mut self, slot: &Slot<L, R>) {
        self.armed = Mark {
            line: self.head,
            number: next_number(self.armed.number),
        };
        say(&slot.remote, receiver::ARMED, self.armed);
    }

    /// Take the request back. A doorbell may be under way.
    pub fn disarm<L: Local, R: Remote>(&mut self, slot: &Slot<L, R>) {
        let none = Mark {
            line: self.head,
            number: 0,
        };
        say(&slot.remote, receiver::ARMED, none);
        self.armed.line = NOWHERE;
    }

    /// How one may sleep that has armed and found nothing to read. Who has read since must arm again.
    ///
    /// # Errors
    /// If the sender answers with a tail that it cannot have, or has not: then records are not where
    /// its answer is, and the window does not keep the order of writes.
    pub fn may_sleep<L: Local, R: Remote>(&self, slot: &Slot<L, R>) -> Result<Sleep, PeerLied> {
        // The answer first: the other way round, both could come in between.
        let answer = mark(&slot.local, sender::ACKNOWLEDGED, self.head);
        let is_answered = answer.number == self.armed.number;
        if self.has_record(slot) || self.armed.line != self.head {
            return Ok(Sleep::No);
        }
        match is_answered {
            false => Ok(Sleep::Lightly),
            true if answer.line == self.head => Ok(Sleep::Soundly),
            true => Err(PeerLied::Answer { line: answer.line }),
        }
    }

    /// Look at the sender's wish for space, and acknowledge it. Whether the sender must be rung now.
    /// To be called after each read and before each sleep.
    ///
    /// # Errors
    /// If the sender claims credit that it never got.
    #[inline]
    pub fn answer<L: Local, R: Remote>(&mut self, slot: &Slot<L, R>) -> Result<bool, PeerLied> {
        let wish = mark(&slot.local, sender::SPACE_WANTED, self.head);
        if wish.word() != self.answered.word() {
            if wish.line > self.head {
                return Err(PeerLied::Answer { line: wish.line });
            }
            self.answered = wish;
            self.owes_bell = wish.number != 0;
            if self.owes_bell {
                self.credit(slot);
                let line = self.credited;
                say(&slot.remote, receiver::ACKNOWLEDGED, Mark { line, ..wish });
            }
        }
        let quarter = u64::from(slot.lines()) / 4;
        let is_due = self.owes_bell && self.head - self.answered.line >= quarter;
        if is_due {
            if self.credited < self.head {
                self.credit(slot);
            }
            self.owes_bell = false;
        }
        Ok(is_due)
    }
}

impl PostedTx {
    /// Look at the receiver's request for a doorbell, and acknowledge it. Whether the receiver must be
    /// rung now. To be called after each record, and before each sleep.
    ///
    /// # Errors
    /// If the receiver claims to have read what was never sent.
    #[inline]
    pub fn answer<L: Local, R: Remote>(&mut self, slot: &Slot<L, R>) -> Result<bool, PeerLied> {
        let armed = mark(&slot.local, receiver::ARMED, self.tail);
        if armed.word() != self.answered.word() {
            if armed.line > self.tail {
                return Err(PeerLied::Answer { line: armed.line });
            }
            self.answered = armed;
            self.owes_bell = armed.number != 0;
            if self.owes_bell {
                let line = self.tail;
                say(&slot.remote, sender::ACKNOWLEDGED, Mark { line, ..armed });
            }
        }
        let is_due = self.owes_bell && self.tail > self.answered.line;
        self.owes_bell &= !is_due;
        Ok(is_due)
    }

    /// Ask for a doorbell when a good share of the ring is free; anew after each doorbell, as in
    /// [`PostedRx::arm`].
    pub fn want_space<L: Local, R: Remote>(&mut self, slot: &Slot<L, R>) {
        self.wish = Mark {
            line: self.credit,
            number: next_number(self.wish.number),
        };
        say(&slot.remote, sender::SPACE_WANTED, self.wish);
    }

    /// Take the request back. A doorbell may be under way.
    pub fn want_no_space<L: Local, R: Remote>(&mut self, slot: &Slot<L, R>) {
        let none = Mark {
            line: self.credit,
            number: 0,
        };
        say(&slot.remote, sender::SPACE_WANTED, none);
        self.wish.line = NOWHERE;
    }

    /// How one may sleep that has asked for space. Who gets some credit, but not enough, must ask again.
    ///
    /// # Errors
    /// As [`PostedTx::refresh`].
    pub fn may_sleep<L: Local, R: Remote>(&mut self, slot: &Slot<L, R>) -> Result<Sleep, PeerLied> {
        let answer = mark(&slot.local, receiver::ACKNOWLEDGED, self.tail);
        let is_answered = answer.number == self.wish.number;
        self.refresh(slot)?;
        Ok(match is_answered {
            _ if self.credit != self.wish.line || self.writable(slot)? => Sleep::No,
            true => Sleep::Soundly,
            false => Sleep::Lightly,
        })
    }
}
