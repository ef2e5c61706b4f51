//! Layout of the memory that a host lends to the peer of one connection across a posted-write window.
//!
//! Each host has a slot in its own memory, into which only the peer writes: lines of words, and the
//! ring of the direction that the peer sends. Both read their own slot and write the other's; nobody
//! reads the other's (docs/windows.md). A slot has the size of a coherent lane, so that a
//! [`Geometry`](crate::lane::Geometry) describes both.
//!
//! A word has one writer, the peer, and is eight bytes, which arrive at once.

use crate::lane::{LANE_CONTROL_BYTES, LINE_BYTES};
use crate::place::Place;

/// Offset of the ring in a slot.
pub const RING: usize = LANE_CONTROL_BYTES;

/// Line 0: what the peer says as the sender of the ring in this slot.
pub mod sender {
    /// A [`Mark`](super::Mark): answer to the receiver's `ARMED`, with the line behind the last record.
    pub const ACKNOWLEDGED: usize = 0;
    /// A [`Mark`](super::Mark): the sender is about to sleep until a good share of the ring is free, and knows of
    /// credit for this line.
    pub const SPACE_WANTED: usize = 8;
    /// Bytes that the sender has put on TCP in all.
    pub const TCP_TOTAL: usize = 16;
    /// Which freeze is answered; written after the two that follow.
    pub const REPLAY_SEQ: usize = 24;
    /// Bytes that the sender had put on TCP in all before the replayed ones, or
    /// [`NO_REPLAY`](crate::lane::NO_REPLAY).
    pub const REPLAY_AT: usize = 32;
    /// Line behind the last record that the answer is about.
    pub const REPLAY_END: usize = 40;
}

/// Line 1: what the peer says as the receiver of the ring that it lends us.
pub mod receiver {
    /// Position of the next byte that it has not read: line times 2^16, plus bytes of the record there.
    pub const CONSUMED: usize = 64;
    /// A [`Mark`](super::Mark): the receiver is about to sleep and has read up to this line.
    pub const ARMED: usize = 72;
    /// A [`Mark`](super::Mark): answer to the sender's `SPACE_WANTED`, with the line credited.
    pub const ACKNOWLEDGED: usize = 80;
    /// A set of [`receiver_flags`](crate::lane::receiver_flags), those which the receiver sets.
    pub const FLAGS: usize = 88;
    /// Bytes that it has taken from TCP in all.
    pub const TCP_TAKEN: usize = 96;
    /// Number of the freeze that it asks for; 0 if none ever was.
    pub const FROZEN: usize = 104;
}

const _: () = assert!(sender::REPLAY_END < LINE_BYTES && receiver::FROZEN < 2 * LINE_BYTES);
const _: () = assert!(receiver::CONSUMED >= LINE_BYTES && RING >= 2 * LINE_BYTES);

/// A request or its answer: a line, and the number by which the two find each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// A line, never wrapped.
    pub line: u64,
    /// 0 for none.
    pub number: u16,
}

impl Mark {
    /// As a word of shared memory.
    pub const fn word(self) -> u64 {
        Place::word(self.line, self.number)
    }

    /// What a word says, of a line as near as in [`Place::near`].
    pub const fn near(word: u64, near: u64) -> Self {
        let Place { line, taken } = Place::near(word, near);
        Self {
            line,
            number: taken,
        }
    }
}

/// Number of the request after this one.
pub const fn next_number(number: u16) -> u16 {
    match number.wrapping_add(1) {
        0 => 1,
        next => next,
    }
}

/// How long a sleeper whose request is not acknowledged yet sleeps at first before it looks again. It
/// doubles each time.
pub const FIRST_SAFETY_TIMER_US: u32 = 500;

/// How long at most.
pub const LAST_SAFETY_TIMER_US: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_comes_back_from_its_word() {
        for line in [0, 1, (1 << 48) - 1, 1 << 48] {
            for number in [0, 1, u16::MAX] {
                let mark = Mark { line, number };
                assert_eq!(Mark::near(mark.word(), line + 1), mark);
            }
        }
        assert_eq!(next_number(u16::MAX), 1);
    }
}
