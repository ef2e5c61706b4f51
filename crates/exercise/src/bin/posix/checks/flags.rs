//! Flags of the receiving and sending calls, and how much there is to read.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crosslane_exercise::calls::{
    getsockopt, ioctl_read, poll_one, read, recv, recvfrom, send, sendto, setsockopt, shutdown,
    write,
};
use libc::{
    FIONREAD, MSG_DONTWAIT, MSG_ERRQUEUE, MSG_MORE, MSG_NOSIGNAL, MSG_PEEK, MSG_TRUNC, MSG_WAITALL,
    POLLIN, POLLRDHUP, SO_RCVLOWAT, SOL_SOCKET, TCP_CORK, TIOCOUTQ,
};

use super::{Check, pair};
use crate::Stage;
use crate::stage::{data, digest, pattern, take};

/// Longer than a kernel puts an acknowledgement off.
const ACKNOWLEDGED: Duration = Duration::from_secs(1);

fn receive(s: &mut Stage, most: usize, flags: i32) {
    let mut buffer = vec![0; most];
    let answer = recv(s.fd, &mut buffer, flags);
    s.say("recv", data(&buffer, answer));
}

fn to_read(s: &mut Stage) {
    s.say("to read", ioctl_read(s.fd, FIONREAD));
}

/// Far: send the first, and once told, the second.
fn two_words(s: &mut Stage) {
    s.send(b"hello");
    s.wait();
    std::thread::sleep(std::time::Duration::from_millis(20));
    s.send(b" world");
}

pub const CHECKS: &[Check] = &[
    pair(
        "bytes_to_read",
        |s| {
            to_read(s);
            s.go();
            s.until(POLLRDHUP);
            to_read(s);
            s.say("took", take(s.fd, 300).map(|bytes| digest(&bytes)));
            to_read(s);
            s.say("took", take(s.fd, 700).map(|bytes| digest(&bytes)));
            to_read(s);
            s.read(10);
            to_read(s);
        },
        |s| {
            s.wait();
            s.send(&pattern(1000));
            crosslane_exercise::calls::shutdown(s.fd, libc::SHUT_WR).expect("it is connected");
        },
    ),
    pair(
        "bytes_to_send",
        |s| {
            s.send(b"something");
            s.wait();
            // The acknowledgement of what was read may take its time.
            while ioctl_read(s.fd, TIOCOUTQ).is_ok_and(|count| count > 0) {
                std::thread::yield_now();
            }
            s.say("to send", ioctl_read(s.fd, TIOCOUTQ));
        },
        |s| {
            s.read(100);
            s.go();
        },
    ),
    pair(
        "bytes_to_send_are_fewer_when_they_arrive",
        |s| {
            s.send(&pattern(1000));
            let deadline = Instant::now() + ACKNOWLEDGED;
            let are_left = || ioctl_read(s.fd, TIOCOUTQ).is_ok_and(|count| count > 0);
            while are_left() && Instant::now() < deadline {
                std::thread::yield_now();
            }
            let are_left = are_left();
            s.say("are left", are_left);
            s.go();
        },
        |s| {
            s.wait();
            s.read_exactly(1000);
        },
    ),
    pair(
        "peek",
        |s| {
            s.until(POLLIN);
            receive(s, 3, MSG_PEEK);
            receive(s, 100, MSG_PEEK);
            to_read(s);
            receive(s, 2, 0);
            receive(s, 100, MSG_PEEK);
            receive(s, 100, 0);
            receive(s, 100, MSG_PEEK | MSG_DONTWAIT);
        },
        |s| s.send(b"hello"),
    ),
    pair(
        "peek_waits_for_data",
        |s| {
            s.go();
            receive(s, 100, MSG_PEEK);
            receive(s, 100, 0);
        },
        |s| {
            s.wait();
            std::thread::sleep(std::time::Duration::from_millis(20));
            s.send(b"hello");
        },
    ),
    pair(
        "peek_with_waitall",
        |s| {
            s.until(POLLIN);
            s.go();
            receive(s, 11, MSG_PEEK | MSG_WAITALL);
            receive(s, 11, MSG_WAITALL);
        },
        two_words,
    ),
    pair(
        "peek_at_the_end",
        |s| {
            s.until(POLLRDHUP);
            receive(s, 10, MSG_PEEK);
            receive(s, 10, MSG_PEEK | MSG_WAITALL);
            receive(s, 10, 0);
            receive(s, 10, MSG_PEEK);
        },
        |s| {
            s.send(b"bye");
            crosslane_exercise::calls::shutdown(s.fd, libc::SHUT_WR).expect("it is connected");
        },
    ),
    pair(
        "waitall",
        |s| {
            s.until(POLLIN);
            s.go();
            receive(s, 11, MSG_WAITALL);
        },
        two_words,
    ),
    pair(
        "waitall_of_much",
        |s| {
            let mut buffer = vec![0; 3_000_000];
            let answer = recv(s.fd, &mut buffer, MSG_WAITALL);
            s.say("recv", data(&buffer, answer));
        },
        |s| s.send(&pattern(3_000_000)),
    ),
    pair(
        "waitall_ends_at_the_end",
        |s| {
            receive(s, 100, MSG_WAITALL);
            receive(s, 100, MSG_WAITALL);
        },
        |s| {
            s.send(b"short");
            crosslane_exercise::calls::shutdown(s.fd, libc::SHUT_WR).expect("it is connected");
        },
    ),
    pair(
        "trunc_discards",
        |s| {
            s.until(POLLIN);
            let mut buffer = *b"untouched";
            s.say("recv", recv(s.fd, &mut buffer[..4], MSG_TRUNC));
            s.say("buffer", digest(&buffer));
            s.read(100);
        },
        |s| s.send(b"hello world"),
    ),
    pair(
        "peek_with_trunc",
        |s| {
            s.until(POLLIN);
            s.say("recv", recv(s.fd, &mut [0; 4], MSG_TRUNC | MSG_PEEK));
            s.read(100);
        },
        |s| s.send(b"hello world"),
    ),
    pair(
        "no_error_queue",
        |s| {
            receive(s, 10, MSG_ERRQUEUE);
            s.until(POLLIN);
            receive(s, 10, MSG_ERRQUEUE);
            receive(s, 10, 0);
        },
        |s| s.send(b"data"),
    ),
    pair(
        "zero_length",
        |s| {
            s.say("read nothing of nothing", read(s.fd, &mut []));
            s.say("recv nothing of nothing", recv(s.fd, &mut [], MSG_DONTWAIT));
            s.say("write nothing", write(s.fd, &[]));
            s.say("send nothing", send(s.fd, &[], MSG_NOSIGNAL));
            s.go();
            s.until(POLLIN);
            s.say("read nothing", read(s.fd, &mut []));
            s.say("peek nothing", recv(s.fd, &mut [], MSG_PEEK));
            s.read(10);
        },
        |s| {
            s.wait();
            s.say("nothing came", recv(s.fd, &mut [0; 10], MSG_DONTWAIT));
            s.send(b"data");
        },
    ),
    pair(
        "more_to_come",
        |s| s.read_exactly(11),
        |s| {
            s.say("send", send(s.fd, b"hello", MSG_MORE | MSG_NOSIGNAL));
            s.send(b" world");
        },
    ),
    pair(
        "cork",
        |s| s.read_exactly(11),
        |s| {
            s.say("cork", setsockopt(s.fd, libc::IPPROTO_TCP, TCP_CORK, 1));
            s.send(b"hello");
            s.send(b" world");
            s.say("uncork", setsockopt(s.fd, libc::IPPROTO_TCP, TCP_CORK, 0));
        },
    ),
    pair(
        "receive_low_water_mark",
        |s| {
            s.say("set", setsockopt(s.fd, SOL_SOCKET, SO_RCVLOWAT, 8));
            s.say("is", getsockopt(s.fd, SOL_SOCKET, SO_RCVLOWAT));
            s.go();
            s.wait();
            s.say("poll", poll_one(s.fd, POLLIN, Some(20)).map(i32::from));
            s.go();
            s.until(POLLIN);
            s.read(100);
        },
        |s| {
            s.wait();
            s.send(b"1234");
            s.go();
            s.wait();
            s.send(b"5678");
        },
    ),
    pair(
        "addresses_are_not_told",
        |s| {
            s.until(POLLIN);
            let mut buffer = [0; 10];
            let received = recvfrom(s.fd, &mut buffer, 0);
            s.say(
                "bytes",
                received.as_ref().map(|r| r.bytes).map_err(|errno| *errno),
            );
            s.say("name", received.map(|r| r.name_length));
        },
        |s| {
            let elsewhere: SocketAddr = "127.0.0.9:9".parse().expect("it is an address");
            s.say("sendto", sendto(s.fd, b"hello", MSG_NOSIGNAL, elsewhere));
        },
    ),
    pair(
        "receiving_nothing_waits_for_something",
        |s| {
            receive(s, 0, MSG_DONTWAIT);
            s.go();
            receive(s, 0, 0);
            receive(s, 0, MSG_PEEK);
            receive(s, 0, MSG_TRUNC);
            receive(s, 0, MSG_DONTWAIT);
            receive(s, 10, 0);
            receive(s, 0, MSG_DONTWAIT);
            s.go();
            receive(s, 0, 0);
        },
        |s| {
            s.wait();
            std::thread::sleep(std::time::Duration::from_millis(20));
            s.send(b"hello");
            s.wait();
            shutdown(s.fd, libc::SHUT_WR).expect("it is connected");
        },
    ),
];
