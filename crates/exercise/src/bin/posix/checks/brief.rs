//! A connection behind many brief ones, which lasts, or of which more is asked than of a brief one.

use std::net::SocketAddr;
use std::os::fd::RawFd;

use crosslane_exercise::Errno;
use crosslane_exercise::calls::{
    Name, accept, close, connect, dup, dup2, epoll_create, epoll_ctl, epoll_delete, epoll_wait,
    exec_shell, kill, poll_one, read, receive_fd, send_fd, set_nonblocking, shutdown, socket,
    socketpair, take_error, take_own, wait_for,
};
use libc::{
    AF_INET, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLET, EPOLLEXCLUSIVE, EPOLLIN, EPOLLONESHOT,
    EPOLLOUT, POLLIN, SHUT_WR, SIGKILL, SOCK_NONBLOCK,
};

use super::connecting::listener;
use super::processes::in_child;
use super::{Check, solo};
use crate::Stage;
use crate::stage::{digest, drain, epoll_text, limit_to_seconds, says, take};

/// More in a row than it takes for the next one to be thought brief.
const BRIEF_ONES: usize = 12;
const ROUNDS: usize = 100;
const IN: u32 = EPOLLIN.cast_unsigned();

/// Send back what comes, on whatever connection.
fn echo(listener: RawFd) -> bool {
    let set = epoll_create().expect("an epoll set can be made");
    epoll_ctl(set, EPOLL_CTL_ADD, listener, IN, 0).expect("a listener can be added");
    let mut buffer = vec![0; 65536];
    loop {
        for (_, data) in epoll_wait(set, 8, None).expect("nothing interrupts it") {
            if data == 0 {
                let fd = accept(listener).expect("a connection waits");
                let number = u64::from(fd.cast_unsigned());
                epoll_ctl(set, EPOLL_CTL_ADD, fd, IN, number).expect("it can be added");
                continue;
            }
            let fd = i32::try_from(data).expect("it is a descriptor");
            match read(fd, &mut buffer) {
                Ok(bytes) if bytes > 0 => assert!(says(fd, &buffer[..bytes])),
                _ => drop(close(fd)),
            };
        }
    }
}

/// What is done with connections whose peer sends back what comes, behind many brief ones.
fn behind_brief_ones(s: &mut Stage, act: impl FnOnce(&mut Stage, SocketAddr)) {
    with_echo(s, |s, address| {
        for _ in 0..BRIEF_ONES {
            let fd = connected(address);
            assert!(talks(fd, 1));
            close(fd).expect("it is open");
        }
        act(s, address);
    });
}

fn with_echo(s: &mut Stage, act: impl FnOnce(&mut Stage, SocketAddr)) {
    let (listener, address) = listener();
    let server = in_child(|| echo(listener));
    close(listener).expect("it is open");
    act(s, address);
    kill(server, SIGKILL).expect("it is there");
    wait_for(server).expect("it is there");
}

fn connected(address: SocketAddr) -> RawFd {
    let fd = socket(AF_INET, 0).expect("a socket can be made");
    connect(fd, address).expect("it is listened");
    fd
}

/// The words of a conversation, each of its own length.
fn words(rounds: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..rounds).map(|round| {
        let byte = u8::try_from(round % 251).expect("it is less");
        vec![byte; 1 + 7 * round % 300]
    })
}

/// Whether each of so many words comes back.
fn talks(fd: RawFd, rounds: usize) -> bool {
    words(rounds).all(|word| says(fd, &word) && take(fd, word.len()) == Ok(word))
}

/// As [`talks`], where a set tells each answer by `data`, and by an edge nothing else.
fn talks_by(set: RawFd, fd: RawFd, data: u64, is_edge: bool) -> bool {
    words(ROUNDS).all(|word| {
        says(fd, &word)
            && epoll_wait(set, 8, None) == Ok(vec![(IN, data)])
            && take(fd, word.len()) == Ok(word)
            && (!is_edge || epoll_wait(set, 8, Some(0)) == Ok(vec![]))
    })
}

fn in_a_set(s: &mut Stage, address: SocketAddr) {
    let set = epoll_create().expect("an epoll set can be made");
    let fd = connected(address);
    s.say("delete", epoll_delete(set, fd));
    s.say("modify", epoll_ctl(set, EPOLL_CTL_MOD, fd, IN, 1));
    s.say("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, IN, 2));
    s.say("again", epoll_ctl(set, EPOLL_CTL_ADD, fd, IN, 3));
    s.say("modify", epoll_ctl(set, EPOLL_CTL_MOD, fd, IN, 4));
    s.say("talks", talks_by(set, fd, 4, false));
    s.say("delete", epoll_delete(set, fd));
    s.say("delete", epoll_delete(set, fd));
    s.say("talks", talks(fd, ROUNDS));
    s.say("events", told(set));
}

fn by_edges(s: &mut Stage, address: SocketAddr) {
    let set = epoll_create().expect("an epoll set can be made");
    let fd = connected(address);
    let edge = IN | EPOLLET.cast_unsigned();
    s.say("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, edge, 5));
    s.say("talks", talks_by(set, fd, 5, true));
}

fn once(s: &mut Stage, address: SocketAddr) {
    let set = epoll_create().expect("an epoll set can be made");
    let fd = connected(address);
    let once = IN | EPOLLONESHOT.cast_unsigned();
    s.say("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, once, 6));
    let mut answers = words(ROUNDS).map(|word| {
        says(fd, &word)
            && epoll_wait(set, 8, None) == Ok(vec![(IN, 6)])
            && epoll_wait(set, 8, Some(0)) == Ok(vec![])
            && take(fd, word.len()) == Ok(word)
            && epoll_ctl(set, EPOLL_CTL_MOD, fd, once, 6).is_ok()
    });
    s.say("talks", answers.all(|is_right| is_right));
}

fn in_another_set(s: &mut Stage, address: SocketAddr) {
    let first = epoll_create().expect("an epoll set can be made");
    let fd = connected(address);
    s.say("add", epoll_ctl(first, EPOLL_CTL_ADD, fd, IN, 1));
    close(first).expect("it is open");
    let second = epoll_create().expect("an epoll set can be made");
    s.say("same number", first == second);
    s.say("delete", epoll_delete(second, fd));
    s.say("add", epoll_ctl(second, EPOLL_CTL_ADD, fd, IN, 2));
    s.say("talks", talks_by(second, fd, 2, false));
}

fn in_two_sets(s: &mut Stage, address: SocketAddr) {
    let sets = [(); 2].map(|()| epoll_create().expect("an epoll set can be made"));
    let fd = connected(address);
    for (set, data) in sets.into_iter().zip(1..) {
        s.say("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, IN, data));
    }
    s.say("talks", talks_by(sets[0], fd, 1, false));
    s.say("talks", talks_by(sets[1], fd, 2, false));
}

fn in_a_set_in_a_set(s: &mut Stage, address: SocketAddr) {
    let [inner, outer] = [(); 2].map(|()| epoll_create().expect("an epoll set can be made"));
    let fd = connected(address);
    s.say("add", epoll_ctl(inner, EPOLL_CTL_ADD, fd, IN, 1));
    s.say("add", epoll_ctl(outer, EPOLL_CTL_ADD, inner, IN, 2));
    let mut answers = words(ROUNDS).map(|word| {
        says(fd, &word)
            && epoll_wait(outer, 8, None) == Ok(vec![(IN, 2)])
            && epoll_wait(inner, 8, None) == Ok(vec![(IN, 1)])
            && take(fd, word.len()) == Ok(word)
    });
    s.say("talks", answers.all(|is_right| is_right));
}

fn copied(s: &mut Stage, address: SocketAddr) {
    let set = epoll_create().expect("an epoll set can be made");
    let fd = connected(address);
    epoll_ctl(set, EPOLL_CTL_ADD, fd, IN, 7).expect("it can be added");
    let copy = dup(fd).expect("it can be copied");
    close(fd).expect("it is open");
    s.say("talks", talks_by(set, copy, 7, false));
    s.say("talks", talks(copy, ROUNDS));
}

fn taken(s: &mut Stage, address: SocketAddr) {
    let fd = connected(address);
    let copy = take_own(fd).expect("it can be taken");
    s.say("talks", talks(fd, ROUNDS));
    s.say("talks", talks(copy, ROUNDS));
}

fn replaced(s: &mut Stage, address: SocketAddr) {
    let [first, second] = [(); 2].map(|()| connected(address));
    s.say("dup2", dup2(second, first).map(|fd| fd == first));
    s.say("talks", talks(first, ROUNDS));
    s.say("talks", talks(second, ROUNDS));
}

fn inherited(s: &mut Stage, address: SocketAddr) {
    let fd = connected(address);
    let child = in_child(|| {
        limit_to_seconds(10);
        talks(fd, ROUNDS)
    });
    s.say("child", wait_for(child));
    s.say("parent", talks(fd, ROUNDS));
}

fn passed(s: &mut Stage, address: SocketAddr) {
    let [ours, theirs] = socketpair().expect("a pair can be made");
    let child = in_child(|| {
        limit_to_seconds(10);
        receive_fd(theirs).is_ok_and(|fd| talks(fd, ROUNDS))
    });
    let fd = connected(address);
    s.say("sent", send_fd(ours, fd));
    s.say("child", wait_for(child));
    s.say("parent", talks(fd, ROUNDS));
}

/// Each of some kinds of registration outlives the connections of its socket.
fn dissolved(s: &mut Stage, address: SocketAddr) {
    let set = epoll_create().expect("an epoll set can be made");
    let kinds = [0, EPOLLET, EPOLLONESHOT, EPOLLEXCLUSIVE].map(i32::cast_unsigned);
    for (kind, data) in kinds.into_iter().zip(1..) {
        let fd = connected(address);
        s.say("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, IN | kind, data));
        let is_once = kind == EPOLLONESHOT.cast_unsigned();
        for _ in 0..3 {
            let mut answers = words(ROUNDS / 2).map(|word| {
                (!is_once || epoll_ctl(set, EPOLL_CTL_MOD, fd, IN | kind, data).is_ok())
                    && says(fd, &word)
                    && epoll_wait(set, 8, None) == Ok(vec![(IN, data)])
                    && take(fd, word.len()) == Ok(word)
            });
            s.say("talks", answers.all(|is_right| is_right));
            s.say("dissolve", connect(fd, Name::unspecified()));
            s.say("connect", connect(fd, address));
            s.say("told", told(set));
        }
        close(fd).expect("it is open");
    }
}

fn told(set: RawFd) -> Result<String, Errno> {
    epoll_wait(set, 8, Some(0)).map(|events| epoll_text(&events))
}

fn by_a_shell(s: &mut Stage, address: SocketAddr) {
    let fd = connected(address);
    let child = in_child(|| {
        assert!(dup2(fd, 0).is_ok() && dup2(fd, 1).is_ok());
        exec_shell(c"for n in 1 2 3; do echo $n; read answer; [ $answer = $n ] || exit 1; done");
        false
    });
    s.say("shell", wait_for(child));
    s.say("parent", talks(fd, ROUNDS));
}

fn by_threads(s: &mut Stage, address: SocketAddr) {
    let fd = connected(address);
    let sent: Vec<u8> = words(ROUNDS).flatten().collect();
    let count = sent.len();
    let reader = std::thread::spawn(move || take(fd, count));
    assert!(words(ROUNDS).all(|word| says(fd, &word)));
    let heard = reader.join().expect("it does not panic");
    s.say("heard", heard.map(|heard| heard == sent));
}

fn without_blocking(s: &mut Stage, address: SocketAddr) {
    let set = epoll_create().expect("an epoll set can be made");
    let fd = socket(AF_INET, SOCK_NONBLOCK).expect("a socket can be made");
    s.say("connect", connect(fd, address));
    let out = EPOLLOUT.cast_unsigned();
    s.say("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, out, 1));
    s.say(
        "events",
        epoll_wait(set, 8, None).map(|events| epoll_text(&events)),
    );
    s.say("error", take_error(fd));
    s.say("connect", connect(fd, address));
    s.say("read", read(fd, &mut [0; 8]));
    s.say("modify", epoll_ctl(set, EPOLL_CTL_MOD, fd, IN, 2));
    s.say("talks", talks_by(set, fd, 2, false));
    s.say("option", set_nonblocking(fd, false));
    s.say("talks", talks(fd, ROUNDS));
}

fn ended(s: &mut Stage, address: SocketAddr) {
    let fd = connected(address);
    let sent: Vec<u8> = words(3).flatten().collect();
    s.say("sent", says(fd, &sent));
    s.say("shutdown", shutdown(fd, SHUT_WR));
    s.say("heard", drain(fd).map(|heard| digest(&heard)));
    s.say("events", poll_one(fd, POLLIN, Some(0)));
    s.say("read", read(fd, &mut [0; 8]));
}

pub const CHECKS: &[Check] = &[
    solo("brief_ones_then_one_that_lasts", |s| {
        behind_brief_ones(s, |s, address| {
            let fd = connected(address);
            s.say("talks", talks(fd, 10 * ROUNDS));
        });
    }),
    solo("brief_ones_then_one_in_a_set", |s| {
        behind_brief_ones(s, in_a_set);
    }),
    solo("brief_ones_then_one_by_edges", |s| {
        behind_brief_ones(s, by_edges);
    }),
    solo("brief_ones_then_one_told_once", |s| {
        behind_brief_ones(s, once);
    }),
    solo("brief_ones_then_one_in_another_set", |s| {
        behind_brief_ones(s, in_another_set);
    }),
    solo("brief_ones_then_one_in_two_sets", |s| {
        behind_brief_ones(s, in_two_sets);
    }),
    solo("brief_ones_then_one_in_a_set_in_a_set", |s| {
        behind_brief_ones(s, in_a_set_in_a_set);
    }),
    solo("brief_ones_then_one_that_is_copied", |s| {
        behind_brief_ones(s, copied);
    }),
    solo("brief_ones_then_one_that_is_taken", |s| {
        behind_brief_ones(s, taken);
    }),
    solo("brief_ones_then_one_that_is_replaced", |s| {
        behind_brief_ones(s, replaced);
    }),
    solo("brief_ones_then_one_that_is_inherited", |s| {
        behind_brief_ones(s, inherited);
    }),
    solo("brief_ones_then_one_that_is_passed", |s| {
        behind_brief_ones(s, passed);
    }),
    solo("brief_ones_then_some_that_are_dissolved", |s| {
        behind_brief_ones(s, dissolved);
    }),
    solo("dissolved_in_a_set", |s| with_echo(s, dissolved)),
    solo("brief_ones_then_one_of_a_shell", |s| {
        behind_brief_ones(s, by_a_shell);
    }),
    solo("brief_ones_then_one_of_two_threads", |s| {
        behind_brief_ones(s, by_threads);
    }),
    solo("brief_ones_then_one_that_does_not_block", |s| {
        behind_brief_ones(s, without_blocking);
    }),
    solo("brief_ones_then_one_that_ends", |s| {
        behind_brief_ones(s, ended);
    }),
];
