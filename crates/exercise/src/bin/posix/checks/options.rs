//! getsockopt(2) and setsockopt(2) on a connection.

use crosslane_exercise::calls::{
    getsockopt, getsockopt_bytes, set_linger, set_timeout, setsockopt, setsockopt_with_length,
    take_error,
};
use libc::{
    IPPROTO_TCP, SO_ACCEPTCONN, SO_ERROR, SO_KEEPALIVE, SO_LINGER, SO_OOBINLINE, SO_RCVBUF,
    SO_RCVTIMEO, SO_REUSEADDR, SO_SNDBUF, SO_SNDTIMEO, SOL_SOCKET, TCP_CORK, TCP_INFO,
    TCP_KEEPIDLE, TCP_NODELAY, TCP_QUICKACK, TCP_USER_TIMEOUT,
};

use super::{Check, pair};
use crate::Stage;
use crate::stage::digest;

fn option(s: &mut Stage, name: &str, level: i32, option: i32) {
    s.say(name, getsockopt(s.fd, level, option));
}

/// Set an option to each value and read it back.
fn set_and_see(s: &mut Stage, name: &str, level: i32, number: i32, values: &[i32]) {
    for &value in values {
        s.say("set", setsockopt(s.fd, level, number, value));
        option(s, name, level, number);
    }
}

pub const CHECKS: &[Check] = &[
    pair(
        "nodelay_is_the_programs_own",
        |s| {
            option(s, "nodelay", IPPROTO_TCP, TCP_NODELAY);
            set_and_see(s, "nodelay", IPPROTO_TCP, TCP_NODELAY, &[1, 0, 5]);
            s.send(b"still works");
        },
        |s| {
            s.read(100);
            option(s, "nodelay", IPPROTO_TCP, TCP_NODELAY);
        },
    ),
    pair(
        "options_read_back",
        |s| {
            set_and_see(s, "keepalive", SOL_SOCKET, SO_KEEPALIVE, &[1, 0]);
            set_and_see(s, "oobinline", SOL_SOCKET, SO_OOBINLINE, &[1, 0]);
            set_and_see(s, "reuse", SOL_SOCKET, SO_REUSEADDR, &[1, 0]);
            set_and_see(s, "cork", IPPROTO_TCP, TCP_CORK, &[1, 0]);
            set_and_see(s, "idle", IPPROTO_TCP, TCP_KEEPIDLE, &[77, 0]);
            set_and_see(s, "timeout", IPPROTO_TCP, TCP_USER_TIMEOUT, &[5000, 0]);
            s.say("quickack", setsockopt(s.fd, IPPROTO_TCP, TCP_QUICKACK, 1));
            option(s, "accepting", SOL_SOCKET, SO_ACCEPTCONN);
            s.send(b"still works");
        },
        |s| s.read(100),
    ),
    pair(
        "buffers_are_doubled",
        |s| {
            set_and_see(s, "sndbuf", SOL_SOCKET, SO_SNDBUF, &[50_000, 1]);
            set_and_see(s, "rcvbuf", SOL_SOCKET, SO_RCVBUF, &[50_000, 1]);
            s.send(b"still works");
        },
        |s| s.read(100),
    ),
    pair(
        "structures_read_back",
        |s| {
            s.say("set", set_linger(s.fd, Some(7)));
            let mut linger = [9; 8];
            s.say(
                "length",
                getsockopt_bytes(s.fd, SOL_SOCKET, SO_LINGER, &mut linger),
            );
            s.say("linger", digest(&linger));
            for name in [SO_RCVTIMEO, SO_SNDTIMEO] {
                s.say("set", set_timeout(s.fd, name, 1500));
                let mut time = [9; 16];
                s.say(
                    "length",
                    getsockopt_bytes(s.fd, SOL_SOCKET, name, &mut time),
                );
                s.say("time", digest(&time));
            }
            s.say("unset", set_linger(s.fd, None));
        },
        |_| {},
    ),
    pair(
        "lengths_are_kept_to",
        |s| {
            for length in [0, 1, 3, 4, 5, 8] {
                let mut value = [0xaa; 10];
                let answer = getsockopt_bytes(s.fd, IPPROTO_TCP, TCP_NODELAY, &mut value[..length]);
                s.say("length", answer);
                s.say(
                    "rest untouched",
                    value[length..].iter().all(|&byte| byte == 0xaa),
                );
            }
            let mut info = [0xaa; 400];
            s.say(
                "info",
                getsockopt_bytes(s.fd, IPPROTO_TCP, TCP_INFO, &mut info[..8]),
            );
            s.say("rest untouched", info[8..].iter().all(|&byte| byte == 0xaa));
            s.say("established", info[0]);
            let answer = getsockopt_bytes(s.fd, IPPROTO_TCP, TCP_INFO, &mut info);
            s.say(
                "whole",
                answer.is_ok_and(|length| length > 100 && length < 400),
            );
        },
        |_| {},
    ),
    pair(
        "options_misused",
        |s| {
            s.say(
                "short",
                setsockopt_with_length(s.fd, IPPROTO_TCP, TCP_NODELAY, 1),
            );
            s.say(
                "none",
                setsockopt_with_length(s.fd, IPPROTO_TCP, TCP_NODELAY, 0),
            );
            s.say(
                "long",
                setsockopt_with_length(s.fd, IPPROTO_TCP, TCP_NODELAY, 16),
            );
            s.say("unknown", setsockopt(s.fd, IPPROTO_TCP, 9999, 1));
            s.say("unknown", getsockopt(s.fd, SOL_SOCKET, 9999));
            s.say("level", setsockopt(s.fd, 9999, 1, 1));
            s.say("read only", setsockopt(s.fd, SOL_SOCKET, SO_ERROR, 1));
            s.say("nothing", setsockopt(4000, IPPROTO_TCP, TCP_NODELAY, 1));
            s.say("error", take_error(s.fd));
        },
        |_| {},
    ),
];
