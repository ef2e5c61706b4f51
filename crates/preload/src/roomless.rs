//! Receives that have no room for a byte. They wait as others do, and what they take is not nothing everywhere.

use core::cell::Cell;
use core::ffi::c_int;

use crosslane_ring::Part;
use crosslane_stream::family::Family;
use crosslane_stream::receive::{self, Options};
use crosslane_stream::stay::Stay;
use crosslane_stream::{End, peek};
use crosslane_sys::{Errno, cancel, kernel};
use libc::{msghdr, sockaddr, socklen_t, ssize_t};

use crate::{c, input};

/// Receive nothing, as recv(2) does. `has_found` is set if there is something over AF_UNIX, whose sender is told.
#[cold]
pub fn receive(
    end: &End,
    options: Options<'_>,
    has_found: Option<&Cell<bool>>,
) -> Result<usize, Errno> {
    match end.family() {
        Family::Tcp => wait_without_room(end, options),
        Family::Unix => take_what_is_beside(end, options, has_found),
    }
}

/// Over AF_UNIX a receive without room waits as any other does, takes no byte, but what stands beside the next one, and tells
/// whom that is from.
fn take_what_is_beside(
    end: &End,
    options: Options<'_>,
    has_found: Option<&Cell<bool>>,
) -> Result<usize, Errno> {
    let stay = Stay::begin(end)?;
    if cancel::guarded(&stay, || peek_one(end, options))? > 0 {
        peek::take_beside(end, options);
        if let Some(has_found) = has_found {
            has_found.set(true);
        }
    }
    Ok(0)
}

/// On TCP a receive without room, unlike a read, waits once as any other does, and takes nothing.
/// Whatever ends the wait, a timeout or a signal as well, is a success.
fn wait_without_room(end: &End, options: Options<'_>) -> Result<usize, Errno> {
    let blocks = kernel::status_flags(end.fd).is_ok_and(|flags| flags & libc::O_NONBLOCK == 0);
    let waits = blocks && !options.dont_wait;
    let look = Options {
        dont_wait: true,
        ..options
    };
    match peek_one(end, look) {
        // The kernel has found an urgent byte, and has no room to go past it.
        Err(Errno::AGAIN) if receive::is_before_urgent_byte(end) => Ok(0),
        Err(Errno::AGAIN) if waits => receive::wait_for_some(end).map(|()| 0),
        outcome => outcome.map(|_| 0),
    }
}

/// Wait until there is something, which is not taken. 0: the stream has ended.
pub fn peek_one(end: &End, options: Options<'_>) -> Result<usize, Errno> {
    let mut scratch = [0];
    let part = [Part::of_mut(&mut scratch)];
    // SAFETY: the part is the array above.
    let mut parts = unsafe { c::cursor(&part) }?;
    let options = Options {
        peek: true,
        wait_all: false,
        beside: None,
        ..options
    };
    receive::receive(end, &mut parts, options)
}

/// recvfrom(2) without room on an AF_UNIX stream.
///
/// # Safety
/// As recvfrom(2) demands.
pub unsafe fn receive_from(
    flags: c_int,
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    // SAFETY: msghdr is plain integers and pointers, for which zero is a value.
    let mut message: msghdr = unsafe { core::mem::zeroed() };
    let is_named = !address.is_null();
    if is_named && c::may_be(length, 1) {
        // SAFETY: it has just been looked at.
        (message.msg_name, message.msg_namelen) = (address.cast(), unsafe { *length });
    }
    // SAFETY: the name is the program's, by its promise.
    let received = unsafe { input::recvmsg(fd, &raw mut message, flags) };
    if received < 0 || !is_named {
        return received;
    }
    // As the kernel, which finds a bad one when it has received.
    // SAFETY: the program's promise.
    match unsafe { c::tell(length, message.msg_namelen) } {
        Ok(()) => received,
        Err(errno) => c::fail(errno),
    }
}
