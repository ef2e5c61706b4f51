//! What the kernel says about a socket that a program has passed. The program itself is not asked for
//! any of this.

use std::fmt::{self, Display};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;

use crosslane_ctl::reason::Reason;
use crosslane_sys::socket::{bound_device, is_transparent, netns_cookie, socket_cookie};
use rustix::net::sockopt::{socket_domain, socket_protocol, socket_type};
use rustix::net::{AddressFamily, SocketType, getpeername, getsockname, ipproto};
use thiserror::Error;

use crate::unix_peer;

/// What a socket is known by to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// A TCP socket's address, IPv4 in IPv6 undone.
    Ip(SocketAddr),
    /// An AF_UNIX socket.
    Unix {
        /// As other tools show it; used again after 2^32 others.
        inode: u32,
        /// SO_COOKIE.
        cookie: u64,
    },
}

impl Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix { inode, .. } => write!(f, "unix:{inode}"),
        }
    }
}

/// One side of a connection: the network namespace and the two names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndKey {
    /// SO_NETNS_COOKIE.
    pub netns: u64,
    /// The socket's own name.
    pub local: Name,
    /// Its peer's name.
    pub remote: Name,
}

impl EndKey {
    /// The key of a TCP socket, from names as the kernel gives them.
    pub fn new(netns: u64, local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            netns,
            local: Name::Ip(plain(local)),
            remote: Name::Ip(plain(remote)),
        }
    }

    /// The key of the other side.
    pub fn mirrored(&self) -> Self {
        Self {
            netns: self.netns,
            local: self.remote,
            remote: self.local,
        }
    }
}

/// The same name in the form that both sides of a connection agree on: no IPv4 in IPv6, and no
/// flow label, which each side chooses for itself.
fn plain(name: SocketAddr) -> SocketAddr {
    match (name.ip().to_canonical(), name) {
        (IpAddr::V6(_), SocketAddr::V6(mut v6)) => {
            v6.set_flowinfo(0);
            SocketAddr::V6(v6)
        }
        (ip, _) => SocketAddr::new(ip, name.port()),
    }
}

/// A connected socket, read from its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Which connection, and which side of it.
    pub key: EndKey,
    /// SO_COOKIE, which tells a socket from an earlier one of the same names.
    pub cookie: u64,
    /// The interface that it is bound to; 0 for none. Those of VRFs may have the names of others in the same namespace.
    pub device: u32,
}

/// Why a passed descriptor is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EndpointError {
    /// Neither TCP nor an AF_UNIX stream.
    #[error("the descriptor is neither a TCP socket nor an AF_UNIX stream")]
    NotAStream,
    /// An AF_UNIX socket whose other end waits to be accepted.
    #[error("the other end of the AF_UNIX socket has not been accepted yet")]
    NotAccepted,
    /// The kernel tells an AF_UNIX socket's peer in the socket's own network namespace only.
    #[error(
        "the AF_UNIX socket is in another network namespace than the monitor, which may not enter it"
    )]
    OtherNamespace,
    /// sock_diag(7) is not to be had.
    #[error("the kernel does not tell the peer of an AF_UNIX socket; CONFIG_UNIX_DIAG is needed")]
    NoDiag,
    /// It has no peer.
    #[error("the socket is not connected")]
    NotConnected,
    /// It may have the name of a host that it stands between.
    #[error("the socket has IP_TRANSPARENT, so its names may be another connection's")]
    Transparent,
    /// The kernel does not tell the network namespace (before Linux 5.14).
    #[error("the kernel does not know SO_NETNS_COOKIE; Linux 5.14 is needed")]
    NoNetns,
    /// There was no room for the descriptor.
    #[error("the monitor has no descriptor left")]
    Lost,
}

impl EndpointError {
    /// What the program is told.
    pub fn reason(self) -> Reason {
        match self {
            // Worth another try later.
            Self::NotAccepted => Reason::TooYoung,
            Self::OtherNamespace => Reason::Namespace,
            Self::Transparent => Reason::Option,
            Self::NotConnected => Reason::Unconnected,
            Self::NotAStream => Reason::NotStream,
            Self::NoDiag => Reason::NoDiag,
            Self::NoNetns => Reason::OldKernel,
            Self::Lost => Reason::MonitorFull,
        }
    }
}

impl Endpoint {
    /// As [`Endpoint::read`], for a socket that may have been reset, and has no peer then.
    ///
    /// # Errors
    /// When the descriptor is not a stream, or an AF_UNIX one that never had a peer.
    pub fn read_adopted(fd: BorrowedFd<'_>) -> Result<Self, EndpointError> {
        if is_unix_stream(fd) {
            return unix_peer::read_adopted(fd);
        }
        Self::read_with(fd, |local| {
            let unknown = match local {
                SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            };
            Ok(SocketAddr::new(unknown, 0))
        })
    }

    /// Ask the kernel about `fd`. Only calls that answer from memory are used, so that a
    /// descriptor of a hostile file system cannot hold the caller up.
    ///
    /// # Errors
    /// When the descriptor is not a connected stream, or its names are not its own.
    pub fn read(fd: BorrowedFd<'_>) -> Result<Self, EndpointError> {
        let endpoint = Self::read_with(fd, |_| Err(EndpointError::NotConnected))?;
        // A proxy that has its client's name towards the server, and the server's towards the client, has two sockets that
        // mirror each other and are of two connections.
        match is_transparent(fd) {
            true => Err(EndpointError::Transparent),
            false => Ok(endpoint),
        }
    }

    fn read_with(
        fd: BorrowedFd<'_>,
        without_peer: impl FnOnce(&SocketAddr) -> Result<SocketAddr, EndpointError>,
    ) -> Result<Self, EndpointError> {
        if is_unix_stream(fd) {
            return unix_peer::read(fd);
        }
        let family = socket_domain(fd).map_err(|_| EndpointError::NotAStream)?;
        let is_tcp = (family == AddressFamily::INET || family == AddressFamily::INET6)
            && socket_type(fd) == Ok(SocketType::STREAM)
            && socket_protocol(fd) == Ok(Some(ipproto::TCP));
        if !is_tcp {
            return Err(EndpointError::NotAStream);
        }
        let local = getsockname(fd)
            .ok()
            .and_then(|name| SocketAddr::try_from(name).ok())
            .ok_or(EndpointError::NotConnected)?;
        let remote = getpeername(fd)
            .ok()
            .flatten()
            .and_then(|name| SocketAddr::try_from(name).ok());
        let remote = remote.map_or_else(|| without_peer(&local), Ok)?;
        let netns = netns_cookie(fd).map_err(|_| EndpointError::NoNetns)?;
        let cookie = socket_cookie(fd).map_err(|_| EndpointError::NotAStream)?;
        Ok(Self {
            key: EndKey::new(netns, local, remote),
            cookie,
            device: device_of(fd)?,
        })
    }
}

/// The loopback interface, 1 in every namespace, is of no VRF: what is bound to it has the same peers as what is not bound.
fn device_of(fd: BorrowedFd<'_>) -> Result<u32, EndpointError> {
    const LOOPBACK: u32 = 1;
    let device = bound_device(fd).map_err(|_| EndpointError::NotAStream)?;
    Ok(if device == LOOPBACK { 0 } else { device })
}

fn is_unix_stream(fd: BorrowedFd<'_>) -> bool {
    socket_domain(fd) == Ok(AddressFamily::UNIX) && socket_type(fd) == Ok(SocketType::STREAM)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::{AsFd, AsRawFd};
    use std::os::unix::net::UnixDatagram;

    use crosslane_sys::kernel;

    use super::*;

    fn ends_mirror(listen: &str, connect: &str) {
        let listener = TcpListener::bind(listen).unwrap();
        let port = listener.local_addr().unwrap().port();
        let a = TcpStream::connect((connect, port)).unwrap();
        let (b, _) = listener.accept().unwrap();
        let a = Endpoint::read(a.as_fd()).unwrap();
        let b = Endpoint::read(b.as_fd()).unwrap();
        assert_eq!(a.key.mirrored(), b.key);
        assert_ne!(a.cookie, b.cookie);
    }

    #[test]
    fn the_two_ends_of_a_connection_mirror_each_other() {
        ends_mirror("127.0.0.1:0", "127.0.0.1");
        ends_mirror("[::1]:0", "::1");
        ends_mirror("[::]:0", "127.0.0.1");
        ends_mirror("[::]:0", "::ffff:127.0.0.1");
    }

    #[test]
    fn a_flow_label_does_not_matter() {
        let labelled = std::net::SocketAddrV6::new(std::net::Ipv6Addr::LOCALHOST, 1, 77, 2);
        let bare = std::net::SocketAddrV6::new(std::net::Ipv6Addr::LOCALHOST, 1, 0, 2);
        assert_eq!(plain(labelled.into()), SocketAddr::from(bare));
    }

    /// Options by level and name, as in ip(7), ipv6(7) and socket(7).
    const IP_TRANSPARENT: (i32, i32) = (0, 19);
    const IPV6_TRANSPARENT: (i32, i32) = (41, 75);
    const SO_BINDTOIFINDEX: (i32, i32) = (1, 62);

    /// Set `option` of a socket, if we may.
    fn set(socket: &TcpStream, option: (i32, i32)) -> bool {
        kernel::setsockopt(socket.as_raw_fd(), option.0, option.1, &1).is_ok()
    }

    #[test]
    fn sockets_that_may_have_names_of_others_are_refused() {
        for (listen, option) in [
            ("127.0.0.1:0", IP_TRANSPARENT),
            ("[::1]:0", IPV6_TRANSPARENT),
        ] {
            let listener = TcpListener::bind(listen).unwrap();
            let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            assert!(Endpoint::read(socket.as_fd()).is_ok());
            if !set(&socket, option) {
                eprintln!("not tried: IP_TRANSPARENT needs CAP_NET_RAW");
                return;
            }
            let read = Endpoint::read(socket.as_fd());
            assert_eq!(read, Err(EndpointError::Transparent));
            assert!(Endpoint::read_adopted(socket.as_fd()).is_ok());
        }
    }

    #[test]
    fn what_is_bound_to_the_loopback_interface_is_as_what_is_not_bound() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // Its index is 1.
        assert!(set(&socket, SO_BINDTOIFINDEX));
        assert_eq!(bound_device(socket.as_fd()), Ok(1));
        assert_eq!(Endpoint::read(socket.as_fd()).unwrap().device, 0);
    }

    #[test]
    fn what_is_not_a_connected_stream_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (unix, _other) = UnixDatagram::pair().unwrap();
        let file = std::fs::File::open("/proc/self/status").unwrap();
        let not_connected = Err(EndpointError::NotConnected);
        assert_eq!(Endpoint::read(listener.as_fd()), not_connected);
        for fd in [udp.as_fd(), unix.as_fd(), file.as_fd()] {
            assert_eq!(Endpoint::read(fd), Err(EndpointError::NotAStream));
        }
    }
}
