//! Processes that have as many descriptors as they may.

use std::os::fd::RawFd;

use crosslane_exercise::Errno;
use crosslane_exercise::calls::{
    accept, close, descriptor_limit, dup, dup2, dup3, epoll_create, fcntl, limit_descriptors, pipe,
    poll_one, send, socket, socketpair, wait_for,
};
use libc::{AF_INET, F_DUPFD, MSG_NOSIGNAL, POLLIN};

use super::itself::{connected, listener, talks};
use super::processes::{echo, in_child};
use super::{Check, pair};
use crate::Stage;
use crate::stage::{digest, drain, events_text, hears, limit_to_seconds, pattern, says};

const LIMIT: i32 = 64;

/// Take every number below the limit that is free.
fn fill(fd: RawFd) -> Vec<RawFd> {
    std::iter::from_fn(|| dup(fd).ok()).collect()
}

fn tell_of_limit(s: &mut Stage, listener: RawFd) {
    let nothing = |made: Result<RawFd, Errno>| made.map(|_| "a descriptor");
    s.say("accept", nothing(accept(listener)));
    s.say(
        "waits",
        poll_one(listener, POLLIN, Some(0)).map(events_text),
    );
    s.say("socket", nothing(socket(AF_INET, 0)));
    s.say("pair", socketpair().map(|_| "two"));
    s.say("pipe", pipe().map(|_| "two"));
    s.say("epoll", nothing(epoll_create()));
    s.say("dup", nothing(dup(s.fd)));
    s.say("dup2", nothing(dup2(s.fd, LIMIT)));
    s.say("dupfd", fcntl(s.fd, F_DUPFD, 0));
    s.say("beyond", fcntl(s.fd, F_DUPFD, LIMIT));
}

/// Accept what waits, once there is a number for it.
fn accept_with_one(s: &mut Stage, listener: RawFd, held: &mut Vec<RawFd>) -> RawFd {
    let freed = held.pop().expect("some are held");
    s.say("free", close(freed));
    let fd = accept(listener);
    s.say("accept", fd);
    fd.expect("a connection waits")
}

/// Near: accept two connections with no descriptor to spare, talk on all, and go on without the limit.
fn accept_at_the_limit(s: &mut Stage) {
    let usual = descriptor_limit().expect("a process has limits");
    let (listener, address) = listener();
    s.tell(address);
    s.wait();
    s.say("limit", limit_descriptors(LIMIT.unsigned_abs().into()));
    let mut held = fill(0);
    s.say("last", *held.last().expect("some numbers are free"));
    tell_of_limit(s, listener);
    s.say("talk", talks(s.fd));
    let first = accept_with_one(s, listener, &mut held);
    tell_of_limit(s, listener);
    s.say("talk", talks(first));
    s.say("send", send(first, &pattern(100_000), MSG_NOSIGNAL));
    s.say("close", close(first));
    let second = accept(listener).expect("another waits");
    s.say("talk", talks(second));
    let fd = s.fd;
    let child = in_child(|| {
        limit_to_seconds(10);
        talks(second) && talks(fd)
    });
    s.say("child", wait_for(child));
    s.say("talk", talks(s.fd));
    s.say("limit", limit_descriptors(usual));
    for fd in held {
        close(fd).expect("it is open");
    }
    s.say("talk", talks(second) && talks(s.fd));
    s.say("close", close(second));
    s.say("close", close(s.fd));
}

/// Near: what a number beyond the limit names stays there when nothing else can be copied onto it.
fn copy_beyond_the_limit(s: &mut Stage) {
    let usual = descriptor_limit().expect("a process has limits");
    let far_off = dup2(s.fd, 2 * LIMIT).expect("a copy can be made");
    close(s.fd).expect("it is open");
    s.fd = far_off;
    s.say("limit", limit_descriptors(LIMIT.unsigned_abs().into()));
    s.say("dup2", dup2(0, far_off));
    s.say("dup3", dup3(0, far_off, libc::O_CLOEXEC));
    s.say("talk", talks(s.fd));
    s.say("limit", limit_descriptors(usual));
    s.say("talk", talks(s.fd));
    s.say("close", close(s.fd));
}

/// Far: connect twice, and repeat what comes on all; the first peer has more to say than it hears.
fn connect_twice(s: &mut Stage) {
    let address = s.told();
    let [first, second] = [(); 2].map(|()| connected(address));
    s.go();
    let echoes = [first, second].map(|fd| std::thread::spawn(move || answer(fd)));
    echo(s);
    for echo in echoes {
        s.say("rest", echo.join().expect("it does not panic"));
    }
}

/// Repeat words until something else comes, and tell what follows the first bytes of that.
fn answer(fd: RawFd) -> String {
    while hears(fd, b"word") && says(fd, b"WORD") {}
    drain(fd).map_or_else(|errno| errno.to_string(), |rest| digest(&rest))
}

pub const CHECKS: &[Check] = &[
    pair(
        "a_copy_onto_a_number_beyond_the_limit",
        copy_beyond_the_limit,
        echo,
    ),
    pair("descriptors_run_out", accept_at_the_limit, connect_twice),
];
