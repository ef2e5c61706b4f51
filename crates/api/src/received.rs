//! Bytes that have arrived, where they are.

use std::io;

use crosslane_ring::LaneMemory;
use crosslane_window::bytes::Bytes;

use crate::receiver::Receiver;

/// The next bytes of the stream, in the lane or, where they came by TCP or are few, in private memory. A peer
/// may change those in the lane as long as they have not been consumed: copy out what is to be
/// relied on, once.
#[derive(Debug)]
pub struct Received<'a> {
    receiver: &'a mut Receiver,
    bytes: usize,
}

impl<'a> Received<'a> {
    #[inline]
    pub(crate) fn new(receiver: &'a mut Receiver) -> Self {
        let found = &receiver.found[..receiver.records];
        let bytes = match found {
            [] => receiver.kept().len(),
            _ => found.iter().map(crosslane_ring::Found::bytes).sum(),
        };
        Self { receiver, bytes }
    }

    /// How many.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the stream has ended.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The pieces of them that lie together, in order.
    #[inline]
    pub fn pieces(&self) -> Pieces<'_> {
        Pieces {
            receiver: self.receiver,
            record: 0,
            skipped: 0,
        }
    }

    /// Copy the bytes from `offset` on, as many as `to` takes. Returns how many.
    #[inline]
    pub fn copy_to(&self, mut offset: usize, to: &mut [u8]) -> usize {
        let mut copied = 0;
        for piece in self.pieces() {
            if offset >= piece.len() {
                offset -= piece.len();
                continue;
            }
            copied += piece.split_at(offset).1.copy_to(&mut to[copied..]);
            offset = 0;
            if copied == to.len() {
                break;
            }
        }
        copied
    }

    /// `N` bytes from `offset` on, read once, wherever pieces end; `None` if not so many have come.
    #[inline]
    pub fn get<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        if offset.checked_add(N)? > self.bytes {
            return None;
        }
        let mut value = [0; N];
        (self.copy_to(offset, &mut value) == N).then_some(value)
    }

    /// Take the first `bytes` away; the peer may use their place again.
    ///
    /// # Panics
    /// If there are not so many.
    ///
    /// # Errors
    /// ESTALE if another process has received from the connection meanwhile, which is not meant.
    #[inline]
    pub fn consume(self, bytes: usize) -> io::Result<()> {
        self.receiver.consume(bytes)
    }

    /// Take all of them away.
    ///
    /// # Errors
    /// As [`Received::consume`].
    #[inline]
    pub fn consume_all(self) -> io::Result<()> {
        self.receiver.consume(self.bytes)
    }
}

/// See [`Received::pieces`].
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    receiver: &'a Receiver,
    record: usize,
    skipped: usize,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Bytes<'a>;

    #[inline]
    fn next(&mut self) -> Option<Bytes<'a>> {
        let receiver = self.receiver;
        if receiver.records == 0 {
            let rest = &receiver.kept()[self.skipped..];
            self.skipped += rest.len();
            return (!rest.is_empty()).then(|| Bytes::of_slice(rest));
        }
        let lane = receiver.socket.end()?.rx_lane()?;
        while self.record < receiver.records {
            let record = &receiver.found[self.record];
            if let Some(piece) = record.piece(lane.lines(), self.skipped) {
                self.skipped += piece.bytes;
                return lane.view(piece).map(Bytes::of_view);
            }
            self.record += 1;
            self.skipped = 0;
        }
        None
    }
}
