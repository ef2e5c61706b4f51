//! `syscall()`: programs that go around libc's functions but not around libc.

use core::ffi::{c_int, c_long, c_uint};
use core::time::Duration;
use std::time::Instant;

use crosslane_ctl::reason::Reason;
use crosslane_stream::{close as closing, process};
use crosslane_sys::{Errno, kernel, real};
use libc::timespec;

use crate::{
    bulk, c, clone, epoll, exec, input, lifecycle, options, output, plumbing, poll, sandbox,
    select, taken,
};

fn int(argument: c_long) -> c_int {
    // The kernel takes the low half of the register.
    (argument & 0xffff_ffff).cast_unsigned().to_ne_bytes()[..4]
        .try_into()
        .map_or(0, c_int::from_ne_bytes)
}

fn uint(argument: c_long) -> c_uint {
    int(argument).cast_unsigned()
}

/// An argument that is a length.
pub fn size(argument: c_long) -> usize {
    usize::try_from(argument.cast_unsigned()).unwrap_or(usize::MAX)
}

/// An argument that is an address.
pub fn at<T>(argument: c_long) -> *mut T {
    core::ptr::with_exposed_provenance_mut(size(argument))
}

/// The C function is variadic; six arguments and the number travel alike in either case.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
    g: c_long,
) -> c_long {
    // SAFETY: passed on, as the program would have called the function itself.
    unsafe {
        match number {
            libc::SYS_read => input::read(int(a), at(b), size(d)) as c_long,
            libc::SYS_readv => input::readv(int(a), at(b), int(d)) as c_long,
            libc::SYS_recvfrom => {
                input::recvfrom(int(a), at(b), size(d), int(e), at(f), at(g)) as c_long
            }
            libc::SYS_recvmsg => input::recvmsg(int(a), at(b), int(d)) as c_long,
            libc::SYS_recvmmsg => input::recvmmsg(int(a), at(b), uint(d), int(e), at(f)).into(),
            libc::SYS_write => output::write(int(a), at(b), size(d)) as c_long,
            libc::SYS_writev => output::writev(int(a), at(b), int(d)) as c_long,
            libc::SYS_sendto => {
                output::sendto(int(a), at(b), size(d), int(e), at(f), uint(g)) as c_long
            }
            libc::SYS_sendmsg => output::sendmsg(int(a), at(b), int(d)) as c_long,
            libc::SYS_sendmmsg => output::sendmmsg(int(a), at(b), uint(d), int(e)).into(),
            libc::SYS_sendfile => bulk::sendfile(int(a), int(b), at(d), size(e)) as c_long,
            libc::SYS_splice => {
                bulk::splice(int(a), at(b), int(d), at(e), size(f), uint(g)) as c_long
            }
            libc::SYS_socket => lifecycle::socket(int(a), int(b), int(d)).into(),
            libc::SYS_connect => lifecycle::connect(int(a), at(b), uint(d)).into(),
            libc::SYS_socketpair => lifecycle::socketpair(int(a), int(b), int(d), at(e)).into(),
            libc::SYS_accept => lifecycle::accept(int(a), at(b), at(d)).into(),
            libc::SYS_accept4 => lifecycle::accept4(int(a), at(b), at(d), int(e)).into(),
            libc::SYS_shutdown => lifecycle::shutdown(int(a), int(b)).into(),
            libc::SYS_close => lifecycle::close(int(a)).into(),
            libc::SYS_close_range => lifecycle::close_range(uint(a), uint(b), int(d)).into(),
            libc::SYS_dup => plumbing::dup(int(a)).into(),
            libc::SYS_dup3 => plumbing::dup3(int(a), int(b), int(d)).into(),
            libc::SYS_fcntl => options::fcntl(int(a), int(b), d).into(),
            libc::SYS_setsockopt => {
                options::setsockopt(int(a), int(b), int(d), at(e), uint(f)).into()
            }
            libc::SYS_getsockopt => {
                options::getsockopt(int(a), int(b), int(d), at(e), at(f)).into()
            }
            libc::SYS_epoll_create1 => epoll::epoll_create1(int(a)).into(),
            libc::SYS_epoll_ctl => epoll::epoll_ctl(int(a), int(b), int(d), at(e)).into(),
            libc::SYS_epoll_pwait if is_mask(at(f), size(g)) => {
                epoll::epoll_pwait(int(a), at(b), int(d), int(e), at(f)).into()
            }
            libc::SYS_epoll_pwait2 if is_mask(at(f), size(g)) => {
                epoll::epoll_pwait2(int(a), at(b), int(d), at(e), at(f)).into()
            }
            // The high half of the offset is unused where registers have 64 bits.
            libc::SYS_preadv2 => input::preadv2(int(a), at(b), int(d), e, int(g)) as c_long,
            libc::SYS_pwritev2 => output::pwritev2(int(a), at(b), int(d), e, int(g)) as c_long,
            libc::SYS_ioctl => options::ioctl(int(a), b.cast_unsigned(), d).into(),
            libc::SYS_ppoll => by_ppoll(number, [a, b, d, e, f, g]),
            libc::SYS_pselect6 => by_pselect6(number, [a, b, d, e, f, g]),
            _ => by_process(number, [a, b, d, e, f, g]),
        }
    }
}

/// Calls about the process itself.
unsafe fn by_process(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [path, argv, envp, ..] = arguments;
    let [a, b, d, e, f, _] = arguments.map(c_long::cast_unsigned);
    match number {
        // SAFETY: passed on.
        libc::SYS_execve => unsafe { exec::execve(at(path), at(argv), at(envp)) }.into(),
        libc::SYS_execveat => {
            let [dir, path, argv, envp, flags, _] = arguments;
            // SAFETY: passed on.
            unsafe { exec::execveat(int(dir), at(path), at(argv), at(envp), int(flags)) }.into()
        }
        libc::SYS_exit_group => {
            closing::at_exit();
            // SAFETY: passed on.
            unsafe { by_architecture(number, arguments) }
        }
        // SAFETY: passed on.
        libc::SYS_clone | libc::SYS_clone3 => unsafe { clone::by_number(number, arguments) },
        libc::SYS_pidfd_getfd => {
            let [pidfd, fd, flags, ..] = arguments;
            // SAFETY: passed on.
            unsafe { taken::pidfd_getfd(int(pidfd), int(fd), uint(flags)) }.into()
        }
        // SAFETY: passed on.
        libc::SYS_prctl => unsafe { sandbox::prctl(int(arguments[0]), b, d, e, f) }.into(),
        // Programs fall back to epoll, which can be accelerated.
        libc::SYS_io_uring_setup => {
            process::note_io_uring_refused();
            c::fail(Errno::NOSYS)
        }
        _ => {
            if number == libc::SYS_seccomp && sandbox::is_restriction_by_call(a, d) {
                sandbox::leave(Reason::Sandbox);
            }
            // SAFETY: passed on.
            unsafe { by_architecture(number, arguments) }
        }
    }
}

/// Whether the kernel takes these for a mask of its own and its size, or for none.
fn is_mask(mask: *const u64, bytes: usize) -> bool {
    mask.is_null() || bytes == size_of::<u64>() && c::may_be(mask, 1)
}

/// The kernel's mask, at the beginning of one of libc's, which is longer.
///
/// # Safety
/// It is one, or null.
unsafe fn widen(mask: *const u64) -> Option<libc::sigset_t> {
    if mask.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let given = unsafe { mask.read_unaligned() };
    let mut wide = core::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: libc's mask begins with the kernel's.
    unsafe { wide.as_mut_ptr().cast::<u64>().write(given) };
    // SAFETY: a mask is plain integers, for which zero is a value.
    Some(unsafe { wide.assume_init() })
}

/// Make a call that waits, and tell in `time` how much of it is left, as the kernel does and libc does not.
///
/// # Safety
/// It is a time, or null.
unsafe fn timed(time: *mut timespec, call: impl FnOnce(*const timespec) -> c_int) -> c_long {
    // SAFETY: the caller's promise.
    let Some(given) = unsafe { time.as_ref() }.copied() else {
        return call(core::ptr::null()).into();
    };
    let begun = Instant::now();
    let result = call(&raw const given);
    let limit = poll::duration(&given);
    if poll::is_legal(&given) && limit > Duration::ZERO && !process::has_left() {
        let left = poll::as_timespec(limit.saturating_sub(begun.elapsed()));
        // A program may have the time where it cannot be written, about which the kernel says nothing.
        kernel::store(time, &left);
    }
    result.into()
}

unsafe fn by_ppoll(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [fds, count, time, mask, bytes, _] = arguments;
    let time_may_be = time == 0 || c::may_be(at::<timespec>(time), 1);
    if !time_may_be || !is_mask(at(mask), size(bytes)) {
        // SAFETY: passed on, for the kernel to refuse.
        return unsafe { by_kernel(number, arguments) };
    }
    // SAFETY: the program's promise.
    let mask = unsafe { widen(at(mask)) };
    let mask = mask.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: passed on.
    unsafe {
        timed(at(time), |time| {
            poll::ppoll(at(fds), count.cast_unsigned(), time, mask)
        })
    }
}

/// pselect6 takes the address of a mask and of its size (select(2)).
unsafe fn by_pselect6(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [count, read, write, except, time, packed] = arguments;
    let may_be = |count, address| address == 0 || c::may_be(at::<c_long>(address), count);
    let [mask, bytes] = match may_be(2, packed) && packed != 0 {
        // SAFETY: the program's promise.
        true => unsafe { at::<[c_long; 2]>(packed).read_unaligned() },
        false => [0, 0],
    };
    if !may_be(2, packed) || !may_be(2, time) || !is_mask(at(mask), size(bytes)) {
        // SAFETY: passed on, for the kernel to refuse.
        return unsafe { by_kernel(number, arguments) };
    }
    // SAFETY: the program's promise.
    let mask = unsafe { widen(at(mask)) };
    let mask = mask.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: passed on.
    unsafe {
        timed(at(time), |time| {
            select::pselect(int(count), at(read), at(write), at(except), time, mask)
        })
    }
}

/// As the program has made the call.
unsafe fn by_kernel(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [a, b, d, e, f, g] = arguments;
    // SAFETY: passed on.
    unsafe { real::syscall(number, a, b, d, e, f, g) }
}

/// Calls that only x86-64 has, and everything else.
unsafe fn by_architecture(number: c_long, arguments: [c_long; 6]) -> c_long {
    #[cfg(target_arch = "x86_64")]
    {
        let [a, b, d, e, f, _] = arguments;
        if number == libc::SYS_fork {
            // SAFETY: passed on.
            return unsafe { clone::by_number(number, arguments) };
        }
        // SAFETY: passed on, as the program would have called the function itself.
        let result = unsafe {
            match number {
                libc::SYS_poll => Some(poll::poll(at(a), b.cast_unsigned(), int(d))),
                libc::SYS_select => Some(select::select(int(a), at(b), at(d), at(e), at(f))),
                libc::SYS_dup2 => Some(plumbing::dup2(int(a), int(b))),
                libc::SYS_epoll_create => Some(epoll::epoll_create(int(a))),
                libc::SYS_epoll_wait => Some(epoll::epoll_wait(int(a), at(b), int(d), int(e))),
                _ => None,
            }
        };
        if let Some(result) = result {
            return result.into();
        }
    }
    // SAFETY: passed on.
    unsafe { by_kernel(number, arguments) }
}
