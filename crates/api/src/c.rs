//! The native interface for C. `include/crosslane.h` is made from these files by
//! `cargo xtask header`; what the functions do is said there.
//!
//! The safety argument is the same for all: the caller is a C program that keeps the promises of
//! the header. A panic, which would be a bug, ends the process: it cannot leave an
//! `extern "C"` function.
#![allow(
    unsafe_code,
    non_camel_case_types,
    clippy::missing_safety_doc,
    clippy::multiple_unsafe_ops_per_block
)]

mod opening;
mod receiving;
mod sending;
mod waiting;

use core::ffi::{c_char, c_int, c_void};
use std::io::{self, ErrorKind};

use crosslane_ctl::reason::Reason;
use crosslane_sys::Errno;
use libc::{size_t, ssize_t};

use crate::closer::Closer;
use crate::connection::Connection;
use crate::sender::Place;

/// The version of the library that the program runs with, as CROSSLANE_VERSION is that of the header
/// by which it was compiled.
#[unsafe(no_mangle)]
pub extern "C" fn crosslane_version() -> *const c_char {
    VERSION.as_ptr().cast()
}

/// With its final NUL.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

/// Fail with EAGAIN rather than wait, also where the connection waits otherwise. It is the only flag
/// there is: a call with another one, such as those of send(2) and recv(2), fails with EINVAL.
pub const CROSSLANE_DONTWAIT: c_int = 1;

/// The longest reservation that is always whole. A longer one may turn out shorter, down to this.
pub const CROSSLANE_WHOLE_BYTES: size_t = 8184;

/// Both directions go through the kernel.
pub const CROSSLANE_PATH_TCP: c_int = 0;

/// One direction is in memory. The other follows when its sender sends, or stays for the reason that
/// crosslane_path() tells.
pub const CROSSLANE_PATH_PARTLY: c_int = 1;

/// Both directions are in memory.
pub const CROSSLANE_PATH_MEMORY: c_int = 2;

/// Room for any reason of crosslane_path(), with its final NUL.
pub const CROSSLANE_REASON_BYTES: size_t = 32;

const _: () = {
    let mut reasons = Reason::ALL;
    while let [first, others @ ..] = reasons {
        assert!(first.slug().len() < CROSSLANE_REASON_BYTES);
        reasons = others;
    }
};

const _: () = assert!(CROSSLANE_WHOLE_BYTES == crate::WHOLE_BYTES);

/// Bytes that lie together; laid out as struct iovec.
///
/// Those of crosslane_peek() may be changed by the peer until they are consumed: copy a value out
/// once, check the copy, and use the copy.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct crosslane_span {
    /// The first.
    pub start: *mut c_void,
    /// How many.
    pub bytes: size_t,
}

/// A connection. What a function does that is given NULL for one, or for a crosslane_listener, is
/// undefined, but where NULL is said to be allowed.
///
/// One thread at a time may use each direction: crosslane_reserve(), crosslane_commit(),
/// crosslane_cancel(), crosslane_send(), crosslane_flush() and crosslane_shutdown() one,
/// crosslane_peek(), crosslane_consume() and crosslane_recv() the other. Any thread may call
/// crosslane_interrupt(), and crosslane_shutdown() with SHUT_RD, at any time before crosslane_close().
/// All else is for when neither direction is in use.
pub struct crosslane_connection {
    connection: Connection,
    /// For threads that use neither direction.
    closer: Closer,
    /// The reservation that is being filled.
    reserved: Option<(Place, usize)>,
    /// Bytes that the last look has shown and that have not been consumed.
    shown: size_t,
}

impl crosslane_connection {
    fn boxed(connection: Connection) -> *mut Self {
        Box::into_raw(Box::new(Self {
            closer: connection.closer(),
            connection,
            reserved: None,
            shown: 0,
        }))
    }
}

/// Set errno and return -1.
fn fail<T: From<i8>>(error: &io::Error) -> T {
    errno(error).set();
    T::from(-1)
}

fn errno(error: &io::Error) -> Errno {
    if let Some(number) = error.raw_os_error() {
        return Errno(number);
    }
    match error.kind() {
        ErrorKind::WouldBlock => Errno::AGAIN,
        ErrorKind::InvalidInput => Errno::INVAL,
        // A name that cannot be resolved.
        _ => Errno(libc::EADDRNOTAVAIL),
    }
}

fn done(outcome: io::Result<()>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(error) => fail(&error),
    }
}

fn count(outcome: io::Result<usize>) -> ssize_t {
    match outcome {
        // No memory has more than isize::MAX bytes.
        Ok(count) => count.cast_signed(),
        Err(error) => fail(&error),
    }
}

/// Whether a call is not to wait. A flag that means nothing here would mean something to its author.
fn is_impatient(flags: c_int) -> io::Result<bool> {
    match flags {
        0 => Ok(false),
        CROSSLANE_DONTWAIT => Ok(true),
        _ => Err(ErrorKind::InvalidInput.into()),
    }
}
