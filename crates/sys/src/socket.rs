//! Facts that the kernel keeps about a socket.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::kernel::getsockopt;
use crate::raw::syscall;
use crate::{Errno, device};

/// Who was at the other end of an AF_UNIX connection when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// The process, or 0 if it lives outside our pid namespace.
    pub pid: u32,
    /// Its effective user.
    pub uid: u32,
}

/// SO_PEERCRED of an AF_UNIX connection.
///
/// # Errors
/// The kernel's, when `fd` is no such socket.
pub fn peer_credentials(fd: BorrowedFd<'_>) -> Result<PeerCredentials, Errno> {
    let found: libc::ucred = getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED)?;
    Ok(PeerCredentials {
        pid: u32::try_from(found.pid).unwrap_or(0),
        uid: found.uid,
    })
}

/// SO_COOKIE: a number that no other socket of this boot has or had.
///
/// # Errors
/// The kernel's, when `fd` is no socket.
pub fn socket_cookie(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_COOKIE)
}

/// SO_NETNS_COOKIE (Linux 5.14): a number that no other network namespace of this boot has or had.
///
/// # Errors
/// The kernel's, when `fd` is no socket or the kernel is older.
pub fn netns_cookie(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_NETNS_COOKIE)
}

/// SIOCGSKNS (linux/sockios.h).
const NAMESPACE: u32 = 0x894c;

/// The network namespace of a socket, to be entered by setns(2).
///
/// # Errors
/// The kernel's: EPERM without CAP_NET_ADMIN there.
pub fn network_namespace(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    // SAFETY: the request takes no argument.
    let number = unsafe { device::control(fd, NAMESPACE, 0) }?;
    let number = RawFd::try_from(number).map_err(|_| Errno::BADF)?;
    // SAFETY: the kernel has just opened it for this call.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// SO_BINDTOIFINDEX: the index of the interface that a socket is bound to; 0 for none.
///
/// # Errors
/// The kernel's, when `fd` is no socket.
pub fn bound_device(fd: BorrowedFd<'_>) -> Result<u32, Errno> {
    getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX)
}

/// Whether a socket may have an address that is not this host's (IP_TRANSPARENT, which the kernel also tells of IPv6's), as one
/// that has been accepted by such a listener.
pub fn is_transparent(fd: BorrowedFd<'_>) -> bool {
    let is_on =
        |level, name| getsockopt::<u32>(fd.as_raw_fd(), level, name).is_ok_and(|on| on != 0);
    is_on(libc::IPPROTO_IP, libc::IP_TRANSPARENT)
        || is_on(libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT)
}

/// Whether a filter is attached (SO_GET_FILTER, sk_get_filter in net/core/filter.c).
pub fn has_filter(fd: RawFd) -> bool {
    let number = |value: libc::c_int| (value as isize).cast_unsigned();
    let (level, name) = (number(libc::SOL_SOCKET), number(libc::SO_GET_FILTER));
    let mut instructions: usize = 0;
    let length = core::ptr::from_mut(&mut instructions).addr();
    let args = [number(fd), level, name, 0, length, 0];
    // SAFETY: with room for none the kernel writes how many there are only, in place of the length.
    let asked = unsafe { syscall(libc::SYS_getsockopt, args) };
    // One of eBPF is there, but cannot be shown.
    asked == Err(Errno(libc::EACCES)) || asked.is_ok() && instructions > 0
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn sockets_have_cookies_of_their_own_and_share_the_namespace() {
        let a = TcpListener::bind("127.0.0.1:0").unwrap();
        let b = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_ne!(socket_cookie(a.as_fd()), socket_cookie(b.as_fd()));
        assert_eq!(netns_cookie(a.as_fd()), netns_cookie(b.as_fd()));
        assert!(netns_cookie(a.as_fd()).is_ok());
    }

    #[test]
    fn the_peer_of_a_pair_is_ourselves() {
        let (a, _b) = UnixStream::pair().unwrap();
        let found = peer_credentials(a.as_fd()).unwrap();
        assert_eq!(found.pid, std::process::id());
        assert_eq!(found.uid, crate::process::uid());
    }
}
