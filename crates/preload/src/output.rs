//! write, send and their families.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::Mode;
use crosslane_ring::Part;
use crosslane_ring::short::SHORT_BYTES;
use crosslane_stream::end::Blocked;
use crosslane_stream::family::Family;
use crosslane_stream::interrupt::Portions;
use crosslane_stream::send::{self, Sent};
use crosslane_stream::short::{far, send_in_any};
use crosslane_stream::stay::Stay;
use crosslane_stream::young::Young;
use crosslane_stream::{End, adopt, raw, remainder, replay, switch};
use crosslane_sys::{Errno, cancel, kernel, real};
use libc::{iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};

use crate::progress::{is_granted, is_granted_to_send};
use crate::{c, epoll, lifecycle, names, short};

/// Flags that rings can honour; others are for the kernel, and the connection with them.
pub const RING_FLAGS: c_int = libc::MSG_DONTWAIT
    | libc::MSG_NOSIGNAL
    | libc::MSG_MORE
    | libc::MSG_EOR
    | libc::MSG_CONFIRM
    | libc::MSG_DONTROUTE;

/// Messages that one sendmmsg sends (UIO_MAXIOV).
const MOST_MESSAGES: u32 = 1024;

/// As [`transmit`], of one buffer, for a call that may have tried the short way already.
#[inline]
pub fn transmit_one(
    end: &End,
    part: Part,
    (flags, has_tried): (c_int, bool),
    kernel: impl FnMut() -> ssize_t,
) -> ssize_t {
    cancel::test();
    let is_short = flags & !RING_FLAGS == 0
        && (1..=SHORT_BYTES).contains(&part.bytes)
        && c::is_plausible(&part);
    let is_sent = || match has_tried {
        // SAFETY: the program's buffer, by the manual of its call.
        true => unsafe { far::send(end, part) },
        // SAFETY: as above.
        false => unsafe { send_in_any(end, part) },
    };
    if is_short && is_sent().is_ok() {
        return c::count(Ok(part.bytes));
    }
    transmit(end, &[part], flags, kernel)
}

/// Send by ring if there is one, otherwise by `kernel`, whose bytes are counted. Not inlined, so that
/// short messages pay for none of it.
#[inline(never)]
fn transmit(
    end: &End,
    parts: &[Part],
    flags: c_int,
    mut kernel: impl FnMut() -> ssize_t,
) -> ssize_t {
    cancel::test();
    let mut end = *end;
    loop {
        if let Some(sent) = transmit_by(&end, parts, flags, &mut kernel) {
            return sent;
        }
        match End::of(end.fd) {
            Some(found) => end = found,
            None => return kernel(),
        }
    }
}

/// As [`transmit`]. None: a signal begins the call again, which looks its descriptor up.
#[inline(always)]
fn transmit_by(
    end: &End,
    parts: &[Part],
    flags: c_int,
    mut kernel: impl FnMut() -> ssize_t,
) -> Option<ssize_t> {
    if flags & !RING_FLAGS != 0 {
        return by_kernel_only(end, flags, kernel);
    }
    loop {
        let mut sent = None;
        if is_granted_to_send(end) {
            sent = match by_ring(end, parts, flags, None) {
                Ok(Sent::Bytes(bytes)) => Some(c::count(Ok(bytes))),
                Ok(Sent::ByKernel) => None,
                Ok(Sent::Shut) => Some(c::fail(Errno::PIPE)),
                Err(Errno::RESTART) => return None,
                Err(errno) => Some(refuse(errno, flags)),
            };
        }
        let sent = sent.or_else(|| raw::send(end, bytes_of(parts), &mut kernel));
        note_short(end);
        if sent.is_some() {
            return sent;
        }
    }
}

/// Send more of what a call moves, on the connection that it has begun with. None: a signal begins the call again.
pub fn send_on(end: &End, bytes: &[u8], flags: c_int) -> Option<ssize_t> {
    let (start, count) = (bytes.as_ptr().cast(), bytes.len());
    transmit_by(end, &[c::part(start, count)], flags, || {
        // SAFETY: the bytes are valid for reads.
        unsafe { real::send(end.fd(), start, count, flags) }
    })
}

/// Send a portion of what a call moves, on the connection that it has begun with. None: the kernel has the direction, and might
/// wait as for a call that sends nothing else: see [`go_on`].
pub fn send_portion(
    end: &End,
    (parts, flags): (&[Part], c_int),
    portions: &mut Portions,
) -> Option<Result<usize, Errno>> {
    let by_ring = is_granted_to_send(end).then(|| by_ring(end, parts, flags, Some(&mut *portions)));
    let sent = match by_ring {
        Some(Ok(Sent::Bytes(sent))) => Ok(sent),
        Some(Ok(Sent::Shut)) => Err(Errno::PIPE),
        Some(Err(errno)) => Err(errno).inspect_err(|errno| _ = refuse(*errno, flags)),
        None | Some(Ok(Sent::ByKernel)) => return None,
    };
    note_short(end);
    Some(sent)
}

/// As [`remainder::go_on`].
pub fn go_on(
    end: &End,
    (parts, flags): (&[Part], c_int),
    portions: &mut Portions,
) -> Result<(usize, bool), Errno> {
    let dont_wait = flags & libc::MSG_DONTWAIT != 0;
    // SAFETY: the program's buffers, by the manual of its call.
    let mut cursor = unsafe { c::cursor(parts) }?;
    let sent = remainder::go_on(end, &mut cursor, dont_wait, portions);
    let sent = sent.inspect_err(|errno| _ = refuse(*errno, flags));
    note_short(end);
    sent
}

/// As [`transmit_by`], behind what the same call has sent: the kernel would begin a call again that has sent nothing.
fn transmit_behind(
    end: &End,
    (parts, flags): (&[Part], c_int),
    portions: &mut Portions,
    kernel: impl FnMut() -> ssize_t,
) -> Option<ssize_t> {
    const KNOWN: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: nothing is copied by it.
    let is_sound = || c::check(parts).is_ok() && unsafe { c::cursor(parts) }.is_ok();
    if flags & !KNOWN != 0 || bytes_of(parts) == 0 || !is_sound() {
        portions.let_in();
        return transmit_by(end, parts, flags, kernel);
    }
    loop {
        switch::advance(end);
        if end.tx_mode() != Mode::Ring {
            match go_on(end, (parts, flags), portions) {
                Ok((0, false)) => {}
                // Shut down under it, over AF_UNIX.
                Ok((0, true)) => return Some(c::fail(Errno::PIPE)),
                sent => return Some(c::count(sent.map(|(sent, _)| sent))),
            }
        }
        if let Some(sent) = send_portion(end, (parts, flags), portions) {
            return Some(c::count(sent));
        }
    }
}

/// All bytes of the buffers of a call.
pub fn bytes_of(parts: &[Part]) -> usize {
    let sum = |sum: usize, part: &Part| sum.saturating_add(part.bytes);
    parts.iter().fold(0, sum)
}

/// A send may have been a short one, of which the epoll set must know.
#[inline]
pub fn note_short(end: &End) {
    if end.local.blocked.load(Ordering::Relaxed) == Blocked::Fresh as u32 {
        want_room(end);
    }
}

/// Tell the epoll set of a short send, and leave errno as it was.
#[cold]
fn want_room(end: &End) {
    let errno = Errno::last();
    epoll::want_room(end);
    errno.set();
}

#[inline]
fn by_ring(
    end: &End,
    parts: &[Part],
    flags: c_int,
    portions: Option<&mut Portions>,
) -> Result<Sent, Errno> {
    c::check(parts)?;
    let dont_wait = flags & libc::MSG_DONTWAIT != 0;
    // SAFETY: the program's buffers, by the manual of its call.
    match unsafe { c::cursor(parts) } {
        Ok(mut parts) => send::send(end, &mut parts, dont_wait, portions),
        // A connection that is broken says so before a bad address does.
        Err(errno) => {
            // SAFETY: there are no buffers.
            let mut nothing = unsafe { c::cursor(&[]) }?;
            match send::send(end, &mut nothing, dont_wait, None)? {
                Sent::Bytes(_) => Err(errno),
                sent => Ok(sent),
            }
        }
    }
}

/// Fail a send, which raises a signal if nobody receives any more.
#[cold]
pub fn refuse(errno: Errno, flags: c_int) -> ssize_t {
    if errno == Errno::PIPE && flags & libc::MSG_NOSIGNAL == 0 {
        c::raise_sigpipe();
    }
    c::fail(errno)
}

/// Urgent data and other flags that a ring cannot carry: the connection goes back to TCP. None: a signal begins the call again.
#[cold]
fn by_kernel_only(end: &End, flags: c_int, mut kernel: impl FnMut() -> ssize_t) -> Option<ssize_t> {
    let urgent = flags & libc::MSG_OOB != 0;
    switch::pin(end, if urgent { Reason::Urgent } else { Reason::Call });
    // As the kernel, which looks when a call begins.
    let dont_wait = flags & libc::MSG_DONTWAIT != 0 || end.is_nonblocking();
    loop {
        if let Err(errno) = replay::finish_replay_first(end, dont_wait) {
            return refuse_or_restart(end, errno, flags);
        }
        if let Some(sent) = by_tcp(end, usize::MAX, &mut kernel) {
            return Some(sent);
        }
        if let Err(errno) = send::leave_ring(end, dont_wait) {
            return refuse_or_restart(end, errno, flags);
        }
    }
}

/// As [`raw::send`], of which the epoll set learns if it was short.
pub fn by_tcp(end: &End, bytes: usize, kernel: impl FnOnce() -> ssize_t) -> Option<ssize_t> {
    let sent = raw::send(end, bytes, kernel);
    note_short(end);
    sent
}

/// As [`refuse`]. None: a signal begins the call again.
pub fn refuse_or_restart(end: &End, errno: Errno, flags: c_int) -> Option<ssize_t> {
    note_short(end);
    (errno != Errno::RESTART).then(|| refuse(errno, flags))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, bytes: size_t) -> ssize_t {
    short::write(fd, buffer, bytes)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: passed on.
    let kernel = move || unsafe { real::writev(fd, parts, count) };
    if let Some(sent) = Young::of(fd).and_then(|young| young.send(kernel)) {
        return sent;
    }
    let Some(end) = End::of(fd) else {
        return kernel();
    };
    // SAFETY: the program's promise.
    match unsafe { c::parts(parts, count.max(0) as usize) } {
        // The kernel does not ask the socket about nothing at all.
        Ok(buffers) if buffers.iter().any(|part| part.bytes > 0) => {
            transmit(&end, buffers, 0, kernel)
        }
        _ => kernel(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: passed on.
    let kernel = move || unsafe { real::pwritev2(fd, parts, count, offset, flags) };
    if offset == -1 && flags == 0 {
        // SAFETY: passed on; without offset and flags this is writev.
        return unsafe { writev(fd, parts, count) };
    }
    while let Some(end) = End::of(fd).filter(|_| offset == -1) {
        cancel::test();
        // SAFETY: the program's promise.
        let sent = match unsafe { c::parts(parts, count.max(0) as usize) } {
            Ok(buffers) if flags == libc::RWF_NOWAIT && bytes_of(buffers) > 0 => {
                transmit_by(&end, buffers, libc::MSG_DONTWAIT, kernel)
            }
            Ok(buffers) if bytes_of(buffers) > 0 => by_kernel_only(&end, 0, kernel),
            _ => break,
        };
        if let Some(sent) = sent {
            return sent;
        }
    }
    kernel()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(
    fd: c_int,
    buffer: *const c_void,
    bytes: size_t,
    flags: c_int,
) -> ssize_t {
    short::send(fd, buffer, bytes, flags)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    bytes: size_t,
    flags: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> ssize_t {
    // SAFETY: passed on. A connected TCP socket ignores the address, an AF_UNIX socket refuses it.
    let kernel = move || unsafe { real::sendto(fd, buffer, bytes, flags, address, length) };
    match End::of(fd) {
        Some(_) if names::is_bad_address(address, length) => kernel(),
        Some(end) if end.family() == Family::Unix && !address.is_null() && length > 0 => kernel(),
        Some(end) => transmit_one(&end, c::part(buffer, bytes), (flags, false), kernel),
        None => by_unknown(fd, flags, kernel),
    }
}

/// Send by a socket that is no known connection, but may be one afterwards.
fn by_unknown<T: PartialOrd + Default>(fd: c_int, flags: c_int, kernel: impl FnOnce() -> T) -> T {
    let sent = kernel();
    if flags & libc::MSG_FASTOPEN != 0 {
        lifecycle::begun_by_send(fd, sent >= T::default());
    }
    sent
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: passed on.
    let kernel = move || unsafe { real::sendmsg(fd, message, flags) };
    if !c::may_be(message, 1) {
        return kernel();
    }
    while let Some(end) = End::of(fd) {
        cancel::test();
        // SAFETY: the program's promise.
        if let Some(sent) = unsafe { send_message(&end, message, flags, None) } {
            return sent;
        }
    }
    // SAFETY: the program's promise.
    let header = unsafe { &*message };
    match header.msg_controllen {
        0 => by_unknown(fd, flags, kernel),
        _ => pass(fd, header, || Some(kernel())).unwrap_or(-1),
    }
}

/// sendmsg(2) on a connection, perhaps `behind` other messages of the same call. None: a signal begins the call again,
/// which looks its descriptor up.
///
/// # Safety
/// As sendmsg(2) demands.
unsafe fn send_message(
    end: &End,
    message: *const msghdr,
    flags: c_int,
    behind: Option<&mut Portions>,
) -> Option<ssize_t> {
    let fd = if behind.is_some() { end.fd() } else { end.fd };
    // SAFETY: passed on.
    let kernel = move || unsafe { real::sendmsg(fd, message, flags) };
    // SAFETY: the program's promise.
    let header = unsafe { &*message };
    let has_control = header.msg_controllen > 0;
    let is_unix = end.family() == Family::Unix;
    let is_plain = !has_control && flags & c::OF_32_BITS == 0 && !has_name(header);
    // SAFETY: the program's promise.
    let parts = unsafe { c::parts(header.msg_iov, header.msg_iovlen) };
    if let (Some(portions), Ok(parts)) = (behind, &parts) {
        match is_plain {
            true => return transmit_behind(end, (parts, flags), portions, kernel),
            false => portions.let_in(),
        }
    }
    match parts {
        // Which the kernel refuses.
        Ok(_) if flags & c::OF_32_BITS != 0 || names::is_bad_name(header) => Some(kernel()),
        Ok(_) if is_unix && has_name(header) => Some(kernel()),
        Ok(_) if is_unix && has_control => pass_along(end, header, flags, kernel),
        // Control messages of TCP are for the kernel.
        Ok(_) if has_control => by_kernel_only(end, flags, kernel),
        Ok(parts) => transmit_by(end, parts, flags, kernel),
        Err(_) => Some(kernel()),
    }
}

fn has_name(header: &msghdr) -> bool {
    !header.msg_name.is_null() && header.msg_namelen > 0
}

/// Send a message that may pass descriptors. None, as of `kernel`: a signal begins the call again.
fn pass(fd: c_int, header: &msghdr, kernel: impl FnOnce() -> Option<ssize_t>) -> Option<ssize_t> {
    let given = crate::plumbing::before_passing(header);
    let sent = kernel();
    // A stream passes nothing beside no byte.
    let passes_none = || !given.is_empty() && is_stream(fd);
    if sent.is_none_or(|sent| sent < 0 || sent == 0 && passes_none()) {
        let errno = Errno::last();
        given.into_iter().for_each(adopt::Given::take_back);
        errno.set();
    }
    sent
}

fn is_stream(fd: c_int) -> bool {
    kernel::getsockopt::<c_int>(fd, libc::SOL_SOCKET, libc::SO_TYPE) == Ok(libc::SOCK_STREAM)
}

/// As [`pass`], at its place in a stream that may be in a ring.
#[cold]
fn pass_along(
    end: &End,
    header: &msghdr,
    flags: c_int,
    mut kernel: impl FnMut() -> ssize_t,
) -> Option<ssize_t> {
    if flags & !RING_FLAGS != 0 {
        return pass(end.fd(), header, || by_kernel_only(end, flags, kernel));
    }
    let dont_wait = flags & libc::MSG_DONTWAIT != 0;
    pass(end.fd(), header, || {
        loop {
            if is_granted(end)
                && let Err(errno) = send::leave_ring(end, dont_wait)
            {
                return refuse_or_restart(end, errno, flags);
            }
            if let Some(sent) = by_tcp(end, usize::MAX, &mut kernel) {
                return Some(sent);
            }
        }
    })
}

/// Whether control data goes along, as descriptors do.
fn pass_anything(messages: *const mmsghdr, count: u32) -> bool {
    let mut there = (0..count.min(MOST_MESSAGES) as usize)
        .map(|at| messages.wrapping_add(at))
        .take_while(|message| c::may_be(*message, 1));
    // SAFETY: they have just been looked at.
    there.any(|message| unsafe { (*message).msg_hdr.msg_controllen } > 0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: u32,
    flags: c_int,
) -> c_int {
    let most = count.min(MOST_MESSAGES);
    while let Some(end) = End::of(fd).filter(|_| c::may_be(messages, 1)) {
        cancel::test();
        let Ok(stay) = Stay::begin(&end) else {
            continue;
        };
        let mut portions = Portions::default();
        let sent = cancel::guarded(&stay, || {
            // SAFETY: the program's promise.
            unsafe {
                each_message(messages, most, |message, has_some| {
                    let behind = has_some.then_some(&mut portions);
                    let sent = send_message(&end, message, flags, behind);
                    // One of no bytes is something, too.
                    portions.note(usize::from(sent.is_some_and(|sent| sent >= 0)));
                    sent
                })
            }
        });
        let errno = Errno::last();
        drop((portions, stay));
        errno.set();
        if let Some(sent) = sent {
            return sent;
        }
    }
    if !pass_anything(messages, count) {
        // SAFETY: passed on.
        return by_unknown(fd, flags, || unsafe {
            real::sendmmsg(fd, messages, count, flags)
        });
    }
    // SAFETY: the program's promise.
    let sent = unsafe {
        each_message(messages, most, |message, _| {
            Some(sendmsg(fd, message, flags))
        })
    };
    sent.unwrap_or(-1)
}

/// Send messages until one is refused, or sent in part: nothing may follow that. None: a signal begins the call again.
///
/// # Safety
/// There are so many messages.
unsafe fn each_message(
    messages: *mut mmsghdr,
    count: u32,
    mut send: impl FnMut(*const msghdr, bool) -> Option<ssize_t>,
) -> Option<c_int> {
    let mut done = 0;
    while done < count {
        // SAFETY: `done` is below the count, by the caller's promise.
        let message = unsafe { messages.add(done as usize) };
        if !c::may_be(message, 1) {
            Errno::FAULT.set();
            break;
        }
        // SAFETY: as above.
        let header = unsafe { &raw const (*message).msg_hdr };
        let sent = send(header, done > 0);
        if sent.is_none() && done == 0 {
            return None;
        }
        let Some(length) = sent.and_then(|sent| u32::try_from(sent).ok()) else {
            break;
        };
        // SAFETY: as above.
        let parts = unsafe { c::parts((*header).msg_iov, (*header).msg_iovlen) };
        // SAFETY: as above.
        if let Err(errno) = unsafe { c::tell(&raw mut (*message).msg_len, length) } {
            errno.set();
            break;
        }
        done += 1;
        if parts.is_ok_and(|parts| (length as usize) < bytes_of(parts)) {
            break;
        }
    }
    Some(match done {
        0 if count > 0 => -1,
        done => done.cast_signed(),
    })
}
