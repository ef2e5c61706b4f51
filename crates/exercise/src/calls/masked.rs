//! Waits that take a mask of signals (ppoll(2), pselect(2), epoll_pwait(2), epoll_pwait2(2)).

use std::os::fd::RawFd;
use std::time::Duration;

use super::answer_int;
use super::ready::{Readiness, contains, pairs, room, set_of, timespec};
use crate::{Answer, Errno};

/// ppoll(2); a timeout of None waits for ever, a mask of None changes none.
pub fn ppoll_under(
    entries: &mut [libc::pollfd],
    timeout: Option<Duration>,
    mask: Option<&libc::sigset_t>,
) -> Answer {
    let count = libc::nfds_t::try_from(entries.len()).expect("a test polls few descriptors");
    let timeout = timeout.map(timespec);
    let (limit, mask) = (pointer(timeout.as_ref()), pointer(mask));
    // SAFETY: the entries are writable for their number; the rest is null or readable.
    answer_int(unsafe { libc::ppoll(entries.as_mut_ptr(), count, limit, mask) })
}

/// pselect(2) of one descriptor.
pub fn pselect_under(
    fd: RawFd,
    asked: Readiness,
    timeout: Option<Duration>,
    mask: Option<&libc::sigset_t>,
) -> Result<Readiness, Errno> {
    let mut sets = [asked.read, asked.write, asked.except].map(|on| set_of(fd, on));
    let timeout = timeout.map(timespec);
    let (limit, mask) = (pointer(timeout.as_ref()), pointer(mask));
    let [read, write, except] = &mut sets;
    // SAFETY: the sets are writable; the rest is null or readable.
    answer_int(unsafe { libc::pselect(fd + 1, read, write, except, limit, mask) })?;
    let [read, write, except] = sets.map(|set| contains(fd, &set));
    Ok(Readiness {
        read,
        write,
        except,
    })
}

/// epoll_pwait(2): events and data of each.
pub fn epoll_pwait_under(
    epoll: RawFd,
    most: i32,
    timeout_ms: i32,
    mask: Option<&libc::sigset_t>,
) -> Result<Vec<(u32, u64)>, Errno> {
    let mut events = room(most);
    let start = events.as_mut_ptr();
    // SAFETY: there is room for as many events as are asked for; the mask is null or readable.
    let returned = unsafe { libc::epoll_pwait(epoll, start, most, timeout_ms, pointer(mask)) };
    Ok(pairs(&events, answer_int(returned)?))
}

/// epoll_pwait2(2) through syscall(2), as the C library may lack it.
pub fn epoll_pwait2_under(
    epoll: RawFd,
    most: i32,
    timeout: Option<Duration>,
    mask: Option<&libc::sigset_t>,
) -> Result<Vec<(u32, u64)>, Errno> {
    /// Of a set of signals, as the kernel has it.
    const MASK_BYTES: usize = 8;
    let mut events = room(most);
    let timeout = timeout.map(timespec);
    let (start, limit) = (events.as_mut_ptr(), pointer(timeout.as_ref()));
    // SAFETY: there is room for as many events as are asked for; the rest is null or readable.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll,
            start,
            most,
            limit,
            pointer(mask),
            MASK_BYTES,
        )
    };
    let returned = i32::try_from(returned).expect("a number of events is an int");
    Ok(pairs(&events, answer_int(returned)?))
}

fn pointer<T>(value: Option<&T>) -> *const T {
    value.map_or(std::ptr::null(), std::ptr::from_ref)
}
