//! Blocking stream sockets of either family, and pairs of pipes, behind one type.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};

use rustix::net::sockopt::{set_socket_send_buffer_size, set_socket_send_buffer_size_force};

use crate::address::Address;
use crate::pipes::Pipes;

/// Room for what is sent over `AF_UNIX`, whose buffers, unlike TCP's, do not grow by themselves. The kernel gives
/// less where `net.core.wmem_max` says so.
const UNIX_BYTES: usize = 1 << 20;

/// A connected stream socket.
pub enum Connection {
    /// TCP.
    Tcp(TcpStream),
    /// `AF_UNIX`.
    Unix(UnixStream),
    /// A pipe each way.
    Pipes(Pipes),
}

/// A listening stream socket.
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// `AF_UNIX`.
    Unix(UnixListener),
}

impl Connection {
    /// Connects to a server.
    ///
    /// # Errors
    /// As the system gives them.
    pub fn open(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => Self::tcp(TcpStream::connect(address)?),
            Address::Unix(name) => Self::unix(UnixStream::connect_addr(&unix_address(name)?)?),
            Address::Pipe => Pipes::to_new_process().map(Self::Pipes),
        }
    }

    fn unix(stream: UnixStream) -> io::Result<Self> {
        if set_socket_send_buffer_size_force(&stream, UNIX_BYTES).is_err() {
            set_socket_send_buffer_size(&stream, UNIX_BYTES)?;
        }
        Ok(Self::Unix(stream))
    }

    /// The names of this end and of the other end, as far as the family has any.
    ///
    /// # Errors
    /// As the system gives them.
    pub fn names(&self) -> io::Result<(String, String)> {
        match self {
            Self::Tcp(stream) => Ok((
                stream.local_addr()?.to_string(),
                stream.peer_addr()?.to_string(),
            )),
            Self::Unix(_) | Self::Pipes(_) => Ok((String::new(), String::new())),
        }
    }

    /// Makes calls return [`io::ErrorKind::WouldBlock`] instead of waiting, or wait again.
    ///
    /// # Errors
    /// As the system gives them.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(nonblocking),
            Self::Unix(stream) => stream.set_nonblocking(nonblocking),
            Self::Pipes(_) => Err(ErrorKind::Unsupported.into()),
        }
    }

    fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }
}

impl Listener {
    /// Listens; returns the address that a client can connect to, with the port that was found
    /// where 0 was asked for.
    ///
    /// # Errors
    /// As the system gives them.
    pub fn open(address: &Address) -> io::Result<(Self, Address)> {
        match address {
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                let address = listener.local_addr()?;
                Ok((Self::Tcp(listener), Address::Tcp(address)))
            }
            Address::Unix(name) => {
                let listener = UnixListener::bind_addr(&unix_address(name)?)?;
                Ok((Self::Unix(listener), address.clone()))
            }
            Address::Pipe => Err(io::Error::new(
                ErrorKind::Unsupported,
                "the client of a pipe starts its server",
            )),
        }
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// As the system gives them.
    pub fn accept(&self) -> io::Result<Connection> {
        match self {
            Self::Tcp(listener) => Connection::tcp(listener.accept()?.0),
            Self::Unix(listener) => Connection::unix(listener.accept()?.0),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
            Self::Pipes(pipes) => pipes.from.as_fd(),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

fn unix_address(name: &str) -> io::Result<UnixAddress> {
    match name.strip_prefix('@') {
        Some(name) => UnixAddress::from_abstract_name(name),
        None => UnixAddress::from_pathname(name),
    }
}

impl Read for Connection {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
            Self::Pipes(pipes) => pipes.from.read(buffer),
        }
    }
}

impl Write for Connection {
    #[inline]
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(buffer),
            Self::Unix(stream) => stream.write(buffer),
            Self::Pipes(pipes) => pipes.to.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::socket_send_buffer_size;

    use super::*;

    #[test]
    fn what_does_not_grow_by_itself_has_more_room_than_by_default() {
        let (one, _other) = UnixStream::pair().expect("a pair");
        let default = socket_send_buffer_size(&one).expect("it has one");
        let one = Connection::unix(one).expect("a size is taken");
        assert!(socket_send_buffer_size(&one).expect("it has one") > default);
    }
}
