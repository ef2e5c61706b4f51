//! poll(2), select(2) and epoll(7).

use std::os::fd::RawFd;
use std::time::Duration;

use super::masked::{epoll_pwait_under, epoll_pwait2_under, ppoll_under, pselect_under};
use super::{answer_fd, answer_int};
use crate::{Answer, Errno};

/// poll(2) of one descriptor: its events. A timeout of None waits for ever.
pub fn poll_one(fd: RawFd, events: i16, timeout_ms: Option<i32>) -> Result<i16, Errno> {
    let mut entry = [libc::pollfd {
        fd,
        events,
        revents: 0,
    }];
    poll(&mut entry, timeout_ms)?;
    Ok(entry[0].revents)
}

/// poll(2).
pub fn poll(entries: &mut [libc::pollfd], timeout_ms: Option<i32>) -> Answer {
    let count = libc::nfds_t::try_from(entries.len()).expect("a test polls few descriptors");
    // SAFETY: the entries are writable for their number.
    answer_int(unsafe { libc::poll(entries.as_mut_ptr(), count, timeout_ms.unwrap_or(-1)) })
}

/// ppoll(2) with the signals in `blocked` blocked while it waits.
pub fn ppoll(
    entries: &mut [libc::pollfd],
    timeout: Duration,
    blocked: Option<&libc::sigset_t>,
) -> Answer {
    ppoll_under(entries, Some(timeout), blocked)
}

/// ppoll(2) of what can be read of one descriptor, under a mask that blocks no signal.
pub fn ppoll_unblocked(fd: RawFd, timeout: Duration) -> Answer {
    let mut entry = [libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }];
    ppoll(&mut entry, timeout, Some(&no_signals()))
}

/// As [`ppoll_unblocked`], by pselect(2).
pub fn pselect_unblocked(fd: RawFd, timeout: Duration) -> Answer {
    let (timeout, mask) = (timespec(timeout), no_signals());
    let (mut set, none) = (set_of(fd, true), std::ptr::null_mut());
    // SAFETY: the set is writable, time and mask are readable.
    answer_int(unsafe {
        libc::pselect(
            fd + 1,
            &raw mut set,
            none,
            none,
            &raw const timeout,
            &raw const mask,
        )
    })
}

/// epoll_pwait(2) for one event, under a mask that blocks no signal: how many events there are.
pub fn epoll_pwait_unblocked(epoll: RawFd, timeout_ms: i32) -> Answer {
    let (mut events, mask) = (room(1), no_signals());
    let start = events.as_mut_ptr();
    // SAFETY: there is room for one event, and the mask is readable.
    answer_int(unsafe { libc::epoll_pwait(epoll, start, 1, timeout_ms, &raw const mask) })
}

fn no_signals() -> libc::sigset_t {
    // SAFETY: a set is plain integers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

/// What select(2) is asked about, and what it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// There is something to read.
    pub read: bool,
    /// There is room to write.
    pub write: bool,
    /// There is urgent data.
    pub except: bool,
}

/// select(2) of one descriptor for everything; None waits for ever. Also the time that was left.
pub fn select_one(
    fd: RawFd,
    asked: Readiness,
    timeout: Option<Duration>,
) -> Result<(Readiness, Duration), Errno> {
    let mut sets = [asked.read, asked.write, asked.except].map(|on| set_of(fd, on));
    let mut left = timeout.map(|timeout| libc::timeval {
        tv_sec: i64::try_from(timeout.as_secs()).expect("a test waits for seconds"),
        tv_usec: i64::from(timeout.subsec_micros()),
    });
    let timeout = left
        .as_mut()
        .map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let [read, write, except] = &mut sets;
    // SAFETY: the sets and the timeout are writable.
    answer_int(unsafe { libc::select(fd + 1, read, write, except, timeout) })?;
    let [read, write, except] = sets.map(|set| contains(fd, &set));
    let left = left.map_or(Duration::ZERO, |left| {
        Duration::from_micros(u64::try_from(left.tv_sec * 1_000_000 + left.tv_usec).unwrap_or(0))
    });
    Ok((
        Readiness {
            read,
            write,
            except,
        },
        left,
    ))
}

/// select(2) of many descriptors: which can be read and which written. None waits for ever.
pub fn select_many(
    read: &[RawFd],
    write: &[RawFd],
    timeout_ms: Option<i32>,
) -> Result<(Vec<RawFd>, Vec<RawFd>), Errno> {
    let mut sets = [set_of_all(read), set_of_all(write)];
    let mut timeout = timeout_ms.map(|timeout| libc::timeval {
        tv_sec: i64::from(timeout / 1000),
        tv_usec: i64::from(timeout % 1000 * 1000),
    });
    let timeout = timeout
        .as_mut()
        .map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let highest = read.iter().chain(write).max().copied().unwrap_or(-1);
    let [reading, writing] = &mut sets;
    let none = std::ptr::null_mut();
    // SAFETY: the sets and the timeout are writable.
    answer_int(unsafe { libc::select(highest + 1, reading, writing, none, timeout) })?;
    let ready = |fds: &[RawFd], set| {
        fds.iter()
            .copied()
            .filter(|&fd| contains(fd, set))
            .collect()
    };
    Ok((ready(read, reading), ready(write, writing)))
}

/// pselect(2) of one descriptor, without a mask.
pub fn pselect_one(fd: RawFd, asked: Readiness, timeout: Duration) -> Result<Readiness, Errno> {
    pselect_under(fd, asked, Some(timeout), None)
}

pub(super) fn set_of(fd: RawFd, on: bool) -> libc::fd_set {
    set_of_all(if on { std::slice::from_ref(&fd) } else { &[] })
}

fn set_of_all(fds: &[RawFd]) -> libc::fd_set {
    // SAFETY: a set of zeros is an empty one.
    let mut set: libc::fd_set = unsafe { std::mem::zeroed() };
    for &fd in fds {
        assert!(
            usize::try_from(fd).is_ok_and(|fd| fd < libc::FD_SETSIZE),
            "select has no room"
        );
        // SAFETY: the descriptor lies inside the set.
        unsafe { libc::FD_SET(fd, &raw mut set) };
    }
    set
}

pub(super) fn contains(fd: RawFd, set: &libc::fd_set) -> bool {
    // SAFETY: the descriptor was checked when the set was made.
    unsafe { libc::FD_ISSET(fd, std::ptr::from_ref(set)) }
}

pub(super) fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: i64::try_from(duration.as_secs()).expect("a test waits for seconds"),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// epoll_create1(2).
pub fn epoll_create() -> Result<RawFd, Errno> {
    // SAFETY: no memory is passed.
    answer_fd(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

/// epoll_ctl(2) with an event.
pub fn epoll_ctl(epoll: RawFd, operation: i32, fd: RawFd, events: u32, data: u64) -> Answer {
    let mut event = libc::epoll_event { events, u64: data };
    // SAFETY: the event is readable.
    answer_int(unsafe { libc::epoll_ctl(epoll, operation, fd, &raw mut event) })
}

/// epoll_ctl(2) with EPOLL_CTL_DEL and the null pointer that newer kernels allow.
pub fn epoll_delete(epoll: RawFd, fd: RawFd) -> Answer {
    // SAFETY: EPOLL_CTL_DEL does not look at the event.
    answer_int(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) })
}

/// epoll_wait(2) for at most `most` events: events and data of each. None waits for ever.
pub fn epoll_wait(
    epoll: RawFd,
    most: i32,
    timeout_ms: Option<i32>,
) -> Result<Vec<(u32, u64)>, Errno> {
    let mut events = room(most);
    let timeout = timeout_ms.unwrap_or(-1);
    // SAFETY: there is room for as many events as are asked for.
    let count = answer_int(unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), most, timeout) })?;
    Ok(pairs(&events, count))
}

/// epoll_pwait(2) without a mask.
pub fn epoll_pwait(epoll: RawFd, most: i32, timeout_ms: i32) -> Result<Vec<(u32, u64)>, Errno> {
    epoll_pwait_under(epoll, most, timeout_ms, None)
}

/// epoll_pwait2(2) without a mask.
pub fn epoll_pwait2(epoll: RawFd, most: i32, timeout: Duration) -> Result<Vec<(u32, u64)>, Errno> {
    epoll_pwait2_under(epoll, most, Some(timeout), None)
}

/// At least one event, so that a wrong number asked for has somewhere to point.
pub(super) fn room(most: i32) -> Vec<libc::epoll_event> {
    let count = usize::try_from(most).unwrap_or(0).max(1);
    vec![libc::epoll_event { events: 0, u64: 0 }; count]
}

pub(super) fn pairs(events: &[libc::epoll_event], count: usize) -> Vec<(u32, u64)> {
    events[..count]
        .iter()
        .map(|event| (event.events, event.u64))
        .collect()
}
