//! read, recv and their families.

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use std::time::Instant;

use crosslane_ring::Part;
use crosslane_stream::beside::Beside;
use crosslane_stream::family::Family;
use crosslane_stream::receive::{self, Options};
use crosslane_stream::short::{Missed, far, receive_in_any, receive_soon};
use crosslane_stream::stay::Stay;
use crosslane_stream::{End, ending, peek, raw, send};
use crosslane_sys::interrupted::Mark;
use crosslane_sys::{Errno, cancel, real};
use libc::{iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};

use crate::progress::is_granted;
use crate::{c, names, output, poll, roomless, short};

/// Flags that change nothing about a short message that is there.
pub const SHORT_FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// What a receive asks for besides its buffers.
#[derive(Clone, Copy)]
struct Wish<'a> {
    flags: c_int,
    /// Room for what comes beside the bytes.
    beside: Option<&'a Beside>,
    /// Whether its call has received something before.
    has_some: bool,
    /// When the call began, if it has looked before, or was begun again.
    since: Option<&'a Cell<Option<Mark>>>,
    /// Whether nothing has come in the moment that an answer takes.
    is_late: bool,
    /// Set where a call that asks for no byte has found some.
    has_found: Option<&'a Cell<bool>>,
}

/// Whether flags ask for something beside the stream, which only the kernel has. It ignores those that
/// it does not know.
fn asks_beside(end: &End, flags: c_int) -> bool {
    let names = match end.family() {
        Family::Tcp => libc::MSG_OOB | libc::MSG_ERRQUEUE,
        Family::Unix => libc::MSG_OOB,
    };
    flags & names != 0
}

/// As [`receive`], into one buffer, of a call that may have looked already whether a short message is there.
#[inline]
pub fn receive_one(
    end: &End,
    part: Part,
    (flags, has_looked): (c_int, bool),
    kernel: impl FnMut() -> ssize_t,
) -> ssize_t {
    let (mut missed, mut since) = (Missed::Unusual, None);
    cancel::test();
    if flags & !SHORT_FLAGS == 0 && part.bytes > 0 && c::is_plausible(&part) {
        let found = match has_looked {
            // SAFETY: the program's buffer, by the manual of its call.
            true => unsafe { far::receive(end, part) },
            // SAFETY: as above.
            false => unsafe { receive_in_any(end, part) },
        };
        if let Ok(bytes) = found {
            return c::count(Ok(bytes));
        }
        since = Some(Mark::now());
        // SAFETY: as above.
        match unsafe { receive_soon(end, part, flags & libc::MSG_DONTWAIT == 0) } {
            Ok(bytes) => return c::count(Ok(bytes)),
            Err(found) => missed = found,
        }
    }
    receive(end, &[part], flags, (missed, since), kernel)
}

/// Receive by ring if there is one, otherwise by `kernel`, whose bytes are counted. Not inlined, so that
/// short messages pay for none of it.
#[inline(never)]
fn receive(
    end: &End,
    parts: &[Part],
    flags: c_int,
    (missed, since): (Missed, Option<Mark>),
    mut kernel: impl FnMut() -> ssize_t,
) -> ssize_t {
    cancel::test();
    let mut end = *end;
    let since = Cell::new(since);
    let wish = Wish {
        flags,
        since: Some(&since),
        is_late: missed == Missed::Late,
        beside: None,
        has_some: false,
        has_found: None,
    };
    loop {
        if let Some(received) = receive_with(&end, parts, wish, &mut kernel) {
            return received;
        }
        match End::of(end.fd) {
            Some(found) => end = found,
            None => return kernel(),
        }
    }
}

/// As [`receive`], for more wishes. None: a signal begins the call again, which looks its descriptor up.
#[inline]
fn receive_with(
    end: &End,
    parts: &[Part],
    wish: Wish<'_>,
    mut kernel: impl FnMut() -> ssize_t,
) -> Option<ssize_t> {
    let flags = wish.flags;
    loop {
        if is_granted(end) {
            if asks_beside(end, flags) {
                return Some(kernel());
            }
            return match by_ring(end, parts, wish) {
                Err(Errno::RESTART) => None,
                received => Some(c::count(received)),
            };
        }
        let uncounted = flags & (libc::MSG_PEEK | libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0;
        if let Some(received) = raw::receive(end, uncounted, &mut kernel) {
            return Some(received);
        }
    }
}

#[inline]
fn by_ring(end: &End, parts: &[Part], wish: Wish<'_>) -> Result<usize, Errno> {
    c::check(parts)?;
    let flags = wish.flags;
    let peek = flags & libc::MSG_PEEK != 0;
    let options = Options {
        beside: wish.beside,
        has_some: wish.has_some,
        is_late: wish.is_late,
        since: wish.since,
        peek,
        dont_wait: flags & libc::MSG_DONTWAIT != 0,
        // A peek at AF_UNIX never waits for more than something.
        wait_all: flags & libc::MSG_WAITALL != 0 && !(peek && end.family() == Family::Unix),
    };
    if parts.iter().all(|part| part.bytes == 0) {
        return roomless::receive(end, options, wish.has_found);
    }
    if flags & libc::MSG_TRUNC != 0 && end.family() == Family::Tcp {
        return discard(end, parts, options);
    }
    // SAFETY: the program's buffers, by the manual of its call.
    let mut parts = match unsafe { c::cursor(parts) } {
        Ok(parts) => parts,
        // A bad address matters when there is something to store.
        Err(errno) if roomless::peek_one(end, options)? > 0 => {
            if !peek && receive::is_before_urgent_byte(end) {
                pass_urgent_byte(end);
            }
            return Err(errno);
        }
        Err(_) => return Ok(0),
    };
    receive::receive(end, &mut parts, options)
}

/// The kernel goes past an urgent byte before it fails to store what comes next.
#[cold]
fn pass_urgent_byte(end: &End) {
    // SAFETY: the kernel stores nothing at a null pointer.
    unsafe { real::recv(end.fd, core::ptr::null_mut(), 1, libc::MSG_DONTWAIT) };
}

/// More than net.ipv4.tcp_rmem ever allows.
const MOST_HELD: usize = 1 << 26;

/// So much is stored over and over again by a receive that stores nothing.
const MOST_SCRATCH: usize = 1 << 16;

/// MSG_TRUNC on TCP takes bytes away without storing them (tcp(7)). By one receive, so that O_NONBLOCK and time limits count
/// once.
fn discard(end: &End, parts: &[Part], options: Options<'_>) -> Result<usize, Errno> {
    let left = output::bytes_of(parts).min(c::MOST_BYTES);
    if options.peek {
        // Only a look into as much room waits for as much, and goes past an urgent byte; no socket holds more than this.
        let mut room = vec![0; left.min(MOST_HELD)];
        let part = [Part::of_mut(&mut room)];
        // SAFETY: the part is the vector above.
        let mut parts = unsafe { c::cursor(&part) }?;
        return receive::receive(end, &mut parts, options);
    }
    let mut scratch = vec![0; left.min(MOST_SCRATCH)];
    let whole = Part::of_mut(&mut scratch);
    let rest = Part {
        bytes: left % whole.bytes,
        ..whole
    };
    let mut same = vec![whole; left / whole.bytes];
    same.push(rest);
    let held = (scratch, same);
    // SAFETY: all parts are the vector above, of which nobody looks at anything.
    let mut parts = unsafe { c::cursor(&held.1) }?;
    cancel::guarded(&held, || receive::receive(end, &mut parts, options))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t {
    short::read(fd, buffer, bytes)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __read_chk(
    fd: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    room: size_t,
) -> ssize_t {
    c::check_room(bytes, room);
    // SAFETY: passed on.
    unsafe { read(fd, buffer, bytes) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: passed on.
    let kernel = move || unsafe { real::readv(fd, parts, count) };
    let Some(end) = End::of(fd) else {
        return kernel();
    };
    // SAFETY: the program's promise.
    match unsafe { c::parts(parts, count.max(0) as usize) } {
        Ok(buffers) if count > 0 && buffers.iter().any(|part| part.bytes > 0) => {
            receive(&end, buffers, 0, (Missed::Unusual, None), kernel)
        }
        _ => kernel(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    if offset == -1 && flags == 0 {
        // SAFETY: passed on; without offset and flags this is readv.
        return unsafe { readv(fd, parts, count) };
    }
    // SAFETY: passed on.
    let kernel = move || unsafe { real::preadv2(fd, parts, count, offset, flags) };
    let Some(end) = End::of(fd).filter(|_| offset == -1) else {
        return kernel();
    };
    // SAFETY: the program's promise.
    match unsafe { c::parts(parts, count.max(0) as usize) } {
        Ok(buffers) if flags == libc::RWF_NOWAIT && output::bytes_of(buffers) > 0 => receive(
            &end,
            buffers,
            libc::MSG_DONTWAIT,
            (Missed::Unusual, None),
            kernel,
        ),
        Ok(buffers) if output::bytes_of(buffers) > 0 => crate::bulk::by_kernel_only(&end, kernel),
        _ => kernel(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(
    fd: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    flags: c_int,
) -> ssize_t {
    short::recv(fd, buffer, bytes, flags)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recv_chk(
    fd: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    c::check_room(bytes, room);
    // SAFETY: passed on.
    unsafe { recv(fd, buffer, bytes, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    flags: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    // SAFETY: passed on.
    let kernel = move || unsafe { real::recvfrom(fd, buffer, bytes, flags, address, length) };
    if address.is_null() && bytes > 0 {
        return short::recv(fd, buffer, bytes, flags);
    }
    let Some(end) = End::of(fd) else {
        return kernel();
    };
    let mut by_kernel = false;
    if bytes == 0 && end.family() == Family::Unix {
        // SAFETY: the program's promise.
        return unsafe { roomless::receive_from(flags, fd, address, length) };
    }
    let received = receive_one(&end, c::part(buffer, bytes), (flags, false), || {
        by_kernel = true;
        kernel()
    });
    if received >= 0 && !address.is_null() && !by_kernel {
        if !c::may_be(length, 1) {
            return c::fail(Errno::FAULT);
        }
        // SAFETY: the program's promise.
        if let Err(errno) = unsafe { names::tell_source(&end, received > 0, address, length) } {
            return c::fail(errno);
        }
    }
    received
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    room: size_t,
    flags: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    c::check_room(bytes, room);
    // SAFETY: passed on.
    unsafe { recvfrom(fd, buffer, bytes, flags, address, length) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    while let Some(end) = End::of(fd) {
        cancel::test();
        // SAFETY: the program's promise.
        if let Some(received) = unsafe { receive_message(&end, message, flags, false) } {
            return received;
        }
    }
    // SAFETY: passed on.
    let received = unsafe { real::recvmsg(fd, message, flags) };
    if received >= 0 {
        // SAFETY: the kernel has just filled in the program's message.
        crate::plumbing::after_receiving(unsafe { &*message }, flags);
    }
    received
}

/// recvmsg(2) on a connection, for a call that may have received something before. None: a signal begins the call again,
/// which looks its descriptor up.
///
/// # Safety
/// As recvmsg(2) demands.
unsafe fn receive_message(
    end: &End,
    message: *mut msghdr,
    flags: c_int,
    has_some: bool,
) -> Option<ssize_t> {
    let fd = if has_some { end.fd() } else { end.fd };
    // SAFETY: passed on.
    let kernel = move || unsafe { real::recvmsg(fd, message, flags) };
    if !c::may_be(message, 1) {
        return Some(kernel());
    }
    // SAFETY: the program's promise.
    let header = unsafe { *message };
    if flags & c::OF_32_BITS != 0 || names::has_no_length(&header) {
        return Some(kernel());
    }
    // SAFETY: the program's promise.
    let Ok(parts) = (unsafe { c::parts(header.msg_iov, header.msg_iovlen) }) else {
        return Some(kernel());
    };
    // SAFETY: the program's promise about its message.
    let beside = unsafe { Beside::of(&header, flags) };
    let is_unix = end.family() == Family::Unix;
    let (mut by_kernel, has_found) = (false, Cell::new(false));
    let wish = Wish {
        flags,
        beside: Some(&beside).filter(|_| is_unix),
        has_some,
        since: None,
        is_late: false,
        has_found: Some(&has_found),
    };
    // Whose name is asked for may be closed while the call sleeps.
    let asks_name = is_unix && !header.msg_name.is_null();
    let stay = asks_name.then(|| Stay::begin(end));
    let receive = || {
        receive_with(end, parts, wish, || {
            by_kernel = true;
            kernel()
        })
    };
    let received = cancel::guarded(&stay, receive)?;
    if is_unix && received > 0 && flags & libc::MSG_PEEK != 0 && !by_kernel && beside.is_empty() {
        peek::look_beside(end, &beside);
    }
    let mut named = Ok(());
    if received >= 0 && !by_kernel {
        let (bytes, told) = beside.received();
        // SAFETY: the program's promise.
        named = unsafe { c::tell(&raw mut (*message).msg_controllen, bytes) };
        // SAFETY: as above.
        named = named.and_then(|()| unsafe { c::tell(&raw mut (*message).msg_flags, told) });
        if named.is_ok() && !header.msg_name.is_null() {
            let name = header.msg_name.cast();
            // SAFETY: as above.
            let length = unsafe { &raw mut (*message).msg_namelen };
            // SAFETY: the program's promise about its message.
            named =
                unsafe { names::tell_source(end, has_found.get() || received > 0, name, length) };
        }
    }
    if received >= 0 && is_unix {
        // SAFETY: as above.
        crate::plumbing::after_receiving(unsafe { &*message }, flags);
    }
    Some(named.map_or_else(c::fail, |()| received))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: u32,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    let may_be = c::may_be(messages, 1) && (timeout.is_null() || c::may_be(timeout, 1));
    let time = match may_be {
        // SAFETY: null means no limit; elsewhere it is the program's promise.
        true => unsafe { timeout.as_ref() },
        false => None,
    };
    let is_legal = time.is_none_or(poll::is_legal);
    while let Some(end) = End::of(fd).filter(|_| may_be && is_legal) {
        cancel::test();
        let received = match is_granted(&end) {
            // SAFETY: the program's promise.
            true => unsafe { receive_messages(&end, messages, count, flags, timeout) },
            // SAFETY: the program's promise.
            false => unsafe { receive_by_kernel(&end, messages, count, flags, timeout) },
        };
        if let Some(received) = received {
            return received;
        }
    }
    // SAFETY: passed on.
    let received = unsafe { real::recvmmsg(fd, messages, count, flags, timeout) };
    // SAFETY: the kernel has filled in so many of the program's messages.
    unsafe { after_receiving(messages, received, flags) };
    received
}

/// recvmmsg(2) on a connection without rings, by the kernel. None: it has been granted some meanwhile.
///
/// # Safety
/// As recvmmsg(2) demands.
unsafe fn receive_by_kernel(
    end: &End,
    messages: *mut mmsghdr,
    count: u32,
    flags: c_int,
    timeout: *mut timespec,
) -> Option<c_int> {
    let mut received = 0;
    raw::receive(end, flags & libc::MSG_PEEK != 0, || {
        // SAFETY: passed on.
        received = unsafe { real::recvmmsg(end.fd, messages, count, flags, timeout) };
        // SAFETY: the kernel has filled in so many of the program's messages.
        unsafe { bytes_of(messages, received) }
    })?;
    // SAFETY: as above.
    unsafe { after_receiving(messages, received, flags) };
    Some(received)
}

/// Look for descriptors beside so many messages.
///
/// # Safety
/// There are so many.
unsafe fn after_receiving(messages: *const mmsghdr, count: c_int, flags: c_int) {
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the caller's promise.
        crate::plumbing::after_receiving(unsafe { &(*messages.add(at)).msg_hdr }, flags);
    }
}

/// What so many messages hold; below zero for a failure.
///
/// # Safety
/// There are so many.
unsafe fn bytes_of(messages: *const mmsghdr, count: c_int) -> ssize_t {
    let Ok(count) = usize::try_from(count) else {
        return -1;
    };
    // SAFETY: the caller's promise.
    let bytes = |at| unsafe { (*messages.add(at)).msg_len };
    (0..count).map(|at| bytes(at) as ssize_t).sum()
}

/// recvmmsg(2) on a connection that has rings, which it goes on with when its descriptor is closed. None: a signal begins the call again, which looks its descriptor up.
///
/// # Safety
/// As recvmmsg(2) demands.
unsafe fn receive_messages(
    end: &End,
    messages: *mut mmsghdr,
    count: u32,
    flags: c_int,
    timeout: *mut timespec,
) -> Option<c_int> {
    // SAFETY: the caller's promise; null means no limit.
    let limit = unsafe { timeout.as_ref() }.map(poll::duration);
    let stay = Stay::begin(end).ok()?;
    if let Some(errno) = ending::take_error(end) {
        // Unlike recvmsg it tells of an error before data and the end.
        return Some(c::fail(errno));
    }
    let started = Instant::now();
    let mut done = 0;
    while done < count {
        // MSG_WAITFORONE: only the first message may wait.
        let wait_for_one = flags & libc::MSG_WAITFORONE != 0 && done > 0;
        let extra = if wait_for_one { libc::MSG_DONTWAIT } else { 0 };
        let flags = flags & !libc::MSG_WAITFORONE | extra;
        // SAFETY: `done` is below the count that the program has promised.
        let message = unsafe { messages.add(done as usize) };
        let received = cancel::guarded(&stay, || {
            // SAFETY: as above; the header is part of the program's array.
            unsafe { receive_message(end, &raw mut (*message).msg_hdr, flags, done > 0) }
        });
        let Some(received) = received else {
            if done == 0 {
                return None;
            }
            break;
        };
        let Ok(length) = u32::try_from(received) else {
            if done > 0 {
                // It has been told to us, and is the next call's.
                send::keep_error(end, Errno::last());
            }
            break;
        };
        // SAFETY: as above.
        if let Err(errno) = unsafe { c::tell(&raw mut (*message).msg_len, length) } {
            errno.set();
            break;
        }
        done += 1;
        // SAFETY: as above.
        let is_urgent = unsafe { (*message).msg_hdr.msg_flags } & libc::MSG_OOB != 0;
        if is_urgent || limit.is_some_and(|limit| started.elapsed() >= limit) {
            break;
        }
    }
    if done > 0
        && let Some(limit) = limit
    {
        let left = poll::as_timespec(limit.saturating_sub(started.elapsed()));
        // SAFETY: as above, and there is a limit.
        if let Err(errno) = unsafe { c::tell(timeout, left) } {
            return Some(c::fail(errno));
        }
    }
    Some(match done {
        0 if count > 0 => -1,
        done => done.cast_signed(),
    })
}
