use std::io::Read;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use super::*;
use crate::both::ends;
use crate::slices;

/// More than sockets with small buffers take.
pub(crate) const BYTES: usize = 28 << 10;

/// Nothing here takes so long.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(20);

/// Have the kernel take little at a time.
pub(crate) fn make_small(sockets: &[TcpStream]) {
    for socket in sockets {
        for option in [libc::SO_SNDBUF, libc::SO_RCVBUF] {
            kernel::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, &1).unwrap();
        }
    }
}

fn message() -> Vec<u8> {
    let byte = |at: usize| u8::try_from(at % 251).unwrap();
    (0..BYTES).map(byte).collect()
}

/// Two ends and the sockets below. The first has sent what the second has not read and wants to have by TCP, which has no
/// room for all of it.
pub(crate) fn ends_in_replay() -> ([End; 2], [TcpStream; 2]) {
    let ([near, far], sockets) = ends();
    make_small(&sockets);
    assert_eq!(slices::send(&near, &message(), true), Ok(BYTES));
    switch::freeze(&far);
    switch::pin(&far, Reason::Passed);
    switch::attend(&near);
    assert_eq!(near.tx_mode(), Mode::Replay);
    ([near, far], sockets)
}

/// Read the message as somebody who knows nothing of lanes.
pub(crate) fn read_message(mut socket: &TcpStream) {
    socket.set_read_timeout(Some(WATCHDOG)).unwrap();
    let mut read = vec![0; BYTES];
    socket.read_exact(&mut read).unwrap();
    assert!(read == message());
}
