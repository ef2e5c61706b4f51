//! Options and requests whose answer a ring changes.

use core::ffi::{c_int, c_long, c_ulong, c_void};
use core::sync::atomic::Ordering;

use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndPhase, Mode};
use crosslane_stream::family::{Family, SO_MAX_PACING_RATE, TELLING_TCP};
use crosslane_stream::young::Young;
use crosslane_stream::{
    End, close as closing, ending, gone, patience, raw, receive, register, switch, unconsumed,
};
use crosslane_sys::{Errno, real};
use libc::socklen_t;

use crate::{bulk, c, epoll, plumbing, progress};

/// How long setting an option for the kernel waits for the connection to be back on TCP.
const PATIENCE: core::time::Duration = core::time::Duration::from_millis(50);

/// Is the next byte the urgent one (sockatmark(3))?
const SIOCATMARK: c_ulong = 0x8905;

/// Socket options beside [`TELLING_TCP`] that change what bytes mean or when they may be seen.
const KERNEL_ONLY_SOCKET: [c_int; 3] = [
    libc::SO_ATTACH_FILTER,
    libc::SO_ATTACH_BPF,
    libc::SO_PEEK_OFF,
];

/// The same for TCP.
const KERNEL_ONLY_TCP: [c_int; 4] = [
    libc::TCP_ULP,
    libc::TCP_REPAIR,
    libc::TCP_MD5SIG,
    libc::TCP_CM_INQ,
];

/// Maps what has come (linux/tcp.h).
const TCP_ZEROCOPY_RECEIVE: c_int = 35;

fn needs_kernel(level: c_int, name: c_int, value: Option<c_int>) -> bool {
    match level {
        // Below 0 is the most there is.
        libc::SOL_SOCKET if name == libc::SO_RCVLOWAT => {
            value.is_some_and(|bytes| !(0..=1).contains(&bytes))
        }
        // From 0 on it is the place of the next look.
        libc::SOL_SOCKET if name == libc::SO_PEEK_OFF => value.is_none_or(|offset| offset >= 0),
        // All ones is no limit.
        libc::SOL_SOCKET if name == SO_MAX_PACING_RATE => value.is_some_and(|rate| rate != -1),
        libc::SOL_SOCKET => {
            let is_known = KERNEL_ONLY_SOCKET.contains(&name) || TELLING_TCP.contains(&name);
            is_known && value != Some(0)
        }
        libc::IPPROTO_TCP => KERNEL_ONLY_TCP.contains(&name),
        _ => false,
    }
}

/// Bring a connection back to TCP for an option.
///
/// # Errors
/// As [`refusal`] says, if that takes too long.
fn leave_to_kernel(end: &End, level: c_int, name: c_int) -> Result<(), Errno> {
    let Some(errno) = refusal(end, level, name) else {
        let tells = end.family() == Family::Unix && TELLING_UNIX.contains(&name);
        let patience = if tells { bulk::PATIENCE } else { PATIENCE };
        closing::make_plain(end, Reason::Option, patience);
        return Ok(());
    };
    if !closing::make_plain(end, Reason::Option, bulk::PATIENCE) {
        return Err(errno);
    }
    if level == libc::IPPROTO_TCP {
        // What the kernel encrypts, or is told to have sent, is not counted here.
        raw::lose_place(end);
    }
    // Our own looks would move the place of the program's.
    progress::hand_back_now(end);
    Ok(())
}

/// What a program is told of an option that must not be set before the connection is back on TCP. Without kernel TLS
/// it goes on by itself.
fn refusal(end: &End, level: c_int, name: c_int) -> Option<Errno> {
    let is_tcp = end.family() == Family::Tcp;
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_PEEK_OFF) => Some(Errno::AGAIN),
        (libc::IPPROTO_TCP, libc::TCP_REPAIR) if is_tcp => Some(Errno::AGAIN),
        (libc::IPPROTO_TCP, libc::TCP_ULP) if is_tcp => Some(Errno(libc::ENOENT)),
        _ => None,
    }
}

/// Socket options that change nothing about the bytes of an AF_UNIX stream.
const HARMLESS_UNIX: [c_int; 11] = [
    libc::SO_SNDBUF,
    libc::SO_RCVBUF,
    libc::SO_SNDBUFFORCE,
    libc::SO_RCVBUFFORCE,
    libc::SO_SNDTIMEO,
    libc::SO_RCVTIMEO,
    libc::SO_REUSEADDR,
    libc::SO_KEEPALIVE,
    libc::SO_LINGER,
    libc::SO_PRIORITY,
    libc::SO_RCVLOWAT,
];

/// Socket options of an AF_UNIX stream by which its receives tell more, which those from a ring do not.
const TELLING_UNIX: [c_int; 2] = [libc::SO_PASSCRED, libc::SO_PASSSEC];

/// Whether an option leaves an AF_UNIX stream in its rings. Levels other than the socket's own have
/// none there, and fail.
fn is_harmless(level: c_int, name: c_int, value: Option<c_int>) -> bool {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_PEEK_OFF) => value.is_some_and(|offset| offset < 0),
        (libc::SOL_SOCKET, _) => HARMLESS_UNIX.contains(&name) || value == Some(0),
        _ => true,
    }
}

/// Which remembered setting an option is.
fn remembered(level: c_int, name: c_int) -> Option<u32> {
    match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => Some(register::NODELAY),
        (libc::IPPROTO_TCP, libc::TCP_CORK) => Some(register::CORK),
        _ => None,
    }
}

/// The number that an option is set to. What stands for a rate of 64 bits says whether it is a limit.
///
/// # Safety
/// As setsockopt(2) demands of its value.
unsafe fn number(level: c_int, name: c_int, value: *const c_void, bytes: usize) -> Option<c_int> {
    let is_rate = (level, name) == (libc::SOL_SOCKET, SO_MAX_PACING_RATE);
    if is_rate && bytes == size_of::<u64>() && c::may_be(value.cast::<u64>(), 1) {
        // SAFETY: the caller's promise.
        let rate = unsafe { value.cast::<u64>().read_unaligned() };
        return Some(if rate == u64::MAX { -1 } else { c_int::MAX });
    }
    // To the kernel it is a number with a sign.
    let is_long = (size_of::<c_int>()..=i32::MAX as usize).contains(&bytes);
    let is_int = is_long && c::may_be(value.cast::<c_int>(), 1);
    // SAFETY: the caller's promise.
    is_int.then(|| unsafe { value.cast::<c_int>().read_unaligned() })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    bytes: socklen_t,
) -> c_int {
    // SAFETY: passed on.
    let kernel = || unsafe { real::setsockopt(fd, level, name, value, bytes) };
    // SAFETY: the program's promise.
    let number = || unsafe { number(level, name, value, bytes as usize) };
    if Young::of(fd).is_some() && !needs_kernel(level, name, number()) {
        return kernel();
    }
    let Some(end) = End::of(fd) else {
        return kernel();
    };
    let (is_unix, number) = (end.family() == Family::Unix, number());
    let is_kernels = needs_kernel(level, name, number);
    if (is_kernels || is_unix && !is_harmless(level, name, number))
        && let Err(errno) = leave_to_kernel(&end, level, name)
    {
        return c::fail(errno);
    }
    if end.phase() == EndPhase::Granted
        && let (Some(bit), Some(number)) = (remembered(level, name), number)
        && !is_unix
    {
        // The kernel's socket must send doorbells at once, whatever the program wishes.
        let own = &end.entry.id.nodelay;
        if number != 0 {
            own.fetch_or(bit, Ordering::Relaxed);
        } else {
            own.fetch_and(!bit, Ordering::Relaxed);
        }
        return 0;
    }
    if (level, name) == (libc::SOL_SOCKET, libc::SO_RCVTIMEO) {
        patience::before_change(&end);
    }
    let result = kernel();
    if level == libc::SOL_SOCKET && result == 0 {
        after_change(&end, name);
    }
    result
}

/// The kernel has changed an option of the socket.
fn after_change(end: &End, name: c_int) {
    match name {
        libc::SO_RCVLOWAT if end.phase() == EndPhase::Granted && end.family() == Family::Tcp => {
            epoll::note_low_water(end);
        }
        libc::SO_SNDBUF | libc::SO_SNDBUFFORCE if end.family() == Family::Tcp => end.resize(),
        libc::SO_SNDBUF | libc::SO_SNDBUFFORCE if end.family().is_kernels(end.fd()) => {
            switch::pin(end, Reason::Option);
        }
        _ => {}
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    bytes: *mut socklen_t,
) -> c_int {
    if (level, name) == (libc::IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE)
        && let Some(end) = End::of(fd).filter(|end| end.family() == Family::Tcp)
    {
        // It receives.
        return bulk::by_kernel_only(&end, || {
            // SAFETY: passed on.
            unsafe { real::getsockopt(fd, level, name, value, bytes) }
        });
    }
    let asks_for_error = (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR);
    let is_granted = |end: &End| end.phase() == EndPhase::Granted;
    // Of one that is the kernel's again, the library may have been told an error before.
    let end = End::known(fd).filter(|end| is_granted(end) || asks_for_error);
    if let Some(end) = end.as_ref().filter(|end| is_granted(end))
        && asks_for_error
    {
        // What the kernel says of an AF_UNIX stream's end is not all, nor is it always right.
        gone::look_again(end);
        ending::look_for_any(end);
    }
    // SAFETY: passed on.
    let result = unsafe { real::getsockopt(fd, level, name, value, bytes) };
    let Some(end) = end.filter(|_| result == 0) else {
        return result;
    };
    let own = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => {
            // What the kernel had not told yet, or what it told the library instead.
            told_to_us(&end)
        }
        _ => remembered(level, name)
            .map(|bit| i32::from(end.entry.id.nodelay.load(Ordering::Relaxed) & bit != 0)),
    };
    if let Some(own) = own {
        // SAFETY: the kernel has just written `*bytes` bytes there.
        let room = unsafe { bytes.read() } as usize;
        let own = own.to_ne_bytes();
        // SAFETY: as above; no more than the kernel wrote is overwritten.
        unsafe { core::ptr::copy_nonoverlapping(own.as_ptr(), value.cast(), room.min(own.len())) };
    }
    result
}

/// An error that the kernel has told the library and the program has not seen.
fn told_to_us(end: &End) -> Option<c_int> {
    let error = &end.entry.wait.error;
    Some(error.swap(0, Ordering::Relaxed)).filter(|error| *error != 0)
}

/// Whether the int at an address, which an ioctl(2) takes, is another than 0.
fn is_set(argument: c_long) -> bool {
    let at = crate::gate::at::<c_int>(argument);
    // SAFETY: it may be read.
    c::may_be(at, 1) && unsafe { at.read_unaligned() } != 0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: c_long) -> c_int {
    if let Some(end) = End::known(fd) {
        let granted = end.phase() == EndPhase::Granted;
        let answer = match request {
            libc::FIONREAD if granted => Some(receive::readable_bytes(&end)),
            libc::TIOCOUTQ if granted && end.tx_mode() == Mode::Ring => {
                Some(Ok(unconsumed::bytes(&end)))
            }
            SIOCATMARK if granted => {
                // Doorbells may stand before the mark, and unread bytes of the ring do.
                crosslane_stream::step::settle(&end);
                (end.rx_mode() == Mode::Ring).then_some(Ok(0))
            }
            libc::FIOASYNC if is_set(argument) => {
                switch::pin(&end, Reason::Option);
                None
            }
            _ => None,
        };
        match answer {
            Some(Ok(bytes)) => {
                let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
                let to = crate::gate::at::<c_int>(argument);
                // SAFETY: both requests take the address of an int (tcp(7)).
                return match unsafe { c::tell(to, bytes) } {
                    Ok(()) => 0,
                    Err(errno) => c::fail(errno),
                };
            }
            Some(Err(errno)) => return c::fail(errno),
            None => {}
        }
    }
    // SAFETY: passed on.
    let result = unsafe { real::ioctl(fd, request, argument) };
    if request == libc::FIONBIO
        && let Some(end) = End::known(fd)
    {
        end.forget_waiting();
    }
    result
}

/// libc's own would ask the kernel, unseen.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sockatmark(fd: c_int) -> c_int {
    let mut is_at: c_int = 0;
    let to = (&raw mut is_at).expose_provenance();
    // SAFETY: the request takes the address of an int.
    match unsafe { ioctl(fd, SIOCATMARK, to.cast_signed() as c_long) } {
        -1 => -1,
        _ => is_at,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    let copies = matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC);
    let changed = (command == libc::F_SETFL).then(|| End::known(fd)).flatten();
    if let Some(end) = changed
        && argument & c_long::from(libc::O_ASYNC) != 0
    {
        switch::pin(&end, Reason::Option);
    }
    // SAFETY: passed on.
    let result = unsafe { real::fcntl(fd, command, argument) };
    if let Some(end) = changed {
        end.forget_waiting();
    }
    if copies && result >= 0 {
        plumbing::copied(fd, result);
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: passed on; on 64-bit Linux the two are one.
    unsafe { fcntl(fd, command, argument) }
}
