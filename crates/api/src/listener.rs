//! Listening, as std's `TcpListener`.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, SocketFlags, acceptfrom_with, bind, getsockname, listen, sockopt,
};

use crate::connection::Connection;
use crate::socket;

/// As std's.
const BACKLOG: i32 = 128;

/// A listening TCP socket.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// Listen on the first of the addresses that can be bound.
    ///
    /// # Errors
    /// As bind(2) and listen(2) give them for the last address.
    pub fn bind(addresses: impl ToSocketAddrs) -> io::Result<Self> {
        each(addresses, |address| {
            let fd = socket::open(family(address))?;
            sockopt::set_socket_reuseaddr(&fd, true)?;
            bind(&fd, &address)?;
            listen(&fd, BACKLOG)?;
            Ok(Self(fd))
        })
    }

    /// Wait for the next connection.
    ///
    /// # Errors
    /// As accept(2).
    pub fn accept(&self) -> io::Result<(Connection, SocketAddr)> {
        let (fd, peer) = acceptfrom_with(&self.0, SocketFlags::CLOEXEC)?;
        let peer = peer.ok_or(rustix::io::Errno::AFNOSUPPORT)?;
        let address = SocketAddr::try_from(peer)?;
        Ok((Connection::new(fd, true)?, address))
    }

    /// Where it listens, with the port that the kernel has chosen for port 0.
    ///
    /// # Errors
    /// As getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::try_from(getsockname(&self.0)?)?)
    }

    /// Have [`Listener::accept`] return `WouldBlock` rather than wait.
    ///
    /// # Errors
    /// As fcntl(2).
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(&self.0, nonblocking)?)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

pub(crate) fn family(address: SocketAddr) -> AddressFamily {
    match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    }
}

/// The first good outcome of `attempt`, or the last bad one.
pub(crate) fn each<T>(
    addresses: impl ToSocketAddrs,
    attempt: impl Fn(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut outcome = Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "the name has no address",
    ));
    for address in addresses.to_socket_addrs()? {
        outcome = attempt(address);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}
