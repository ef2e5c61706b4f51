//! Vectors of buffers, messages, and memory that is not there.

use std::io::{IoSlice, IoSliceMut};

use crosslane_exercise::calls::{
    pread, preadv2, pwritev2, raw_read, raw_write, read_into_nowhere, readv, readv_empty_parts,
    readv_half_into_nowhere, recvmmsg, recvmsg, sendmmsg, sendmsg, write_from_nowhere, writev,
    writev_empty_parts,
};
use libc::{MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK, MSG_WAITALL, POLLIN};

use super::{Check, pair};
use crate::stage::{data, digest, pattern};

pub const CHECKS: &[Check] = &[
    pair(
        "readv_scatters",
        |s| {
            s.until(POLLIN);
            let (mut a, mut b, mut c) = ([0; 3], [0; 0], [0; 30]);
            let mut parts = [
                IoSliceMut::new(&mut a),
                IoSliceMut::new(&mut b),
                IoSliceMut::new(&mut c),
            ];
            let answer = readv(s.fd, &mut parts);
            s.say("readv", answer);
            s.say("a", digest(&a));
            s.say("c", digest(&c[..8]));
        },
        |s| s.send(b"hello world"),
    ),
    pair(
        "writev_gathers",
        |s| s.read_exactly(11),
        |s| {
            let parts = [&b"hel"[..], b"", b"lo", b" world"].map(IoSlice::new);
            s.say("writev", writev(s.fd, &parts));
        },
    ),
    pair(
        "writev_of_many_parts_sends_all",
        |s| s.read_exactly(1024 * 3000),
        |s| {
            let bytes = pattern(1024 * 3000);
            let parts: Vec<_> = bytes.chunks(3000).map(IoSlice::new).collect();
            s.say("writev", writev(s.fd, &parts));
        },
    ),
    pair(
        "too_many_parts",
        |s| {
            s.say("readv", readv_empty_parts(s.fd, 1025));
            s.say("writev", writev_empty_parts(s.fd, 1025));
            s.say("writev", writev_empty_parts(s.fd, 1024));
            s.say("writev", writev_empty_parts(s.fd, 0));
            s.say("writev", writev_empty_parts(s.fd, -1));
            s.say("readv", readv_empty_parts(s.fd, 0));
            s.send(b"unharmed");
        },
        |s| s.read(100),
    ),
    pair(
        "sendmsg_and_recvmsg",
        |s| {
            s.until(POLLIN);
            let (mut a, mut b) = ([0; 4], [0; 30]);
            let mut parts = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
            let peeked = recvmsg(s.fd, &mut parts, MSG_PEEK);
            s.say("peeked", peeked.map(|r| r.bytes));
            let received = recvmsg(s.fd, &mut parts, 0);
            s.say(
                "flags",
                received.as_ref().map(|r| r.flags).map_err(|errno| *errno),
            );
            s.say(
                "name",
                received
                    .as_ref()
                    .map(|r| r.name_length)
                    .map_err(|errno| *errno),
            );
            s.say("bytes", received.map(|r| r.bytes));
            s.say("a", digest(&a));
            s.say("b", digest(&b[..7]));
            let none = recvmsg(s.fd, &mut [IoSliceMut::new(&mut b)], MSG_DONTWAIT);
            s.say("none", none.map(|r| r.bytes));
        },
        |s| {
            let parts = [&b"hello"[..], b" world"].map(IoSlice::new);
            s.say("sendmsg", sendmsg(s.fd, &parts, MSG_NOSIGNAL));
        },
    ),
    pair(
        "recvmsg_with_waitall",
        |s| {
            let (mut a, mut b) = ([0; 1000], vec![0; 99_000]);
            let mut parts = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
            let received = recvmsg(s.fd, &mut parts, MSG_WAITALL);
            s.say("bytes", received.map(|r| r.bytes));
            s.say("b", digest(&b));
        },
        |s| {
            let bytes = pattern(100_000);
            bytes.chunks(9999).for_each(|part| s.send(part));
        },
    ),
    pair(
        "many_messages_in_one_call",
        |s| {
            s.until(POLLIN);
            s.wait();
            let (mut a, mut b) = ([0; 5], [0; 30]);
            let mut parts = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
            let received = recvmmsg(s.fd, &mut parts, MSG_DONTWAIT);
            s.say("recvmmsg", received.map(|lengths| format!("{lengths:?}")));
            s.say("a", digest(&a));
            s.say("b", digest(&b[..6]));
        },
        |s| {
            let parts = [&b"hello"[..], b" world"].map(IoSlice::new);
            s.say("sendmmsg", sendmmsg(s.fd, &parts, MSG_NOSIGNAL));
            s.go();
        },
    ),
    pair(
        "memory_that_is_not_there",
        |s| {
            s.say("read nothing there", read_into_nowhere(s.fd, 0));
            s.until(POLLIN);
            s.say("read", read_into_nowhere(s.fd, 10));
            s.say("write", write_from_nowhere(s.fd, 10));
            s.read(100);
            s.send(b"unharmed");
        },
        |s| {
            s.send(b"data");
            s.read(100);
        },
    ),
    pair(
        "memory_that_is_half_there",
        |s| {
            s.until(POLLIN);
            let mut buffer = [0; 4];
            let answer = readv_half_into_nowhere(s.fd, &mut buffer);
            s.say("readv", answer.map(|count| count >= 4));
        },
        |s| s.send(b"data"),
    ),
    pair(
        "system_calls_past_the_library",
        |s| {
            s.say("write", raw_write(s.fd, b"raw"));
            let mut buffer = [0; 100];
            let answer = raw_read(s.fd, &mut buffer);
            s.say("read", data(&buffer, answer));
            s.send(b"plain");
            s.read(100);
        },
        |s| {
            s.read(100);
            s.send(b"one");
            s.read(100);
            s.say("write", raw_write(s.fd, b"two"));
        },
    ),
    pair(
        "positioned_calls",
        |s| {
            s.say("pread", pread(s.fd, &mut [0; 10], 0));
            s.say("seek", crosslane_exercise::calls::seek(s.fd));
            s.until(POLLIN);
            let mut buffer = [0; 10];
            let answer = preadv2(s.fd, &mut [IoSliceMut::new(&mut buffer)], -1, 0);
            s.say("preadv2", data(&buffer, answer));
            let answer = preadv2(
                s.fd,
                &mut [IoSliceMut::new(&mut buffer)],
                -1,
                libc::RWF_NOWAIT,
            );
            s.say("preadv2", answer);
        },
        |s| s.say("pwritev2", pwritev2(s.fd, &[IoSlice::new(b"data")], -1, 0)),
    ),
];
