//! One connection: two halves, and where its bytes travel.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crosslane_ctl::slab::{EndPhase, Mode};
use crosslane_stream::within;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{self, getpeername, getsockname, sockopt};

use crate::closer::Closer;
use crate::listener::{Listener, each, family};
use crate::ready::{self, Interest, Rest};
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::socket::{self, Socket};

/// A TCP connection, in memory where the peer can be reached so.
///
/// Its halves can be used by two threads at a time: [`Connection::split`].
#[derive(Debug)]
pub struct Connection {
    /// The sending half.
    pub sender: Sender,
    /// The receiving half.
    pub receiver: Receiver,
}

/// Where the bytes of a connection travel now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Both directions are in memory.
    Memory,
    /// One direction is. The other follows when its sender sends, or is not for the reason, in a
    /// word that `crosslane ss` shows, too.
    Partly(&'static str),
    /// Both go through the kernel, for the reason.
    Tcp(&'static str),
}

impl Connection {
    /// Connect to the first of the addresses that answers.
    ///
    /// # Errors
    /// As socket(2) and connect(2) give them for the last address.
    pub fn connect(addresses: impl ToSocketAddrs) -> io::Result<Self> {
        each(addresses, |address| {
            let fd = socket::open(family(address))?;
            match net::connect(&fd, &address) {
                // It goes on meanwhile.
                Err(rustix::io::Errno::INTR) => finish_connecting(&fd)?,
                outcome => outcome?,
            }
            Self::new(fd, false)
        })
    }

    /// Both ends of a connection in this process, for two of its threads: in memory from the first byte on,
    /// and without a monitor (NTSocks' Runtime). Where there is no memory for that, it is as any connection.
    ///
    /// # Errors
    /// As the calls of [`Connection::connect`] and [`Listener::accept`] on the loopback device.
    pub fn pair() -> io::Result<(Self, Self)> {
        let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let near = Self::connect(listener.local_addr()?)?;
        let own = near.local_addr()?;
        // Somebody else may have found the port.
        let far = loop {
            let (far, from) = listener.accept()?;
            if from == own {
                break far;
            }
        };
        if let (Some(a), Some(b)) = (near.socket().end(), far.socket().end()) {
            within::join(&a, &b);
        }
        Ok((near, far))
    }

    pub(crate) fn new(fd: OwnedFd, passive: bool) -> io::Result<Self> {
        let socket = Arc::new(Socket::new(fd, passive)?);
        Ok(Self {
            sender: Sender::new(Arc::clone(&socket)),
            receiver: Receiver::new(socket),
        })
    }

    /// The halves, for two threads. The connection is closed when both are dropped; one alone ends nothing:
    /// [`Sender::shutdown`], [`Closer`].
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }

    fn socket(&self) -> &Socket {
        &self.sender.socket
    }

    /// Have calls return `WouldBlock` rather than wait. See [`Connection::arm`] for what to do then.
    ///
    /// # Errors
    /// As ioctl(2).
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        rustix::io::ioctl_fionbio(self, nonblocking)?;
        if let Some(end) = self.socket().end() {
            end.forget_waiting();
        }
        Ok(())
    }

    /// Prepare for sleeping in poll, select or epoll on the connection's own descriptor. Must be
    /// called each time before, because what is in memory wakes nobody who has not asked for it.
    ///
    /// What the kernel says of a broken connection is told by the next call that moves bytes.
    pub fn arm(&mut self, interest: Interest) -> Rest {
        ready::arm(self, interest)
    }

    /// Where the bytes travel now. Looks only; the path changes on calls that move bytes.
    pub fn path(&self) -> Path {
        let Some(end) = self.socket().end() else {
            return Path::Tcp("disabled");
        };
        let in_lane = |mode| end.phase() == EndPhase::Granted && mode == Mode::Ring;
        match (in_lane(end.tx_mode()), in_lane(end.rx_mode())) {
            (true, true) => Path::Memory,
            (false, false) => Path::Tcp(end.reason().slug()),
            _ => Path::Partly(end.reason().slug()),
        }
    }

    /// Shut down a direction, as shutdown(2).
    ///
    /// # Errors
    /// As shutdown(2), and where bytes that a commit has kept back cannot be sent before.
    pub fn shutdown(&mut self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Read {
            self.sender.flush()?;
        }
        self.socket().shutdown(how)
    }

    /// A handle by which other threads shut the connection down, also while calls on it wait.
    pub fn closer(&self) -> Closer {
        self.sender.closer()
    }

    /// This end's address.
    ///
    /// # Errors
    /// As getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::try_from(getsockname(self)?)?)
    }

    /// The peer's address.
    ///
    /// # Errors
    /// As getpeername(2).
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::try_from(
            getpeername(self)?.ok_or(rustix::io::Errno::NOTCONN)?,
        )?)
    }
}

/// Wait for a connect that a signal has interrupted.
fn finish_connecting(fd: &OwnedFd) -> io::Result<()> {
    let mut one = [PollFd::new(fd, PollFlags::OUT)];
    while poll(&mut one, None) == Err(rustix::io::Errno::INTR) {}
    Ok(sockopt::socket_error(fd)??)
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Read for Connection {
    #[inline]
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.receiver.read(bytes)
    }
}

impl Write for Connection {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sender.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sender.flush()
    }
}
