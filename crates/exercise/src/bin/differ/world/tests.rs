//! Which calls the world has made, and what it makes of them.

use super::*;
use crate::word::Family;

const CLIENT: Handle = Handle(1);
const LISTENER: Handle = Handle(2);
const SET: Handle = Handle(3);

fn call(text: &str) -> Call {
    Call::parse(&mut text.split_whitespace()).unwrap()
}

fn said(text: &str) -> Outcome {
    Outcome {
        text: text.into(),
        ..Outcome::default()
    }
}

fn made(fd: RawFd) -> Outcome {
    Outcome {
        fd: Some(fd),
        ..Outcome::default()
    }
}

/// A listener of process 0 with a connection that nobody has accepted, and a set.
fn with_listener(family: Family) -> World {
    let mut world = World::default();
    world.open(0, CLIENT, 3, Kind::Socket, false);
    world.open(0, LISTENER, 4, Kind::Socket, false);
    let (users, members) = (Vec::new(), Vec::new());
    world.open(0, SET, 5, Kind::Epoll { users, members }, false);
    world.listens(0, LISTENER, 1000, family);
    world.connects(0, CLIENT, LISTENER);
    world
}

fn begin(world: &mut World, text: &str) {
    let call = call(text);
    assert!(world.may_sleep(0, 1, &call), "{text}");
    let handle = call.main_handle().unwrap();
    let file = world.entry(0, handle).unwrap().file;
    world.begin(0, 1, call, file);
}

#[test]
fn whatever_waits_for_ever_sleeps_in_a_thread_and_nowhere_else() {
    let world = with_listener(Family::v4);
    for wait in [
        "poll h1 IN",
        "ppoll h1 IN",
        "select h1",
        "pselect h1",
        "epoll-wait h3 8",
        "epoll-pwait h3 8",
    ] {
        let (for_ever, at_once) = (call(&format!("{wait} -1")), call(&format!("{wait} 0")));
        assert!(world.may_sleep(0, 1, &for_ever), "{wait}");
        assert!(!world.allows(0, &for_ever), "{wait}");
        assert!(!world.may_sleep(0, 1, &at_once), "{wait}");
        assert!(world.allows(0, &at_once), "{wait}");
    }
    for wait in [
        "ppoll-masked h1 IN",
        "pselect-masked h1",
        "epoll-pwait-masked h3 8",
        "epoll-pwait2 h3 8",
    ] {
        let (for_ever, at_once) = (
            call(&format!("{wait} -1 HELD")),
            call(&format!("{wait} 0 HELD")),
        );
        assert!(for_ever.holds_signal() && !call(&format!("{wait} -1 OPENS")).holds_signal());
        assert!(world.may_sleep(0, 1, &for_ever), "{wait}");
        assert!(!world.allows(0, &for_ever), "{wait}");
        assert!(world.allows(0, &at_once), "{wait}");
    }
}

#[test]
fn a_wait_in_a_set_wakes_for_what_comes_by_whichever_call() {
    for wait in ["epoll-wait h3 8 -1", "epoll-pwait2 h3 8 -1 NONE"] {
        let mut world = with_listener(Family::v4);
        world.apply(0, &call("epoll-add h3 h1 IN 1"), &said("0"));
        begin(&mut world, wait);
        assert!(!world.must_wake(&world.sleepers[0]), "{wait}");
        world.connections[0].streams[0].sent += 1;
        assert!(world.must_wake(&world.sleepers[0]), "{wait}");
    }
}

#[test]
fn a_listener_that_is_shut_down_resets_who_waits_and_listens_again() {
    let mut world = with_listener(Family::v4);
    let shut = call("shutdown h2 RD");
    assert!(world.allows(0, &shut));
    world.apply(0, &call("shutdown h2 WR"), &said("0"));
    assert!(!world.connections[0].ends[1].reset);
    world.apply(0, &shut, &said("0"));
    assert!(world.connections[0].ends[1].reset);
    assert!(world.allows(0, &call("accept h2 h9 false")));
    assert!(world.allows(0, &call("listen h2 v4")));
    assert!(world.resolve(0, &call("connect h1 h2 v4")).is_none());
}

#[test]
fn who_sleeps_in_an_accept_wakes_when_its_listener_is_shut_down() {
    let mut world = World::default();
    world.open(0, LISTENER, 4, Kind::Socket, false);
    world.listens(0, LISTENER, 1000, Family::v6);
    begin(&mut world, "accept h2 h9 false");
    assert!(!world.must_wake(&world.sleepers[0]));
    world.apply(0, &call("shutdown h2 RDWR"), &said("0"));
    assert!(world.must_wake(&world.sleepers[0]));
}

#[test]
fn listeners_that_are_waited_for_in_a_set_or_have_names_stay() {
    let mut world = with_listener(Family::unix);
    assert!(!world.allows(0, &call("shutdown h2 RD")));
    assert!(world.allows(0, &call("shutdown h2 WR")));
    world = with_listener(Family::v4);
    world.apply(0, &call("epoll-add h3 h2 IN 2"), &said("0"));
    assert!(world.allows(0, &call("shutdown h2 RD")));
    begin(&mut world, "epoll-pwait h3 8 -1");
    assert!(!world.allows(0, &call("shutdown h2 RD")));
}

/// Both ends of a connection, by h1 and h2 of process 0, and a third descriptor of the first, h4.
fn with_ends() -> World {
    let mut world = World::default();
    let connection = world.connect();
    for (side, handle) in [CLIENT, Handle(2)].into_iter().enumerate() {
        let fd = 3 + i32::try_from(side).unwrap();
        world.open(0, handle, fd, Kind::End { connection, side }, false);
    }
    let file = world.entry(0, CLIENT).unwrap().file;
    world.names.insert((0, Handle(4)), Entry { fd: 6, file });
    world
}

#[test]
fn a_connection_both_ends_of_which_are_waited_for_is_not_ended() {
    let mut world = with_ends();
    let ends = ["shutdown h1 WR", "disconnect h2"].map(call);
    assert!(ends.iter().all(|end| world.allows(0, end)));
    begin(&mut world, "poll-both h1 h2 IN -1");
    assert!(ends.iter().all(|end| !world.allows(0, end)));
}

#[test]
fn who_receives_again_and_again_is_given_no_short_limit() {
    for (sleeper, is_allowed) in [("fread h1 20", false), ("recv h1 20 -", true)] {
        let mut world = with_ends();
        begin(&mut world, sleeper);
        assert_eq!(world.allows(0, &call("rcvtimeo h1 12")), is_allowed);
        assert!(world.allows(0, &call("rcvtimeo h1 60000")));
        assert!(world.allows(0, &call("rcvtimeo h2 12")));
    }
}

#[test]
fn a_receive_begins_again_by_its_number_and_a_stream_by_its_own() {
    for (sleeper, by_number) in [("recv h1 20 -", true), ("fread h1 20", false)] {
        let mut world = with_ends();
        begin(&mut world, sleeper);
        assert!(world.is_ended_by_signal(&world.sleepers[0], false));
        assert!(!world.is_ended_by_signal(&world.sleepers[0], true));
        let [before, after] = [CLIENT, Handle(2)].map(|name| world.entry(0, name).unwrap().file);
        world.signalled(0, false);
        assert!(world.sleepers[0].sleeps_on(before) && !world.sleepers[0].interrupted);
        world.apply(0, &call("dup2 h2 h1"), &made(3));
        assert!(world.may_go_on(&world.sleepers[0]));
        world.signalled(0, false);
        let file = if by_number { after } else { before };
        assert!(world.sleepers[0].sleeps_on(file) && !world.sleepers[0].interrupted);
        world.apply(0, &call("close h1"), &said("0"));
        world.signalled(0, false);
        assert_eq!(world.sleepers[0].interrupted, by_number);
    }
}

#[test]
fn a_receive_that_begins_again_on_something_else_comes_back() {
    for change in ["nonblock h1 true", "dup2 h3 h1"] {
        let mut world = with_ends();
        world.open(0, SET, 9, Kind::Socket, false);
        begin(&mut world, "recv h1 20 -");
        world.signalled(0, false);
        assert!(!world.sleepers[0].interrupted, "{change}");
        world.apply(0, &call(change), &made(3));
        world.signalled(0, false);
        assert!(world.sleepers[0].interrupted, "{change}");
    }
}

#[test]
fn a_set_with_what_only_another_process_knows_is_left_out() {
    let (wait, add) = (call("epoll-wait h3 8 0"), call("epoll-add h3 h1 IN 1"));
    for (adds, is_left_out) in [(0, false), (1, true)] {
        let mut world = with_ends();
        let (users, members) = (Vec::new(), Vec::new());
        world.open(0, SET, 9, Kind::Epoll { users, members }, false);
        world.fork(0, 1);
        world.apply(adds, &add, &said("0"));
        world.close(1, SET);
        assert!(!world.shares_a_set_unequally(0, &wait));
        // It has the socket by another name still.
        world.close(0, CLIENT);
        assert_eq!(world.shares_a_set_unequally(0, &wait), is_left_out);
    }
}

#[test]
fn a_child_knows_what_its_parent_had_put_into_a_set() {
    let mut world = with_ends();
    let (users, members) = (Vec::new(), Vec::new());
    world.open(0, SET, 9, Kind::Epoll { users, members }, false);
    world.apply(0, &call("epoll-add h3 h1 IN 1"), &said("0"));
    world.fork(0, 1);
    world.close(0, SET);
    world.close(1, CLIENT);
    assert!(!world.shares_a_set_unequally(1, &call("epoll-wait h3 8 0")));
}
