//! What the owner of a window says of it.

use super::{Body, Frame, FrameError, kind};

/// See [`HostMessage::WindowOffer`](super::HostMessage::WindowOffer).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowOffer {
    /// The window's name in both configurations.
    pub name: String,
    /// A number that is in the window's header, never used twice.
    pub epoch: u64,
    /// Bytes of the window that are used.
    pub bytes: u64,
    /// Bytes of the pages on which its parts begin.
    pub page_bytes: u32,
    /// Lines of each ring.
    pub ring_lines: u32,
    /// Slots of each arena.
    pub slots: u32,
}

impl WindowOffer {
    pub(super) fn encode(&self) -> Frame {
        Frame::new(kind::WINDOW_OFFER)
            .u64(self.epoch)
            .u64(self.bytes)
            .u32(self.page_bytes)
            .u32(self.ring_lines)
            .u32(self.slots)
            .text(&self.name)
    }

    pub(super) fn decode(body: &mut Body<'_>) -> Result<Self, FrameError> {
        Ok(Self {
            epoch: body.u64()?,
            bytes: body.u64()?,
            page_bytes: body.u32()?,
            ring_lines: body.u32()?,
            slots: body.u32()?,
            name: body.name()?,
        })
    }
}
