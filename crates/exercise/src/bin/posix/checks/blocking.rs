//! Blocking, not blocking, and giving up after a time.

use std::time::{Duration, Instant};

use crosslane_exercise::Errno;
use crosslane_exercise::calls::{
    fcntl, ioctl_nonblocking, is_nonblocking, pipe, read, recv, send, sendmsg_beside,
    set_nonblocking, set_timeout, setsockopt, shutdown, write,
};
use libc::{
    MSG_DONTWAIT, MSG_NOSIGNAL, MSG_WAITALL, POLLIN, POLLOUT, SHUT_WR, SO_OOBINLINE, SO_RCVBUF,
    SO_RCVTIMEO, SO_SNDBUF, SO_SNDTIMEO, SOL_SOCKET,
};

use super::{Check, pair};
use crate::Stage;
use crate::stage::{digest, drain, pattern, take};

/// Write until nothing goes in any more: how much did, and why no more.
fn fill(fd: i32, flags: i32) -> (usize, Errno) {
    let bytes = pattern(100_000);
    let mut sent = 0;
    loop {
        match send(fd, &bytes[sent % 251..], flags | MSG_NOSIGNAL) {
            Ok(more) => sent += more,
            Err(errno) => return (sent, errno),
        }
    }
}

/// Whether `bytes` are those that [`fill`] writes.
fn is_pattern(bytes: &[u8]) -> bool {
    bytes == pattern(bytes.len())
}

/// Fill a connection, see it refuse more, have the other side drain it, and see it take more.
fn fill_and_refill(s: &mut Stage, flags: i32) {
    let (sent, errno) = fill(s.fd, flags);
    s.say("full", errno);
    s.say("some", sent > 10_000);
    s.poll();
    s.say("send", send(s.fd, b"x", flags | MSG_NOSIGNAL));
    s.go();
    s.until(POLLOUT);
    let more = send(
        s.fd,
        &pattern(1000)[sent % 251..][..100],
        flags | MSG_NOSIGNAL,
    );
    s.say("more", more);
    let total = sent + more.unwrap_or(0);
    crosslane_exercise::calls::shutdown(s.fd, libc::SHUT_WR).expect("it is connected");
    s.until(POLLIN);
    let mut seen = [0; 8];
    let seen = recv(s.fd, &mut seen, MSG_WAITALL).map(|_| u64::from_ne_bytes(seen));
    s.say("all arrived", seen == Ok(total as u64));
}

/// The other side of [`fill_and_refill`].
fn drain_and_count(s: &mut Stage) {
    s.wait();
    let bytes = drain(s.fd).unwrap_or_default();
    s.say("in order", is_pattern(&bytes));
    let count = (bytes.len() as u64).to_ne_bytes();
    s.say("count", send(s.fd, &count, MSG_NOSIGNAL));
}

/// What a call returned that should have waited for at least `least`.
fn timed<T>(s: &mut Stage, least: Duration, call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let returned = call();
    s.say("waited", start.elapsed() >= least);
    returned
}

const SHORT: Duration = Duration::from_millis(50);
/// The kernel counts in ticks.
const SHORT_LESS_A_TICK: Duration = Duration::from_millis(40);

/// Messages of some records, as rings have them.
const MESSAGES: usize = 300;
const MESSAGE: usize = 40_000;

/// Near: receive each message by one call that has room for more; programs take that to be what was sent.
fn receive_messages(s: &mut Stage) {
    let mut whole = 0;
    for _ in 0..MESSAGES {
        let mut room = vec![0; 4 * MESSAGE];
        let first = recv(s.fd, &mut room, 0).expect("a message comes");
        whole += usize::from(first == MESSAGE);
        take(s.fd, MESSAGE - first).expect("so does its rest");
        send(s.fd, b"!", MSG_NOSIGNAL).expect("there is room for an answer");
    }
    // A sender may lose its processor in the middle of its copy, on a machine that others use.
    s.say("nearly all whole", whole >= MESSAGES - 3);
}

/// Of a buffer that holds less than memory does, and is not small enough to keep a connection on TCP.
const BUFFER: i32 = 40_000;

/// Near: there is no room when the other side wants what is in memory by TCP.
fn beside_control_data(s: &mut Stage) {
    setsockopt(s.fd, SOL_SOCKET, SO_SNDBUF, BUFFER).expect("a buffer can be made smaller");
    s.wait();
    let (mut sent, errno) = fill(s.fd, MSG_DONTWAIT);
    s.say("full", errno);
    s.go();
    s.wait();
    let [out, _into] = pipe().expect("a pipe can be made");
    let flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    let bytes = pattern(1000);
    // TCP may have some room where memory has none.
    let refused = loop {
        match sendmsg_beside(s.fd, &bytes[sent % 251..][..251], &[out], flags) {
            Ok(more) => sent += more,
            Err(errno) => break errno,
        }
    };
    s.say("refused", refused);
    s.go();
    s.say("shutdown", shutdown(s.fd, SHUT_WR));
}

pub const CHECKS: &[Check] = &[
    pair("dontwait_beside_control_data", beside_control_data, |s| {
        setsockopt(s.fd, SOL_SOCKET, SO_RCVBUF, BUFFER).expect("a buffer can be made smaller");
        s.go();
        s.wait();
        s.say("inline", setsockopt(s.fd, SOL_SOCKET, SO_OOBINLINE, 1));
        s.go();
        s.wait();
        let is_whole = drain(s.fd).is_ok_and(|bytes| is_pattern(&bytes));
        s.say("in order", is_whole);
    }),
    pair("messages_are_received_whole", receive_messages, |s| {
        for _ in 0..MESSAGES {
            // Fresh from the kernel, of which each page has to be got when it is sent.
            let slow = vec![0; 100 * MESSAGE];
            send(s.fd, &slow[..MESSAGE], MSG_NOSIGNAL).expect("it is taken");
            take(s.fd, 1).expect("an answer comes");
        }
    }),
    pair(
        "nonblocking_read",
        |s| {
            s.say("set", set_nonblocking(s.fd, true));
            s.read(10);
            s.go();
            s.until(POLLIN);
            s.read(10);
            s.read(10);
            s.say("clear", set_nonblocking(s.fd, false));
            s.go();
            s.read(10);
        },
        |s| {
            s.wait();
            s.send(b"one");
            s.wait();
            std::thread::sleep(SHORT);
            s.send(b"two");
        },
    ),
    pair(
        "nonblocking_by_ioctl",
        |s| {
            s.say("set", ioctl_nonblocking(s.fd, true));
            s.say("is", is_nonblocking(s.fd));
            s.read(10);
            s.say("clear", ioctl_nonblocking(s.fd, false));
            s.say("is", is_nonblocking(s.fd));
            s.go();
            s.read(10);
        },
        |s| {
            s.wait();
            std::thread::sleep(SHORT);
            s.send(b"x");
        },
    ),
    pair(
        "nonblocking_write_until_full",
        |s| {
            s.say("set", set_nonblocking(s.fd, true));
            fill_and_refill(s, 0);
        },
        drain_and_count,
    ),
    pair(
        "dontwait_write_until_full",
        |s| fill_and_refill(s, MSG_DONTWAIT),
        drain_and_count,
    ),
    pair(
        "nonblocking_write_is_partial",
        |s| {
            s.say("set", set_nonblocking(s.fd, true));
            let bytes = pattern(64 << 20);
            let sent = write(s.fd, &bytes);
            s.say(
                "part",
                sent.is_ok_and(|sent| sent > 0 && sent < bytes.len()),
            );
            s.go();
            s.until(POLLIN);
            s.read(10);
        },
        |s| {
            s.wait();
            let first = take(s.fd, 5000).map(|bytes| digest(&bytes));
            s.say("first", first);
            s.send(b"thanks");
        },
    ),
    pair(
        "dontwait_read",
        |s| {
            s.say("recv", recv(s.fd, &mut [0; 10], MSG_DONTWAIT));
            s.go();
            s.until(POLLIN);
            s.say("recv", recv(s.fd, &mut [0; 10], MSG_DONTWAIT));
            s.say("recv", recv(s.fd, &mut [0; 10], MSG_DONTWAIT | MSG_WAITALL));
        },
        |s| {
            s.wait();
            s.send(b"here");
        },
    ),
    pair(
        "dontwait_waitall_takes_what_is_there",
        |s| {
            s.until(POLLIN);
            s.say("recv", recv(s.fd, &mut [0; 10], MSG_DONTWAIT | MSG_WAITALL));
        },
        |s| s.send(b"here"),
    ),
    pair(
        "receive_timeout",
        |s| {
            s.say("set", set_timeout(s.fd, SO_RCVTIMEO, 50));
            let fd = s.fd;
            let answer = timed(s, SHORT_LESS_A_TICK, || read(fd, &mut [0; 10]));
            s.say("read", answer);
            s.go();
            s.until(POLLIN);
            s.read(10);
            s.say("unset", set_timeout(s.fd, SO_RCVTIMEO, 0));
            s.go();
            s.read(10);
        },
        |s| {
            s.wait();
            s.send(b"one");
            s.wait();
            std::thread::sleep(SHORT * 2);
            s.send(b"two");
        },
    ),
    pair(
        "receive_timeout_with_waitall",
        |s| {
            s.until(POLLIN);
            s.say("set", set_timeout(s.fd, SO_RCVTIMEO, 50));
            s.say("recv", recv(s.fd, &mut [0; 10], MSG_WAITALL));
            s.say("recv", recv(s.fd, &mut [0; 10], MSG_WAITALL));
        },
        |s| s.send(b"abc"),
    ),
    pair(
        "send_timeout",
        |s| {
            s.say("set", set_timeout(s.fd, SO_SNDTIMEO, 50));
            let (sent, errno) = fill(s.fd, 0);
            s.say("full", errno);
            s.say("some", sent > 10_000);
            let fd = s.fd;
            let answer = timed(s, SHORT_LESS_A_TICK, || send(fd, b"x", MSG_NOSIGNAL));
            s.say("send", answer);
        },
        |_| {},
    ),
    pair(
        "blocking_write_sends_all",
        |s| {
            let sent = send(s.fd, &pattern(6_000_000), MSG_NOSIGNAL);
            s.say("sent", sent);
        },
        |s| {
            std::thread::sleep(SHORT);
            s.read_exactly(1_000_000);
            std::thread::sleep(SHORT);
            s.read_exactly(5_000_000);
        },
    ),
    pair(
        "blocked_reader_wakes",
        |s| {
            s.go();
            s.read(10);
            s.go();
            s.read(10);
        },
        |s| {
            for word in [b"one", b"two"] {
                s.wait();
                std::thread::sleep(SHORT);
                s.send(word);
            }
        },
    ),
    pair(
        "both_sides_write_at_once",
        |s| exchange(s, 8_000_000),
        |s| exchange(s, 8_000_000),
    ),
    pair(
        "flags_of_a_description_are_shared",
        |s| {
            let twin = crosslane_exercise::calls::dup(s.fd).expect("a descriptor is free");
            s.say("set", set_nonblocking(twin, true));
            s.read(10);
            s.say("descriptor flags", fcntl(s.fd, libc::F_GETFD, 0));
        },
        |_| {},
    ),
];

/// Send and receive `count` bytes at the same time, without blocking.
fn exchange(s: &mut Stage, count: usize) {
    let out = pattern(count);
    let (mut sent, mut bytes) = (0, Vec::new());
    let mut buffer = vec![0; 50_000];
    while sent < count || bytes.len() < count {
        let want = if sent < count {
            POLLIN | POLLOUT
        } else {
            POLLIN
        };
        s.until(want);
        if sent < count {
            sent += send(s.fd, &out[sent..], MSG_DONTWAIT | MSG_NOSIGNAL).unwrap_or(0);
        }
        let got = recv(s.fd, &mut buffer, MSG_DONTWAIT).unwrap_or(0);
        bytes.extend_from_slice(&buffer[..got]);
    }
    s.say("took", digest(&bytes));
}
