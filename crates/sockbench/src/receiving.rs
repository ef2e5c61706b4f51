//! How a server waits for its next message.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;

use nix::sys::socket::{GetSockOpt, SetSockOpt};

use crate::connection::Connection;

/// What the kernel is asked to poll for, where it does, in microseconds: the value that its
/// documentation recommends for `net.core.busy_read`.
const BUSY_POLL_US: u32 = 50;

/// How to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Receiving {
    /// In a blocking call
    #[default]
    Block,
    /// In a blocking call, and the kernel polls the network device meanwhile (`SO_BUSY_POLL`)
    BusyPoll,
    /// In a loop of calls that do not block
    Spin,
}

mod options {
    use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};

    sockopt_impl!(
        /// For how many microseconds the kernel polls the device before a call sleeps.
        BusyPoll, SetOnly, libc::SOL_SOCKET, libc::SO_BUSY_POLL, u32
    );
    sockopt_impl!(
        /// The device queue that packets have come from; 0 if from none.
        IncomingQueue, GetOnly, libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID, u32
    );
}

/// Lets the kernel poll for this socket and, if it listens, for those that it accepts.
///
/// # Errors
/// As the system gives them; `EPERM` without `CAP_NET_ADMIN`.
pub fn let_kernel_poll(socket: &impl AsFd) -> io::Result<()> {
    options::BusyPoll
        .set(socket, &BUSY_POLL_US)
        .map_err(io::Error::from)
}

/// Whether packets for this socket come from a device queue, which alone the kernel can poll.
#[must_use]
pub fn has_device_queue(socket: &impl AsFd) -> bool {
    options::IncomingQueue
        .get(socket)
        .is_ok_and(|queue| queue != 0)
}

/// A connection whose calls are repeated until they need not block.
pub struct Spinning<'a>(&'a mut Connection);

impl<'a> Spinning<'a> {
    /// Makes the connection a non-blocking one.
    ///
    /// # Errors
    /// As the system gives them.
    pub fn new(connection: &'a mut Connection) -> io::Result<Self> {
        connection.set_nonblocking(true)?;
        Ok(Self(connection))
    }
}

impl Read for Spinning<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        repeat(|| self.0.read(buffer))
    }
}

impl Write for Spinning<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        repeat(|| self.0.write(buffer))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn repeat(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            done => return done,
        }
    }
}
