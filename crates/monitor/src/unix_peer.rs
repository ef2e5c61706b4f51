//! Who is at the other end of an AF_UNIX stream: asked of the kernel, by sock_diag(7).
//!
//! The passed socket is named by its inode and its cookie, so that the kernel answers for that socket or
//! not at all. It tells the peer's inode, and for that one its cookie and its own peer, which must be the
//! passed socket again.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;

use crosslane_sys::socket::{netns_cookie, network_namespace, socket_cookie};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::endpoint::{EndKey, Endpoint, EndpointError, Name};

/// SOCK_DIAG_BY_FAMILY (linux/sock_diag.h), the type of the request and of its answer.
const BY_FAMILY: u16 = 20;
/// AF_UNIX as it stands in a request.
const FAMILY: u8 = 1;
/// NLM_F_REQUEST.
const REQUEST: u16 = 1;
/// UDIAG_SHOW_PEER and UNIX_DIAG_PEER (linux/unix_diag.h).
const SHOW_PEER: u32 = 4;
const PEER: u16 = 2;
/// INET_DIAG_NOCOOKIE: whichever socket has the inode.
const ANY_COOKIE: u64 = u64::MAX;
/// Bytes of struct nlmsghdr, struct unix_diag_req, struct unix_diag_msg and struct nlattr.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 24;
const ANSWER_BYTES: usize = 16;
const ATTRIBUTE_BYTES: usize = 4;

/// What the kernel tells of one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    cookie: u64,
    /// Inode of its peer; 0 for one that has not been accepted yet, or has closed.
    peer: Option<u32>,
}

/// Ask the kernel about `fd`, an AF_UNIX stream.
///
/// # Errors
/// When it has no peer, or none that could be told.
pub(crate) fn read(fd: BorrowedFd<'_>) -> Result<Endpoint, EndpointError> {
    read_with(fd, Err)
}

/// As [`read`], for a socket whose peer may have closed: the kernel does not tell it any more. Nothing is paired by the name that
/// stands for it then.
///
/// # Errors
/// When it is no connected stream.
pub(crate) fn read_adopted(fd: BorrowedFd<'_>) -> Result<Endpoint, EndpointError> {
    const NOBODY: Name = Name::Unix {
        inode: 0,
        cookie: 0,
    };
    read_with(fd, |error| match error {
        EndpointError::NotAccepted => Ok(NOBODY),
        error => Err(error),
    })
}

fn read_with(
    fd: BorrowedFd<'_>,
    without_peer: impl Fn(EndpointError) -> Result<Name, EndpointError>,
) -> Result<Endpoint, EndpointError> {
    let cookie = socket_cookie(fd).map_err(|_| EndpointError::NotAStream)?;
    let netns = netns_cookie(fd).map_err(|_| EndpointError::NoNetns)?;
    let inode = rustix::fs::fstat(fd)
        .map_err(|_| EndpointError::NotAStream)?
        .st_ino;
    let inode = u32::try_from(inode).map_err(|_| EndpointError::NotAStream)?;
    let is_there = |kernel: &OwnedFd| netns_cookie(kernel.as_fd()) == Ok(netns);
    let here = open().map_err(|_| EndpointError::NoDiag)?;
    let kernel = match is_there(&here) {
        true => here,
        false => open_with(fd)
            .filter(is_there)
            .ok_or(EndpointError::OtherNamespace)?,
    };
    let told = ask(&kernel, inode, cookie).ok_or(EndpointError::NoDiag)?;
    let remote = peer_of(&kernel, &told, inode).or_else(without_peer)?;
    let local = Name::Unix { inode, cookie };
    Ok(Endpoint {
        key: EndKey {
            netns,
            local,
            remote,
        },
        cookie,
        device: 0,
    })
}

/// The peer of the socket with this inode, of which so much has been told.
fn peer_of(kernel: &OwnedFd, told: &Told, inode: u32) -> Result<Name, EndpointError> {
    let peer = match told.peer {
        None => return Err(EndpointError::NotConnected),
        Some(0) => return Err(EndpointError::NotAccepted),
        Some(peer) => peer,
    };
    let other = ask(kernel, peer, ANY_COOKIE).ok_or(EndpointError::NotConnected)?;
    if other.peer != Some(inode) {
        return Err(EndpointError::NotConnected);
    }
    Ok(Name::Unix {
        inode: peer,
        cookie: other.cookie,
    })
}

fn open() -> rustix::io::Result<OwnedFd> {
    socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        Some(netlink::SOCK_DIAG),
    )
}

/// As [`open`], in the network namespace of `fd`, which a thread of its own goes to. It is not kept: the namespace would live as
/// long. None for who may not enter it.
fn open_with(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
    let namespace = network_namespace(fd).ok()?;
    let there = move || {
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(namespace.as_fd(), kind).ok()?;
        open().ok()
    };
    let builder = thread::Builder::new().name("crosslane-netns".into());
    builder.spawn(there).ok()?.join().ok()?
}

/// The kernel answers within the call that asks.
fn ask(kernel: &OwnedFd, inode: u32, cookie: u64) -> Option<Told> {
    send(kernel, &request(inode, cookie), SendFlags::empty()).ok()?;
    let mut answer = [0u8; 512];
    let (_, bytes) = recv(kernel, &mut answer[..], RecvFlags::empty()).ok()?;
    told(answer.get(..bytes)?)
}

fn request(inode: u32, cookie: u64) -> Vec<u8> {
    let length = u32::try_from(HEADER_BYTES + REQUEST_BYTES).unwrap_or(0);
    let mut bytes = Vec::with_capacity(HEADER_BYTES + REQUEST_BYTES);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    // Sequence number and port, which nobody looks at.
    bytes.extend([0; 8]);
    bytes.extend([FAMILY, 0, 0, 0]);
    // In any state.
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(inode.to_ne_bytes());
    bytes.extend(SHOW_PEER.to_ne_bytes());
    bytes.extend(halves(cookie));
    bytes
}

/// A cookie as two words, the low one first.
fn halves(cookie: u64) -> [u8; 8] {
    let low = u32::try_from(cookie & u64::from(u32::MAX)).unwrap_or(0);
    let high = u32::try_from(cookie >> 32).unwrap_or(0);
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&low.to_ne_bytes());
    bytes[4..].copy_from_slice(&high.to_ne_bytes());
    bytes
}

fn told(answer: &[u8]) -> Option<Told> {
    let short = |at: usize| Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    if short(4)? != BY_FAMILY {
        return None;
    }
    let cookie_at = HEADER_BYTES + 8;
    let cookie = u64::from(word(cookie_at)?) | u64::from(word(cookie_at + 4)?) << 32;
    let mut peer = None;
    let mut at = HEADER_BYTES + ANSWER_BYTES;
    while let (Some(bytes), Some(kind)) = (short(at), short(at + 2)) {
        if kind == PEER {
            peer = word(at + ATTRIBUTE_BYTES);
        }
        at += usize::from(bytes).max(ATTRIBUTE_BYTES).next_multiple_of(4);
    }
    Some(Told { cookie, peer })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    fn key(stream: &UnixStream) -> EndKey {
        read(stream.as_fd()).unwrap().key
    }

    #[test]
    fn the_two_ends_of_a_pair_mirror_each_other() {
        let (a, b) = UnixStream::pair().unwrap();
        assert_eq!(key(&a).mirrored(), key(&b));
        let (other, _twin) = UnixStream::pair().unwrap();
        assert_ne!(key(&other), key(&a));
    }

    #[test]
    fn a_connection_has_ends_once_it_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let near = UnixStream::connect(&path).unwrap();
        assert_eq!(read(near.as_fd()), Err(EndpointError::NotAccepted));
        let (far, _) = listener.accept().unwrap();
        assert_eq!(key(&near).mirrored(), key(&far));
        assert_eq!(read(listener.as_fd()), Err(EndpointError::NotConnected));
    }

    #[test]
    fn who_has_lost_its_peer_is_known_by_itself() {
        let (near, far) = UnixStream::pair().unwrap();
        let before = read_adopted(near.as_fd()).unwrap();
        assert_eq!(Ok(before), read(near.as_fd()));
        drop(far);
        assert_eq!(read(near.as_fd()), Err(EndpointError::NotAccepted));
        let after = read_adopted(near.as_fd()).unwrap();
        assert_eq!(
            (after.cookie, after.key.local),
            (before.cookie, before.key.local)
        );
    }

    #[test]
    fn an_answer_that_is_cut_off_tells_nothing() {
        for bytes in 0..HEADER_BYTES + ANSWER_BYTES {
            assert_eq!(told(&vec![0; bytes]), None);
        }
    }
}
