//! The lane over a posted-write window: a PCIe bridge, memory of another virtual machine, CXL.
//!
//! The records are those of the coherent lane. What differs is who may read what. The ring lies in the
//! receiver's own memory, and so do the words that the sender has for it; credit and requests lie in
//! the sender's. Writes into the other host's memory arrive late, in the order in which they left; there
//! is nothing to read there ([`memory::Remote`] has no function that does). So
//!
//! * each side knows from its own cursor where it stands, and of the other side what that has written
//!   into its memory;
//! * the payload is written, a fence, then the header, and a fence that pushes it out of the processor;
//! * nobody can clear the line behind a record, so the *receiver* clears the lines that it has read,
//!   before it returns credit for them ([`receive`]);
//! * credit is returned when a record asks for it, which one does when half of the ring is in use
//!   ([`send`]; NTSocks 4.1.2);
//! * "ask, then look once more" loses wake-ups, because both writes may be under way: the sleeper sleeps
//!   soundly only when the other side has acknowledged ([`wake`]).
//!
//! Of the words that a peer writes none is believed. As in the rest of the crate there is no state of a
//! connection here but cursors, which are the caller's, and nothing sleeps or rings.
//! Read [`memory`], [`send`], [`receive`], [`wake`]; then [`freeze`], which brings a direction back to TCP.

pub mod freeze;
mod gather;
pub mod memory;
pub mod receive;
pub mod send;
pub mod wake;

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_ctl::posted::RING;
use memory::{Local, Remote};

pub use receive::PostedRx;
pub use send::PostedTx;
pub use wake::Sleep;

/// Both halves of a connection's memory, as one end sees them.
#[derive(Clone, Copy, Debug)]
pub struct Slot<L, R> {
    /// This host's slot: the ring that we read and the words that the peer has for us.
    pub local: L,
    /// The peer's slot, for writing.
    pub remote: R,
    lines: u32,
}

impl<L: Local, R: Remote> Slot<L, R> {
    /// A slot with rings of so many lines, which both memories must have room for.
    ///
    /// # Panics
    /// If it is no power of two.
    pub fn new(local: L, remote: R, lines: u32) -> Self {
        assert!(lines.is_power_of_two());
        Self {
            local,
            remote,
            lines,
        }
    }

    /// Lines in each ring.
    #[inline]
    pub fn lines(&self) -> u32 {
        self.lines
    }

    /// Offset in a slot of a line, which is not wrapped yet.
    #[inline]
    fn at(&self, line: u64) -> usize {
        // Masked to the ring, which has at most 2^18 lines.
        let line = usize::try_from(line & u64::from(self.lines - 1)).unwrap_or(0);
        RING + line * LINE_BYTES
    }

    /// Cut a range of the ring that begins at `line`, `skipped` bytes in, where the ring ends.
    #[inline]
    fn split(&self, line: u64, skipped: usize, bytes: usize) -> (usize, usize) {
        let ring_bytes = self.lines as usize * LINE_BYTES;
        let offset = (self.at(line) - RING + skipped) & (ring_bytes - 1);
        (RING + offset, bytes.min(ring_bytes - offset))
    }
}
