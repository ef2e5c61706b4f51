//! Flags that several descriptors of one connection have in common, in one process or in two.

use std::os::fd::RawFd;
use std::time::Duration;

use crosslane_exercise::calls::{
    close, dup, exit_now, fork, ioctl_nonblocking, is_nonblocking, pipe, receive_fd, recv, send_fd,
    set_nonblocking, socketpair, wait_for,
};

use super::processes::echo;
use super::{Check, pair};
use crate::Stage;
use crate::stage::{Other, Shown, data, hears, limit_to_seconds, says};

const SHORT: Duration = Duration::from_millis(40);
const ROUNDS: usize = 60;

/// Do to a descriptor what a word says, and tell what was seen.
fn obey(fd: RawFd, word: &str) -> String {
    match word {
        "flag" => is_nonblocking(fd).shown(),
        "on" => set_nonblocking(fd, true).shown(),
        "off" => set_nonblocking(fd, false).shown(),
        "ioctl on" => ioctl_nonblocking(fd, true).shown(),
        "ioctl off" => ioctl_nonblocking(fd, false).shown(),
        "read" => {
            let mut buffer = [0; 10];
            let answer = recv(fd, &mut buffer, 0);
            data(&buffer, answer).shown()
        }
        "talk" => talks(fd).to_string(),
        _ => panic!("nobody knows what {word} is"),
    }
}

fn talks(fd: RawFd) -> bool {
    (0..ROUNDS).all(|_| says(fd, b"word") && hears(fd, b"WORD"))
}

/// A child that obeys words, with the descriptor that `fd` gets it, until there are no more.
fn obeying_child(fd: impl FnOnce() -> RawFd) -> (libc::pid_t, Other) {
    let [from_child, to_parent] = pipe().expect("a pipe can be made");
    let [from_parent, to_child] = pipe().expect("a pipe can be made");
    let both = |fds: [RawFd; 2]| fds.map(|fd| close(fd).expect("it is open"));
    match fork().expect("a process can be made") {
        Some(pid) => {
            both([to_parent, from_parent]);
            (pid, Other::pipes(from_child, to_child))
        }
        None => {
            both([from_child, to_child]);
            limit_to_seconds(15);
            let (fd, mut parent) = (fd(), Other::pipes(from_parent, to_parent));
            loop {
                match parent.line() {
                    none if none.is_empty() => exit_now(0),
                    word => parent.say(&obey(fd, &word)),
                }
            }
        }
    }
}

/// Near: each of two names changes the flag, and the other one is told, and does as it says.
fn both_change_it(s: &mut Stage, mut other: impl FnMut(&str) -> String) {
    let mut ask = |s: &mut Stage, word: &str| {
        let seen = other(word);
        s.say(word, seen);
    };
    ask(s, "flag");
    ask(s, "read");
    ask(s, "off");
    s.say("here", is_nonblocking(s.fd));
    s.go();
    s.read(10);
    s.say("here on", set_nonblocking(s.fd, true));
    ask(s, "flag");
    ask(s, "read");
    ask(s, "ioctl off");
    s.go();
    s.read(10);
    ask(s, "ioctl on");
    s.say("here", is_nonblocking(s.fd));
    s.read(10);
    s.say("here off", ioctl_nonblocking(s.fd, false));
    s.go();
    ask(s, "read");
    s.say("talk", talks(s.fd));
    ask(s, "talk");
    s.say("talk", talks(s.fd));
}

/// Near: the same, with a child; at last it has the connection alone.
fn with_child(s: &mut Stage, (pid, mut child): (libc::pid_t, Other)) {
    both_change_it(s, |word| {
        child.say(word);
        child.line()
    });
    s.say("on", set_nonblocking(s.fd, true));
    s.say("close", close(s.fd));
    for word in ["flag", "read", "off", "talk"] {
        child.say(word);
        s.say("child", child.line());
    }
    drop(child);
    s.say("child", wait_for(pid));
}

/// Far: three words for who waits for them, and then an echo.
fn late_words(s: &mut Stage) {
    for word in [b"one", b"two", b"six"] {
        s.wait();
        std::thread::sleep(SHORT);
        s.send(word);
    }
    echo(s);
}

pub const CHECKS: &[Check] = &[
    pair(
        "nonblocking_in_two_names",
        |s| {
            s.say("on", set_nonblocking(s.fd, true));
            let twin = dup(s.fd).expect("a descriptor is free");
            both_change_it(s, |word| obey(twin, word));
            for fd in [twin, s.fd] {
                close(fd).expect("it is open");
            }
        },
        late_words,
    ),
    pair(
        "nonblocking_across_fork",
        |s| {
            s.say("on", set_nonblocking(s.fd, true));
            let fd = s.fd;
            let child = obeying_child(|| fd);
            with_child(s, child);
        },
        late_words,
    ),
    pair(
        "nonblocking_where_it_is_passed",
        |s| {
            let [ours, theirs] = socketpair().expect("a pair can be made");
            let fd = s.fd;
            let child = obeying_child(|| {
                close(fd).expect("it is open");
                receive_fd(theirs).expect("it was passed")
            });
            s.say("on", set_nonblocking(s.fd, true));
            s.say("pass", send_fd(ours, s.fd));
            with_child(s, child);
        },
        late_words,
    ),
    pair(
        "nonblocking_in_the_name_that_was_passed",
        |s| {
            let [ours, theirs] = socketpair().expect("a pair can be made");
            s.say("on", set_nonblocking(s.fd, true));
            s.say("pass", send_fd(ours, s.fd));
            s.say("close", close(s.fd));
            s.fd = receive_fd(theirs).expect("it was passed");
            s.say("here", is_nonblocking(s.fd));
            s.read(10);
            s.say("off", set_nonblocking(s.fd, false));
            for _ in 0..3 {
                s.go();
                s.read(10);
            }
            s.say("talk", talks(s.fd));
            s.say("close", close(s.fd));
        },
        late_words,
    ),
];
