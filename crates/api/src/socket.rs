//! A TCP socket of ours and what the stream keeps of it.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crosslane_stream::family::Family;
use crosslane_stream::{End, close, register, slices};
use rustix::net::sockopt;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};

use crate::process;

/// A connected socket, closed when the last half of the connection is dropped.
pub(crate) struct Socket {
    fd: OwnedFd,
    end: Option<End>,
}

/// A fresh TCP socket. rustix calls the kernel itself, past a preloaded library, which would
/// otherwise take the socket for one of the program's own.
pub(crate) fn open(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    Ok(socket)
}

impl Socket {
    /// Know a connection that has just been made.
    pub(crate) fn new(fd: OwnedFd, passive: bool) -> io::Result<Self> {
        process::prepare();
        // Messages leave when they are committed; batches are the caller's.
        sockopt::set_tcp_nodelay(&fd, true)?;
        let end = register::track(fd.as_raw_fd(), Family::Tcp, passive, None);
        if let Some(end) = end {
            register::hasten(&end);
        }
        Ok(Self { fd, end })
    }

    /// Send from `bytes`, by memory or by the kernel.
    pub(crate) fn send(&self, bytes: &[u8], dont_wait: bool) -> io::Result<usize> {
        if let Some(end) = self.end() {
            return Ok(slices::send(&end, bytes, dont_wait)?);
        }
        let mut flags = SendFlags::NOSIGNAL;
        flags.set(SendFlags::DONTWAIT, dont_wait);
        Ok(net::send(&self.fd, bytes, flags)?)
    }

    /// Receive into `bytes`, from memory or from the kernel.
    pub(crate) fn receive(&self, bytes: &mut [u8], dont_wait: bool) -> io::Result<usize> {
        if let Some(end) = self.end() {
            return Ok(slices::receive(&end, bytes, dont_wait)?);
        }
        let mut flags = RecvFlags::empty();
        flags.set(RecvFlags::DONTWAIT, dont_wait);
        Ok(net::recv(&self.fd, bytes, flags)?.0)
    }

    /// Shut down a direction, as shutdown(2); in any thread, whatever others do meanwhile.
    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let (raw, how) = match how {
            Shutdown::Read => (libc::SHUT_RD, net::Shutdown::Read),
            Shutdown::Write => (libc::SHUT_WR, net::Shutdown::Write),
            Shutdown::Both => (libc::SHUT_RDWR, net::Shutdown::Both),
        };
        if let Some(end) = self.end() {
            close::before_shutdown(&end, raw);
        }
        net::shutdown(&self.fd, how)?;
        if let Some(end) = self.end() {
            close::after_shutdown(&end, raw);
        }
        Ok(())
    }

    /// The end, unless Crosslane is disabled or has no place for it.
    #[inline]
    pub(crate) fn end(&self) -> Option<End> {
        self.end
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Socket");
        debug.field("fd", &self.fd).finish_non_exhaustive()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(end) = self.end() {
            close::before_close(&end);
        }
    }
}
