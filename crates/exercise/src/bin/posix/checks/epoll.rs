//! epoll(7).

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use crosslane_exercise::Answer;
use crosslane_exercise::calls::{
    close, dup, epoll_create, epoll_ctl, epoll_delete, epoll_pwait, epoll_pwait2, epoll_wait,
    file_of, ioctl_read, poll_one, send, set_nonblocking, shutdown, socketpair, wait_for, write,
};
use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLIN, EPOLLOUT, EPOLLRDHUP, FIONREAD,
    MSG_NOSIGNAL, POLLIN, SHUT_WR,
};

use super::processes::in_child;
use super::{Check, pair, solo};
use crate::Stage;
use crate::stage::{drain, epoll_text, events_text};

const IN: u32 = EPOLLIN as u32;
const OUT: u32 = EPOLLOUT as u32;
const RDHUP: u32 = EPOLLRDHUP as u32;
const EDGE: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
const SHORT: Duration = Duration::from_millis(40);
/// Data that differs in every half.
const DATA: u64 = 0xfedc_ba98_7654_3210;

fn set() -> RawFd {
    epoll_create().expect("an epoll set can be made")
}

/// A set with the stage's connection in it.
fn watching(s: &Stage, events: u32) -> RawFd {
    let epoll = set();
    add(epoll, s.fd, events).expect("a connection can be added");
    epoll
}

fn add(epoll: RawFd, fd: RawFd, events: u32) -> Answer {
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, events, DATA)
}

fn modify(epoll: RawFd, fd: RawFd, events: u32) -> Answer {
    epoll_ctl(epoll, EPOLL_CTL_MOD, fd, events, DATA)
}

/// What is there now.
fn look(s: &mut Stage, epoll: RawFd) {
    s.say(
        "now",
        epoll_wait(epoll, 8, Some(0)).map(|events| epoll_text(&events)),
    );
}

/// What comes, as something must.
fn wait(s: &mut Stage, epoll: RawFd) {
    s.say(
        "event",
        epoll_wait(epoll, 8, Some(10_000)).map(|events| epoll_text(&events)),
    );
}

/// Far: a word each time it is told to.
fn words(s: &mut Stage, count: usize) {
    for _ in 0..count {
        s.wait();
        s.send(b"word");
        s.go();
    }
}

/// Near: have the far side send a word, and wait until it has come to what is there.
fn word(s: &mut Stage) {
    let before = ioctl_read(s.fd, FIONREAD);
    s.go();
    s.wait();
    while ioctl_read(s.fd, FIONREAD) == before {
        std::thread::yield_now();
    }
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
        "epoll_level",
        |s| {
            let epoll = watching(s, IN | OUT);
            look(s, epoll);
            word(s);
            look(s, epoll);
            look(s, epoll);
            s.read(100);
            look(s, epoll);
        },
        |s| words(s, 1),
    ),
    pair(
        "epoll_edge",
        |s| {
            let epoll = watching(s, IN | EDGE);
            look(s, epoll);
            word(s);
            wait(s, epoll);
            look(s, epoll);
            word(s);
            wait(s, epoll);
            look(s, epoll);
            s.read(100);
            look(s, epoll);
            word(s);
            wait(s, epoll);
        },
        |s| words(s, 3),
    ),
    pair(
        "epoll_edge_added_when_ready",
        |s| {
            word(s);
            let epoll = watching(s, IN | OUT | EDGE);
            look(s, epoll);
            look(s, epoll);
            s.say("modify", modify(epoll, s.fd, IN | OUT | EDGE));
            look(s, epoll);
            look(s, epoll);
        },
        |s| words(s, 1),
    ),
    pair(
        "epoll_edge_of_room",
        |s| {
            let epoll = watching(s, OUT | EDGE);
            look(s, epoll);
            look(s, epoll);
            fill(s);
            look(s, epoll);
            s.go();
            wait(s, epoll);
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        drain_when_told,
    ),
    pair(
        "epoll_end_behind_unread_data",
        |s| {
            s.wait();
            let epoll = watching(s, IN | RDHUP);
            std::thread::sleep(SHORT);
            // The first answer may know of the data only.
            let _ = epoll_wait(epoll, 8, Some(0));
            std::thread::sleep(SHORT);
            look(s, epoll);
            s.read(100);
            look(s, epoll);
        },
        |s| {
            s.send(b"word");
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
            s.go();
        },
    ),
    pair(
        "epoll_edge_of_the_end",
        |s| {
            let epoll = watching(s, IN | RDHUP | EDGE);
            s.go();
            s.wait();
            // The kernel wakes twice for one end, and who is quick hears of it twice.
            std::thread::sleep(SHORT);
            wait(s, epoll);
            look(s, epoll);
            s.read(10);
            look(s, epoll);
        },
        |s| {
            s.wait();
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
            s.go();
        },
    ),
    pair(
        "epoll_oneshot",
        |s| {
            let epoll = watching(s, IN | ONESHOT);
            word(s);
            wait(s, epoll);
            look(s, epoll);
            word(s);
            look(s, epoll);
            s.say("rearm", modify(epoll, s.fd, IN | ONESHOT));
            wait(s, epoll);
            look(s, epoll);
            s.read(100);
            s.say("rearm", modify(epoll, s.fd, IN | ONESHOT));
            look(s, epoll);
            word(s);
            wait(s, epoll);
        },
        |s| words(s, 3),
    ),
    pair(
        "epoll_oneshot_and_edge",
        |s| {
            let epoll = watching(s, IN | ONESHOT | EDGE);
            for _ in 0..3 {
                word(s);
                wait(s, epoll);
                look(s, epoll);
                s.say("rearm", modify(epoll, s.fd, IN | ONESHOT | EDGE));
                wait(s, epoll);
                s.say("rearm", modify(epoll, s.fd, IN | ONESHOT | EDGE));
                wait(s, epoll);
                s.read(100);
                s.say("rearm", modify(epoll, s.fd, IN | ONESHOT | EDGE));
                look(s, epoll);
            }
        },
        |s| words(s, 3),
    ),
    pair(
        "epoll_interest_changes",
        |s| {
            let epoll = watching(s, IN);
            look(s, epoll);
            s.say("modify", modify(epoll, s.fd, OUT));
            look(s, epoll);
            word(s);
            look(s, epoll);
            s.say("modify", modify(epoll, s.fd, 0));
            look(s, epoll);
            s.say("modify", epoll_ctl(epoll, EPOLL_CTL_MOD, s.fd, IN, 1));
            look(s, epoll);
        },
        |s| words(s, 1),
    ),
    pair(
        "epoll_mistakes",
        |s| {
            let epoll = set();
            s.say("modify", modify(epoll, s.fd, IN));
            s.say("delete", epoll_delete(epoll, s.fd));
            s.say("add", add(epoll, s.fd, IN));
            s.say("add", add(epoll, s.fd, IN));
            s.say("delete", epoll_delete(epoll, s.fd));
            s.say("delete", epoll_delete(epoll, s.fd));
            s.say("add", add(epoll, s.fd, OUT));
            s.say("delete", epoll_ctl(epoll, EPOLL_CTL_DEL, s.fd, 0, 0));
            look(s, epoll);
            s.say("add nothing", add(epoll, 4000, IN));
            s.say("add itself", add(epoll, epoll, IN));
            s.say("no set", add(s.fd, s.fd, IN));
            s.say("unknown", epoll_ctl(epoll, 99, s.fd, IN, 0));
            s.say(
                "room for none",
                epoll_wait(epoll, 0, Some(0)).map(|events| events.len()),
            );
            s.say(
                "no set",
                epoll_wait(s.fd, 1, Some(0)).map(|events| events.len()),
            );
        },
        |_| {},
    ),
    solo("epoll_of_a_file", |s| {
        let file = file_of(b"bytes").expect("a file can be made");
        s.say("add", add(set(), file, IN));
    }),
    pair(
        "epoll_waits_for_data",
        |s| {
            let epoll = watching(s, IN);
            s.go();
            s.say(
                "event",
                epoll_wait(epoll, 8, None).map(|events| epoll_text(&events)),
            );
        },
        |s| {
            s.wait();
            std::thread::sleep(SHORT);
            s.send(b"word");
        },
    ),
    pair(
        "epoll_gives_up",
        |s| {
            let epoll = watching(s, IN);
            let start = Instant::now();
            s.say(
                "none",
                epoll_wait(epoll, 8, Some(40)).map(|events| epoll_text(&events)),
            );
            s.say("waited", start.elapsed() >= SHORT);
            let start = Instant::now();
            s.say(
                "none",
                epoll_pwait(epoll, 8, 40).map(|events| epoll_text(&events)),
            );
            s.say("waited", start.elapsed() >= SHORT);
            let (start, short) = (Instant::now(), Duration::from_micros(300));
            s.say(
                "none",
                epoll_pwait2(epoll, 8, short).map(|events| epoll_text(&events)),
            );
            s.say("waited", start.elapsed() >= short);
        },
        |_| {},
    ),
    pair(
        "epoll_pwait_and_pwait2_see_data",
        |s| {
            let epoll = watching(s, IN);
            word(s);
            s.say(
                "pwait",
                epoll_pwait(epoll, 8, 10_000).map(|events| epoll_text(&events)),
            );
            let long = Duration::from_secs(10);
            s.say(
                "pwait2",
                epoll_pwait2(epoll, 8, long).map(|events| epoll_text(&events)),
            );
        },
        |s| words(s, 1),
    ),
    pair(
        "epoll_tells_of_the_end_unasked",
        |s| {
            let epoll = watching(s, 0);
            look(s, epoll);
            s.go();
            wait(s, epoll);
            look(s, epoll);
        },
        |s| {
            s.wait();
            crosslane_exercise::calls::set_linger(s.fd, Some(0)).expect("it can be set");
            s.say("close", close(s.fd));
        },
    ),
    pair(
        "epoll_of_half_closes",
        |s| {
            let epoll = watching(s, IN | OUT | RDHUP);
            s.until(libc::POLLRDHUP);
            look(s, epoll);
            s.read(100);
            look(s, epoll);
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
            look(s, epoll);
        },
        |s| {
            s.send(b"word");
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
    ),
    pair(
        "epoll_sees_room_again",
        |s| {
            let epoll = watching(s, OUT);
            look(s, epoll);
            fill(s);
            look(s, epoll);
            s.go();
            wait(s, epoll);
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        drain_when_told,
    ),
    pair(
        "epoll_sees_room_that_a_child_has_missed",
        |s| {
            let epoll = watching(s, OUT | EDGE);
            look(s, epoll);
            let child = in_child(|| {
                std::thread::sleep(SHORT);
                fill(s);
                s.go();
                true
            });
            wait(s, epoll);
            s.say("child", wait_for(child));
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        drain_when_told,
    ),
    pair(
        "epoll_forgets_what_is_closed",
        |s| {
            let epoll = watching(s, IN | OUT);
            look(s, epoll);
            s.say("close", close(s.fd));
            look(s, epoll);
        },
        |_| {},
    ),
    pair(
        "epoll_keeps_what_a_dup_holds",
        |s| {
            let epoll = watching(s, IN);
            let twin = dup(s.fd).expect("a descriptor is free");
            s.say("close", close(s.fd));
            s.go();
            s.say(
                "twin",
                poll_one(twin, POLLIN, Some(10_000)).map(events_text),
            );
            look(s, epoll);
            s.say("close", close(twin));
            look(s, epoll);
        },
        |s| {
            s.wait();
            s.send(b"word");
        },
    ),
    pair(
        "epoll_of_two_dups",
        |s| {
            let epoll = watching(s, IN);
            let twin = dup(s.fd).expect("a descriptor is free");
            s.say("add", epoll_ctl(epoll, EPOLL_CTL_ADD, twin, IN, 1));
            word(s);
            let events = epoll_wait(epoll, 8, Some(0)).map(|mut events| {
                events.sort_unstable();
                epoll_text(&events)
            });
            s.say("both", events);
        },
        |s| words(s, 1),
    ),
    pair(
        "epoll_follows_a_connection_through_numbers",
        |s| {
            let epoll = watching(s, IN | ONESHOT);
            for _ in 0..6 {
                word(s);
                wait(s, epoll);
                s.read(100);
                s.say("delete", epoll_delete(epoll, s.fd));
                let twin = dup(s.fd).expect("a descriptor is free");
                s.say("close", close(s.fd));
                s.fd = twin;
                s.say("add", add(epoll, s.fd, IN | ONESHOT));
            }
        },
        |s| words(s, 6),
    ),
    pair(
        "epoll_nested",
        |s| {
            let inner = watching(s, IN);
            let outer = set();
            s.say("add", epoll_ctl(outer, EPOLL_CTL_ADD, inner, IN, 7));
            look(s, outer);
            s.go();
            wait(s, outer);
            look(s, inner);
            s.say("poll", poll_one(inner, POLLIN, Some(0)).map(events_text));
            s.read(100);
            look(s, outer);
            s.say("poll", poll_one(inner, POLLIN, Some(0)).map(events_text));
        },
        |s| {
            s.wait();
            std::thread::sleep(SHORT);
            s.send(b"word");
        },
    ),
    pair(
        "epoll_set_in_poll",
        |s| {
            let epoll = watching(s, IN);
            s.go();
            s.say(
                "poll",
                poll_one(epoll, POLLIN, Some(10_000)).map(events_text),
            );
            look(s, epoll);
        },
        |s| {
            s.wait();
            std::thread::sleep(SHORT);
            s.send(b"word");
        },
    ),
    pair(
        "epoll_by_another_name",
        |s| {
            let epoll = set();
            let twin = dup(epoll).expect("a descriptor is free");
            s.say("add", add(twin, s.fd, IN));
            word(s);
            wait(s, epoll);
            wait(s, twin);
            s.read(100);
            s.say("close", close(epoll));
            look(s, twin);
            word(s);
            wait(s, twin);
            s.read(100);
            look(s, twin);
            let third = dup(twin).expect("a descriptor is free");
            s.say("close", close(twin));
            s.say("modify", modify(third, s.fd, IN | OUT));
            look(s, third);
            s.say("delete", epoll_delete(third, s.fd));
            look(s, third);
        },
        |s| words(s, 2),
    ),
    pair(
        "epoll_in_two_sets",
        |s| {
            let (level, edge) = (watching(s, IN), watching(s, IN | EDGE));
            word(s);
            wait(s, level);
            wait(s, edge);
            look(s, level);
            look(s, edge);
        },
        |s| words(s, 1),
    ),
    pair(
        "epoll_exclusive",
        |s| {
            let epoll = watching(s, IN | EXCLUSIVE);
            s.say("modify", modify(epoll, s.fd, IN));
            word(s);
            wait(s, epoll);
        },
        |s| words(s, 1),
    ),
    pair(
        "epoll_control_wakes_a_waiter",
        |s| {
            let epoll = set();
            let fd = s.fd;
            let adder = std::thread::spawn(move || {
                std::thread::sleep(SHORT);
                add(epoll, fd, OUT)
            });
            wait(s, epoll);
            s.say("add", adder.join().expect("it does not panic"));
        },
        |_| {},
    ),
    pair(
        "epoll_mixes_kinds",
        |s| {
            let epoll = watching(s, IN);
            let [ours, theirs] = socketpair().expect("a pair can be made");
            s.say("add", epoll_ctl(epoll, EPOLL_CTL_ADD, ours, IN, 1));
            look(s, epoll);
            s.say("write", write(theirs, b"x"));
            wait(s, epoll);
            word(s);
            let events = epoll_wait(epoll, 8, Some(0)).map(|mut events| {
                events.sort_unstable();
                epoll_text(&events)
            });
            s.say("both", events);
        },
        |s| words(s, 1),
    ),
    pair(
        "epoll_is_fair_with_room_for_one",
        |s| {
            let epoll = watching(s, IN);
            let [ours, theirs] = socketpair().expect("a pair can be made");
            s.say("add", epoll_ctl(epoll, EPOLL_CTL_ADD, ours, IN, 1));
            s.say("write", write(theirs, b"x"));
            word(s);
            let one = || {
                epoll_wait(epoll, 1, Some(0))
                    .ok()
                    .and_then(|events| Some(events.first()?.1))
            };
            let mut seen = [one(), one(), one(), one()];
            seen.sort_unstable();
            s.say(
                "each twice",
                seen == [Some(1), Some(1), Some(DATA), Some(DATA)],
            );
        },
        |s| words(s, 1),
    ),
];
