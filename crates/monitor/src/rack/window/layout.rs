//! How a window is cut: a header in its first page, and parts of one size behind it, each an arena that begins on a
//! page and has whole ones to itself, as that is how programs map it.

use crosslane_ctl::lane::{Geometry, LINE_BYTES, PAGE_BYTES, Pages};

use super::WindowError;
use crate::rack::config::WindowConfig;
use crate::rack::message::{MAX_EXTENTS, RACK_VERSION, WindowOffer};

/// Bytes before the first part, where pages have the usual size.
pub const HEADER_BYTES: u64 = PAGE_BYTES as u64;

/// First bytes of a header. What follows, in order: the version (4 bytes), lines of each ring (4),
/// slots (4), bytes of a page (4), the window's length (8) and the epoch (8), written by the owner;
/// and the guest's answer (8), the epoch's complement, in the next line.
pub const MAGIC: [u8; 8] = *b"XLWINDOW";
pub(super) const ANSWER_AT: u64 = LINE_BYTES as u64;
pub(super) const RECORD_BYTES: usize = 40;

/// The owner's beat and the guest's, each the epoch (8) and a number (8) in a line of its own.
const BEATS_AT: [u64; 2] = [2 * LINE_BYTES as u64, 3 * LINE_BYTES as u64];
pub(super) const BEAT_BYTES: usize = 16;

/// Where the beats of the owner, or of the guest, stand.
pub(super) fn beat_at(is_owner: bool) -> u64 {
    BEATS_AT[usize::from(!is_owner)]
}

/// How a window is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// On which the header and each part begin.
    pub pages: Pages,
    /// How the arena in each part is cut.
    pub geometry: Geometry,
    /// Of the window that are used: whole pages.
    pub bytes: u64,
}

impl Layout {
    /// As a host's own configuration has it, in memory of such pages.
    pub fn of(config: &WindowConfig, pages: Pages) -> Result<Self, WindowError> {
        let path = || config.path.clone();
        let page = pages.bytes();
        let beyond = config.beyond.as_ref().map(|beyond| beyond.offset);
        let mut offsets = beyond.into_iter().chain([config.offset]);
        if let Some(offset) = offsets.find(|at| !pages.begin_at(*at)) {
            let path = path();
            return Err(WindowError::OffPage { path, offset, page });
        }
        let line = u32::try_from(LINE_BYTES).unwrap_or(u32::MAX);
        let geometry = Geometry {
            ring_lines: config.ring_bytes / line,
            slots: config.slots,
        };
        let layout = Self {
            pages,
            geometry,
            bytes: config.bytes / page * page,
        };
        match layout.parts() {
            0 => Err(WindowError::Few {
                path: path(),
                bytes: config.bytes,
                page,
                least: layout.header_bytes() + layout.part_bytes(),
            }),
            _ => Ok(layout),
        }
    }

    /// As another host says it; `None` if nothing can be cut like that.
    pub fn offered(offer: &WindowOffer) -> Option<Self> {
        let layout = Self {
            pages: Pages::of(offer.page_bytes.into())?,
            geometry: Geometry {
                ring_lines: offer.ring_lines,
                slots: offer.slots,
            },
            bytes: offer.bytes,
        };
        (layout.geometry.is_valid() && layout.parts() > 0).then_some(layout)
    }

    /// Whether what is cut like this lies within what is cut like `own`, on pages of its memory.
    pub fn fits(&self, own: &Self, config: &WindowConfig) -> bool {
        let beyond = config.beyond.as_ref().map(|beyond| beyond.offset);
        let mut offsets = beyond.into_iter().chain([config.offset]);
        self.bytes <= own.bytes
            && self.pages >= own.pages
            && offsets.all(|at| self.pages.begin_at(at))
    }

    /// What the owner says of it, to the other host and in the header.
    pub fn offer(&self, name: &str, epoch: u64) -> WindowOffer {
        WindowOffer {
            name: name.to_owned(),
            epoch,
            bytes: self.bytes,
            page_bytes: u32::try_from(self.pages.bytes()).unwrap_or(0),
            ring_lines: self.geometry.ring_lines,
            slots: self.geometry.slots,
        }
    }

    pub fn header_bytes(&self) -> u64 {
        self.pages.bytes()
    }

    /// From one part to the next.
    pub fn part_bytes(&self) -> u64 {
        self.pages.mapped_bytes(self.geometry.arena_bytes()) as u64
    }

    /// Parts that fit.
    pub fn parts(&self) -> usize {
        let room = self.bytes.saturating_sub(self.header_bytes());
        usize::try_from(room / self.part_bytes()).map_or(MAX_EXTENTS, |n| n.min(MAX_EXTENTS))
    }

    /// Where a part begins in the window; `None` if there is no such part.
    pub fn offset_of(&self, part: usize) -> Option<u64> {
        let at = || part as u64 * self.part_bytes();
        (part < self.parts()).then(|| self.header_bytes() + at())
    }
}

/// The header's record of an offer.
pub(super) fn record(offer: &WindowOffer) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&u32::from(RACK_VERSION).to_le_bytes());
    bytes[12..16].copy_from_slice(&offer.ring_lines.to_le_bytes());
    bytes[16..20].copy_from_slice(&offer.slots.to_le_bytes());
    bytes[20..24].copy_from_slice(&offer.page_bytes.to_le_bytes());
    bytes[24..32].copy_from_slice(&offer.bytes.to_le_bytes());
    bytes[32..40].copy_from_slice(&offer.epoch.to_le_bytes());
    bytes
}
