//! Sockets that connect more than once, or for long, and numbers that are taken again.

use std::net::SocketAddr;
use std::os::fd::RawFd;

use crosslane_exercise::Errno;
use crosslane_exercise::calls::{
    accept, bind, close, close_unseen, connect, epoll_create, epoll_ctl, epoll_wait, getsockname,
    getsockopt_bytes, listen, poll_one, read, send, set_linger, shutdown, socket,
};
use libc::{
    AF_INET, EPOLL_CTL_ADD, EPOLLIN, MSG_NOSIGNAL, POLLIN, POLLOUT, SHUT_RD, SHUT_WR, SO_LINGER,
    SOCK_NONBLOCK, SOL_SOCKET,
};

use super::asleep::interrupted;
use super::{Check, solo};
use crate::Stage;
use crate::stage::{digest, epoll_text, events_text, hears, says};
use crate::warm::v4;

/// More than the kernel takes to try again, and to connect.
const PATIENCE_MS: i32 = 10_000;
const ROUNDS: u32 = 60;

fn fresh(flags: i32) -> RawFd {
    socket(AF_INET, flags).expect("a socket can be made")
}

fn listener(backlog: i32) -> (RawFd, SocketAddr) {
    let fd = fresh(0);
    bind(fd, v4()).expect("the loopback address is there");
    listen(fd, backlog).expect("a bound socket can listen");
    let name = getsockname(fd).ok().and_then(|name| name.address());
    (fd, name.expect("it is bound"))
}

/// A listener that answers nobody before it has accepted one.
fn full() -> (RawFd, SocketAddr) {
    let (listener, address) = listener(0);
    connect(fresh(0), address).expect("there is room for one");
    (listener, address)
}

fn events(fd: RawFd, timeout_ms: i32) -> Result<String, Errno> {
    poll_one(fd, POLLOUT, Some(timeout_ms)).map(events_text)
}

/// Whether words get through both ways, of which the near end may not wait.
fn talk([near, far]: [RawFd; 2]) -> bool {
    let comes = || poll_one(near, POLLIN, Some(PATIENCE_MS)) == Ok(POLLIN);
    let there = || says(near, b"word") && hears(far, b"word");
    let back = || says(far, b"word") && comes() && hears(near, b"word");
    (0..ROUNDS).all(|_| there() && back())
}

/// Make room, and see that `fd` gets through at last.
fn let_in(s: &mut Stage, listener: RawFd, fd: RawFd) {
    accept(listener).expect("one waits");
    s.say("events", events(fd, PATIENCE_MS));
    let far = accept(listener).expect("a connection waits");
    s.say("talk", talk([fd, far]));
}

fn looked_at_while_connecting(s: &mut Stage) {
    let (listener, address) = full();
    let fd = fresh(SOCK_NONBLOCK);
    s.say("connect", connect(fd, address));
    for _ in 0..10 {
        s.say("events", events(fd, 0));
    }
    let_in(s, listener, fd);
}

fn interrupted_while_connecting(s: &mut Stage) {
    let (listener, address) = full();
    let fd = fresh(0);
    for _ in 0..2 {
        let answer = interrupted(s, 0, || connect(fd, address));
        s.say("connect", answer);
    }
    let_in(s, listener, fd);
}

fn shut_down_while_connecting(s: &mut Stage) {
    for how in [SHUT_WR, SHUT_RD] {
        let (_full, nowhere) = full();
        let (listener, address) = listener(1);
        let fd = fresh(SOCK_NONBLOCK);
        s.say("connect", connect(fd, nowhere));
        s.say("shutdown", shutdown(fd, how));
        s.say("connect", connect(fd, address));
        s.say("events", events(fd, PATIENCE_MS));
        let far = accept(listener).expect("a connection waits");
        s.say("talk", talk([fd, far]));
    }
}

/// A connection whose connecting end has never asked for the outcome.
fn never_asked(s: &mut Stage, listener: RawFd, address: SocketAddr) -> [RawFd; 2] {
    let fd = fresh(SOCK_NONBLOCK);
    s.say("connect", connect(fd, address));
    s.say("events", events(fd, PATIENCE_MS));
    let far = accept(listener).expect("a connection waits");
    s.say("talk", talk([fd, far]));
    [fd, far]
}

/// The peer resets a connection and leaves something unread; the socket is connected anew.
fn after_a_reset(s: &mut Stage) {
    let (listener, address) = listener(1);
    let [fd, far] = never_asked(s, listener, address);
    s.say("unread", says(far, b"unread"));
    set_linger(far, Some(0)).expect("SO_LINGER can be set");
    s.say("close", close(far));
    s.say("failed", connect(fd, address).is_err());
    s.say("connect", connect(fd, address));
    s.say("events", events(fd, PATIENCE_MS));
    let far = accept(listener).expect("a connection waits");
    s.say("talk", talk([fd, far]));
    s.say("last", send(fd, b"last", MSG_NOSIGNAL));
    s.say("close", close(fd));
    s.say("hears", hears(far, b"last"));
    s.say("end", read(far, &mut [0; 10]));
}

/// As [`after_a_reset`], in an epoll set.
fn watched_after_a_reset(s: &mut Stage) {
    let (listener, address) = listener(1);
    let set = epoll_create().expect("a set can be made");
    let [fd, far] = never_asked(s, listener, address);
    let answer = epoll_ctl(set, EPOLL_CTL_ADD, fd, EPOLLIN.cast_unsigned(), 1);
    s.say("add", answer);
    let told = |s: &mut Stage, most_ms| {
        let events = epoll_wait(set, 4, Some(most_ms)).map(|events| epoll_text(&events));
        s.say("told", events);
    };
    s.say("talk", talk([fd, far]));
    told(s, 0);
    set_linger(far, Some(0)).expect("SO_LINGER can be set");
    s.say("close", close(far));
    s.say("failed", connect(fd, address).is_err());
    s.say("connect", connect(fd, address));
    s.say("events", events(fd, PATIENCE_MS));
    let far = accept(listener).expect("a connection waits");
    told(s, 0);
    s.say("talk", talk([fd, far]));
    s.say("word", says(far, b"word"));
    told(s, PATIENCE_MS);
    s.say("hears", hears(fd, b"word"));
    told(s, 0);
}

/// A connection is closed unseen while something is unread, and a new socket gets its number.
fn number_taken_again(s: &mut Stage) {
    let (listener, address) = listener(1);
    let [fd, far] = never_asked(s, listener, address);
    s.say("unread", says(far, b"unread"));
    s.say("close", close_unseen(fd));
    let again = fresh(0);
    s.say("same", again == fd);
    let mut linger = [9; 8];
    let length = getsockopt_bytes(again, SOL_SOCKET, SO_LINGER, &mut linger);
    s.say("length", length);
    s.say("linger", digest(&linger));
    s.say("connect", connect(again, address));
    let far = accept(listener).expect("a connection waits");
    s.say("talk", talk([again, far]));
    s.say("close", close(again));
    s.say("end", read(far, &mut [0; 10]));
}

pub const CHECKS: &[Check] = &[
    solo("looked_at_while_connecting", looked_at_while_connecting),
    solo("interrupted_while_connecting", interrupted_while_connecting),
    solo("shut_down_while_connecting", shut_down_while_connecting),
    solo("connected_anew_after_a_reset", after_a_reset),
    solo("watched_anew_after_a_reset", watched_after_a_reset),
    solo("number_taken_again", number_taken_again),
];
