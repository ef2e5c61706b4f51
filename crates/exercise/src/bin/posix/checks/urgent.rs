//! Urgent data.

use crosslane_exercise::calls::{ioctl_read, recv, send, setsockopt, sockatmark};
use libc::{MSG_NOSIGNAL, MSG_OOB, POLLIN, POLLPRI, SO_OOBINLINE, SOL_SOCKET};

use super::{Check, pair};
use crate::Stage;
use crate::stage::data;

/// Whether the next byte is the one after the mark.
const SIOCATMARK: libc::Ioctl = 0x8905;

fn receive_urgent(s: &mut Stage) {
    let mut buffer = [0; 10];
    let answer = recv(s.fd, &mut buffer, MSG_OOB);
    s.say("urgent", data(&buffer, answer));
}

fn at_mark(s: &mut Stage) {
    s.say("at mark", ioctl_read(s.fd, SIOCATMARK));
}

/// As libc tells it, and by the request that libc makes.
fn both_marks(s: &mut Stage) {
    s.say("sockatmark", sockatmark(s.fd));
    at_mark(s);
}

/// Far: ordinary data, urgent data, ordinary data.
fn around(s: &mut Stage) {
    s.send(b"before");
    s.say("urgent", send(s.fd, b"!", MSG_OOB | MSG_NOSIGNAL));
    s.send(b"after");
    s.go();
}

pub const CHECKS: &[Check] = &[
    pair(
        "urgent_data",
        |s| {
            s.until(POLLPRI);
            s.wait();
            s.poll();
            at_mark(s);
            receive_urgent(s);
            receive_urgent(s);
            s.read(100);
            at_mark(s);
            s.read(100);
        },
        around,
    ),
    pair(
        "urgent_data_inline",
        |s| {
            s.say("set", setsockopt(s.fd, SOL_SOCKET, SO_OOBINLINE, 1));
            s.go();
            s.until(POLLPRI);
            s.wait();
            receive_urgent(s);
            s.read(100);
            at_mark(s);
            s.read(100);
        },
        |s| {
            s.wait();
            around(s);
        },
    ),
    pair(
        "sockatmark_beside_the_request",
        |s| {
            both_marks(s);
            s.go();
            s.until(POLLPRI);
            s.wait();
            both_marks(s);
            s.read(3);
            both_marks(s);
            s.read(100);
            both_marks(s);
            s.read(100);
            both_marks(s);
            s.send(b"talk");
            s.go();
            s.wait();
            both_marks(s);
            s.read(100);
        },
        |s| {
            s.wait();
            around(s);
            s.wait();
            s.read(100);
            s.send(b"more");
            s.go();
        },
    ),
    pair(
        "no_urgent_data",
        |s| {
            receive_urgent(s);
            s.until(POLLIN);
            receive_urgent(s);
            at_mark(s);
            s.read(100);
        },
        |s| s.send(b"ordinary"),
    ),
];
