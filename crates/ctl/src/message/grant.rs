//! Rings for one end.

use super::{MessageError, Packet, Received};
use crate::lane::{Geometry, Location, Pages, Posting};

/// Rings for one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The end's token.
    pub token: u64,
    /// The arena, numbered within this monitor and process; the descriptor comes with the first
    /// grant that names it.
    pub arena: u32,
    /// Slot in the arena.
    pub slot: u32,
    /// 0 or 1: this end sends in the lane of its role.
    pub role: u32,
    /// How the arena is cut.
    pub geometry: Geometry,
    /// Where it lies behind its descriptor.
    pub location: Location,
    /// Names these lanes to both hosts, never used twice; 0 within one host.
    pub pair: u64,
}

/// What kind of place an arena has, in the lowest byte, and above it how often its pages are twice as large as the usual ones.
mod place {
    use super::{Pages, Posting};

    pub const SEALED: u32 = 0;
    pub const FILE: u32 = 1;
    const APART: [(u32, Posting); 3] = [
        (2, Posting::Memory),
        (3, Posting::Uncached),
        (4, Posting::Combined),
    ];

    pub fn of(posting: Posting) -> u32 {
        let found = APART.iter().find(|(_, other)| *other == posting);
        found.map_or(0, |(kind, _)| *kind)
    }

    pub fn with(kind: u32, pages: Pages) -> u32 {
        kind | (pages.bytes() / Pages::SMALL.bytes()).trailing_zeros() << 8
    }

    pub fn split(word: u32) -> (u32, Option<Pages>) {
        let times = 1_u64.checked_shl(word >> 8);
        let bytes = times.and_then(|times| times.checked_mul(Pages::SMALL.bytes()));
        (word & 0xff, bytes.and_then(Pages::of))
    }

    pub fn posting(kind: u32) -> Option<Posting> {
        let found = APART.iter().find(|(other, _)| *other == kind);
        found.map(|(_, posting)| *posting)
    }
}

impl Grant {
    pub(super) fn encode(&self) -> Packet {
        let (kind, offset, beyond) = match self.location {
            Location::Sealed => (place::SEALED, 0, 0),
            Location::File { offset, .. } => (place::FILE, offset, 0),
            Location::Apart {
                offset,
                beyond,
                posting,
                ..
            } => (place::of(posting), offset, beyond),
        };
        Packet::new(super::kind::GRANT, self.token)
            .with(&[
                self.arena,
                self.slot,
                self.role,
                self.geometry.ring_lines,
                self.geometry.slots,
                place::with(kind, self.location.pages()),
            ])
            .with_long(offset)
            .with_long(self.pair)
            .with_long(beyond)
    }

    fn location(received: &Received<'_>) -> Result<Location, MessageError> {
        let (word, offset, beyond) = (received.field(5)?, received.long(6)?, received.long(10)?);
        let (kind, pages) = place::split(word);
        let is_sealed = kind == place::SEALED;
        let pages = pages.filter(|pages| !is_sealed || *pages == Pages::SMALL);
        let pages = pages.ok_or(MessageError::Field {
            field: "page",
            value: word.into(),
        })?;
        let is_wrong = |at: &&u64| !pages.begin_at(**at) || is_sealed && **at != 0;
        if let Some(&value) = [offset, beyond].iter().find(is_wrong) {
            let field = "offset";
            return Err(MessageError::Field { field, value });
        }
        match (kind, place::posting(kind)) {
            (place::SEALED, _) => Ok(Location::Sealed),
            (place::FILE, _) => Ok(Location::File { offset, pages }),
            (_, Some(posting)) => Ok(Location::Apart {
                offset,
                beyond,
                posting,
                pages,
            }),
            (kind, None) => Err(MessageError::Field {
                field: "location",
                value: kind.into(),
            }),
        }
    }

    pub(super) fn decode(received: &Received<'_>) -> Result<Self, MessageError> {
        let geometry = Geometry {
            ring_lines: received.field(3)?,
            slots: received.field(4)?,
        };
        if !geometry.is_valid() {
            let value = u64::from(geometry.ring_lines) << 32 | u64::from(geometry.slots);
            return Err(MessageError::Field {
                field: "geometry",
                value,
            });
        }
        let (slot, role) = (received.field(1)?, received.field(2)?);
        if geometry.lane_offset(slot, role).is_none() {
            let value = u64::from(role) << 32 | u64::from(slot);
            return Err(MessageError::Field {
                field: "slot",
                value,
            });
        }
        Ok(Self {
            token: received.token,
            arena: received.field(0)?,
            slot,
            role,
            geometry,
            location: Self::location(received)?,
            pair: received.long(8)?,
        })
    }
}
