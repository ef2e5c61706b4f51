//! read, recv, write and send of a short message that can go at once: in few instructions.
//!
//! What cannot is given on with the arguments of its call and nothing else, to a function of its own that begins anew: so the
//! functions here call nobody whose answer they need, and keep their values in registers.

use core::ffi::{c_int, c_void};

use crosslane_ring::short::SHORT_BYTES;
use crosslane_stream::End;
use crosslane_stream::short::{self, Alone, Company, Missed, Shared};
use crosslane_stream::young::Young;
use crosslane_sys::{Errno, cancel, process, real};
use libc::{size_t, ssize_t};

use crate::c;
use crate::input::{SHORT_FLAGS, receive_one};
use crate::output::{RING_FLAGS, transmit_one};

/// read(2).
#[inline]
pub fn read(fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t {
    match process::is_alone() {
        true => receive_alone::<true>(fd, buffer, bytes, 0),
        false => receive_shared::<true>(fd, buffer, bytes, 0),
    }
}

/// recv(2).
#[inline]
pub fn recv(fd: c_int, buffer: *mut c_void, bytes: size_t, flags: c_int) -> ssize_t {
    match process::is_alone() {
        true => receive_alone::<false>(fd, buffer, bytes, flags),
        false => receive_shared::<false>(fd, buffer, bytes, flags),
    }
}

/// write(2).
#[inline]
pub fn write(fd: c_int, buffer: *const c_void, bytes: size_t) -> ssize_t {
    match process::is_alone() {
        true => send_alone::<true>(fd, buffer, bytes, 0),
        false => send_shared::<true>(fd, buffer, bytes, 0),
    }
}

/// send(2).
#[inline]
pub fn send(fd: c_int, buffer: *const c_void, bytes: size_t, flags: c_int) -> ssize_t {
    match process::is_alone() {
        true => send_alone::<false>(fd, buffer, bytes, flags),
        false => send_shared::<false>(fd, buffer, bytes, flags),
    }
}

/// Receive a message that is there.
///
/// # Safety
/// The company must be as it is said.
#[inline(always)]
unsafe fn receive_now<C: Company>(
    fd: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    flags: c_int,
) -> Result<ssize_t, Missed> {
    if flags & !SHORT_FLAGS != 0 {
        return Err(Missed::Unusual);
    }
    let part = c::short_part(buffer, bytes, c::MOST_BYTES).ok_or(Missed::Unusual)?;
    let end = End::known(fd).ok_or(Missed::Unusual)?;
    // SAFETY: the program's buffer, by the manual of its call, and the caller's promise.
    unsafe { short::receive::<C>(&end, part) }.map(usize::cast_signed)
}

/// Of a process in which no thread has been cancelled.
#[inline(never)]
fn receive_alone<const IS_READ: bool>(
    fd: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: nobody else is there.
    match unsafe { receive_now::<Alone>(fd, buffer, bytes, flags) } {
        Ok(received) => received,
        Err(Missed::Shared) => receive_shared::<IS_READ>(fd, buffer, bytes, flags),
        Err(_) => receive_later::<IS_READ>(fd, buffer, bytes, flags),
    }
}

#[inline(never)]
fn receive_shared<const IS_READ: bool>(
    fd: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    flags: c_int,
) -> ssize_t {
    if !cancel::is_used()
        // SAFETY: others may be there or not.
        && let Ok(received) = unsafe { receive_now::<Shared>(fd, buffer, bytes, flags) }
    {
        return received;
    }
    receive_later::<IS_READ>(fd, buffer, bytes, flags)
}

#[cold]
#[inline(never)]
fn receive_later<const IS_READ: bool>(
    fd: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    flags: c_int,
) -> ssize_t {
    let kernel = move || match IS_READ {
        // SAFETY: passed on.
        true => unsafe { real::read(fd, buffer, bytes) },
        // SAFETY: passed on.
        false => unsafe { real::recv(fd, buffer, bytes, flags) },
    };
    if let Some(young) = Young::of(fd).filter(|_| flags & !SHORT_FLAGS == 0)
        && let Some(received) = young.receive(kernel)
    {
        return received;
    }
    match End::of(fd) {
        Some(_) if IS_READ && c::is_beyond(buffer, bytes) => c::fail(Errno::FAULT),
        Some(end) if !IS_READ || bytes > 0 => {
            let has_looked = !cancel::is_used();
            receive_one(&end, c::part(buffer, bytes), (flags, has_looked), kernel)
        }
        _ => kernel(),
    }
}

/// Send a message.
///
/// # Safety
/// The company must be as it is said.
#[inline(always)]
unsafe fn send_now<C: Company>(
    fd: c_int,
    buffer: *const c_void,
    bytes: size_t,
    flags: c_int,
) -> Result<(), Missed> {
    if flags & !RING_FLAGS != 0 {
        return Err(Missed::Unusual);
    }
    let part = c::short_part(buffer, bytes, SHORT_BYTES).ok_or(Missed::Unusual)?;
    let end = End::known(fd).ok_or(Missed::Unusual)?;
    // SAFETY: the program's buffer, by the manual of its call, and the caller's promise.
    unsafe { short::send::<C>(&end, part) }
}

/// Of a process in which no thread has been cancelled.
#[inline(never)]
fn send_alone<const IS_WRITE: bool>(
    fd: c_int,
    buffer: *const c_void,
    bytes: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: nobody else is there.
    match unsafe { send_now::<Alone>(fd, buffer, bytes, flags) } {
        Ok(()) => bytes.cast_signed(),
        Err(Missed::Shared) => send_shared::<IS_WRITE>(fd, buffer, bytes, flags),
        Err(_) => send_later::<IS_WRITE>(fd, buffer, bytes, flags),
    }
}

#[inline(never)]
fn send_shared<const IS_WRITE: bool>(
    fd: c_int,
    buffer: *const c_void,
    bytes: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: others may be there or not.
    if !cancel::is_used() && unsafe { send_now::<Shared>(fd, buffer, bytes, flags) }.is_ok() {
        return bytes.cast_signed();
    }
    send_later::<IS_WRITE>(fd, buffer, bytes, flags)
}

#[cold]
#[inline(never)]
fn send_later<const IS_WRITE: bool>(
    fd: c_int,
    buffer: *const c_void,
    bytes: size_t,
    flags: c_int,
) -> ssize_t {
    let kernel = move || match IS_WRITE {
        // SAFETY: passed on.
        true => unsafe { real::write(fd, buffer, bytes) },
        // SAFETY: passed on.
        false => unsafe { real::send(fd, buffer, bytes, flags) },
    };
    if let Some(young) = Young::of(fd).filter(|_| flags & !RING_FLAGS == 0)
        && let Some(sent) = young.send(kernel)
    {
        return sent;
    }
    match End::of(fd) {
        Some(_) if IS_WRITE && c::is_beyond(buffer, bytes) => c::fail(Errno::FAULT),
        Some(end) => {
            let has_tried = !cancel::is_used();
            transmit_one(&end, c::part(buffer, bytes), (flags, has_tried), kernel)
        }
        None => kernel(),
    }
}
