//! The client: opens connections, a group at a time, and plays its part in each.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crosslane_exercise::Errno;
use crosslane_exercise::calls::{
    close, connect, poll_one, send, set_nonblocking, socket, take_error,
};
use crosslane_exercise::random::Random;
use libc::{MSG_NOSIGNAL, POLLOUT, SOCK_NONBLOCK};

use crate::choice::Choice;
use crate::connection::Connection;
use crate::plan::{Driver, GROUP, Plan, Shape, Side};
use crate::server::HELLO;
use crate::{Rules, board, crowd, event_loop, pingpong, threads};

struct Client {
    rules: Rules,
    to: SocketAddr,
    deadline: Instant,
    choice: Choice,
    next_group: AtomicU64,
}

/// Open connections for so many seconds, and carry each to its end.
pub fn run(rules: Rules, to: SocketAddr, seconds: u64, choice: Choice) {
    board::watch_for_stalls();
    let client = Client {
        rules,
        to,
        deadline: Instant::now() + Duration::from_secs(seconds),
        choice,
        next_group: AtomicU64::new(choice.first / GROUP),
    };
    std::thread::scope(|scope| {
        (0..choice.groups).for_each(|_| drop(scope.spawn(|| client.run_groups())));
    });
    crate::report(Side::Client);
}

impl Client {
    fn run_groups(&self) {
        while Instant::now() < self.deadline {
            let group = self.next_group.fetch_add(1, Ordering::Relaxed);
            let numbers = group * GROUP..(group + 1) * GROUP;
            let connections: Vec<_> = numbers.filter_map(|number| self.open(number)).collect();
            carry(connections, !self.rules.peer_may_die);
        }
    }

    fn open(&self, number: u64) -> Option<Connection> {
        let plan = Plan::new(self.rules.seed, number);
        if !self.choice.includes(&plan) {
            return None;
        }
        let mut random = plan.choices(Side::Client, 0);
        let hello = [HELLO.to_le_bytes(), number.to_le_bytes()].concat();
        loop {
            match connect_to(self.to, &mut random) {
                Ok(fd) => match send(fd, &hello, MSG_NOSIGNAL) {
                    Ok(16) => {
                        return Some(Connection::new(fd, plan, Side::Client, self.rules));
                    }
                    sent => self.tolerate(fd, &format!("the first 16 bytes: {sent:?}")),
                },
                Err((fd, errno)) => self.tolerate(fd, &format!("connect: {errno}")),
            }
            if Instant::now() > self.deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A server that may be killed may be gone.
    fn tolerate(&self, fd: RawFd, what: &str) {
        assert!(self.rules.peer_may_die, "cannot begin a connection: {what}");
        close(fd).expect("it was open");
    }
}

fn connect_to(to: SocketAddr, random: &mut Random) -> Result<RawFd, (RawFd, Errno)> {
    if random.one_in(2) {
        let fd = socket(libc::AF_INET, libc::SOCK_CLOEXEC).expect("a socket can be made");
        return connect(fd, to).map(|_| fd).map_err(|errno| (fd, errno));
    }
    let fd = socket(libc::AF_INET, SOCK_NONBLOCK).expect("a socket can be made");
    match connect(fd, to) {
        Ok(_) => {}
        Err(Errno(libc::EINPROGRESS)) => {
            poll_one(fd, POLLOUT, None).expect("a socket can be waited for");
            match take_error(fd).expect("a socket has an error or none") {
                Errno(0) => {}
                errno => return Err((fd, errno)),
            }
        }
        Err(errno) => return Err((fd, errno)),
    }
    set_nonblocking(fd, false).expect("a flag can be cleared");
    Ok(fd)
}

/// Carry the connections of one group to their ends.
fn carry(connections: Vec<Connection>, may_fork: bool) {
    let Some(first) = connections.first() else {
        return;
    };
    let plan = first.end.status.plan;
    match (plan.shape, plan.driver(Side::Client)) {
        (Shape::Streams, driver) if driver != Driver::Threads => {
            let (sender, coming) = channel();
            connections.into_iter().for_each(|connection| {
                sender.send(connection).expect("the loop has not begun");
            });
            drop(sender);
            event_loop::run(driver, &coming);
        }
        (shape, _) => each_in_its_thread(connections, move |connection| match shape {
            Shape::PingPong => pingpong::run(connection, may_fork),
            Shape::Crowd => crowd::run(connection),
            Shape::Streams => threads::run(connection),
        }),
    }
}

fn each_in_its_thread(connections: Vec<Connection>, run: impl Fn(Connection) + Copy + Send) {
    std::thread::scope(|scope| {
        for connection in connections {
            scope.spawn(move || run(connection));
        }
    });
}
