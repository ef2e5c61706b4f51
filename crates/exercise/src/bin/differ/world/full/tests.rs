//! Which calls a full stream leaves, and what counts as sent.

use super::*;
use crate::word::Handle;

const SENDER: Handle = Handle(1);
const READER: Handle = Handle(2);

fn call(text: &str) -> Call {
    Call::parse(&mut text.split_whitespace()).unwrap()
}

fn moved(bytes: usize) -> Outcome {
    Outcome {
        text: bytes.to_string(),
        bytes,
        fd: None,
    }
}

fn named(fd: Option<RawFd>) -> Outcome {
    let text = fd.unwrap_or(0).to_string();
    Outcome { text, bytes: 0, fd }
}

/// A connection on which a thread of process 0 sends more than there is room for.
fn with_sender() -> World {
    with_sleeping("write h1 17000000")
}

fn with_sleeping(send: &str) -> World {
    let mut world = World::default();
    let connection = world.connect();
    for (process, handle) in [(0, SENDER), (1, READER)] {
        let side = process;
        let end = Kind::End { connection, side };
        world.open(process, handle, 3, end, false);
    }
    let send = call(send);
    assert!(world.may_sleep(0, 1, &send));
    world.begin(0, 1, send, 0);
    world
}

#[test]
fn only_whether_all_was_sent_is_shown() {
    let write = call("write h1 17000000");
    assert_eq!(without_count(&write, &moved(17_000_000)), "all");
    assert_eq!(without_count(&write, &moved(5)), "some");
    let mut interrupted = moved(5);
    interrupted.text.push_str(" SIGUSR1*1");
    assert_eq!(without_count(&write, &interrupted), "some SIGUSR1*1");
    assert_eq!(without_count(&write, &Outcome::default()), "");
}

#[test]
fn what_depends_on_room_is_left_out() {
    let world = with_sender();
    for (process, left_out) in [
        (1, "fionread h2"),
        (1, "recv h2 20000 -"),
        (0, "write h1 1"),
    ] {
        assert!(!world.allows(process, &call(left_out)), "{left_out}");
    }
    for (process, made) in [
        (1, "read h2 4000"),
        (1, "poll h2 IN 0"),
        (0, "recv h1 1 DONTWAIT"),
    ] {
        assert!(world.allows(process, &call(made)), "{made}");
    }
}

#[test]
fn what_comes_while_a_send_goes_on_is_read_until_there_is_enough() {
    let mut world = with_sender();
    let (drain, read) = (call("drain h2 100000"), call("read h2 4000"));
    assert!(world.allows(1, &drain) && world.allows(1, &read));
    world.apply(1, &drain, &moved(100_000));
    assert!(world.allows(1, &drain) && !world.allows(1, &read));
}

#[test]
fn a_full_stream_is_full_until_something_else_is_called() {
    let mut world = World::default();
    let connection = world.connect();
    for (process, handle) in [(0, SENDER), (1, READER)] {
        let side = process;
        let end = Kind::End { connection, side };
        world.open(process, handle, 3, end, true);
    }
    let more = call("write h1 12");
    for other in ["write h2 8", "poll h1 IN 0"] {
        world.apply(0, &call("fill h1"), &moved(3_000_000));
        assert!(world.allows(0, &more));
        let process = usize::from(other.contains("h2"));
        world.apply(process, &call(other), &Outcome::default());
        assert!(!world.allows(0, &more), "{other}");
        world.emptied(1, READER);
    }
}

#[test]
fn what_the_kernel_looks_at_with_each_portion_stays_as_it_is() {
    for change in ["nonblock h1 true", "fionbio h1 true", "sndtimeo h1 12"] {
        assert!(with_sender().allows(0, &call(change)), "{change}");
        let world = with_sleeping("sendfile h1 17000000");
        assert!(!world.allows(0, &call(change)), "{change}");
    }
}

#[test]
fn what_was_not_sent_is_not_waited_for() {
    let mut world = with_sender();
    world.sleepers[0].interrupted = true;
    world.end_sleep(0, &moved(3_000_000));
    assert_eq!(
        world.rest_of_full(1, READER),
        Some(Rest {
            most: 3_000_000,
            least_before_end: None
        })
    );
    assert!(!world.allows(1, &call("drain h2 100")), "nobody sends");
    world.emptied(1, READER);
    assert_eq!(world.rest_of_full(1, READER), None);
    assert!(world.allows(0, &call("write h1 1")));
}

#[test]
fn a_limit_that_is_set_under_a_send_holds_for_what_begins_again_by_its_number() {
    let mut world = World::default();
    for (handle, fd) in [(SENDER, 3), (READER, 4)] {
        let (connection, side) = (world.connect(), 0);
        let end = Kind::End { connection, side };
        world.open(0, handle, fd, end, false);
    }
    world.apply(0, &call("fill h1"), &moved(3_000_000));
    world.begin(0, 1, call("write h1 12"), 0);
    assert!(!world.is_ended_by_signal(&world.sleepers[0], true));
    world.apply(0, &call("sndtimeo h1 12"), &named(None));
    assert!(world.is_ended_by_signal(&world.sleepers[0], true));
    world.apply(0, &call("dup2 h2 h1"), &named(Some(3)));
    assert!(!world.is_ended_by_signal(&world.sleepers[0], true));
}

#[test]
fn whether_a_connection_is_over_depends_on_room_for_its_end() {
    let mut world = with_sender();
    let shut = call("shutdown h1 WR");
    assert!(world.allows(1, &call("shutdown h2 WR")));
    world.apply(0, &shut, &moved(0));
    assert!(!world.allows(1, &call("shutdown h2 WR")));
}

#[test]
fn an_end_that_finds_no_room_is_told_to_nobody_who_sleeps() {
    let mut world = with_sender();
    let set = Kind::Epoll {
        users: vec![1],
        members: Vec::new(),
    };
    world.open(1, Handle(3), 4, set, false);
    world.begin(1, 1, call("epoll-wait h3 32 -1"), 2);
    let add = call("epoll-add h3 h2 IN|RDHUP 2");
    assert!(world.allows(1, &add));
    world.apply(0, &call("shutdown h1 WR"), &moved(0));
    assert!(!world.allows(1, &add));
    let mut world = with_sender();
    world.begin(1, 1, call("poll h2 RDHUP -1"), 1);
    for end in ["shutdown h1 WR", "close h1"] {
        assert!(!world.allows(0, &call(end)), "{end}");
    }
}

#[test]
fn a_send_wakes_when_all_is_read_or_its_end_is_shut() {
    let mut world = with_sender();
    assert!(!world.must_wake(&world.sleepers[0]));
    world.apply(
        0,
        &call("shutdown h1 WR"),
        &Outcome {
            text: "0".into(),
            ..Outcome::default()
        },
    );
    assert!(world.must_wake(&world.sleepers[0]));
    let mut world = with_sender();
    world.emptied(1, READER);
    assert!(world.must_wake(&world.sleepers[0]));
}
