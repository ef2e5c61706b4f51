//! Connections and listeners: making, asking, closing.

use core::ffi::{CStr, c_char, c_int};
use std::io::{self, ErrorKind, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};

use libc::size_t;

use super::sending::cancel;
use super::{
    CROSSLANE_PATH_MEMORY, CROSSLANE_PATH_PARTLY, CROSSLANE_PATH_TCP, crosslane_connection, done,
    errno, fail,
};
use crate::connection::{Connection, Path};
use crate::listener::Listener;

/// A listening socket.
pub struct crosslane_listener(Listener);

unsafe fn text<'a>(address: *const c_char) -> io::Result<&'a str> {
    if address.is_null() {
        return Err(ErrorKind::InvalidInput.into());
    }
    // SAFETY: the caller's promise.
    let address = unsafe { CStr::from_ptr(address) };
    address.to_str().map_err(|_| ErrorKind::InvalidInput.into())
}

fn handle<T, U>(outcome: io::Result<T>, boxed: impl FnOnce(T) -> *mut U) -> *mut U {
    match outcome {
        Ok(value) => boxed(value),
        Err(error) => {
            errno(&error).set();
            core::ptr::null_mut()
        }
    }
}

/// Connect to a TCP server at "host:port", or "[address]:port" for IPv6. Waits until it has answered.
/// Returns NULL and sets errno where that fails: EINVAL if it is no such text, or NULL; EADDRNOTAVAIL
/// if the name cannot be resolved; or as socket(2) and connect(2) do for the last of its addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_connect(address: *const c_char) -> *mut crosslane_connection {
    // SAFETY: the program's promise.
    let connection = unsafe { text(address) }.and_then(Connection::connect);
    handle(connection, crosslane_connection::boxed)
}

/// Both ends of a connection in this process, for two of its threads: in memory from the first byte on,
/// and without a monitor. They are written to `ends`, which has room for two. Returns 0, or -1 and
/// errno: EINVAL if `ends` is NULL, or as socket(2), listen(2), connect(2) and accept(2) do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_pair(ends: *mut *mut crosslane_connection) -> c_int {
    if ends.is_null() {
        return done(Err(ErrorKind::InvalidInput.into()));
    }
    done(Connection::pair().map(|(near, far)| {
        let [near, far] = [near, far].map(crosslane_connection::boxed);
        // SAFETY: the caller's promise that there is room for two.
        unsafe { (ends.write(near), ends.add(1).write(far)) };
    }))
}

/// Listen at "host:port"; port 0 is any free one. Returns NULL and sets errno where that fails: EINVAL
/// and EADDRNOTAVAIL as crosslane_connect(), or as socket(2), bind(2) and listen(2) do for the last
/// address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_listen(address: *const c_char) -> *mut crosslane_listener {
    // SAFETY: the program's promise.
    let listener = unsafe { text(address) }.and_then(Listener::bind);
    handle(listener, |listener| {
        Box::into_raw(Box::new(crosslane_listener(listener)))
    })
}

/// Wait for the next connection; the peer's address is what getpeername(2) tells of crosslane_fd().
/// It waits itself, also where the listener does not. Returns NULL and sets errno where that fails, as
/// accept(2) does: EAGAIN if nobody has come and the listener does not wait, EINTR after a signal,
/// ECONNABORTED if who had come is gone again, EMFILE and ENFILE without descriptors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_accept(
    listener: *const crosslane_listener,
) -> *mut crosslane_connection {
    // SAFETY: the program's promise.
    let accepted = unsafe { &*listener }.0.accept();
    handle(accepted, |(connection, _)| {
        crosslane_connection::boxed(connection)
    })
}

/// Have crosslane_accept() fail with EAGAIN rather than wait (1), or wait (0). Returns 0, or -1 and
/// errno, as ioctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_listener_set_nonblocking(
    listener: *const crosslane_listener,
    nonblocking: c_int,
) -> c_int {
    // SAFETY: the program's promise.
    done(unsafe { &*listener }.0.set_nonblocking(nonblocking != 0))
}

/// The port at which it listens, or -1 and errno, as getsockname(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_listener_port(listener: *const crosslane_listener) -> c_int {
    // SAFETY: the program's promise.
    match unsafe { &*listener }.0.local_addr() {
        Ok(address) => address.port().into(),
        Err(error) => fail(&error),
    }
}

/// Its descriptor, for poll: readable when a connection has come. It may be gone again when it is
/// accepted, so that an event loop wants crosslane_listener_set_nonblocking(). Do not close it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_listener_fd(listener: *const crosslane_listener) -> c_int {
    // SAFETY: the program's promise.
    unsafe { &*listener }.0.as_fd().as_raw_fd()
}

/// Stop listening. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_listener_close(listener: *mut crosslane_listener) {
    if !listener.is_null() {
        // SAFETY: the program's promise: it came from crosslane_listen and is not used again.
        drop(unsafe { Box::from_raw(listener) });
    }
}

/// The connection's TCP socket, for getsockopt and the like, and for poll after crosslane_arm().
/// Do not read, write or close it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_fd(connection: *const crosslane_connection) -> c_int {
    // SAFETY: the program's promise.
    unsafe { &*connection }.connection.as_raw_fd()
}

/// Have calls fail with EAGAIN rather than wait (1), or wait (0). Returns 0, or -1 and errno, as
/// ioctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_set_nonblocking(
    connection: *mut crosslane_connection,
    nonblocking: c_int,
) -> c_int {
    // SAFETY: the program's promise.
    let connection = unsafe { &*connection };
    done(connection.connection.set_nonblocking(nonblocking != 0))
}

/// Where the bytes travel now: CROSSLANE_PATH_MEMORY, CROSSLANE_PATH_PARTLY or CROSSLANE_PATH_TCP. A
/// word for why not both directions are in memory, as `crosslane ss` shows it, or "" if they are, is
/// written to `reason`, cut to `bytes` with its final NUL: CROSSLANE_REASON_BYTES are enough for
/// each. A `reason` of NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_path(
    connection: *const crosslane_connection,
    reason: *mut c_char,
    bytes: size_t,
) -> c_int {
    // SAFETY: the program's promise.
    let path = unsafe { &*connection }.connection.path();
    let (path, word) = match path {
        Path::Memory => (CROSSLANE_PATH_MEMORY, ""),
        Path::Partly(word) => (CROSSLANE_PATH_PARTLY, word),
        Path::Tcp(word) => (CROSSLANE_PATH_TCP, word),
    };
    if !reason.is_null() && bytes > 0 {
        let length = word.len().min(bytes - 1);
        // SAFETY: the program's promise; `length` and the NUL are at most `bytes`.
        unsafe {
            core::ptr::copy_nonoverlapping(word.as_ptr(), reason.cast(), length);
            reason.add(length).write(0);
        }
    }
    path
}

/// Shut down SHUT_RD, SHUT_WR or SHUT_RDWR, as shutdown(2). Returns 0, or -1 and errno: EINVAL for
/// anything else, ENOTCONN if the connection has been reset, or as crosslane_flush().
///
/// With SHUT_RD any thread may call this, and a crosslane_peek() or crosslane_recv() that waits
/// finds the end of the stream. With SHUT_WR and SHUT_RDWR it is a call of the sending direction: a
/// reservation is cancelled, and what is kept back is sent first; EAGAIN, with nothing shut down,
/// if that has no room on a connection that does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_shutdown(
    connection: *mut crosslane_connection,
    how: c_int,
) -> c_int {
    let how = match how {
        libc::SHUT_RD => Shutdown::Read,
        libc::SHUT_WR => Shutdown::Write,
        libc::SHUT_RDWR => Shutdown::Both,
        _ => return fail(&ErrorKind::InvalidInput.into()),
    };
    if how != Shutdown::Read {
        // SAFETY: the program's promise; the receiving direction may be in use by another thread.
        let (sender, reserved) = unsafe {
            (
                &mut (*connection).connection.sender,
                &mut (*connection).reserved,
            )
        };
        cancel(sender, reserved);
        if let Err(error) = sender.flush() {
            return fail(&error);
        }
    }
    // SAFETY: the program's promise; the directions may be in use by other threads.
    let closer = unsafe { &(*connection).closer };
    done(closer.shutdown(how))
}

/// End what other threads wait for on the connection, as shutdown(2) with SHUT_RDWR: receives find
/// the end of the stream, sends and reservations fail with EPIPE. What is kept back is not sent. Any
/// thread may call this, at any time before crosslane_close(). Returns 0, or -1 and errno, as
/// shutdown(2): ENOTCONN if the connection has been reset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_interrupt(connection: *const crosslane_connection) -> c_int {
    // SAFETY: the program's promise; the directions may be in use by other threads.
    let closer = unsafe { &(*connection).closer };
    done(closer.shutdown(Shutdown::Both))
}

/// Send what is kept back, and close. What the kernel has no room for then, on a connection that
/// does not wait, is lost: see crosslane_flush(). On one that waits, this waits for that room;
/// crosslane_interrupt() before it gives the rest up. NULL is allowed. No other thread may be in a
/// call on the connection: crosslane_interrupt() ends those.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_close(connection: *mut crosslane_connection) {
    if !connection.is_null() {
        // SAFETY: the program's promise: it came from this library and is not used again.
        let mut connection = unsafe { Box::from_raw(connection) };
        let own = &mut *connection;
        cancel(&mut own.connection.sender, &mut own.reserved);
        // Nobody is left to be told.
        let _ = own.connection.flush();
    }
}
