//! The server: accepts, learns from each connection which one it is, and plays its part.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crosslane_exercise::calls::{
    accept, accept4, bind, close, listen, poll, recv, set_nonblocking, setsockopt, socket,
};
use crosslane_exercise::random::Random;
use libc::{MSG_WAITALL, POLLIN, pollfd};

use crate::connection::Connection;
use crate::plan::{Driver, GROUP, Plan, Shape, Side};
use crate::{Rules, board, crowd, event_loop, pingpong, threads};

/// First on every connection: a number that nobody says by chance, and the connection's own.
pub const HELLO: u64 = 0x7374_7265_7373_2e31;

/// Serve until standard input ends.
pub fn run(rules: Rules, at: SocketAddr) {
    board::watch_for_stalls();
    let listener = listen_at(at);
    println!("listening on {}", at.port());
    let groups = Arc::new(Groups::default());
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let mut random = Random::of(&[rules.seed, 5]);
    while let Some(fd) = next(listener, &mut random) {
        let groups = Arc::clone(&groups);
        threads.retain(|thread| !thread.is_finished());
        threads.push(std::thread::spawn(move || welcome(fd, rules, &groups)));
    }
    threads.into_iter().for_each(join);
    let loops = groups
        .loops
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .split_off(0);
    loops.into_iter().for_each(join);
    crate::report(Side::Server);
}

fn join(thread: JoinHandle<()>) {
    thread.join().expect("a connection's thread does not panic");
}

fn listen_at(at: SocketAddr) -> RawFd {
    let fd = socket(libc::AF_INET, 0).expect("a socket can be made");
    setsockopt(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).expect("an option can be set");
    bind(fd, at).unwrap_or_else(|errno| panic!("cannot bind {at}: {errno}"));
    listen(fd, 100).expect("a bound socket can listen");
    set_nonblocking(fd, true).expect("a flag can be set");
    fd
}

/// The next connection. None: standard input has ended, and everything that came is accepted.
fn next(listener: RawFd, random: &mut Random) -> Option<RawFd> {
    loop {
        let accepted = match random.below(2) {
            0 => accept(listener),
            _ => accept4(listener, libc::SOCK_CLOEXEC),
        };
        match accepted {
            Ok(fd) => return Some(fd),
            Err(errno) if errno.0 == libc::EAGAIN || errno.0 == libc::ECONNABORTED => {}
            Err(errno) => panic!("accept failed with {errno}"),
        }
        let entry = |fd| pollfd {
            fd,
            events: POLLIN,
            revents: 0,
        };
        let mut entries = [entry(listener), entry(0)];
        poll(&mut entries, None).expect("a listener can be waited for");
        if entries[0].revents == 0 && entries[1].revents != 0 {
            return None;
        }
    }
}

/// Learn which connection it is, and carry it to its end.
fn welcome(fd: RawFd, rules: Rules, groups: &Groups) {
    let mut hello = [0; 16];
    if recv(fd, &mut hello, MSG_WAITALL) != Ok(16) {
        assert!(
            rules.peer_may_die,
            "a connection ended before it said which it is"
        );
        close(fd).expect("it was open");
        return;
    }
    let (magic, number) = hello.split_at(8);
    assert_eq!(
        magic,
        HELLO.to_le_bytes(),
        "a connection begins with something else"
    );
    let number = u64::from_le_bytes(number.try_into().expect("eight bytes are left"));
    let plan = Plan::new(rules.seed, number);
    let connection = Connection::new(fd, plan, Side::Server, rules);
    match (plan.shape, plan.driver(Side::Server)) {
        (Shape::PingPong, _) => pingpong::run(connection, !rules.peer_may_die),
        (Shape::Crowd, _) => crowd::run(connection),
        (Shape::Streams, Driver::Threads) => threads::run(connection),
        (Shape::Streams, driver) => groups.join(number / GROUP, driver, connection),
    }
}

/// The event loops that still miss connections, and all that were started.
#[derive(Default)]
struct Groups {
    incomplete: Mutex<HashMap<u64, (Sender<Connection>, u64)>>,
    loops: Mutex<Vec<JoinHandle<()>>>,
}

impl Groups {
    /// Hand a connection to the loop of its group, which begins with the first.
    fn join(&self, group: u64, driver: Driver, connection: Connection) {
        let mut incomplete = self
            .incomplete
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (sender, count) = incomplete.entry(group).or_insert_with(|| {
            let (sender, coming) = channel();
            let event_loop = std::thread::spawn(move || event_loop::run(driver, &coming));
            self.loops
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(event_loop);
            (sender, 0)
        });
        *count += 1;
        let is_complete = *count == GROUP;
        let late = sender.send(connection).err();
        if is_complete || late.is_some() {
            incomplete.remove(&group);
        }
        drop(incomplete);
        if let Some(late) = late {
            // Its loop has given the group up.
            self.join(group, driver, late.0);
        }
    }
}
