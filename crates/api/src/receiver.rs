//! The receiving half.

use core::ops::Range;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crosslane_ring::Found;
use crosslane_stream::{End, reserve, short, slices};

use crate::closer::Closer;
use crate::ready::Armed;
use crate::received::Received;
use crate::socket::Socket;

/// Records that one look shows at most.
const MOST_RECORDS: usize = 32;

/// What one receive from the kernel takes at most.
const KEPT_BYTES: usize = 1 << 16;

/// Records up to this length are copied out of the lane where they were waited for: that is cheaper than to read them
/// there, and to come back to them when they have been consumed.
const SHORT_BYTES: usize = 1024;

/// Receives bytes: by [`Receiver::peek`] without a copy, unless they are few, by [`Read`] with one.
#[derive(Debug)]
pub struct Receiver {
    pub(crate) socket: Arc<Socket>,
    pub(crate) armed: Armed,
    pub(crate) found: [Found; MOST_RECORDS],
    /// How many of `found` mean something.
    pub(crate) records: usize,
    /// In the range `kept`, what the kernel gave or was short, and has not been consumed.
    private: Vec<u8>,
    kept: Range<usize>,
}

impl Receiver {
    pub(crate) fn new(socket: Arc<Socket>) -> Self {
        Self {
            socket,
            armed: Armed::No,
            found: [Found::default(); MOST_RECORDS],
            records: 0,
            private: Vec::new(),
            kept: 0..0,
        }
    }

    /// Look at the next bytes, wherever they are, and wait for them unless the connection does not
    /// block. Empty at the end of the stream. They stay until they are consumed: the next look
    /// begins with the first byte that has not been.
    ///
    /// # Errors
    /// As recv(2).
    #[inline]
    pub fn peek(&mut self) -> io::Result<Received<'_>> {
        self.look(false)?;
        Ok(Received::new(self))
    }

    /// As [`Receiver::peek`], but `WouldBlock` rather than waiting.
    ///
    /// # Errors
    /// As [`Receiver::peek`].
    #[inline]
    pub fn try_peek(&mut self) -> io::Result<Received<'_>> {
        self.look(true)?;
        Ok(Received::new(self))
    }

    #[inline]
    pub(crate) fn look(&mut self, dont_wait: bool) -> io::Result<()> {
        self.armed.end(&self.socket);
        self.records = 0;
        if self.kept().is_empty()
            && let Some(end) = self.socket.end()
            && slices::is_granted(&end)
        {
            if !dont_wait && !end.has_record() && self.keep_short(&end) {
                return Ok(());
            }
            self.records = reserve::find(&end, &mut self.found, dont_wait)?;
            if self.records == 0 {
                return self.look_longer(&end, dont_wait);
            }
            return Ok(());
        }
        if self.kept().is_empty() {
            self.receive(dont_wait)?;
        }
        Ok(())
    }

    /// Wait for a short record for a moment, and keep it.
    #[inline]
    fn keep_short(&mut self, end: &End) -> bool {
        let room = self.room(SHORT_BYTES);
        let bytes = short::receive_next(end, room).unwrap_or(0);
        self.kept = 0..bytes;
        bytes > 0
    }

    #[inline]
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.private.len() < bytes {
            self.private.resize(bytes, 0);
        }
        &mut self.private[..bytes]
    }

    /// Nothing stands in the lane, or the direction is not there.
    #[cold]
    fn look_longer(&mut self, end: &End, dont_wait: bool) -> io::Result<()> {
        while slices::await_bytes(end, dont_wait)? {
            self.records = reserve::find_one(end, &mut self.found)?;
            if self.records > 0 {
                return Ok(());
            }
            match self.receive(true) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
        }
        Ok(())
    }

    /// Receive a copy, as recv(2).
    #[inline]
    pub(crate) fn receive_into(&mut self, to: &mut [u8], dont_wait: bool) -> io::Result<usize> {
        self.armed.end(&self.socket);
        let mut kept = self.kept();
        if !kept.is_empty() {
            let taken = kept.read(to)?;
            self.kept.start += taken;
            return Ok(taken);
        }
        self.socket.receive(to, dont_wait)
    }

    #[cold]
    fn receive(&mut self, dont_wait: bool) -> io::Result<()> {
        self.kept = 0..0;
        self.room(KEPT_BYTES);
        let received = self.socket.receive(&mut self.private, dont_wait)?;
        self.kept = 0..received;
        Ok(())
    }

    /// A handle by which other threads shut the connection down, also while calls on it wait.
    pub fn closer(&self) -> Closer {
        Closer::of(&self.socket)
    }

    /// What is in private memory.
    #[inline]
    pub(crate) fn kept(&self) -> &[u8] {
        &self.private[self.kept.clone()]
    }

    #[inline]
    pub(crate) fn consume(&mut self, bytes: usize) -> io::Result<()> {
        if self.records == 0 {
            assert!(bytes <= self.kept().len(), "{bytes} bytes were not shown");
            self.kept.start += bytes;
            return Ok(());
        }
        if bytes > 0
            && let Some(end) = self.socket.end()
        {
            reserve::consume(&end, &self.found[..self.records], bytes)?;
        }
        self.records = 0;
        Ok(())
    }
}

impl Read for Receiver {
    #[inline]
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.receive_into(bytes, false)
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.armed.end(&self.socket);
    }
}
