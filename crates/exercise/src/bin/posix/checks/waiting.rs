//! What wakes those who wait, and what does not keep them waiting.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use crosslane_exercise::calls::{
    Nowhere, block, dup, epoll_create, epoll_ctl, epoll_delete_by, epoll_pwait_under, epoll_wait,
    kill, limit_descriptors, pipe, poll, poll_one, ppoll_unblocked, pselect_unblocked, read, recv,
    select_beyond, send, set_timeout, signal_set, socketpair, write,
};
use libc::{EPOLL_CTL_ADD, MSG_NOSIGNAL, MSG_OOB, POLLIN, SIGUSR1, SIGUSR2, SO_SNDTIMEO};

use super::asleep::{interrupt, once_asleep};
use super::signals::{catch, catch_by, caught};
use super::{Check, pair};
use crate::Stage;
use crate::stage::{Shown, drain, epoll_text, events_text, hears, pattern, says};

const IN: u32 = libc::EPOLLIN.cast_unsigned();
const PRI: u32 = libc::EPOLLPRI.cast_unsigned();
const EDGE: u32 = libc::EPOLLET.cast_unsigned();
const DATA: u64 = 77;
const SHORT: Duration = Duration::from_millis(50);
const PATIENCE_MS: Option<i32> = Some(5000);
/// Each may have its doorbell: more than a socket of AF_UNIX has room for.
const MANY_WORDS: usize = 400;

/// Where [`note`] writes.
static NOTES: AtomicI32 = AtomicI32::new(-1);

/// A handler that tells an event loop of its signal by a pipe.
extern "C" fn note(_signal: i32) {
    let _ = write(NOTES.load(Ordering::Relaxed), b".");
}

/// A handler that leaves an error of its own behind.
extern "C" fn fail(_signal: i32) {
    let _ = write(-1, b".");
}

/// Send SIGUSR1, which the mask of a wait holds back, and SIGUSR2, which ends the wait.
fn interrupt_twice(thread: i32) {
    interrupt(thread);
    // SAFETY: no memory is passed.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, SIGUSR2) };
}

fn watching(s: &Stage, events: u32) -> i32 {
    let epoll = epoll_create().expect("a set can be made");
    epoll_ctl(epoll, EPOLL_CTL_ADD, s.fd, events, DATA).expect("a connection can be added");
    epoll
}

/// What a set tells, and whether it does before the time is over, when it looks once more.
fn told(epoll: i32, most: i32) -> String {
    let began = Instant::now();
    let found = epoll_wait(epoll, most, PATIENCE_MS).map(|events| epoll_text(&events));
    let is_late = began.elapsed() > Duration::from_secs(3);
    format!("{}{}", found.shown(), if is_late { " late" } else { "" })
}

/// Near: until both directions are where they stay.
fn talk(s: &Stage) {
    assert!((0..40).all(|_| says(s.fd, b"word") && hears(s.fd, b"word")));
}

/// Far: the other side of [`talk`].
fn answer(s: &Stage) {
    assert!((0..40).all(|_| hears(s.fd, b"word") && says(s.fd, b"word")));
}

/// Near: a set is woken by an urgent byte alone.
fn woken_by_an_urgent_byte(s: &mut Stage, events: u32) {
    talk(s);
    let epoll = watching(s, events);
    s.go();
    s.say("found", told(epoll, 8));
    let mut byte = [0; 4];
    s.say("urgent", recv(s.fd, &mut byte, MSG_OOB));
    s.go();
    s.say("found", told(epoll, 8));
    s.read(10);
}

fn an_urgent_byte(s: &mut Stage) {
    answer(s);
    s.wait();
    std::thread::sleep(SHORT);
    s.say("sent", send(s.fd, b"!", MSG_OOB | MSG_NOSIGNAL));
    s.wait();
    s.send(b"word");
}

/// Near: two threads sleep in one set.
fn two_sleepers(s: &mut Stage) {
    talk(s);
    let epoll = watching(s, IN);
    let sleep = || std::thread::spawn(move || told(epoll, 1));
    let sleepers = [sleep(), sleep()];
    std::thread::sleep(SHORT);
    s.go();
    for sleeper in sleepers {
        s.say("found", sleeper.join().expect("it does not panic"));
    }
    s.read(10);
}

fn a_word(s: &mut Stage) {
    answer(s);
    s.wait();
    s.send(b"word");
}

/// Near: others in the set are always ready, and fill the room that there is.
fn beside_what_is_always_ready(s: &mut Stage) {
    const OTHERS: i32 = 10;
    talk(s);
    let epoll = watching(s, IN);
    let pairs: Vec<[i32; 2]> = (0..OTHERS)
        .map(|_| socketpair().expect("a pair can be made"))
        .collect();
    for [ours, theirs] in &pairs {
        epoll_ctl(epoll, EPOLL_CTL_ADD, *ours, IN, 1).expect("a socket can be added");
        write(*theirs, b"x").expect("there is room");
    }
    s.go();
    // Nobody sleeps, so nobody is rung.
    std::thread::sleep(SHORT);
    let is_told = || {
        std::thread::sleep(Duration::from_micros(100));
        let found = epoll_wait(epoll, OTHERS, Some(0));
        found.is_ok_and(|events| events.iter().any(|(_, data)| *data == DATA))
    };
    s.say("told", (0..50).any(|_| is_told()));
    s.read(10);
}

/// Near: a pipe is written to while a call waits for it and for the connection, which has something to tell later.
fn beside_a_pipe(s: &mut Stage, [out, into]: [i32; 2], wait: impl Fn(&Stage) -> String) {
    const SOON: Duration = Duration::from_millis(5);
    let hears_of_it = || wait(s).contains("IN") && hears(s.fd, b"word");
    assert!((0..40).all(|_| says(s.fd, b"word") && hears_of_it()));
    let writer = std::thread::spawn(move || {
        std::thread::sleep(SOON);
        write(into, b"x")
    });
    s.say("first", wait(s));
    s.say("written", writer.join().expect("it does not panic"));
    s.say("read", read(out, &mut [0; 4]));
    // Only now: on a busy machine the word would come first.
    s.go();
    s.say("then", wait(s));
    s.read(10);
}

fn wait_in_a_poll(s: &Stage, other: i32) -> String {
    let entry = |fd| libc::pollfd {
        fd,
        events: POLLIN,
        revents: 0,
    };
    let mut entries = [entry(s.fd), entry(other)];
    let found = poll(&mut entries, PATIENCE_MS);
    let ready = entries.map(|entry| events_text(entry.revents));
    format!("{} {}", found.shown(), ready.join(" "))
}

/// Far: a word, while the other side may spin still.
fn a_later_word(s: &mut Stage) {
    const LATER: Duration = Duration::from_millis(40);
    answer(s);
    s.wait();
    std::thread::sleep(LATER);
    s.send(b"word");
}

/// Near: SO_SNDTIMEO is for a call, however little the other side reads meanwhile.
fn send_to_a_slow_reader(s: &mut Stage) {
    const MOST: usize = 16_000_000;
    s.say("set", set_timeout(s.fd, SO_SNDTIMEO, 200));
    s.go();
    let began = Instant::now();
    let sent = send(s.fd, &pattern(MOST), MSG_NOSIGNAL);
    s.say("short", sent.is_ok_and(|sent| sent < MOST));
    s.say("waited", began.elapsed() >= Duration::from_millis(190));
    s.say("in time", began.elapsed() < Duration::from_secs(3));
    s.go();
    crosslane_exercise::calls::shutdown(s.fd, libc::SHUT_WR).expect("it is connected");
    s.read(10);
}

/// Far: a byte now and then for some seconds, and then all.
fn read_slowly(s: &mut Stage) {
    s.wait();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        read(s.fd, &mut [0; 1]).expect("there is something to read");
        std::thread::sleep(Duration::from_millis(10));
    }
    s.wait();
    s.say("some", drain(s.fd).is_ok_and(|bytes| !bytes.is_empty()));
    s.send(b"done");
}

pub const CHECKS: &[Check] = &[
    pair("level_for_two_sleepers", two_sleepers, a_word),
    pair("starved_in_a_set", beside_what_is_always_ready, a_word),
    pair(
        "pipe_beside_it_in_a_set",
        |s| {
            let (pipe, epoll) = (pipe().expect("a pipe can be made"), watching(s, IN));
            epoll_ctl(epoll, EPOLL_CTL_ADD, pipe[0], IN, 1).expect("a pipe can be added");
            beside_a_pipe(s, pipe, |_| told(epoll, 8));
        },
        a_later_word,
    ),
    pair(
        "pipe_beside_it_in_a_poll",
        |s| {
            let pipe = pipe().expect("a pipe can be made");
            beside_a_pipe(s, pipe, |s| wait_in_a_poll(s, pipe[0]));
        },
        a_later_word,
    ),
    pair(
        "urgent_byte_wakes_a_set",
        |s| woken_by_an_urgent_byte(s, IN | PRI),
        an_urgent_byte,
    ),
    pair(
        "urgent_byte_is_an_edge",
        |s| woken_by_an_urgent_byte(s, IN | PRI | EDGE),
        an_urgent_byte,
    ),
    pair(
        "send_timeout_and_a_slow_reader",
        send_to_a_slow_reader,
        read_slowly,
    ),
    pair(
        "deleted_by_an_event_nowhere",
        |s| {
            let epoll = watching(s, IN);
            s.say("delete", epoll_delete_by(epoll, s.fd, Nowhere::unmapped()));
            s.until(POLLIN);
            s.say(
                "wait",
                epoll_wait(epoll, 8, Some(0)).map(|events| epoll_text(&events)),
            );
            s.read(10);
        },
        |s| s.send(b"word"),
    ),
    pair(
        "select_beyond_its_set",
        |s| {
            s.until(POLLIN);
            let found = select_beyond(s.fd, 1 << 20);
            s.say(
                "select",
                found.map(|(count, is_set)| format!("{count} {is_set}")),
            );
            s.read(10);
        },
        |s| s.send(b"word"),
    ),
    pair(
        "signal_that_a_mask_lets_in",
        |s| {
            catch(SIGUSR1, 0);
            block(SIGUSR1, true);
            for call in [ppoll_unblocked, pselect_unblocked] {
                kill(std::process::id().cast_signed(), SIGUSR1).expect("it is ours");
                s.say("look", call(s.fd, Duration::ZERO));
                caught(s);
            }
            s.go();
        },
        |s| s.wait(),
    ),
    pair(
        "a_long_conversation_by_two_names",
        |s| {
            let epoll = watching(s, IN);
            let other = dup(s.fd).expect("it is open");
            epoll_ctl(epoll, EPOLL_CTL_ADD, other, IN, DATA).expect("a name can be added");
            let heard = (0..MANY_WORDS).take_while(|_| {
                epoll_wait(epoll, 2, PATIENCE_MS).is_ok_and(|events| !events.is_empty())
                    && hears(s.fd, b"word")
                    && says(s.fd, b"word")
            });
            s.say("heard", heard.count());
        },
        |s| {
            for _ in 0..MANY_WORDS {
                // For the other side to fall asleep.
                std::thread::sleep(Duration::from_micros(300));
                if !says(s.fd, b"word") || !hears(s.fd, b"word") {
                    break;
                }
            }
        },
    ),
    pair(
        "handler_that_writes_to_a_pipe_ends_a_poll",
        |s| {
            talk(s);
            let [notes, into] = pipe().expect("a pipe can be made");
            NOTES.store(into, Ordering::Relaxed);
            catch_by(SIGUSR1, 0, note);
            let mut entries = [s.fd, notes].map(|fd| libc::pollfd {
                fd,
                events: POLLIN,
                revents: 0,
            });
            let found = once_asleep(|| poll(&mut entries, PATIENCE_MS), interrupt);
            s.say("poll", found);
            s.say("then", poll(&mut entries, PATIENCE_MS));
            s.go();
        },
        |s| {
            answer(s);
            s.wait();
        },
    ),
    pair(
        "what_a_handler_leaves_behind_is_not_the_waits",
        |s| {
            talk(s);
            catch_by(SIGUSR1, 0, fail);
            catch(SIGUSR2, 0);
            let (mask, empty) = (signal_set(&[SIGUSR1]), epoll_create());
            let sets = [empty.expect("a set can be made"), watching(s, IN)];
            for epoll in sets {
                let wait = || epoll_pwait_under(epoll, 8, 5000, Some(&mask));
                let found = once_asleep(wait, interrupt_twice);
                s.say("wait", found.map(|events| epoll_text(&events)));
                caught(s);
            }
        },
        |s| answer(s),
    ),
    pair(
        "one_descriptor_may_be_polled",
        |s| {
            s.say("limit", limit_descriptors(1));
            let sent = send(s.fd, &pattern(6_000_000), MSG_NOSIGNAL);
            s.say("sent", sent);
            s.say("poll", poll_one(s.fd, POLLIN, PATIENCE_MS).map(events_text));
            s.read(10);
        },
        |s| {
            std::thread::sleep(SHORT);
            s.read_exactly(6_000_000);
            std::thread::sleep(SHORT);
            s.send(b"word");
        },
    ),
];
