//! The sending half.

use std::io::{self, ErrorKind, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crosslane_stream::reserve::{self, Room};
use crosslane_stream::slices;

use crate::closer::Closer;
use crate::ready::Armed;
use crate::reservation::Reservation;
use crate::socket::Socket;

/// Shorter reservations are private memory, from which a commit copies them into the lane. The
/// receiver looks at the first line of a message all the time, and would take it away while it is built
/// there, for the price of many such copies.
const STAGED_BYTES: usize = 1024;

/// Sends bytes: by [`Sender::reserve`] without a copy, by [`Write`] with one.
#[derive(Debug)]
pub struct Sender {
    pub(crate) socket: Arc<Socket>,
    pub(crate) armed: Armed,
    /// Where reservations are that are not in the lane.
    pub(crate) private: Vec<u8>,
    /// What has been committed and the kernel has had no room for yet, without waiting.
    kept: Vec<u8>,
    /// The last reservation was made without waiting, which its commit does not do, either.
    is_impatient: bool,
}

/// Where a reservation lies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// In the lane.
    Lane(Room),
    /// In [`Sender::private`], because the direction is on TCP or the reservation short.
    Private,
}

impl Sender {
    pub(crate) fn new(socket: Arc<Socket>) -> Self {
        Self {
            socket,
            armed: Armed::No,
            private: Vec::new(),
            kept: Vec::new(),
            is_impatient: false,
        }
    }

    /// Room for `bytes`, or for as many as there is room for now if these are
    /// [`crate::WHOLE_BYTES`] or more. Waits for it, unless the connection does not block.
    ///
    /// While the reservation lives it holds no lock and the peer sees nothing of it; it must not
    /// be kept for long, because the direction cannot change its path meanwhile.
    ///
    /// # Errors
    /// As send(2) with MSG_NOSIGNAL; `InvalidInput` for no bytes.
    pub fn reserve(&mut self, bytes: usize) -> io::Result<Reservation<'_>> {
        let (place, capacity) = self.find_room(bytes, false)?;
        Ok(Reservation::new(self, place, capacity))
    }

    /// As [`Sender::reserve`], but `WouldBlock` rather than waiting. The commit does not wait, either: what the kernel
    /// has no room for is kept back, see [`Sender::has_kept`].
    ///
    /// # Errors
    /// As [`Sender::reserve`].
    pub fn try_reserve(&mut self, bytes: usize) -> io::Result<Reservation<'_>> {
        let (place, capacity) = self.find_room(bytes, true)?;
        Ok(Reservation::new(self, place, capacity))
    }

    #[inline]
    pub(crate) fn find_room(
        &mut self,
        bytes: usize,
        dont_wait: bool,
    ) -> io::Result<(Place, usize)> {
        self.armed.end(&self.socket);
        self.is_impatient = dont_wait;
        if bytes == 0 {
            return Err(ErrorKind::InvalidInput.into());
        }
        if !self.kept.is_empty() {
            self.send_kept(dont_wait)?;
        }
        if let Some(end) = self.socket.end()
            && slices::is_granted_to_send(&end)
        {
            if bytes <= STAGED_BYTES && reserve::is_roomy(&end) {
                return Ok((Place::Private, self.make_private(bytes)));
            }
            if let Some(room) = reserve::reserve(&end, bytes, dont_wait)? {
                return Ok((Place::Lane(room), room.reservation.bytes()));
            }
        }
        Ok((Place::Private, self.make_private(bytes)))
    }

    #[inline]
    fn make_private(&mut self, bytes: usize) -> usize {
        // Enough for the kernel to be worth a call, and no more than a lane might have given.
        let bytes = bytes.min(16 * crate::WHOLE_BYTES);
        if self.private.len() < bytes {
            self.private.resize(bytes, 0);
        }
        bytes
    }

    /// Send the first `bytes` of what lies at `place`.
    #[inline]
    pub(crate) fn commit(&mut self, place: Place, bytes: usize) -> io::Result<()> {
        match (place, self.socket.end()) {
            (Place::Lane(room), Some(end)) => {
                if !reserve::commit(&end, &room, bytes)? {
                    self.take_along(&room, bytes);
                    reserve::cancel(&end);
                    return self.send_committed();
                }
                Ok(())
            }
            _ => self.send_private(bytes),
        }
    }

    #[inline]
    fn send_private(&mut self, bytes: usize) -> io::Result<()> {
        let sent = match self.kept.is_empty() && bytes > 0 {
            false => 0,
            true => match self.socket.send(&self.private[..bytes], self.is_impatient) {
                Ok(sent) => sent,
                Err(error) if may_go_on(&error) => 0,
                Err(error) => return Err(error),
            },
        };
        if sent == bytes {
            return Ok(());
        }
        self.kept.extend_from_slice(&self.private[sent..bytes]);
        self.send_committed()
    }

    /// The reservation will not be sent.
    pub(crate) fn cancel(&mut self, place: Place) {
        if let (Place::Lane(_), Some(end)) = (place, self.socket.end()) {
            reserve::cancel(&end);
        }
    }

    /// The direction has left the lane since: what was built there is sent from here.
    #[cold]
    fn take_along(&mut self, room: &Room, bytes: usize) {
        let mut at = 0;
        while at < bytes
            && let Some(piece) = Place::Lane(*room).piece(at)
        {
            let taken = piece.len().min(bytes - at);
            self.kept.extend(piece.split_at(taken).0.iter());
            at += taken;
        }
    }

    /// Send what has been committed; what the kernel has no room for is kept where the connection
    /// does not block, or the reservation was made without waiting.
    #[cold]
    fn send_committed(&mut self) -> io::Result<()> {
        match self.send_kept(self.is_impatient) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            outcome => outcome,
        }
    }

    #[cold]
    pub(crate) fn send_kept(&mut self, dont_wait: bool) -> io::Result<()> {
        let mut sent = 0;
        let mut outcome = Ok(());
        while sent < self.kept.len() {
            match self.socket.send(&self.kept[sent..], dont_wait) {
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        self.kept.drain(..sent);
        outcome
    }

    /// Send some of what was kept back, if there is room by now.
    pub(crate) fn push_kept(&mut self) {
        if self.has_kept() {
            // The next call meets the same error.
            let _ = self.send_kept(true);
        }
    }

    /// Send a copy of `bytes`, as send(2).
    #[inline]
    pub(crate) fn send(&mut self, bytes: &[u8], dont_wait: bool) -> io::Result<usize> {
        self.armed.end(&self.socket);
        if !self.kept.is_empty() {
            self.send_kept(dont_wait)?;
        }
        self.socket.send(bytes, dont_wait)
    }

    /// The bytes of a reservation of `capacity` from `at` on that lie together.
    pub(crate) fn spare(&mut self, place: Place, at: usize, capacity: usize) -> (*mut u8, usize) {
        let mut spare = place.spare(&mut self.private, at, capacity);
        (spare.as_mut_ptr(), spare.len())
    }

    /// Send what a commit has kept back, and end the stream that is sent, as shutdown(2) with SHUT_WR: the peer
    /// receives to its end. To drop the sender does not end it as long as there is the receiver.
    ///
    /// # Errors
    /// As shutdown(2), and where bytes that a commit has kept back cannot be sent before.
    pub fn shutdown(&mut self) -> io::Result<()> {
        self.armed.end(&self.socket);
        self.send_kept(false)?;
        self.socket.shutdown(Shutdown::Write)
    }

    /// A handle by which other threads shut the connection down, also while calls on it wait.
    pub fn closer(&self) -> Closer {
        Closer::of(&self.socket)
    }

    /// Whether a commit has kept bytes back, because it was not to wait and the kernel had no room. Any later call sends
    /// them first; [`Write::flush`] does nothing else, and is due before the sender is dropped.
    pub fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }
}

fn may_go_on(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl Write for Sender {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(bytes, false)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send_kept(false)
    }
}

impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.armed.end(&self.socket);
        // Perhaps there is room by now; nobody is left to be told otherwise.
        let _ = self.send_kept(true);
    }
}
