//! getsockopt(2) and setsockopt(2) on a connection.

use std::io::IoSliceMut;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use crosslane_exercise::Errno;
use crosslane_exercise::calls::{
    accept, bind, connect, getsockname, getsockopt, getsockopt_bytes, listen, poll_one, recv,
    recvmsg, send, set_linger, set_timeout, setsockopt, setsockopt_with_length, shutdown, socket,
    take_error,
};
use libc::{
    AF_INET, BPF_JGT, BPF_JMP, BPF_K, BPF_LD, BPF_LEN, BPF_RET, BPF_W, IPPROTO_TCP, MSG_CTRUNC,
    MSG_DONTWAIT, MSG_NOSIGNAL, MSG_OOB, MSG_PEEK, POLLIN, SHUT_WR, SO_ACCEPTCONN,
    SO_ATTACH_FILTER, SO_ERROR, SO_KEEPALIVE, SO_LINGER, SO_OOBINLINE, SO_PEEK_OFF, SO_RCVBUF,
    SO_RCVLOWAT, SO_RCVTIMEO, SO_REUSEADDR, SO_SNDBUF, SO_SNDTIMEO, SO_TIMESTAMP, SOL_SOCKET,
    TCP_CORK, TCP_INFO, TCP_KEEPIDLE, TCP_NODELAY, TCP_QUICKACK, TCP_USER_TIMEOUT, sock_filter,
    sock_fprog,
};

use super::{Check, pair, solo};
use crate::Stage;
use crate::stage::{data, digest, drain, hears, pattern, says, take};
use crate::warm::v4;

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

/// Not in libc.
const SO_MAX_PACING_RATE: i32 = 47;

/// What a program asks for that wants few bytes on their way.
const SMALL_BUFFER: i32 = 4096;
/// More than small buffers hold, and less than any that nobody has made small.
const FEW_BYTES: usize = 256 * 1024;

fn make_small(fd: RawFd, name: i32) {
    setsockopt(fd, SOL_SOCKET, name, SMALL_BUFFER).expect("a buffer can be made smaller");
}

/// Send until there is no room: how much was taken, and what ended it.
fn fill(fd: RawFd) -> (usize, Option<Errno>) {
    let all = pattern(1 << 20);
    let mut taken = 0;
    while taken < all.len() {
        match send(fd, &all[taken..], MSG_DONTWAIT | MSG_NOSIGNAL) {
            Ok(bytes) => taken += bytes,
            Err(errno) => return (taken, Some(errno)),
        }
    }
    (taken, None)
}

/// Fill a connection whose buffers are small, and see that it has taken little.
fn fill_small(s: &mut Stage, fd: RawFd) -> usize {
    let (taken, refusal) = fill(fd);
    s.say("is little", taken > 0 && taken < FEW_BYTES);
    s.say("refused", refusal.map_or(0, |errno| errno.0));
    taken
}

/// Buffers that were small before there was a connection: the connecting side's own, or those which
/// the accepted side has from its listener.
/// A connection whose listener and connecting end have been prepared before; that one, and the accepted one.
fn connected(s: &mut Stage, prepare: impl Fn(RawFd)) -> [RawFd; 2] {
    let [listener, near] = [(); 2].map(|()| socket(AF_INET, 0).expect("a socket can be made"));
    prepare(listener);
    prepare(near);
    bind(listener, v4()).expect("the loopback address is there");
    listen(listener, 8).expect("a bound socket can listen");
    let name = getsockname(listener).ok().and_then(|name| name.address());
    s.say("connect", connect(near, name.expect("it is bound")));
    let far = accept(listener).expect("a connection waits");
    let is_said = |from, to| says(from, b"word") && hears(to, b"word");
    s.say(
        "talk",
        (0..20).all(|_| is_said(near, far) && is_said(far, near)),
    );
    [near, far]
}

fn buffers_small_before(s: &mut Stage) {
    for accepted_sends in [false, true] {
        let [near, far] = connected(s, |fd| {
            make_small(fd, SO_SNDBUF);
            make_small(fd, SO_RCVBUF);
        });
        let [from, to] = if accepted_sends {
            [far, near]
        } else {
            [near, far]
        };
        let taken = fill_small(s, from);
        s.say("shutdown", shutdown(from, SHUT_WR));
        s.say("whole", drain(to) == Ok(pattern(taken)));
    }
}

/// Both ends have an option from before the connection: the connecting one its own, the accepted one its listener's.
fn connected_with(s: &mut Stage, name: i32, value: i32) -> [[RawFd; 2]; 2] {
    let [near, far] = connected(s, |fd| {
        setsockopt(fd, SOL_SOCKET, name, value).expect("a socket takes it");
    });
    [[near, far], [far, near]]
}

fn low_water_before(s: &mut Stage) {
    for [to, from] in connected_with(s, SO_RCVLOWAT, 100) {
        s.say("some", says(from, &pattern(10)));
        s.say("too few", poll_one(to, POLLIN, Some(100)));
        s.say("more", says(from, &pattern(90)));
        s.say("enough", poll_one(to, POLLIN, Some(5000)));
    }
}

fn urgent_inline_before(s: &mut Stage) {
    for [to, from] in connected_with(s, SO_OOBINLINE, 1) {
        s.say("before", says(from, b"ab"));
        s.say("urgent", send(from, b"c", MSG_OOB));
        s.say("behind", says(from, b"de"));
        s.say("all", take(to, 5) == Ok(b"abcde".to_vec()));
    }
}

fn timestamps_before(s: &mut Stage) {
    for [to, from] in connected_with(s, SO_TIMESTAMP, 1) {
        s.say("send", says(from, b"word"));
        let mut word = [0; 4];
        let received = recvmsg(to, &mut [IoSliceMut::new(&mut word)], 0);
        let has_more = received.map(|received| received.flags & MSG_CTRUNC != 0);
        s.say("bytes", &word == b"word");
        s.say("a time beside them", has_more);
    }
}

/// Bytes a second, and how many are sent at least so long.
const RATE: i32 = 4_000_000;
const PACED_BYTES: usize = 2 << 20;
const PACED: Duration = Duration::from_millis(200);

/// Receive what is sent at [`RATE`].
fn receive_paced(s: &mut Stage, fd: RawFd) {
    let since = Instant::now();
    let is_whole = take(fd, PACED_BYTES) == Ok(pattern(PACED_BYTES));
    s.say("whole", is_whole);
    s.say("slowly", since.elapsed() > PACED);
}

fn paced_before(s: &mut Stage) {
    for [to, from] in connected_with(s, SO_MAX_PACING_RATE, RATE) {
        let sender = std::thread::spawn(move || says(from, &pattern(PACED_BYTES)));
        receive_paced(s, to);
        s.say("send", sender.join().expect("it does not panic"));
    }
}

/// Longer than a word, and shorter than what is sent to be dropped; with TCP's header.
const LONGEST: u32 = 500;

/// Have the kernel drop what is long (SO_ATTACH_FILTER).
fn drop_long(fd: RawFd) {
    let step = |code: u32, jf: u8, k: u32| sock_filter {
        code: u16::try_from(code).expect("it is short"),
        jt: 0,
        jf,
        k,
    };
    let mut steps = [
        step(BPF_LD | BPF_W | BPF_LEN, 0, 0),
        step(BPF_JMP | BPF_JGT | BPF_K, 1, LONGEST),
        step(BPF_RET | BPF_K, 0, 0),
        step(BPF_RET | BPF_K, 0, u32::MAX),
    ];
    let program = sock_fprog {
        len: 4,
        filter: steps.as_mut_ptr(),
    };
    setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, program).expect("a socket takes a filter");
}

fn filtered_before(s: &mut Stage) {
    let [near, far] = connected(s, drop_long);
    for [to, from] in [[near, far], [far, near]] {
        s.say("word", says(from, b"word") && hears(to, b"word"));
        s.say("long", says(from, &pattern(1000)));
        s.say("comes", poll_one(to, POLLIN, Some(200)));
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
        "small_buffers_take_little",
        |s| {
            make_small(s.fd, SO_SNDBUF);
            s.wait();
            let fd = s.fd;
            fill_small(s, fd);
            s.go();
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        |s| {
            make_small(s.fd, SO_RCVBUF);
            s.go();
            s.wait();
            let whole = drain(s.fd).is_ok_and(|bytes| bytes == pattern(bytes.len()));
            s.say("whole", whole);
        },
    ),
    solo("buffers_small_before_connecting", buffers_small_before),
    solo("low_water_before_connecting", low_water_before),
    solo("urgent_inline_before_connecting", urgent_inline_before),
    solo("timestamps_before_connecting", timestamps_before),
    solo("filter_before_connecting", filtered_before),
    solo("pacing_before_connecting", paced_before),
    pair(
        "pacing_of_a_connection_in_use",
        |s| {
            s.say(
                "any",
                setsockopt(s.fd, SOL_SOCKET, SO_MAX_PACING_RATE, u64::MAX),
            );
            s.say(
                "set",
                setsockopt(s.fd, SOL_SOCKET, SO_MAX_PACING_RATE, RATE),
            );
            s.go();
            s.send(&pattern(PACED_BYTES));
        },
        |s| {
            s.wait();
            let fd = s.fd;
            receive_paced(s, fd);
        },
    ),
    pair(
        "peeks_go_on_behind_one_another",
        |s| {
            s.until(POLLIN);
            // The other side makes no call for a while.
            s.say("set", setsockopt(s.fd, SOL_SOCKET, SO_PEEK_OFF, 0));
            for _ in 0..2 {
                let mut buffer = [0; 2];
                let answer = recv(s.fd, &mut buffer, MSG_PEEK);
                s.say("peek", data(&buffer, answer));
            }
            s.wait();
            s.read_exactly(11);
        },
        |s| {
            s.send(b"hello");
            std::thread::sleep(Duration::from_millis(300));
            s.send(b" world");
            s.go();
        },
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
            s.say(
                "negative",
                setsockopt_with_length(s.fd, IPPROTO_TCP, TCP_NODELAY, u32::MAX),
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
