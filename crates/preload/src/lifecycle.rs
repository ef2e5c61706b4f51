//! connect, accept, shutdown and close.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndPhase, end_flags};
use crosslane_stream::family::Family;
use crosslane_stream::young::{self, Young};
use crosslane_stream::{End, close as closing, config, control, process, register, switch};
use crosslane_sys::{Errno, cancel, kernel, process as system, real};
use libc::{sockaddr, socklen_t};

use crate::process::is_own;
use crate::{c, epoll, progress, signals, sole};

/// How long a disconnect waits for the connection to be back on TCP.
const PATIENCE: core::time::Duration = core::time::Duration::from_secs(1);

/// Whether an address can be one of so many bytes; others are the kernel's to refuse.
fn may_be_address(address: *const sockaddr, length: socklen_t, least: usize) -> bool {
    let length = length as usize;
    let is_legal = (least..=size_of::<libc::sockaddr_storage>()).contains(&length);
    is_legal && c::may_be(address.cast::<u8>(), length)
}

/// The port in an address of the program.
///
/// # Safety
/// As connect(2) demands of its address.
unsafe fn port(address: *const sockaddr, length: socklen_t) -> Option<u16> {
    if !may_be_address(address, length, size_of::<libc::sockaddr_in>()) {
        return None;
    }
    // SAFETY: the program's promise; both families have the port at the same place.
    let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
    Some(u16::from_be(address.sin_port))
}

/// Whether an address asks to dissolve the connection (connect(2)).
///
/// # Safety
/// As connect(2) demands of its address.
unsafe fn is_unspecified(address: *const sockaddr, length: socklen_t) -> bool {
    let family = libc::AF_UNSPEC.unsigned_abs();
    may_be_address(address, length, size_of::<libc::sa_family_t>())
        // SAFETY: the caller's promise.
        && u32::from(unsafe { address.cast::<libc::sa_family_t>().read_unaligned() }) == family
}

fn local_port(fd: c_int) -> Option<u16> {
    if config::get().eager_ports.is_empty() {
        return None;
    }
    // SAFETY: sockaddr_in6 is plain integers, for which zero is a value.
    let mut address: libc::sockaddr_in6 = unsafe { core::mem::zeroed() };
    let mut length = socklen_t::try_from(size_of_val(&address)).ok()?;
    // SAFETY: the address is valid for writes of `length`.
    let result = unsafe { libc::getsockname(fd, (&raw mut address).cast(), &raw mut length) };
    (result == 0).then(|| u16::from_be(address.sin6_port))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the program's promise.
    let disconnects = unsafe { is_unspecified(address, length) };
    let dissolves = |end: &End| disconnects && end.family() == Family::Tcp;
    if !disconnects && Young::of(fd).is_some() {
        // SAFETY: passed on.
        return unsafe { real::connect(fd, address, length) };
    }
    cancel::test();
    let dissolved = End::of(fd).filter(dissolves);
    if let Some(end) = &dissolved {
        cancel::never(|| leave(end));
    }
    let known = End::known(fd).filter(|_| dissolved.is_none());
    // A connect that did not wait is over, and in use already; asked once more, the kernel says so, however late.
    let is_over = known.is_some() && (knows_fresh(fd) || kernel::has_peer(fd));
    let is_watched = known.is_some_and(|end| end.local.registrations.load(Ordering::Relaxed) > 0);
    let token = known.map(|end| end.token());
    // SAFETY: passed on.
    let result = unsafe { real::connect(fd, address, length) };
    let saved = Errno::last();
    if let Some(end) = &dissolved {
        cancel::never(|| dissolve(end));
    }
    if (result == 0 || goes_on(fd, saved))
        && !disconnects
        && !is_over
        // The number may name another connection by now.
        && End::known(fd).map(|end| end.token()) == token
        && !knows_fresh(fd)
        && !is_young(fd, known.is_none())
        && let Some(family) = Family::of(fd)
    {
        // SAFETY: the kernel has just accepted this address.
        let port = unsafe { port(address, length) }.filter(|_| family == Family::Tcp);
        cancel::never(|| begin(fd, family, port, is_watched));
    }
    saved.set();
    result
}

/// Begin a connection as a young one, if nothing is known of its socket but what it is.
fn is_young(fd: c_int, is_unknown: bool) -> bool {
    let is_usual = is_unknown && young::is_usual() && sole::is(fd) && sole::is_tcp(fd);
    is_usual && !epoll::may_have(fd) && {
        let _ = signals::take();
        young::begin(fd, false)
    }
}

/// The program has its connection dissolved by the kernel.
fn leave(end: &End) {
    closing::make_plain(end, Reason::Call, PATIENCE);
    if !progress::leave_rings(end) {
        // What stands in its ring is lost with the connection.
        switch::dissolve(end);
    }
}

/// It has been. Sets get it back not before: a socket that has been reset would wake those who sleep, as it was.
fn dissolve(end: &End) {
    epoll::hand_back(end);
    epoll::dissolved(end);
    // Another thread may have given the number to another connection.
    if End::of(end.fd).is_some_and(|now| now.token() == end.token()) {
        register::forget(end.fd);
    }
}

/// The socket has begun a connection; sets that wait for it know what it was before if it `is_watched`.
fn begin(fd: c_int, family: Family, port: Option<u16>, is_watched: bool) {
    if let Some(old) = End::of(fd) {
        leave_behind(&old);
    }
    let _ = signals::take();
    if let Some(end) = register::track(fd, family, false, port) {
        if !sole::is(fd) {
            switch::pin(&end, Reason::Foreign);
        }
        epoll::connected(&end);
        if is_watched {
            switch::pin(&end, Reason::EpollEarly);
        }
    }
}

/// A send with MSG_FASTOPEN has perhaps connected the socket, with bytes that nobody has counted: they have nothing to do with rings.
pub fn begun_by_send(fd: c_int, has_sent: bool) {
    let errno = Errno::last();
    if (has_sent || goes_on(fd, errno))
        && Family::of(fd) == Some(Family::Tcp)
        && End::of(fd).is_none()
        && let Some(end) = register::track(fd, Family::Tcp, false, None)
    {
        switch::pin(&end, Reason::Call);
        epoll::connected(&end);
    }
    errno.set();
}

/// The socket has begun another connection than that of `end`, which was over: rings, and what the kernel was told for
/// them, are not for the new one.
fn leave_behind(end: &End) {
    switch::dissolve(end);
    epoll::hand_back(end);
    epoll::dissolved(end);
}

/// Whether the kernel goes on with a connect that has failed so. One over AF_UNIX that a signal ends it has given up.
fn goes_on(fd: c_int, errno: Errno) -> bool {
    let is_interrupted = || errno == Errno::INTR && Family::of(fd) == Some(Family::Tcp);
    errno.0 == libc::EINPROGRESS || is_interrupted()
}

/// Whether the library already knows this connection, because an earlier connect began it.
fn knows_fresh(fd: c_int) -> bool {
    const SHUT: [u32; 2] = [end_flags::SHUT_READ, end_flags::SHUT_WRITE];
    young::is(fd)
        || End::known(fd).is_some_and(|end| {
            let is_shut = SHUT.iter().any(|flag| end.has_flags(*flag));
            end.phase() == EndPhase::Plain && !end.is_pinned() && !is_shut
        })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: passed on.
    welcome(unsafe { real::accept(fd, address, length) }, fd)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: passed on.
    welcome(unsafe { real::accept4(fd, address, length, flags) }, fd)
}

/// The listener has accepted a connection, if it has.
fn welcome(fd: c_int, listener: c_int) -> c_int {
    if fd < 0 {
        return fd;
    }
    let _ = signals::take();
    if young::is_usual() && sole::is_tcp(listener) && young::begin(fd, true) {
        return fd;
    }
    // Nobody would know of the descriptor.
    cancel::never(|| match Family::of(fd) {
        Some(Family::Tcp) => drop(register::track(fd, Family::Tcp, true, local_port(fd))),
        Some(Family::Unix) => drop(register::track(fd, Family::Unix, true, None)),
        None => register::forget(fd),
    });
    fd
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn socketpair(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    pair: *mut c_int,
) -> c_int {
    // SAFETY: passed on.
    let result = unsafe { real::socketpair(domain, kind, protocol, pair) };
    if result == 0 {
        // SAFETY: the kernel has just written two descriptors there.
        let fds = unsafe { pair.cast::<[c_int; 2]>().read_unaligned() };
        match Family::of(fds[0]) {
            Some(Family::Unix) => {
                let _ = signals::take();
                register::track_pair(fds);
            }
            _ => fds.into_iter().for_each(register::forget),
        }
    }
    result
}

/// A new descriptor that is no connection: what the number named before is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let age = sole::age();
    // SAFETY: passed on.
    let fd = unsafe { real::socket(domain, kind, protocol) };
    if fd >= 0 {
        register::forget(fd);
        sole::note(fd, age, is_of_tcp(domain, kind, protocol));
    }
    fd
}

/// Whether a socket that is made so is one of TCP.
fn is_of_tcp(domain: c_int, kind: c_int, protocol: c_int) -> bool {
    matches!(domain, libc::AF_INET | libc::AF_INET6)
        && kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) == libc::SOCK_STREAM
        && matches!(protocol, 0 | libc::IPPROTO_TCP | libc::IPPROTO_MPTCP)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    let end = End::of(fd).filter(|_| (libc::SHUT_RD..=libc::SHUT_RDWR).contains(&how));
    if let Some(end) = end {
        closing::before_shutdown(&end, how);
    }
    // SAFETY: passed on.
    let result = unsafe { real::shutdown(fd, how) };
    if let Some(end) = end {
        let errno = Errno::last();
        closing::after_shutdown(&end, how);
        epoll::note_shutdown(&end);
        errno.set();
    }
    result
}

/// What must be done before `fd` is closed by whatever call.
pub fn before_close(fd: c_int) {
    if process::has_left() {
        return epoll::forget_set(fd);
    }
    if !is_own() {
        // The child of a vfork closes its own copies.
        return;
    }
    if let Some(end) = End::of(fd) {
        epoll::forget(&end);
        closing::before_close(&end);
    }
    epoll::forget_set(fd);
}

/// Whether `fd` is one of the library's own, which programs that close everything must not touch.
fn is_ours(fd: c_int) -> bool {
    control::owns(fd)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    // SAFETY: passed on.
    let kernel = || unsafe { real::close(fd) };
    if Young::of(fd).is_some_and(|young| is_own() && young.leave()) {
        return kernel();
    }
    if process::get().is_some() && is_ours(fd) {
        return c::fail(Errno::BADF);
    }
    if End::of(fd).is_none() && !epoll::is_known(fd) {
        return kernel();
    }
    cancel::test();
    cancel::never(|| {
        before_close(fd);
        kernel()
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: u32, last: u32, flags: c_int) -> c_int {
    const CLOEXEC: c_int = libc::CLOSE_RANGE_CLOEXEC as c_int;
    const UNSHARE: c_int = libc::CLOSE_RANGE_UNSHARE as c_int;
    // Nothing is there; it is only asked whether the kernel would.
    // SAFETY: numbers only.
    let is_refused = || unsafe { real::close_range(u32::MAX, u32::MAX, flags & !UNSHARE) } != 0;
    if flags & !(CLOEXEC | UNSHARE) != 0 || first > last || is_refused() {
        // SAFETY: passed on.
        return unsafe { real::close_range(first, last, flags) };
    }
    // With a table of its own, one thread of several closes nothing of the others'.
    let is_apart = flags & UNSHARE != 0 && !system::is_single_threaded();
    // A child of vfork closes its own copies, and by ours it may hand connections to the program that it is about to become.
    if flags & CLOEXEC == 0 && !is_apart && is_own() {
        before_closing(first, last);
    }
    around_ours(first, last, flags)
}

/// All descriptors of a range are about to be closed.
fn before_closing(first: u32, last: u32) {
    let inside = |fd: &c_int| (first..=last).contains(&fd.cast_unsigned());
    young::grow_all();
    let ends = process::get().into_iter().flat_map(process::Process::ends);
    let fds: Vec<c_int> = ends.map(|end| end.fd).filter(inside).collect();
    fds.into_iter().for_each(before_close);
    // A process without connections may have sets.
    epoll::sets()
        .into_iter()
        .filter(inside)
        .for_each(epoll::forget_set);
}

/// Close a range but for the library's own descriptors.
fn around_ours(first: u32, last: u32, flags: c_int) -> c_int {
    let mut from = first;
    for own in control::descriptors() {
        let own = own.cast_unsigned();
        if (from..=last).contains(&own) {
            if own > from {
                // SAFETY: numbers only.
                let result = unsafe { real::close_range(from, own - 1, flags) };
                if result != 0 {
                    return result;
                }
            }
            from = own + 1;
        }
    }
    if from > last && from > first {
        return 0;
    }
    // SAFETY: numbers only.
    unsafe { real::close_range(from, last, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(lowest: c_int) {
    let lowest = lowest.max(0).cast_unsigned();
    // SAFETY: passed on.
    if unsafe { close_range(lowest, u32::MAX, 0) } != 0 {
        if is_own() {
            before_closing(lowest, u32::MAX);
        }
        // SAFETY: passed on, for kernels without close_range.
        unsafe { real::closefrom(lowest.cast_signed()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_streams_of_the_internet_are_tcp() {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        assert!(is_of_tcp(libc::AF_INET, libc::SOCK_STREAM | flags, 0));
        assert!(is_of_tcp(
            libc::AF_INET6,
            libc::SOCK_STREAM,
            libc::IPPROTO_MPTCP
        ));
        for (domain, kind, protocol) in [
            (libc::AF_INET, libc::SOCK_DGRAM, 0),
            (libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP),
            (libc::AF_UNIX, libc::SOCK_STREAM, 0),
        ] {
            assert!(!is_of_tcp(domain, kind, protocol));
        }
    }
}
