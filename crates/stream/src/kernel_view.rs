//! The kernel's own count of a connection's bytes, held against ours before a switch: bytes that
//! moved past the library must keep a connection on TCP.

use std::os::fd::RawFd;

use crosslane_sys::kernel;

/// The part of `struct tcp_info` (linux/tcp.h) up to `tcpi_bytes_received`.
#[repr(C)]
#[derive(Clone, Copy)]
struct TcpInfo {
    state: u8,
    before: [u8; 119],
    bytes_acked: u64,
    bytes_received: u64,
}

const _: () = {
    assert!(core::mem::offset_of!(TcpInfo, bytes_acked) == 120);
    assert!(core::mem::offset_of!(TcpInfo, bytes_received) == 128);
};

/// TCP_ESTABLISHED of the kernel's state machine.
const ESTABLISHED: u8 = 1;

/// How often bytes may move between the kernel calls of one look.
const LOOKS: u32 = 8;

/// What holding the kernel's count against ours gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// They agree.
    Agrees,
    /// Bytes were moving between the two kernel calls that make a count; ask again later.
    Moving,
    /// Bytes have moved past the library.
    Differs,
    /// The connection is not established any more: the kernel counts ends as bytes.
    Closing,
}

impl Count {
    /// `kernel` lags behind `ours` while bytes are moving, and never runs ahead.
    fn compare(kernel: u64, ours: u64) -> Self {
        match kernel.cmp(&ours) {
            core::cmp::Ordering::Equal => Self::Agrees,
            core::cmp::Ordering::Less => Self::Moving,
            core::cmp::Ordering::Greater => Self::Differs,
        }
    }
}

fn info(fd: RawFd) -> Option<TcpInfo> {
    kernel::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO).ok()
}

/// Whether the kernel has been given exactly `sent` bytes. Its count includes the SYN of the end
/// that connected.
pub fn compare_sent(fd: RawFd, sent: u64, passive: bool) -> Count {
    let ours = sent + u64::from(!passive);
    at_rest(|| {
        let info = established(fd)?;
        let queued = kernel::queued(fd, libc::TIOCOUTQ).ok()?;
        Some(Count::compare(info.bytes_acked + u64::from(queued), ours))
    })
}

/// Whether exactly `received` bytes have been taken from the kernel.
pub fn compare_received(fd: RawFd, received: u64) -> Count {
    at_rest(|| {
        let info = established(fd)?;
        let queued = kernel::queued(fd, libc::FIONREAD).ok()?;
        Some(Count::compare(
            info.bytes_received,
            received + u64::from(queued),
        ))
    })
}

/// Look until no byte moves between the two kernel calls that make a count: a stream under load
/// never rests for long. The end of the stream may come meanwhile, and counts as a byte.
fn at_rest(look: impl Fn() -> Option<Count>) -> Count {
    for _ in 0..LOOKS {
        match look() {
            None => return Count::Closing,
            Some(Count::Moving) => {}
            Some(Count::Differs) => return look().map_or(Count::Closing, |_| Count::Differs),
            Some(count) => return count,
        }
    }
    Count::Moving
}

fn established(fd: RawFd) -> Option<TcpInfo> {
    info(fd).filter(|info| info.state == ESTABLISHED)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn the_kernel_counts_as_we_do() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let (near, far) = (client.as_raw_fd(), server.as_raw_fd());
        client.write_all(&[1; 1000]).unwrap();
        assert_eq!(compare_sent(near, 1000, false), Count::Agrees);
        assert_eq!(compare_received(far, 0), Count::Agrees);
        server.read_exact(&mut [0; 300]).unwrap();
        assert_eq!(compare_received(far, 300), Count::Agrees);
        assert_eq!(compare_received(far, 299), Count::Differs);
        server.write_all(&[2; 7]).unwrap();
        assert_eq!(compare_sent(far, 7, true), Count::Agrees);
        assert_eq!(compare_sent(far, 6, true), Count::Differs);
        assert_eq!(compare_sent(near, 999, false), Count::Differs);
        drop(server);
        assert_eq!(compare_sent(near, 1000, false), Count::Closing);
    }
}
