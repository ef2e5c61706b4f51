//! The names of calls that a compiler chooses where it knows the length of a buffer.

use crosslane_exercise::Answer;
use crosslane_exercise::calls::{
    dup2, exit_now, fork, open, poll_checked, ppoll_checked, pread_checked, read_checked,
    recv_checked, recvfrom_checked, select_checked, wait_for,
};
use libc::{MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL, POLLIN, POLLOUT};

use super::{Check, pair};
use crate::Stage;
use crate::stage::{data, digest, pattern};

fn entries(fd: i32) -> [libc::pollfd; 2] {
    [fd, -1].map(|fd| libc::pollfd {
        fd,
        events: POLLIN | POLLOUT,
        revents: 0,
    })
}

/// Near: how a child ends that makes a call which would write beyond its buffer.
fn beyond(s: &mut Stage, what: &str, call: impl FnOnce(i32) -> Answer) {
    let Some(child) = fork().expect("a process can be made") else {
        // libc says so on its standard error.
        let null = open(c"/dev/null", libc::O_WRONLY).expect("there is a /dev/null");
        dup2(null, 2).expect("a descriptor can be replaced");
        let _ = call(s.fd);
        exit_now(0)
    };
    s.say(what, wait_for(child));
}

pub const CHECKS: &[Check] = &[
    pair(
        "checked_receives",
        |s| {
            s.until(POLLIN);
            s.wait();
            let mut buffer = [0; 4];
            let answer = recv_checked(s.fd, &mut buffer, 4, MSG_PEEK);
            s.say("peeked", data(&buffer, answer));
            let answer = recv_checked(s.fd, &mut buffer, 3, 0);
            s.say("recv", data(&buffer, answer));
            let answer = recvfrom_checked(s.fd, &mut buffer, 4, MSG_WAITALL);
            s.say("recvfrom", data(&buffer, answer));
            let answer = read_checked(s.fd, &mut buffer, 4);
            s.say("read", data(&buffer, answer));
            s.say("pread", pread_checked(s.fd, &mut buffer, 0));
            s.say("none", recv_checked(s.fd, &mut buffer, 4, MSG_DONTWAIT));
            s.say("none", recvfrom_checked(s.fd, &mut buffer, 4, MSG_DONTWAIT));
            s.go();
            let mut much = vec![0; 300_000];
            let answer = recv_checked(s.fd, &mut much, 300_000, MSG_WAITALL);
            s.say("recv", answer.map(|count| digest(&much[..count])));
        },
        |s| {
            s.send(b"hello world");
            s.go();
            s.wait();
            s.send(&pattern(300_000));
        },
    ),
    pair(
        "checked_waits",
        |s| {
            let mut all = entries(s.fd);
            s.say("poll", poll_checked(&mut all, 2, 0));
            s.say("room", all[0].revents == POLLOUT);
            all[0].events = POLLIN;
            s.go();
            s.say("poll", poll_checked(&mut all, 2, 10_000));
            s.say("data", all[0].revents == POLLIN);
            s.read(100);
            s.go();
            s.say("ppoll", ppoll_checked(&mut all, 1));
            s.say("data", all[0].revents == POLLIN);
            s.read(100);
            s.go();
            s.say("select", select_checked(s.fd));
            s.read(100);
        },
        |s| {
            for word in ["one", "two", "three"] {
                s.wait();
                std::thread::sleep(std::time::Duration::from_millis(20));
                s.send(word.as_bytes());
            }
        },
    ),
    pair(
        "checks_beyond_a_buffer",
        |s| {
            s.until(POLLIN);
            beyond(s, "read", |fd| read_checked(fd, &mut [0; 4], 5));
            beyond(s, "recv", |fd| recv_checked(fd, &mut [0; 4], 5, 0));
            beyond(s, "recvfrom", |fd| recvfrom_checked(fd, &mut [0; 4], 5, 0));
            beyond(s, "poll", |fd| poll_checked(&mut entries(fd), 3, 0));
            beyond(s, "ppoll", |fd| ppoll_checked(&mut entries(fd), 3));
            s.read(100);
        },
        |s| s.send(b"untouched"),
    ),
];
