//! What programs do to connections besides moving bytes.

use std::os::fd::RawFd;
use std::time::Duration;

use crosslane_exercise::calls::{
    Readiness, close, dup, epoll_create, epoll_ctl, epoll_wait, fcntl, poll, poll_one, ppoll,
    pselect_one, select_one, set_timeout, setsockopt,
};
use crosslane_exercise::random::Random;
use libc::{IPPROTO_TCP, POLLIN, POLLOUT, SOL_SOCKET, pollfd};

/// select(2) has no room for larger descriptors.
const SELECTABLE: RawFd = 1000;

/// Wait until there is something to read or room to write, in one of many ways.
pub fn wait_for(fd: RawFd, events: i16, random: &mut Random) {
    let mut entry = [pollfd {
        fd,
        events,
        revents: 0,
    }];
    let asked = Readiness {
        read: events & POLLIN != 0,
        write: events & POLLOUT != 0,
        except: false,
    };
    let long = Duration::from_secs(1);
    let waited = match random.below(6) {
        0 if fd < SELECTABLE => select_one(fd, asked, None).map(|_| ()),
        1 if fd < SELECTABLE => pselect_one(fd, asked, long).map(|_| ()),
        2 => ppoll(&mut entry, long, None).map(|_| ()),
        3 => poll(&mut entry, Some(1000)).map(|_| ()),
        4 => wait_by_epoll(fd, events),
        _ => poll_one(fd, events, None).map(|_| ()),
    };
    waited.expect("a connection can be waited for");
}

fn wait_by_epoll(fd: RawFd, events: i16) -> Result<(), crosslane_exercise::Errno> {
    let epoll = epoll_create()?;
    let events = u32::from(events.cast_unsigned());
    epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, events, 1)?;
    let waited = epoll_wait(epoll, 1, None);
    close(epoll)?;
    waited.map(|_| ())
}

/// Now and then set an option that changes no byte.
pub fn set_some_option(fd: RawFd, random: &mut Random) {
    let number = |random: &mut Random, least, most| {
        i32::try_from(random.between(least, most)).expect("options are small numbers")
    };
    let set = match random.below(10) {
        0 | 1 => setsockopt(fd, IPPROTO_TCP, libc::TCP_NODELAY, 1),
        2 => setsockopt(
            fd,
            SOL_SOCKET,
            libc::SO_RCVBUF,
            number(random, 200_000, 500_000),
        ),
        3 => setsockopt(
            fd,
            SOL_SOCKET,
            libc::SO_SNDBUF,
            number(random, 200_000, 500_000),
        ),
        4 => setsockopt(fd, SOL_SOCKET, libc::SO_KEEPALIVE, number(random, 0, 1)),
        5 => setsockopt(fd, IPPROTO_TCP, libc::TCP_QUICKACK, 1),
        6 => set_timeout(fd, libc::SO_RCVTIMEO, i64::from(number(random, 1, 200))),
        7 => set_timeout(fd, libc::SO_SNDTIMEO, i64::from(number(random, 1, 200))),
        8 => setsockopt(fd, SOL_SOCKET, libc::SO_PRIORITY, 3),
        _ => setsockopt(fd, IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 60_000),
    };
    match set {
        // A peer may have reset the connection.
        Ok(_) | Err(crosslane_exercise::Errno(libc::EINVAL | libc::ENOTCONN)) => {}
        Err(errno) => panic!("an option cannot be set: {errno}"),
    }
}

/// Go on with the same connection under another number.
pub fn renumber(fd: RawFd, random: &mut Random) -> RawFd {
    let twin = if random.one_in(2) {
        dup(fd)
    } else {
        let lowest = i32::try_from(random.between(3, 900)).expect("it is a small number");
        fcntl(fd, libc::F_DUPFD_CLOEXEC, lowest)
            .map(|fd| RawFd::try_from(fd).expect("it is an int"))
    };
    let twin = twin.expect("a descriptor is free");
    close(fd).expect("it was open");
    twin
}

/// Now and then do nothing for a while, long enough for the other side to go to sleep.
pub fn dawdle(random: &mut Random) {
    if random.one_in(200) {
        let longest = if random.one_in(20) { 40_000 } else { 3_000 };
        std::thread::sleep(Duration::from_micros(random.below(longest) as u64));
    } else if random.one_in(20) {
        std::thread::yield_now();
    }
}
