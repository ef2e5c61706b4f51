//! Threads that are cancelled while they sleep on a connection: it is left as the kernel leaves it.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::RawFd;
use std::time::Duration;

use crosslane_exercise::calls::{
    Readiness, call_cancelled, cancel_in, close, epoll_create, epoll_ctl, epoll_wait, exit_now,
    file_of, fork, pipe, poll_one, ppoll_for, read, readv, recv, recvfrom, recvmmsg, recvmsg,
    select_one, send, sendfile, sendmmsg, sendmsg, splice, wait_for, write, writev,
};
use crosslane_exercise::{Answer, Errno};
use libc::{EPOLL_CTL_ADD, EPOLLIN, MSG_NOSIGNAL, MSG_WAITALL, POLLIN};

use super::{Check, pair};
use crate::Stage;
use crate::stage::{Shown, drain, hears, says};

const SHORT: Duration = Duration::from_millis(40);
const TURNS: usize = 40;

/// Near: cancel a thread in a call, go on with the connection, and close it.
fn cancel<R>(s: &mut Stage, call: fn(RawFd) -> R) {
    s.say("cancelled", cancel_in(call, s.fd, SHORT));
    s.go();
    s.read(10);
    s.send(b"answer");
    s.say("close", close(s.fd));
}

/// Far: everything comes, and the end.
fn answered(s: &mut Stage) {
    s.wait();
    s.send(b"word");
    s.read(10);
    s.read(10);
}

/// Far: what was sent before, and the end.
fn sevens(s: &mut Stage) {
    s.wait();
    let sevens = drain(s.fd).map(|all| all.iter().all(|byte| *byte == 7));
    s.say("sevens", sevens);
}

/// Far: what was sent before, until nothing more comes. Then both sides take turns.
fn sevens_and_words(s: &mut Stage) {
    s.wait();
    let mut buffer = vec![0; 65536];
    let mut are_all = true;
    while poll_one(s.fd, POLLIN, Some(300)) == Ok(POLLIN) {
        let come = read(s.fd, &mut buffer).unwrap_or_default();
        are_all &= come > 0 && buffer[..come].iter().all(|byte| *byte == 7);
    }
    s.say("sevens", are_all);
    s.go();
    let turns = (0..TURNS).filter(|_| hears(s.fd, b"word") && says(s.fd, b"answer"));
    s.say("turns", turns.count());
    s.read(10);
}

/// What a call has answered, or that it ended its thread.
fn text(answer: Option<Answer>) -> String {
    answer.map_or_else(|| "ended".into(), |answer| answer.shown())
}

/// fork(2) a process that ends at once.
fn fork_only(_: RawFd) -> Answer {
    match fork()? {
        Some(child) => Ok(child.unsigned_abs() as usize),
        None => exit_now(0),
    }
}

/// How a process ends that a thread forks which has been cancelled.
fn forked_by_the_cancelled(fd: RawFd) -> Option<Result<i32, Errno>> {
    let child = call_cancelled(fork_only, fd)?;
    Some(
        child
            .and_then(|child| wait_for(i32::try_from(child).expect("it is a number of a process"))),
    )
}

type Call = fn(RawFd) -> Answer;

/// Calls that end a thread which has been cancelled, although they need not wait. What they would change stays as it is.
const ENDING: [(&str, Call); 16] = [
    ("read", |fd| read(fd, &mut [0; 1])),
    ("recv", |fd| recv(fd, &mut [0; 1], 0)),
    ("readv", |fd| readv(fd, &mut [IoSliceMut::new(&mut [0; 1])])),
    ("recvfrom", |fd| {
        recvfrom(fd, &mut [0; 1], 0).map(|received| received.bytes)
    }),
    ("recvmsg", |fd| {
        let received = recvmsg(fd, &mut [IoSliceMut::new(&mut [0; 1])], 0);
        received.map(|received| received.bytes)
    }),
    ("recvmmsg", |fd| {
        let received = recvmmsg(fd, &mut [IoSliceMut::new(&mut [0; 1])], 0);
        received.map(|lengths| lengths.len())
    }),
    ("write", |fd| write(fd, b"x")),
    ("send", |fd| send(fd, b"x", MSG_NOSIGNAL)),
    ("writev", |fd| writev(fd, &[IoSlice::new(b"x")])),
    ("sendmsg", |fd| sendmsg(fd, &[IoSlice::new(b"x")], 0)),
    ("sendmmsg", |fd| sendmmsg(fd, &[IoSlice::new(b"x")], 0)),
    ("poll", |fd| {
        poll_one(fd, POLLIN, None).map(|events| events.unsigned_abs().into())
    }),
    ("ppoll", |fd| ppoll_for(fd, 1, 0)),
    ("select", |fd| {
        let read = Readiness {
            read: true,
            ..Readiness::default()
        };
        select_one(fd, read, None).map(|_| 1)
    }),
    ("splice", |fd| {
        let [_, into] = pipe()?;
        splice(fd, into, 1, 0)
    }),
    ("close", close),
];

pub const CHECKS: &[Check] = &[
    pair(
        "calls_that_end_a_cancelled_thread",
        |s| {
            let epoll = epoll_create().expect("a set can be made");
            let wish = EPOLLIN.cast_unsigned();
            epoll_ctl(epoll, EPOLL_CTL_ADD, s.fd, wish, 1).expect("it can be registered");
            s.until(POLLIN);
            for (name, call) in ENDING {
                s.say(name, text(call_cancelled(call, s.fd)));
            }
            let wait = |epoll| epoll_wait(epoll, 1, None).map(|events| events.len());
            s.say("epoll_wait", text(call_cancelled(wait, epoll)));
            s.read(100);
            s.send(b"unharmed");
            s.say("close", close(s.fd));
        },
        |s| {
            s.send(b"not taken by any of them");
            s.read(100);
        },
    ),
    pair(
        "calls_that_do_not_end_a_cancelled_thread",
        |s| {
            let file = file_of(b"word").expect("a file can be made");
            let send_it = |fd| sendfile(fd, file, None, 4);
            s.say("sendfile", text(call_cancelled(send_it, s.fd)));
            for _ in 0..2 {
                let ended = forked_by_the_cancelled(s.fd);
                s.say("fork", ended.map_or("ended".into(), |ended| ended.shown()));
            }
            s.go();
            s.read(10);
            s.say("close", close(s.fd));
        },
        answered,
    ),
    pair(
        "cancelled_in_a_read",
        |s| cancel(s, |fd| read(fd, &mut [0; 10])),
        answered,
    ),
    pair(
        "cancelled_in_a_receive_of_all",
        |s| cancel(s, |fd| recv(fd, &mut [0; 10], MSG_WAITALL)),
        answered,
    ),
    pair(
        "cancelled_in_recvmmsg",
        |s| {
            cancel(s, |fd| {
                let (mut one, mut other) = ([0; 10], [0; 10]);
                let mut buffers = [&mut one, &mut other].map(|buffer| IoSliceMut::new(buffer));
                recvmmsg(fd, &mut buffers, 0)
            });
        },
        answered,
    ),
    pair(
        "cancelled_in_poll",
        |s| cancel(s, |fd| poll_one(fd, POLLIN, None)),
        answered,
    ),
    pair(
        "cancelled_in_select",
        |s| {
            cancel(s, |fd| {
                let read = Readiness {
                    read: true,
                    write: false,
                    except: false,
                };
                select_one(fd, read, None)
            });
        },
        answered,
    ),
    pair(
        "cancelled_in_epoll_wait",
        |s| {
            cancel(s, |fd| {
                let set = epoll_create().expect("a set can be made");
                let wish = EPOLLIN.cast_unsigned();
                epoll_ctl(set, EPOLL_CTL_ADD, fd, wish, 1).expect("it can be registered");
                epoll_wait(set, 1, None)
            });
        },
        answered,
    ),
    pair(
        "cancelled_in_one_long_send",
        |s| {
            let call = |fd| send(fd, &vec![7; 32 << 20], MSG_NOSIGNAL);
            s.say("cancelled", cancel_in(call, s.fd, 5 * SHORT));
            s.go();
            s.say("close", close(s.fd));
        },
        sevens,
    ),
    pair(
        "cancelled_in_a_send_and_goes_on",
        |s| {
            let call = |fd| send(fd, &vec![7; 32 << 20], MSG_NOSIGNAL);
            s.say("cancelled", cancel_in(call, s.fd, 5 * SHORT));
            s.go();
            s.wait();
            let turns = (0..TURNS).filter(|_| says(s.fd, b"word") && hears(s.fd, b"answer"));
            s.say("turns", turns.count());
            s.say("close", close(s.fd));
        },
        sevens_and_words,
    ),
    pair(
        "cancelled_in_a_send",
        |s| {
            let call = |fd| while send(fd, &[7; 100_000], MSG_NOSIGNAL).is_ok() {};
            s.say("cancelled", cancel_in(call, s.fd, 5 * SHORT));
            s.go();
            s.say("close", close(s.fd));
        },
        sevens,
    ),
];
