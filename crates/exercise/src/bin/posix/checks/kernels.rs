//! Options that only the kernel can honour, set on a connection in use: what they answer, and that each byte comes.

use std::io::IoSliceMut;

use crosslane_exercise::calls::{recvmsg, send, setsockopt};
use libc::{
    IPPROTO_TCP, MSG_CTRUNC, MSG_NOSIGNAL, MSG_ZEROCOPY, POLLIN, SO_ATTACH_BPF, SO_ZEROCOPY,
    SOL_SOCKET, TCP_CM_INQ, TCP_MD5SIG, TCP_REPAIR, TCP_ULP,
};

use super::{Check, pair};
use crate::Stage;
use crate::stage::pattern;

const MUCH: usize = 100_000;

/// `struct tcp_md5sig` (linux/tcp.h) for no address.
const NO_KEY: [u8; 216] = [0; 216];

fn ask(s: &mut Stage) {
    for _ in 0..3 {
        s.send(b"question");
        s.read_exactly(6);
    }
}

fn answer(s: &mut Stage) {
    for _ in 0..3 {
        s.read_exactly(8);
        s.send(b"answer");
    }
}

pub const CHECKS: &[Check] = &[
    pair(
        "kernel_tls_is_named_on_a_connection_in_use",
        |s| {
            s.say("set", setsockopt(s.fd, IPPROTO_TCP, TCP_ULP, *b"tls"));
            ask(s);
        },
        answer,
    ),
    pair(
        "a_signature_is_wanted_on_a_connection_in_use",
        |s| {
            s.say("set", setsockopt(s.fd, IPPROTO_TCP, TCP_MD5SIG, NO_KEY));
            ask(s);
        },
        answer,
    ),
    pair(
        "a_connection_in_use_is_repaired",
        |s| {
            for on in [1, 0] {
                s.say("set", setsockopt(s.fd, IPPROTO_TCP, TCP_REPAIR, on));
            }
            ask(s);
        },
        answer,
    ),
    pair(
        "a_program_of_bpf_that_is_none_filters_nothing",
        |s| {
            s.say("set", setsockopt(s.fd, SOL_SOCKET, SO_ATTACH_BPF, -1));
            ask(s);
        },
        answer,
    ),
    pair(
        "what_is_not_copied_comes",
        |s| {
            s.say("set", setsockopt(s.fd, SOL_SOCKET, SO_ZEROCOPY, 1));
            let flags = MSG_ZEROCOPY | MSG_NOSIGNAL;
            s.say("send", send(s.fd, &pattern(MUCH), flags));
            ask(s);
        },
        |s| {
            s.read_exactly(MUCH);
            answer(s);
        },
    ),
    pair(
        "what_is_left_is_told_beside_what_comes",
        |s| {
            s.say("set", setsockopt(s.fd, IPPROTO_TCP, TCP_CM_INQ, 1));
            s.go();
            s.until(POLLIN);
            let mut half = [0; 4];
            let received = recvmsg(s.fd, &mut [IoSliceMut::new(&mut half)], 0);
            let has_more = received.map(|received| received.flags & MSG_CTRUNC != 0);
            s.say("a number beside them", has_more);
            s.say("bytes", &half == b"ques");
            s.read_exactly(4);
        },
        |s| {
            s.wait();
            s.send(b"question");
        },
    ),
];
