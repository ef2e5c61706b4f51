//! Loops of calls that do not wait: over many connections of which one is slow, and over one that is idle.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::RawFd;

use crosslane_exercise::Errno;
use crosslane_exercise::calls::{
    accept, close, connect, epoll_create, epoll_ctl, epoll_wait, keep_to_one_processor, pipe, read,
    recv, send, set_nonblocking, socket, wait_for, write,
};
use libc::{
    AF_INET, EAGAIN, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLET, EPOLLIN, EPOLLOUT, MSG_DONTWAIT,
    MSG_NOSIGNAL,
};

use super::connecting::listener;
use super::processes::in_child;
use super::{Check, pair, solo};
use crate::Stage;
use crate::stage::{hears, limit_to_seconds, pattern, says, take};

const QUICK: usize = 3;
/// Questions of each quick client, and the length of an answer.
const QUESTIONS: usize = 150;
const ANSWER: usize = 20_000;
/// More than a connection takes without a reader.
const MUCH: usize = 16 << 20;

fn flags(events: i32) -> u32 {
    events.cast_unsigned()
}

/// A loop over epoll(7) that answers `?` by a little and `!` by much.
struct Loop {
    epoll: RawFd,
    /// What is still to be sent on each connection, of a pattern of this length.
    clients: HashMap<RawFd, (usize, usize)>,
    is_edge: bool,
}

impl Loop {
    fn watch(&mut self, operation: i32, fd: RawFd, events: i32) {
        let events = if self.is_edge {
            EPOLLIN | EPOLLOUT | EPOLLET
        } else {
            events
        };
        let data = u64::try_from(fd).expect("a descriptor is positive");
        epoll_ctl(self.epoll, operation, fd, flags(events), data).expect("it can be watched");
    }

    fn add(&mut self, fd: RawFd) {
        set_nonblocking(fd, true).expect("a flag can be set");
        self.clients.insert(fd, (0, 0));
        self.watch(EPOLL_CTL_ADD, fd, EPOLLIN);
    }

    /// Serve until `is_done` with the descriptors of those that are being served and how much is left of each.
    fn serve(&mut self, is_done: impl Fn(&HashMap<RawFd, (usize, usize)>) -> bool) {
        while !is_done(&self.clients) {
            let news = epoll_wait(self.epoll, 2, None).expect("a set can be waited for");
            for (_, data) in news {
                let fd = RawFd::try_from(data).expect("it is a descriptor");
                if !self.hear(fd) {
                    self.clients.remove(&fd);
                    close(fd).expect("it is open");
                } else {
                    self.answer(fd);
                }
            }
        }
    }

    /// Hear questions until there are no more now. Whether there may be some later.
    fn hear(&mut self, fd: RawFd) -> bool {
        let mut question = [0];
        loop {
            match recv(fd, &mut question, 0) {
                Ok(1) if question == *b"?" => self.clients.insert(fd, (ANSWER, ANSWER)),
                Ok(1) => self.clients.insert(fd, (MUCH, MUCH)),
                Err(Errno(EAGAIN)) => return true,
                _ => return false,
            };
        }
    }

    fn answer(&mut self, fd: RawFd) {
        let had_some = self.clients[&fd].1 > 0;
        let (all, mut left) = self.clients[&fd];
        while left > 0 {
            let bytes = pattern_from(all - left, left.min(1 << 17));
            match send(fd, &bytes, MSG_NOSIGNAL) {
                Ok(sent) => left -= sent,
                Err(_) => break,
            }
        }
        self.clients.insert(fd, (all, left));
        if had_some && !self.is_edge {
            let events = if left > 0 {
                EPOLLIN | EPOLLOUT
            } else {
                EPOLLIN
            };
            self.watch(EPOLL_CTL_MOD, fd, events);
        }
    }
}

/// A part of what [`pattern`] makes.
fn pattern_from(start: usize, count: usize) -> Vec<u8> {
    pattern(start % 251 + count).split_off(start % 251)
}

fn connected_to(address: SocketAddr) -> RawFd {
    let fd = socket(AF_INET, 0).expect("a socket can be made");
    connect(fd, address).expect("somebody listens");
    fd
}

/// Ask, and do not read on before the gate opens.
fn slow(address: SocketAddr, gate: RawFd) -> bool {
    limit_to_seconds(15);
    let fd = connected_to(address);
    let begins = says(fd, b"!") && take(fd, 1000).is_ok_and(|bytes| bytes == pattern(1000));
    let opened = read(gate, &mut [0]) == Ok(1);
    let rest = take(fd, MUCH - 1000);
    begins && opened && rest.is_ok_and(|rest| rest == pattern_from(1000, MUCH - 1000))
}

fn quick(address: SocketAddr) -> bool {
    limit_to_seconds(15);
    let (fd, answer) = (connected_to(address), pattern(ANSWER));
    (0..QUESTIONS).all(|_| says(fd, b"?") && take(fd, ANSWER).is_ok_and(|bytes| bytes == answer))
}

/// The slow client is stuck before the quick ones begin, and reads on when they have been served.
fn one_is_slow(s: &mut Stage, is_edge: bool) {
    let (listener, address) = listener();
    let [gate, opener] = pipe().expect("a pipe can be made");
    let mut server = Loop {
        epoll: epoll_create().expect("an epoll set can be made"),
        clients: HashMap::new(),
        is_edge,
    };
    let slow_one = in_child(|| slow(address, gate));
    let slow_fd = accept(listener).expect("it connects");
    server.add(slow_fd);
    server.serve(|clients| (1..MUCH).contains(&clients[&slow_fd].1));
    let quick_ones = [(); QUICK].map(|()| in_child(|| close(slow_fd).is_ok() && quick(address)));
    for _ in &quick_ones {
        server.add(accept(listener).expect("it connects"));
    }
    server.serve(|clients| clients.len() == 1);
    let well = quick_ones.into_iter().filter(|pid| wait_for(*pid) == Ok(0));
    s.say("quick", well.count());
    s.say("slow is waiting", server.clients[&slow_fd].1 > 0);
    s.say("open", write(opener, b"."));
    server.serve(HashMap::is_empty);
    s.say("slow", wait_for(slow_one));
}

/// Looks at a connection on which nothing comes, and words that are asked for.
const LOOKS: usize = 20_000;
const WORDS: usize = 30;

/// Near: look again and again without waiting, by calls of two kinds, beside a peer that has the same processor.
fn look(s: &mut Stage, flags: i32) {
    s.say("keep", keep_to_one_processor());
    s.say("set", set_nonblocking(s.fd, flags == 0));
    let mut buffer = [0; 10];
    let looks = (0..LOOKS).map(|_| recv(s.fd, &mut buffer, flags));
    s.say(
        "nothing",
        looks.filter(|answer| *answer == Err(Errno(EAGAIN))).count(),
    );
    let (mut heard, mut odd) = (0, None);
    for _ in 0..WORDS {
        send(s.fd, b"word", MSG_NOSIGNAL).expect("there is room");
        let answer = loop {
            match recv(s.fd, &mut buffer, flags) {
                Err(Errno(EAGAIN)) => {}
                answer => break answer,
            }
        };
        match answer {
            Ok(6) if &buffer[..6] == b"answer" => heard += 1,
            other => odd = Some(other),
        }
    }
    s.say("heard", heard);
    s.say("odd", odd.unwrap_or(Ok(0)));
    s.say("nothing", recv(s.fd, &mut buffer, flags));
}

/// Far: answer on the same processor.
fn answer(s: &mut Stage) {
    s.say("keep", keep_to_one_processor());
    let words = (0..WORDS).filter(|_| hears(s.fd, b"word") && says(s.fd, b"answer"));
    s.say("words", words.count());
}

pub const CHECKS: &[Check] = &[
    solo("one_slow_reader_of_several", |s| one_is_slow(s, false)),
    solo("one_slow_reader_of_several_by_edges", |s| {
        one_is_slow(s, true)
    }),
    pair("looks_on_one_processor", |s| look(s, 0), answer),
    pair(
        "looks_without_waiting_on_one_processor",
        |s| look(s, MSG_DONTWAIT),
        answer,
    ),
];
