//! The ways in which an event loop can wait.

use std::os::fd::RawFd;

use crosslane_exercise::Errno;
use crosslane_exercise::calls::{
    close, epoll_create, epoll_ctl, epoll_delete, epoll_wait, poll, select_many,
};
use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLIN, EPOLLOUT, EPOLLRDHUP, POLLERR, POLLHUP, POLLIN, POLLOUT,
    pollfd,
};

use crate::plan::Driver;

/// What somebody wants to know, or is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    pub read: bool,
    pub write: bool,
}

/// Somebody who waits.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    pub fd: RawFd,
    /// Given back with events.
    pub key: usize,
    pub interest: Interest,
}

/// One way of waiting, with what it has to remember.
pub enum Poller {
    Poll,
    Select,
    Epoll { fd: RawFd, mode: u32 },
}

const IN: u32 = EPOLLIN.cast_unsigned();
const OUT: u32 = EPOLLOUT.cast_unsigned();
const RDHUP: u32 = EPOLLRDHUP.cast_unsigned();
const EDGE: u32 = libc::EPOLLET.cast_unsigned();
const ONESHOT: u32 = libc::EPOLLONESHOT.cast_unsigned();

impl Poller {
    pub fn new(driver: Driver) -> Self {
        let epoll = |mode| Self::Epoll {
            fd: epoll_create().expect("a set can be made"),
            mode,
        };
        match driver {
            Driver::Poll => Self::Poll,
            Driver::Select => Self::Select,
            Driver::EpollEdge => epoll(EDGE),
            Driver::EpollOneshot => epoll(ONESHOT),
            Driver::EpollLevel | Driver::Threads => epoll(0),
        }
    }

    /// Whether it tells of changes only, so that everything must be done at each.
    pub fn is_edge(&self) -> bool {
        matches!(self, Self::Epoll { mode: EDGE, .. })
    }

    /// Begin to wait for `waiter`.
    pub fn add(&self, waiter: Waiter) {
        if let Self::Epoll { fd, mode } = self {
            let events = if *mode == EDGE {
                IN | OUT | RDHUP | EDGE
            } else {
                wanted(waiter) | mode
            };
            epoll_ctl(*fd, EPOLL_CTL_ADD, waiter.fd, events, waiter.key as u64)
                .expect("a connection can be added");
        }
    }

    /// Change what is waited for, or say so again after an event.
    pub fn update(&self, waiter: Waiter) {
        if let Self::Epoll { fd, mode } = self
            && *mode != EDGE
        {
            let events = wanted(waiter) | mode;
            epoll_ctl(*fd, EPOLL_CTL_MOD, waiter.fd, events, waiter.key as u64)
                .expect("a connection can be changed");
        }
    }

    /// Wait for it no more.
    pub fn remove(&self, fd: RawFd) {
        if let Self::Epoll { fd: epoll, .. } = self {
            epoll_delete(*epoll, fd).expect("it was added");
        }
    }

    /// Wait until something happens to one of `waiters`, or for `timeout_ms`: keys and what can
    /// be done.
    pub fn wait(&self, waiters: &[Waiter], timeout_ms: Option<i32>) -> Vec<(usize, Interest)> {
        let events = match self {
            Self::Poll => wait_by_poll(waiters, timeout_ms),
            Self::Select => wait_by_select(waiters, timeout_ms),
            Self::Epoll { fd, .. } => wait_by_epoll(*fd, timeout_ms),
        };
        events.expect("connections can be waited for")
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        if let Self::Epoll { fd, .. } = self {
            close(*fd).expect("it was open");
        }
    }
}

fn wanted(waiter: Waiter) -> u32 {
    let bit = |on, bit| if on { bit } else { 0 };
    bit(waiter.interest.read, IN) | bit(waiter.interest.write, OUT)
}

fn wait_by_poll(
    waiters: &[Waiter],
    timeout_ms: Option<i32>,
) -> Result<Vec<(usize, Interest)>, Errno> {
    let bit = |on, bit| if on { bit } else { 0 };
    let entry = |waiter: &Waiter| pollfd {
        fd: waiter.fd,
        events: bit(waiter.interest.read, POLLIN) | bit(waiter.interest.write, POLLOUT),
        revents: 0,
    };
    let mut entries: Vec<_> = waiters.iter().map(entry).collect();
    poll(&mut entries, timeout_ms)?;
    let broken = POLLERR | POLLHUP;
    let event = |(waiter, entry): (&Waiter, &pollfd)| {
        let read = entry.revents & (POLLIN | broken) != 0;
        let write = entry.revents & (POLLOUT | broken) != 0;
        (read || write).then_some((waiter.key, Interest { read, write }))
    };
    Ok(waiters.iter().zip(&entries).filter_map(event).collect())
}

fn wait_by_select(
    waiters: &[Waiter],
    timeout_ms: Option<i32>,
) -> Result<Vec<(usize, Interest)>, Errno> {
    let fds = |wants: fn(&Interest) -> bool| -> Vec<RawFd> {
        let chosen = waiters.iter().filter(|waiter| wants(&waiter.interest));
        chosen.map(|waiter| waiter.fd).collect()
    };
    let (read, write) = select_many(
        &fds(|interest| interest.read),
        &fds(|interest| interest.write),
        timeout_ms,
    )?;
    let event = |waiter: &Waiter| {
        let told = Interest {
            read: read.contains(&waiter.fd),
            write: write.contains(&waiter.fd),
        };
        (told.read || told.write).then_some((waiter.key, told))
    };
    Ok(waiters.iter().filter_map(event).collect())
}

fn wait_by_epoll(epoll: RawFd, timeout_ms: Option<i32>) -> Result<Vec<(usize, Interest)>, Errno> {
    let events = epoll_wait(epoll, 16, timeout_ms)?;
    let broken = (libc::EPOLLERR | libc::EPOLLHUP).cast_unsigned();
    Ok(events
        .into_iter()
        .map(|(events, key)| {
            let read = events & (IN | RDHUP | broken) != 0;
            let write = events & (OUT | broken) != 0;
            (
                usize::try_from(key).expect("it was a usize"),
                Interest { read, write },
            )
        })
        .collect())
}
