//! Sending from C.

use core::ffi::{c_int, c_void};
use std::io::{self, ErrorKind};

use libc::{size_t, ssize_t};

use super::{count, crosslane_connection, crosslane_span, done, fail, is_impatient};
use crate::sender::{Place, Sender};

/// A record may go over the end of the ring.
const LEAST_SPANS: usize = 2;

/// Reserve room for `bytes`, and wait for it unless told not to. Up to CROSSLANE_WHOLE_BYTES you get
/// all of it. Of more you get what there is room for now, and CROSSLANE_WHOLE_BYTES at least: add up
/// the spans. Returns how many of the `count` spans are filled in, one or two.
///
/// Fill the room in order and call crosslane_commit(); until then the peer sees nothing. It holds
/// whatever was there. An earlier reservation is cancelled, also where this fails.
///
/// Or returns -1 and errno: EINVAL if `bytes` is 0, `count` less than 2, `spans` NULL or a flag
/// unknown; EAGAIN if it was not to wait and there is no room; EINTR after a signal whose handler
/// begins no call again; EPIPE if this side has shut down or the peer is gone; ECONNRESET if the
/// peer has reset the connection or broken the rules of the memory; others as send(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_reserve(
    connection: *mut crosslane_connection,
    bytes: size_t,
    spans: *mut crosslane_span,
    count: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's promise; the receiving direction may be in use by another thread.
    let (sender, reserved) = unsafe {
        (
            &mut (*connection).connection.sender,
            &mut (*connection).reserved,
        )
    };
    cancel(sender, reserved);
    let most = usize::try_from(count).unwrap_or(0);
    if most < LEAST_SPANS || spans.is_null() {
        return fail(&ErrorKind::InvalidInput.into());
    }
    let found = is_impatient(flags).and_then(|dont_wait| sender.find_room(bytes, dont_wait));
    let (place, capacity) = match found {
        Ok(found) => found,
        Err(error) => return fail(&error),
    };
    let mut at = 0;
    let mut used = 0;
    while used < most && at < capacity {
        let (start, bytes) = sender.spare(place, at, capacity);
        let span = crosslane_span {
            start: start.cast(),
            bytes,
        };
        // SAFETY: the program's promise about so many spans.
        unsafe { spans.add(used).write(span) };
        at += bytes;
        used += 1;
    }
    *reserved = Some((place, at));
    c_int::try_from(used).unwrap_or(c_int::MAX)
}

pub(super) fn cancel(sender: &mut Sender, reserved: &mut Option<(Place, usize)>) {
    if let Some((place, _)) = reserved.take() {
        sender.cancel(place);
    }
}

/// Send the first `bytes` of the reservation, which ends it. All messages in it appear at the peer at
/// once. Returns 0, or -1 and errno: EINVAL if there is no reservation, or a smaller one, which stays;
/// EPIPE, ECONNRESET and others as crosslane_reserve(), but not EAGAIN, and the reservation is over.
///
/// Where the peer is reached by TCP, and the connection does not wait or the reservation was made
/// with CROSSLANE_DONTWAIT, what the kernel has no room for is kept back and sent by later calls:
/// see crosslane_flush().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_commit(
    connection: *mut crosslane_connection,
    bytes: size_t,
) -> c_int {
    // SAFETY: the program's promise; the receiving direction may be in use by another thread.
    let (sender, reserved) = unsafe {
        (
            &mut (*connection).connection.sender,
            &mut (*connection).reserved,
        )
    };
    match reserved.take() {
        Some((place, capacity)) if bytes <= capacity => done(sender.commit(place, bytes)),
        other => {
            *reserved = other;
            fail(&ErrorKind::InvalidInput.into())
        }
    }
}

/// Give the reservation up, if there is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_cancel(connection: *mut crosslane_connection) {
    // SAFETY: the program's promise; the receiving direction may be in use by another thread.
    let (sender, reserved) = unsafe {
        (
            &mut (*connection).connection.sender,
            &mut (*connection).reserved,
        )
    };
    cancel(sender, reserved);
}

/// Send a copy of `bytes` from `from`. Returns how many were taken, which may be fewer where it does
/// not wait, or -1 and errno: EBUSY while there is a reservation, EINVAL if a flag is unknown, or
/// EAGAIN, EINTR, EPIPE, ECONNRESET and others as crosslane_reserve(). There is no signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_send(
    connection: *mut crosslane_connection,
    from: *const c_void,
    bytes: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program's promise; the receiving direction may be in use by another thread.
    let (sender, reserved) = unsafe {
        (
            &mut (*connection).connection.sender,
            &(*connection).reserved,
        )
    };
    if reserved.is_some() {
        return fail(&io::Error::from_raw_os_error(libc::EBUSY));
    }
    let dont_wait = match is_impatient(flags) {
        Ok(dont_wait) => dont_wait,
        Err(error) => return fail(&error),
    };
    if bytes == 0 {
        return 0;
    }
    // SAFETY: the program's promise.
    let bytes = unsafe { core::slice::from_raw_parts(from.cast::<u8>(), bytes) };
    count(sender.send(bytes, dont_wait))
}

/// Send what earlier commits have kept back. Returns 0 when nothing is left, or -1 and errno: EINVAL if
/// a flag is unknown, EAGAIN if something is left for which the kernel has no room, or EPIPE,
/// ECONNRESET and others as send(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_flush(
    connection: *mut crosslane_connection,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's promise; the receiving direction may be in use by another thread.
    let sender = unsafe { &mut (*connection).connection.sender };
    done(is_impatient(flags).and_then(|dont_wait| sender.send_kept(dont_wait)))
}
