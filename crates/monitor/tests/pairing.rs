//! Ends are matched over real sockets, and both get the same rings.

mod common;

use common::{GEOMETRY, monitor, tcp_pair, tcp_pair_at};
use crosslane_window::arena::Arena;
use std::os::fd::AsFd;

fn pairs(listen: &str, connect: &str) {
    let monitor = monitor();
    let (one, two) = (monitor.client(), monitor.client());
    let (a, b) = tcp_pair_at(listen, connect);
    one.register(10, &a);
    two.register(20, &b);
    let (at_one, arena_one) = one.expect_grant();
    let (at_two, arena_two) = two.expect_grant();
    assert_eq!((at_one.token, at_two.token), (10, 20));
    assert_eq!(at_one.slot, at_two.slot);
    assert_eq!((at_one.role, at_two.role), (0, 1));
    let (arena_one, arena_two) = (arena_one.unwrap(), arena_two.unwrap());
    assert!(Arena::open(arena_one.as_fd(), GEOMETRY, at_one.location).is_ok());
    rustix::io::pwrite(&arena_one, b"shared", 0).unwrap();
    let mut seen = [0; 6];
    rustix::io::pread(&arena_two, &mut seen, 0).unwrap();
    assert_eq!(&seen, b"shared");
}

#[test]
fn ends_are_paired_over_ipv4() {
    pairs("127.0.0.1:0", "127.0.0.1");
}

#[test]
fn ends_are_paired_over_ipv6() {
    pairs("[::1]:0", "::1");
}

#[test]
fn ends_are_paired_over_ipv4_in_ipv6() {
    pairs("[::]:0", "127.0.0.1");
    pairs("[::]:0", "::ffff:127.0.0.1");
}

#[test]
fn a_program_that_talks_to_itself_has_both_roles_and_is_sent_the_arena_once() {
    let monitor = monitor();
    let client = monitor.client();
    let (a, b) = tcp_pair();
    client.register(1, &a);
    client.register(2, &b);
    let (first, arena) = client.expect_grant();
    assert!(arena.is_some());
    let (second, again) = client.expect_grant();
    assert!(again.is_none());
    assert_eq!((first.token, first.role), (1, 0));
    assert_eq!((second.token, second.role), (2, 1));
    assert_eq!((first.arena, first.slot), (second.arena, second.slot));
}
