//! Receiving into C.

use core::ffi::{c_int, c_void};
use std::io::ErrorKind;

use libc::{size_t, ssize_t};

use super::{count, crosslane_connection, crosslane_span, done, fail, is_impatient};
use crate::received::Received;

/// Look at the next bytes, and wait for them unless told not to. Returns how many of the `count` spans
/// are filled in, or 0 at the end of the stream.
///
/// They stay until they are consumed: the next look begins with the first byte that has not been.
/// The spans must not be used after the next call for this direction, nor written to.
///
/// Or returns -1 and errno: EINVAL if `count` is less than 1, `spans` NULL or a flag unknown; EAGAIN if
/// it was not to wait and nothing has come; EINTR after a signal whose handler begins no call again;
/// ECONNRESET if the peer has reset the connection or broken the rules of the memory; others as
/// recv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_peek(
    connection: *mut crosslane_connection,
    spans: *mut crosslane_span,
    count: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's promise; the sending direction may be in use by another thread.
    let (receiver, shown) = unsafe {
        (
            &mut (*connection).connection.receiver,
            &mut (*connection).shown,
        )
    };
    *shown = 0;
    let most = match usize::try_from(count) {
        Ok(most @ 1..) if !spans.is_null() => most,
        _ => return fail(&ErrorKind::InvalidInput.into()),
    };
    let look = is_impatient(flags).and_then(|dont_wait| receiver.look(dont_wait));
    if let Err(error) = look {
        return fail(&error);
    }
    let mut used = 0;
    for piece in Received::new(receiver).pieces().take(most) {
        let span = crosslane_span {
            start: piece.as_ptr().cast_mut().cast(),
            bytes: piece.len(),
        };
        // SAFETY: the program's promise about so many spans.
        unsafe { spans.add(used).write(span) };
        *shown += piece.len();
        used += 1;
    }
    c_int::try_from(used).unwrap_or(c_int::MAX)
}

/// Take the first `bytes` that the last crosslane_peek() has shown away; the peer may use their
/// place again. Once for each look. Returns 0, or -1 and errno: EINVAL if not so many were shown, or
/// nothing since the last call for this direction; ESTALE if another process has received from the
/// connection meanwhile, which is not meant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_consume(
    connection: *mut crosslane_connection,
    bytes: size_t,
) -> c_int {
    // SAFETY: the program's promise; the sending direction may be in use by another thread.
    let (receiver, shown) = unsafe {
        (
            &mut (*connection).connection.receiver,
            &mut (*connection).shown,
        )
    };
    if bytes > *shown {
        return fail(&ErrorKind::InvalidInput.into());
    }
    *shown = 0;
    done(receiver.consume(bytes))
}

/// Receive a copy of at most `bytes` into `to`. Returns how many, which may be fewer as of any stream,
/// or 0 at the end of the stream, or -1 and errno: EINVAL if a flag is unknown, or EAGAIN, EINTR,
/// ECONNRESET and others as crosslane_peek().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_recv(
    connection: *mut crosslane_connection,
    to: *mut c_void,
    bytes: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program's promise; the sending direction may be in use by another thread.
    let (receiver, shown) = unsafe {
        (
            &mut (*connection).connection.receiver,
            &mut (*connection).shown,
        )
    };
    *shown = 0;
    let dont_wait = match is_impatient(flags) {
        Ok(dont_wait) => dont_wait,
        Err(error) => return fail(&error),
    };
    if bytes == 0 {
        return 0;
    }
    // SAFETY: the program's promise; only written to, and bytes have no invalid values.
    let to = unsafe { core::slice::from_raw_parts_mut(to.cast::<u8>(), bytes) };
    count(receiver.receive_into(to, dont_wait))
}
