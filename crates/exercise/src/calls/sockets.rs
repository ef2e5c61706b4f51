//! Calls that make, join and end connections, and name their ends.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::RawFd;

use super::{answer_fd, answer_int, size};
use crate::{Answer, Errno};

/// An address as the kernel wants it, with its length.
#[derive(Clone, Copy)]
pub struct Name {
    storage: libc::sockaddr_storage,
    length: libc::socklen_t,
}

impl Name {
    /// An address of no family and the longest length, to be filled in.
    fn blank() -> Self {
        // SAFETY: an address of zeros is one of no family.
        let storage = unsafe { std::mem::zeroed() };
        Self {
            storage,
            length: size::<libc::sockaddr_storage>(),
        }
    }

    /// The address that makes connect(2) disconnect.
    pub fn unspecified() -> Self {
        Self {
            length: size::<libc::sockaddr>(),
            ..Self::blank()
        }
    }

    /// An AF_UNIX socket outside of the file system (unix(7)).
    pub fn of_unix(name: &str) -> Self {
        // SAFETY: an address of zeros is one without a name.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = family(libc::AF_UNIX);
        // The first byte stays zero.
        for (to, from) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        let length = size_of::<libc::sa_family_t>() + 1 + name.len();
        Self::of(
            address,
            libc::socklen_t::try_from(length).expect("a name is short"),
        )
    }

    fn of<T>(value: T, length: libc::socklen_t) -> Self {
        let mut name = Self {
            length,
            ..Self::blank()
        };
        // SAFETY: every socket address fits into the storage, which is aligned for all.
        unsafe { (&raw mut name.storage).cast::<T>().write(value) };
        name
    }

    /// The name of an AF_UNIX socket outside of the file system, empty without one; None for other
    /// families.
    pub fn unix_name(&self) -> Option<String> {
        if i32::from(self.storage.ss_family) != libc::AF_UNIX {
            return None;
        }
        // SAFETY: the family says what it is.
        let address: libc::sockaddr_un =
            unsafe { (&raw const self.storage).cast::<libc::sockaddr_un>().read() };
        let before = size_of::<libc::sa_family_t>() + 1;
        let bytes = usize::try_from(self.length)
            .unwrap_or(0)
            .saturating_sub(before);
        let name = address.sun_path[1..].iter().take(bytes);
        let name: Vec<u8> = name.map(|byte| byte.to_ne_bytes()[0]).collect();
        Some(String::from_utf8_lossy(&name).into_owned())
    }

    /// The IP address and port, if it is one.
    pub fn address(&self) -> Option<SocketAddr> {
        match i32::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family says what it is.
                let v4: libc::sockaddr_in =
                    unsafe { (&raw const self.storage).cast::<libc::sockaddr_in>().read() };
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: the family says what it is.
                let v6: libc::sockaddr_in6 = unsafe {
                    (&raw const self.storage)
                        .cast::<libc::sockaddr_in6>()
                        .read()
                };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                Some(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), 0, 0).into())
            }
            _ => None,
        }
    }
}

impl From<SocketAddr> for Name {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => Self::of(
                libc::sockaddr_in {
                    sin_family: family(libc::AF_INET),
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from(*v4.ip()).to_be(),
                    },
                    sin_zero: [0; 8],
                },
                size::<libc::sockaddr_in>(),
            ),
            SocketAddr::V6(v6) => Self::of(
                libc::sockaddr_in6 {
                    sin6_family: family(libc::AF_INET6),
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr {
                        s6_addr: v6.ip().octets(),
                    },
                    sin6_scope_id: 0,
                },
                size::<libc::sockaddr_in6>(),
            ),
        }
    }
}

fn family(number: i32) -> libc::sa_family_t {
    libc::sa_family_t::try_from(number).expect("families are small numbers")
}

/// socket(2) for a stream; `flags` such as SOCK_NONBLOCK.
pub fn socket(family: i32, flags: i32) -> Result<RawFd, Errno> {
    // SAFETY: no memory is passed.
    answer_fd(unsafe { libc::socket(family, libc::SOCK_STREAM | flags, 0) })
}

/// socketpair(2) of AF_UNIX streams.
pub fn socketpair() -> Result<[RawFd; 2], Errno> {
    let mut pair = [-1; 2];
    // SAFETY: there is room for two descriptors.
    answer_int(unsafe {
        libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr())
    })?;
    Ok(pair)
}

/// bind(2).
pub fn bind(fd: RawFd, address: SocketAddr) -> Answer {
    bind_name(fd, &Name::from(address))
}

/// bind(2) to an address of any family.
pub fn bind_name(fd: RawFd, name: &Name) -> Answer {
    // SAFETY: the name is readable for its length.
    answer_int(unsafe { libc::bind(fd, (&raw const name.storage).cast(), name.length) })
}

/// listen(2).
pub fn listen(fd: RawFd, backlog: i32) -> Answer {
    // SAFETY: no memory is passed.
    answer_int(unsafe { libc::listen(fd, backlog) })
}

/// connect(2).
pub fn connect(fd: RawFd, name: impl Into<Name>) -> Answer {
    let name = name.into();
    // SAFETY: the name is readable for its length.
    answer_int(unsafe { libc::connect(fd, (&raw const name.storage).cast(), name.length) })
}

/// accept(2) without asking who it is.
pub fn accept(fd: RawFd) -> Result<RawFd, Errno> {
    let null = std::ptr::null_mut();
    // SAFETY: null pointers ask for nothing.
    answer_fd(unsafe { libc::accept(fd, null, null.cast()) })
}

/// accept4(2) without asking who it is.
pub fn accept4(fd: RawFd, flags: i32) -> Result<RawFd, Errno> {
    let null = std::ptr::null_mut();
    // SAFETY: null pointers ask for nothing.
    answer_fd(unsafe { libc::accept4(fd, null, null.cast(), flags) })
}

/// accept(2) with room for `room` bytes of the address: the descriptor and the address's length.
pub fn accept_with_room(fd: RawFd, room: u32) -> Result<(RawFd, u32), Errno> {
    let mut name = Name::blank();
    let mut length = room.min(name.length);
    let start = (&raw mut name.storage).cast();
    // SAFETY: the name is writable for more than the length passed.
    let accepted = answer_fd(unsafe { libc::accept(fd, start, &raw mut length) })?;
    Ok((accepted, length))
}

/// shutdown(2).
pub fn shutdown(fd: RawFd, how: i32) -> Answer {
    // SAFETY: no memory is passed.
    answer_int(unsafe { libc::shutdown(fd, how) })
}

/// getsockname(2).
pub fn getsockname(fd: RawFd) -> Result<Name, Errno> {
    let mut name = Name::blank();
    let start = (&raw mut name.storage).cast();
    // SAFETY: the name is writable for its length.
    answer_int(unsafe { libc::getsockname(fd, start, &raw mut name.length) })?;
    Ok(name)
}

/// getpeername(2).
pub fn getpeername(fd: RawFd) -> Result<Name, Errno> {
    let mut name = Name::blank();
    let start = (&raw mut name.storage).cast();
    // SAFETY: the name is writable for its length.
    answer_int(unsafe { libc::getpeername(fd, start, &raw mut name.length) })?;
    Ok(name)
}

/// What a call of names tells that has been given room for so many bytes of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// How long the name is.
    pub length: u32,
    /// The family, if there was room for it.
    pub family: Option<u16>,
    /// Whether what is behind the room is untouched.
    pub is_kept: bool,
}

/// getsockname(2) with room for so many bytes, which may be a wrong number of them.
pub fn getsockname_with_room(fd: RawFd, room: i32) -> Result<Named, Errno> {
    named(room, |name, length| {
        // SAFETY: the name is writable for more than the length that is right.
        unsafe { libc::getsockname(fd, name, length) }
    })
}

/// The same by getpeername(2).
pub fn getpeername_with_room(fd: RawFd, room: i32) -> Result<Named, Errno> {
    named(room, |name, length| {
        // SAFETY: the name is writable for more than the length that is right.
        unsafe { libc::getpeername(fd, name, length) }
    })
}

fn named(
    room: i32,
    call: impl FnOnce(*mut libc::sockaddr, *mut libc::socklen_t) -> i32,
) -> Result<Named, Errno> {
    const UNTOUCHED: u8 = 0xee;
    let mut name = [UNTOUCHED; size_of::<libc::sockaddr_storage>()];
    let mut length = room.cast_unsigned();
    answer_int(call(name.as_mut_ptr().cast(), &raw mut length))?;
    let room = usize::try_from(room).unwrap_or(0);
    let family = (room >= 2).then(|| u16::from_ne_bytes([name[0], name[1]]));
    let is_kept = name[room..].iter().all(|byte| *byte == UNTOUCHED);
    Ok(Named {
        length,
        family,
        is_kept,
    })
}

/// send(2) with an address, as sendto(2) allows.
pub fn sendto(fd: RawFd, bytes: &[u8], flags: i32, name: impl Into<Name>) -> Answer {
    let name = name.into();
    let (start, count) = (bytes.as_ptr().cast(), bytes.len());
    let to = (&raw const name.storage).cast();
    // SAFETY: the bytes and the name are readable for their lengths.
    super::answer(unsafe { libc::sendto(fd, start, count, flags, to, name.length) })
}
