//! Resets that the library has the kernel send.

use core::time::Duration;

use crosslane_ctl::slab::EndPhase;
use crosslane_sys::{Errno, kernel};

use crate::End;

/// How often a reset is attempted that the kernel refuses, and the pause in between.
const ATTEMPTS: u32 = 5;
const NAP: Duration = Duration::from_micros(200);

/// Make the kernel reset the connection when its last descriptor is closed.
pub(crate) fn at_close(end: &End) {
    let at_once = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    let _ = kernel::setsockopt(end.fd(), libc::SOL_SOCKET, libc::SO_LINGER, &at_once);
}

/// Reset the connection now. Not shut down alone, which the peer would take for an end in good order.
pub(crate) fn now(end: &End) {
    at_close(end);
    let is_reset = disconnect(end);
    if end.phase() == EndPhase::Granted {
        // The library tells the error, once.
        let _ = kernel::getsockopt::<i32>(end.fd(), libc::SOL_SOCKET, libc::SO_ERROR);
    }
    // Wakes whoever sleeps; what comes behind the error is the end.
    let how = if is_reset {
        libc::SHUT_RDWR
    } else {
        libc::SHUT_RD
    };
    let _ = kernel::shutdown(end.fd(), how);
}

/// Some kernels refuse it while other threads are in a call on the socket. Those are woken by the end of what
/// comes; if they do not go, closing the last descriptor resets the connection.
fn disconnect(end: &End) -> bool {
    for _ in 0..ATTEMPTS {
        if kernel::disconnect(end.fd()) != Err(Errno::BUSY) {
            return true;
        }
        let _ = kernel::shutdown(end.fd(), libc::SHUT_RD);
        kernel::nap(NAP);
    }
    false
}

/// What the kernel does at the last close, while the monitor may hold a copy of the socket: what is unread makes it a reset.
pub(crate) fn or_shut_down(end: &End) {
    match kernel::queued(end.fd(), libc::FIONREAD) {
        Ok(1..) => now(end),
        _ => drop(kernel::shutdown(end.fd(), libc::SHUT_RDWR)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::both::name_nothing;
    use crate::family::Family;
    use crate::register;

    /// What the peer reads of a socket that is closed with so much unread, and of which somebody has a copy.
    fn told(unread: &[u8]) -> Result<usize, ErrorKind> {
        crosslane_sys::process::resolve();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        name_nothing(near.as_raw_fd());
        let end = register::track(near.as_raw_fd(), Family::Tcp, false, None).unwrap();
        far.write_all(unread).unwrap();
        while kernel::queued(end.fd(), libc::FIONREAD) != Ok(u32::try_from(unread.len()).unwrap()) {
        }
        or_shut_down(&end);
        name_nothing(near.as_raw_fd());
        far.read(&mut [0]).map_err(|error| error.kind())
    }

    #[test]
    fn what_is_unread_makes_an_end_a_reset() {
        assert_eq!(told(b"word"), Err(ErrorKind::ConnectionReset));
        assert_eq!(told(b""), Ok(0));
    }
}
