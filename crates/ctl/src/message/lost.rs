//! What two ends tell each other by their monitors when the window between them is lost.

use super::{MessageError, Packet, Received};
use crate::lane::{LINE_BYTES, MAX_RING_LINES};

/// In place of the name of some lanes: the end may have been in any that it was granted.
pub const ANY_LANES: u64 = u64::MAX;

/// Bits of [`Position::flags`] that no receiver of a lane sets.
pub mod position_flags {
    /// The end misses nothing of what stood in the window.
    pub const COMPLETE: u32 = 1 << 16;
    /// The end knows that the other one misses nothing.
    pub const CONTENT: u32 = 1 << 17;
}

/// How far an end has read in a lane of a window that is lost, and what it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// From a program its own end, to a program the end that is to send the rest.
    pub token: u64,
    /// As [`super::Grant::pair`] of the lanes.
    pub pair: u64,
    /// A set of [`crate::lane::receiver_flags`] and [`position_flags`].
    pub flags: u32,
    /// As [`crate::lane::CreditLine::consumed`].
    pub consumed: u64,
    /// As [`crate::lane::CreditLine::tcp_taken`].
    pub tcp_taken: u64,
}

/// The lines that stood unread in a lane of a window that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remainder {
    /// From a program its own end, to a program the end that had not read them.
    pub token: u64,
    /// As [`super::Grant::pair`] of the lanes.
    pub pair: u64,
    /// Number of the first line, never wrapped.
    pub first: u64,
    /// Number of the line behind the last one.
    pub end: u64,
    /// As [`crate::lane::SenderLine::replay_seq`].
    pub replay_seq: u32,
    /// As [`crate::lane::SenderLine::replay_at`].
    pub replay_at: u64,
    /// As [`crate::lane::SenderLine::replay_end`].
    pub replay_end: u64,
}

impl Position {
    pub(super) fn encode(&self, kind: u16) -> Packet {
        Packet::new(kind, self.token)
            .with(&[self.flags])
            .with_long(self.pair)
            .with_long(self.consumed)
            .with_long(self.tcp_taken)
    }

    pub(super) fn decode(received: &Received<'_>) -> Result<Self, MessageError> {
        Ok(Self {
            token: received.token,
            flags: received.field(0)?,
            pair: received.long(1)?,
            consumed: received.long(3)?,
            tcp_taken: received.long(5)?,
        })
    }
}

impl Remainder {
    /// Bytes of the lines.
    pub fn bytes(&self) -> usize {
        usize::try_from((self.end - self.first) * LINE_BYTES as u64).unwrap_or(usize::MAX)
    }

    pub(super) fn encode(&self, kind: u16) -> Packet {
        Packet::new(kind, self.token)
            .with(&[self.replay_seq])
            .with_long(self.pair)
            .with_long(self.first)
            .with_long(self.end)
            .with_long(self.replay_at)
            .with_long(self.replay_end)
    }

    pub(super) fn decode(received: &Received<'_>) -> Result<Self, MessageError> {
        let (first, end) = (received.long(3)?, received.long(5)?);
        let lines = end.checked_sub(first);
        if lines.is_none_or(|lines| lines > u64::from(MAX_RING_LINES)) {
            return Err(MessageError::Field {
                field: "lines",
                value: end.wrapping_sub(first),
            });
        }
        Ok(Self {
            token: received.token,
            pair: received.long(1)?,
            first,
            end,
            replay_seq: received.field(0)?,
            replay_at: received.long(7)?,
            replay_end: received.long(9)?,
        })
    }
}
