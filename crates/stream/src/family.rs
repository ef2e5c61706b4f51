//! What differs between the kernel's two kinds of streams under a connection.
//!
//! | | TCP | AF_UNIX |
//! |---|---|---|
//! | how much is queued, and taking it away | MSG_TRUNC | FIONREAD and copying |
//! | the kernel's own count of bytes | TCP_INFO | none: the sender shows its own ([`crate::kernel_view`]) |
//! | a peer that closes | end of the stream; a reset after our next send | both directions end at once |
//! | it closes with unread data | a reset | ECONNRESET for a receive, EPIPE for a send |
//! | SHUT_RD | concerns this end alone | the peer's sends fail with EPIPE |
//! | control messages | none that matter | descriptors, credentials: sent and received by the kernel |

use std::os::fd::RawFd;

use crosslane_ctl::lane::{LINE_BYTES, MIN_RING_LINES};
use crosslane_ctl::slab::end_flags;
use crosslane_sys::socket::has_filter;
use crosslane_sys::{Errno, kernel};

use crate::{End, config, process};

/// The kernel's stream under a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// TCP, over IPv4 or IPv6.
    Tcp,
    /// SOCK_STREAM of AF_UNIX.
    Unix,
}

/// Options of an AF_UNIX socket under which a receive tells more than bytes, or other bytes.
const TELLING_UNIX: [libc::c_int; 4] = [
    libc::SO_PASSCRED,
    libc::SO_PASSSEC,
    libc::SO_PASSPIDFD,
    SO_INQ,
];
const SO_INQ: libc::c_int = 84;

/// The same of a TCP socket, which may have them from before its connect, or from its listener.
pub const TELLING_TCP: [libc::c_int; 8] = [
    libc::SO_OOBINLINE,
    libc::SO_ZEROCOPY,
    libc::SO_TIMESTAMP,
    libc::SO_TIMESTAMPNS,
    libc::SO_TIMESTAMPING,
    SO_TIMESTAMP_NEW,
    SO_TIMESTAMPNS_NEW,
    SO_TIMESTAMPING_NEW,
];
/// Those with 64-bit seconds everywhere.
const SO_TIMESTAMP_NEW: libc::c_int = 63;
const SO_TIMESTAMPNS_NEW: libc::c_int = 64;
const SO_TIMESTAMPING_NEW: libc::c_int = 65;

/// The most bytes a second that the kernel sends; all ones is no limit.
pub const SO_MAX_PACING_RATE: libc::c_int = 47;

/// Which buffers a program has sized itself (Linux 5.15), and the bit of the send buffer.
const SO_BUF_LOCK: libc::c_int = 72;
const SNDBUF_LOCK: i32 = 1;

/// The smallest lane, 32 KiB. The kernel doubles what a program asks for its send buffer, so that is 16 KiB there.
const LEAST_LANE_BYTES: usize = MIN_RING_LINES as usize * LINE_BYTES;

/// Bytes of AF_UNIX that are taken away at a time.
const SCRAP: usize = 64;

impl Family {
    /// The family of a stream that could be accelerated. AF_UNIX only where it was asked for.
    /// None at all in a process that the library leaves alone.
    pub fn of(fd: RawFd) -> Option<Self> {
        if process::has_left() {
            return None;
        }
        let option = |name| kernel::getsockopt::<i32>(fd, libc::SOL_SOCKET, name);
        // Multipath TCP is known so that it can be told why it stays with the kernel.
        if let Ok(libc::IPPROTO_TCP | libc::IPPROTO_MPTCP) = option(libc::SO_PROTOCOL) {
            return Some(Self::Tcp);
        }
        let is_unix = config::get().unix
            && option(libc::SO_DOMAIN) == Ok(libc::AF_UNIX)
            && option(libc::SO_TYPE) == Ok(libc::SOCK_STREAM);
        is_unix.then_some(Self::Unix)
    }

    /// Bytes that the socket has for a receive of up to `most`, without taking them; 0 at the end
    /// of the stream.
    pub(crate) fn available(self, fd: RawFd, most: usize) -> Result<usize, Errno> {
        if self == Self::Tcp {
            return kernel::available(fd, most);
        }
        let queued = || kernel::queued(fd, libc::FIONREAD);
        let bounded = |bytes: u32| (bytes as usize).clamp(1, most.max(1));
        // To look at one byte, the kernel walks through all messages that are queued. It counts urgent ones, too.
        let bytes = queued()?;
        if bytes > 0 && kernel::poll_now(fd, libc::POLLPRI) & libc::POLLPRI == 0 {
            return Ok(bounded(bytes));
        }
        let mut byte = 0;
        // SAFETY: the byte is valid for one write.
        match unsafe { kernel::recv(fd, &raw mut byte, 1, libc::MSG_PEEK) }? {
            0 => Ok(0),
            _ => queued().map(bounded),
        }
    }

    /// Take up to `bytes` away.
    pub(crate) fn discard(self, fd: RawFd, bytes: usize) -> Result<usize, Errno> {
        if self == Self::Tcp {
            return kernel::discard(fd, bytes);
        }
        let mut scrap = [0u8; SCRAP];
        // SAFETY: the array is valid for writes of its length.
        unsafe { kernel::recv(fd, scrap.as_mut_ptr(), bytes.min(SCRAP), 0) }
    }

    /// Whether few bytes are to be on their way in a lane, as the program has made the send buffer small. One of AF_UNIX, where
    /// nothing waits at the receiver besides, holds less than any lane, and stays with the kernel.
    pub(crate) fn wants_little(self, fd: RawFd) -> bool {
        self == Self::Tcp && has_small_buffer(fd)
    }

    /// Whether an option that has been set already keeps the socket with the kernel.
    pub fn is_kernels(self, fd: RawFd) -> bool {
        let option = |name| kernel::getsockopt::<i32>(fd, libc::SOL_SOCKET, name);
        let is_on = |name: &libc::c_int| option(*name).is_ok_and(|value| value != 0);
        let is_told_of = || kernel::status_flags(fd).is_ok_and(|flags| flags & libc::O_ASYNC != 0);
        let counts = || kernel::getsockopt::<i32>(fd, libc::IPPROTO_TCP, libc::TCP_CM_INQ);
        let rate = || kernel::getsockopt::<u64>(fd, libc::SOL_SOCKET, SO_MAX_PACING_RATE);
        option(libc::SO_PEEK_OFF).is_ok_and(|offset| offset >= 0)
            || option(libc::SO_RCVLOWAT).is_ok_and(|bytes| bytes > 1)
            || is_told_of()
            || match self {
                Self::Unix => TELLING_UNIX.iter().any(is_on) || has_small_buffer(fd),
                Self::Tcp => {
                    TELLING_TCP.iter().any(is_on)
                        || counts().is_ok_and(|on| on != 0)
                        || has_filter(fd)
                        || option(libc::SO_PROTOCOL) == Ok(libc::IPPROTO_MPTCP)
                        || rate().is_ok_and(|rate| rate != u64::MAX)
                }
            }
    }
}

/// Whether the program has made the send buffer smaller than any lane: it wants few bytes on their way.
fn has_small_buffer(fd: RawFd) -> bool {
    let locks = || kernel::getsockopt::<i32>(fd, libc::SOL_SOCKET, SO_BUF_LOCK);
    is_small(fd) && locks().is_ok_and(|locks| locks & SNDBUF_LOCK != 0)
}

/// Whether the send buffer is smaller than any lane. One that no program has sized may be, before it has grown.
pub(crate) fn is_small(fd: RawFd) -> bool {
    kernel::getsockopt::<u32>(fd, libc::SOL_SOCKET, libc::SO_SNDBUF)
        .is_ok_and(|bytes| (bytes as usize) < LEAST_LANE_BYTES)
}

impl End {
    /// The kernel's stream under this connection.
    #[inline]
    pub fn family(&self) -> Family {
        match self.has_flags(end_flags::UNIX) {
            true => Family::Unix,
            false => Family::Tcp,
        }
    }
}
