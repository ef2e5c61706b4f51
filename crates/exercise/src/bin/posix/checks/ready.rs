//! poll(2) and select(2).

use std::time::{Duration, Instant};

use crosslane_exercise::calls::{
    Readiness, poll, poll_one, ppoll, pselect_one, recv, select_one, send, set_nonblocking,
    shutdown,
};
use libc::{MSG_NOSIGNAL, POLLIN, POLLOUT, POLLRDHUP, SHUT_WR, pollfd};

use super::{Check, pair, solo};
use crate::Stage;
use crate::stage::{drain, events_text, pattern};

const SHORT: Duration = Duration::from_millis(40);
const ALL: Readiness = Readiness {
    read: true,
    write: true,
    except: true,
};
const READ: Readiness = Readiness {
    read: true,
    write: false,
    except: false,
};

fn select(s: &mut Stage, asked: Readiness, timeout: Duration) {
    let ready = select_one(s.fd, asked, Some(timeout)).map(|(ready, _)| text(ready));
    s.say("select", ready);
}

fn text(ready: Readiness) -> String {
    let bit = |on, letter| if on { letter } else { "-" };
    [
        bit(ready.read, "r"),
        bit(ready.write, "w"),
        bit(ready.except, "x"),
    ]
    .concat()
}

/// Far: send a word a little after being told to.
fn later(s: &mut Stage) {
    s.wait();
    std::thread::sleep(SHORT);
    s.send(b"word");
}

fn fill(s: &Stage) {
    set_nonblocking(s.fd, true).expect("a flag can be set");
    while send(s.fd, &[0; 50_000], MSG_NOSIGNAL).is_ok() {}
}

/// Far: take everything once told to.
fn drain_when_told(s: &mut Stage) {
    s.wait();
    s.say("some", drain(s.fd).is_ok_and(|bytes| bytes.len() > 10_000));
}

pub const CHECKS: &[Check] = &[
    pair(
        "poll_states",
        |s| {
            s.poll();
            s.go();
            s.until(POLLIN);
            s.poll();
            s.read(100);
            s.poll();
            s.go();
            s.until(POLLRDHUP);
            s.poll();
            s.read(100);
            s.poll();
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
            s.poll();
        },
        |s| {
            s.wait();
            s.send(b"word");
            s.wait();
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
    ),
    pair(
        "poll_asks_only_for_what_it_names",
        |s| {
            s.until(POLLIN);
            s.say("out", poll_one(s.fd, POLLOUT, Some(0)).map(events_text));
            s.say("in", poll_one(s.fd, POLLIN, Some(0)).map(events_text));
            s.say("none", poll_one(s.fd, 0, Some(0)).map(events_text));
        },
        |s| s.send(b"word"),
    ),
    pair(
        "poll_waits_for_data",
        |s| {
            s.go();
            s.say("poll", poll_one(s.fd, POLLIN, None).map(events_text));
            s.read(100);
        },
        later,
    ),
    pair(
        "poll_gives_up",
        |s| {
            let start = Instant::now();
            s.say("poll", poll_one(s.fd, POLLIN, Some(40)).map(events_text));
            s.say("waited", start.elapsed() >= SHORT);
        },
        |_| {},
    ),
    pair(
        "poll_sees_room_again",
        |s| {
            fill(s);
            s.poll();
            s.say("full", poll_one(s.fd, POLLOUT, Some(20)).map(events_text));
            s.go();
            s.say("room", poll_one(s.fd, POLLOUT, None).map(events_text));
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        drain_when_told,
    ),
    pair(
        "poll_of_several",
        |s| {
            let entry = |fd| pollfd {
                fd,
                events: POLLIN | POLLOUT,
                revents: 0x55,
            };
            let mut entries = [entry(-1), entry(s.fd), entry(4000), entry(s.fd)];
            s.go();
            s.until(POLLIN);
            s.say("poll", poll(&mut entries, Some(0)));
            entries
                .iter()
                .for_each(|entry| s.say("entry", events_text(entry.revents)));
        },
        later,
    ),
    solo("poll_of_nothing", |s| {
        let start = Instant::now();
        s.say("poll", poll(&mut [], Some(40)));
        s.say("waited", start.elapsed() >= SHORT);
    }),
    pair(
        "ppoll_counts_nanoseconds",
        |s| {
            let mut entry = [pollfd {
                fd: s.fd,
                events: POLLIN,
                revents: 0,
            }];
            let short = Duration::from_micros(300);
            let start = Instant::now();
            s.say("ppoll", ppoll(&mut entry, short, None));
            s.say("waited", start.elapsed() >= short);
            s.go();
            s.say("ppoll", ppoll(&mut entry, Duration::from_secs(10), None));
            s.read(100);
        },
        later,
    ),
    pair(
        "select_states",
        |s| {
            select(s, ALL, Duration::ZERO);
            s.go();
            s.until(POLLIN);
            select(s, ALL, Duration::ZERO);
            select(s, READ, Duration::ZERO);
            s.read(100);
            s.go();
            s.until(POLLRDHUP);
            select(s, ALL, Duration::ZERO);
        },
        |s| {
            s.wait();
            s.send(b"word");
            s.wait();
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
    ),
    pair(
        "select_waits_for_data",
        |s| {
            s.go();
            s.say(
                "select",
                select_one(s.fd, READ, None).map(|(ready, _)| text(ready)),
            );
            s.read(100);
        },
        later,
    ),
    pair(
        "select_gives_up",
        |s| {
            let start = Instant::now();
            select(s, READ, SHORT);
            s.say("waited", start.elapsed() >= SHORT);
        },
        |_| {},
    ),
    pair(
        "select_says_how_long_was_left",
        |s| {
            s.go();
            let left = select_one(s.fd, READ, Some(Duration::from_secs(10)));
            let left = left.map(|(_, left)| left);
            s.say("some", left.is_ok_and(|left| left > Duration::ZERO));
            s.say(
                "less",
                left.is_ok_and(|left| left < Duration::from_secs(10) - SHORT / 2),
            );
        },
        later,
    ),
    pair(
        "pselect",
        |s| {
            s.say("pselect", pselect_one(s.fd, READ, SHORT).map(text));
            s.go();
            s.say(
                "pselect",
                pselect_one(s.fd, READ, Duration::from_secs(10)).map(text),
            );
        },
        later,
    ),
    pair(
        "select_sees_room_again",
        |s| {
            fill(s);
            select(s, ALL, Duration::from_millis(20));
            s.go();
            let write = Readiness {
                write: true,
                ..Readiness::default()
            };
            select(s, write, Duration::from_secs(10));
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        drain_when_told,
    ),
    pair(
        "ready_until_the_last_byte_is_read",
        |s| {
            s.until(POLLIN);
            for _ in 0..5 {
                s.say("poll", poll_one(s.fd, POLLIN, Some(0)).map(events_text));
                s.say("recv", recv(s.fd, &mut [0; 200], 0));
            }
            s.say("poll", poll_one(s.fd, POLLIN, Some(0)).map(events_text));
        },
        |s| s.send(&pattern(1000)),
    ),
];
