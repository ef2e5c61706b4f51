//! Several threads on one connection.

use std::time::Duration;

use crosslane_exercise::calls::{
    close, epoll_create, epoll_ctl, epoll_wait, poll_one, read, recv, send, shutdown,
};
use libc::{
    EPOLL_CTL_ADD, EPOLLEXCLUSIVE, EPOLLIN, MSG_DONTWAIT, MSG_NOSIGNAL, POLLIN, POLLRDHUP,
    SHUT_RDWR, SHUT_WR,
};

use super::{Check, pair};
use crate::Stage;
use crate::stage::{digest, drain, events_text, pattern, take};

const SHORT: Duration = Duration::from_millis(40);

/// Far: send a word long after being told to.
fn late(s: &mut Stage) {
    s.wait();
    std::thread::sleep(2 * SHORT);
    s.send(b"word");
}

/// The bytes that one thread reads until the end.
fn reader(fd: i32) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || drain(fd).unwrap_or_default())
}

/// What a thread takes until the end that waits by a set of its own, which need not be told of what others are told of.
fn exclusive_reader(fd: i32) -> std::thread::JoinHandle<Vec<u8>> {
    let epoll = epoll_create().expect("an epoll set can be made");
    let events = (EPOLLIN | EPOLLEXCLUSIVE).cast_unsigned();
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, events, 0).expect("a connection can be added");
    std::thread::spawn(move || {
        let (mut all, mut part) = (Vec::new(), [0; 3]);
        loop {
            epoll_wait(epoll, 1, None).expect("nothing interrupts it");
            match recv(fd, &mut part, MSG_DONTWAIT) {
                Ok(0) => return all,
                Ok(bytes) => all.extend_from_slice(&part[..bytes]),
                // Another thread has taken it.
                Err(_) => {}
            }
        }
    })
}

pub const CHECKS: &[Check] = &[
    pair(
        "threads_one_reads_one_writes",
        |s| {
            let fd = s.fd;
            let reader = std::thread::spawn(move || take(fd, 4_000_000));
            s.send(&pattern(4_000_000));
            let bytes = reader.join().expect("it does not panic");
            s.say("took", bytes.map(|bytes| digest(&bytes)));
        },
        |s| {
            let fd = s.fd;
            let reader = std::thread::spawn(move || take(fd, 4_000_000));
            s.send(&pattern(4_000_000));
            let bytes = reader.join().expect("it does not panic");
            s.say("took", bytes.map(|bytes| digest(&bytes)));
        },
    ),
    pair(
        "threads_share_the_reading",
        |s| {
            let readers = [reader(s.fd), reader(s.fd), reader(s.fd), reader(s.fd)];
            s.go();
            let mut bytes: Vec<u8> = readers
                .into_iter()
                .flat_map(|reader| reader.join().unwrap_or_default())
                .collect();
            bytes.sort_unstable();
            s.say("together", digest(&bytes));
        },
        |s| {
            s.wait();
            pattern(2_000_000).chunks(777).for_each(|part| {
                send(s.fd, part, MSG_NOSIGNAL).expect("somebody reads");
            });
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
    ),
    pair(
        "threads_share_the_reading_by_exclusive_sets",
        |s| {
            let readers = [(); 4].map(|()| exclusive_reader(s.fd));
            s.go();
            let mut bytes: Vec<u8> = readers
                .into_iter()
                .flat_map(|reader| reader.join().expect("it does not panic"))
                .collect();
            bytes.sort_unstable();
            s.say("together", digest(&bytes));
        },
        |s| {
            s.wait();
            for part in pattern(1000).chunks(10) {
                send(s.fd, part, MSG_NOSIGNAL).expect("somebody reads");
                std::thread::sleep(SHORT / 40);
            }
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
    ),
    pair(
        "threads_share_the_writing",
        |s| {
            let fd = s.fd;
            let writers = [1u8, 2, 3, 4].map(|letter| {
                std::thread::spawn(move || {
                    let part = vec![letter; 5000];
                    (0..100).all(|_| send(fd, &part, MSG_NOSIGNAL) == Ok(part.len()))
                })
            });
            let all = writers
                .into_iter()
                .all(|writer| writer.join().is_ok_and(|wrote| wrote));
            s.say("wrote", all);
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        |s| {
            let mut bytes = drain(s.fd).unwrap_or_default();
            bytes.sort_unstable();
            s.say("together", digest(&bytes));
        },
    ),
    pair(
        "thread_reads_while_another_polls",
        |s| {
            let fd = s.fd;
            s.go();
            let poller = std::thread::spawn(move || poll_one(fd, POLLIN | POLLRDHUP, None));
            s.until(POLLIN);
            let events = poller.join().expect("it does not panic");
            s.say("poll", events.map(events_text));
            s.read(10);
        },
        late,
    ),
    pair(
        "thread_shuts_down_a_blocked_reader",
        |s| {
            let fd = s.fd;
            let reader = std::thread::spawn(move || read(fd, &mut [0; 10]));
            std::thread::sleep(SHORT);
            s.say("shutdown", shutdown(s.fd, SHUT_RDWR));
            s.say("read", reader.join().expect("it does not panic"));
        },
        |s| s.read(10),
    ),
    pair(
        "thread_closes_under_a_blocked_reader",
        |s| {
            let fd = s.fd;
            let reader = std::thread::spawn(move || read(fd, &mut [0; 10]));
            std::thread::sleep(SHORT);
            s.say("close", close(s.fd));
            s.go();
            s.say("read", reader.join().expect("it does not panic"));
        },
        |s| {
            s.wait();
            std::thread::sleep(SHORT);
            s.send(b"word");
            s.read(10);
        },
    ),
    pair(
        "thread_closes_under_a_writer_without_room",
        |s| {
            let (fd, bytes) = (s.fd, pattern(8_000_000));
            let writer = std::thread::spawn(move || send(fd, &bytes, MSG_NOSIGNAL));
            std::thread::sleep(SHORT);
            s.say("close", close(s.fd));
            s.go();
            s.say("wrote", writer.join().expect("it does not panic"));
        },
        |s| {
            s.wait();
            std::thread::sleep(SHORT);
            let bytes = drain(s.fd);
            s.say("took", bytes.map(|bytes| digest(&bytes)));
        },
    ),
    pair(
        "threads_wake_one_by_one",
        |s| {
            let fd = s.fd;
            let readers = [(); 3].map(|()| std::thread::spawn(move || read(fd, &mut [0; 1])));
            std::thread::sleep(SHORT);
            s.go();
            let got = readers.map(|reader| reader.join().expect("it does not panic"));
            s.say("each got one", got.iter().all(|answer| *answer == Ok(1)));
        },
        |s| {
            s.wait();
            for letter in [b"a", b"b", b"c"] {
                std::thread::sleep(SHORT / 4);
                s.send(letter);
            }
        },
    ),
    pair(
        "threads_wake_together_at_the_end",
        |s| {
            let fd = s.fd;
            let readers = [(); 3].map(|()| std::thread::spawn(move || read(fd, &mut [0; 1])));
            std::thread::sleep(SHORT);
            s.go();
            let got = readers.map(|reader| reader.join().expect("it does not panic"));
            s.say("each saw it", got.iter().all(|answer| *answer == Ok(0)));
        },
        |s| {
            s.wait();
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
    ),
];
