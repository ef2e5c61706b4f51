//! Room for bytes that are built where they travel.

use std::io::{self, Write};

use crosslane_ring::{LaneMemory, Piece, WindowLane};
use crosslane_window::bytes::{Bytes, BytesMut};
use crosslane_window::view::View;

use crate::sender::{Place, Sender};

/// Room in the lane, or in private memory while the direction is on TCP. Several messages may be
/// put into it: they appear at the peer at once, for one look at whether it sleeps.
///
/// Dropped without [`Reservation::commit`], it sends nothing.
#[derive(Debug)]
#[must_use = "what is not committed is not sent"]
pub struct Reservation<'a> {
    sender: &'a mut Sender,
    place: Place,
    capacity: usize,
    filled: usize,
    is_done: bool,
}

impl Place {
    /// The bytes of the lane from `at` on that lie together.
    #[inline]
    fn piece_of_lane(&self, at: usize) -> Option<(WindowLane, Piece)> {
        let Self::Lane(room) = self else { return None };
        let piece = room.reservation.piece(room.lane.lines(), at)?;
        Some((room.lane, piece))
    }

    #[inline]
    fn view(&self, at: usize) -> Option<View> {
        let (lane, piece) = self.piece_of_lane(at)?;
        lane.view(piece)
    }

    /// The bytes of a reservation of `capacity` from `at` on that lie together.
    #[inline]
    pub(crate) fn spare<'a>(
        &self,
        private: &'a mut [u8],
        at: usize,
        capacity: usize,
    ) -> BytesMut<'a> {
        match self {
            Self::Lane(_) => match self.view(at) {
                Some(view) => BytesMut::of_view(view),
                None => BytesMut::of_slice(&mut []),
            },
            Self::Private => BytesMut::of_slice(&mut private[at..capacity]),
        }
    }

    pub(crate) fn piece(&self, at: usize) -> Option<Bytes<'static>> {
        self.view(at).map(Bytes::of_view)
    }
}

impl<'a> Reservation<'a> {
    pub(crate) fn new(sender: &'a mut Sender, place: Place, capacity: usize) -> Self {
        Self {
            sender,
            place,
            capacity,
            filled: 0,
            is_done: false,
        }
    }

    /// Bytes that it has room for.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes that have been put into it.
    #[inline]
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Put `bytes` behind what is there, as many as there is room for. Returns how many.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        self.put_bytes(Bytes::of_slice(bytes))
    }

    /// Put what has been received behind what is there, from where it came, as much as there is
    /// room for. Returns how much.
    #[inline]
    pub fn put_bytes(&mut self, bytes: Bytes<'_>) -> usize {
        let mut left = bytes;
        while !left.is_empty() && self.filled < self.capacity {
            let (now, rest) = left.split_at(self.put_piece(left));
            self.filled += now.len();
            left = rest;
        }
        bytes.len() - left.len()
    }

    /// Put as many of the bytes as lie together.
    #[inline]
    fn put_piece(&mut self, bytes: Bytes<'_>) -> usize {
        if let Some((lane, piece)) = self.place.piece_of_lane(self.filled) {
            let taken = piece.bytes.min(bytes.len());
            lane.put(piece, bytes.split_at(taken).0);
            return taken;
        }
        let mut room = self.spare();
        let taken = room.len().min(bytes.len());
        room.copy_bytes(0, bytes.split_at(taken).0);
        taken
    }

    /// Overwrite what has been put at `offset`, such as a length that is known at last.
    ///
    /// # Panics
    /// If not so much has been put.
    pub fn put_at(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset.checked_add(bytes.len());
        assert!(
            end.is_some_and(|end| end <= self.filled),
            "{} bytes at {offset} of {} that were put",
            bytes.len(),
            self.filled
        );
        let filled = core::mem::replace(&mut self.filled, offset);
        self.put(bytes);
        self.filled = filled;
    }

    /// The bytes after what was put, as many as lie together: fill some of them and say so by
    /// [`Reservation::advance`]. Empty when the reservation is full. They hold whatever was there.
    #[inline]
    pub fn spare(&mut self) -> BytesMut<'_> {
        let private = &mut self.sender.private;
        self.place.spare(private, self.filled, self.capacity)
    }

    /// So many bytes of [`Reservation::spare`] have been filled.
    ///
    /// # Panics
    /// If the reservation has not so many.
    #[inline]
    pub fn advance(&mut self, bytes: usize) {
        assert!(
            bytes <= self.capacity - self.filled,
            "no room for {bytes} more bytes"
        );
        self.filled += bytes;
    }

    /// Send what was put.
    ///
    /// # Errors
    /// As send(2) with MSG_NOSIGNAL; then nothing of it was sent by memory.
    #[inline]
    pub fn commit(mut self) -> io::Result<()> {
        self.is_done = true;
        self.sender.commit(self.place, self.filled)
    }
}

impl Write for Reservation<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.put(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.sender.cancel(self.place);
        }
    }
}
