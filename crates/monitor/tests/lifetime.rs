//! How rings come back: releases, deaths, leases, and sockets that replace dead ones.

mod common;

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use common::{Client, GEOMETRY, Running, monitor, monitor_with, start_in, tcp_pair};
use crosslane_ctl::lane::LINE_BYTES;
use crosslane_ctl::layout::{Layout, part_ends};
use crosslane_ctl::message::{ClientMessage, Grant, MonitorMessage};
use rustix::net::sockopt::{set_socket_linger, set_socket_reuseaddr};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

/// Register both ends; the grants of both, and the arena where it came along.
fn pair(
    (a, at_a, end_a): (&Client, u64, &TcpStream),
    (b, at_b, end_b): (&Client, u64, &TcpStream),
) -> (Grant, Grant, Option<OwnedFd>) {
    a.register(at_a, end_a);
    b.register(at_b, end_b);
    let (grant_a, arena) = a.expect_grant();
    let (grant_b, _) = b.expect_grant();
    (grant_a, grant_b, arena)
}

fn slots(monitor: &Running, wanted: u64) {
    monitor.wait_until("slots in use", |counters| counters.monitor.slots == wanted);
}

#[test]
fn a_slot_comes_back_zeroed_and_only_after_both_sides_are_out() {
    let monitor = monitor();
    let (one, two) = (monitor.client(), monitor.client());
    let (a, b) = tcp_pair();
    let (first, _, arena) = pair((&one, 1, &a), (&two, 1, &b));
    let arena = arena.unwrap();
    let lane = Layout::Parted.lane(&GEOMETRY, first.slot, 1).unwrap();
    let ends = part_ends(GEOMETRY.ring_lines);
    let last_lines = lane.ring.iter().zip(ends);
    let last_lines = last_lines.map(|(start, end)| start + (end as usize - 1) * LINE_BYTES);
    let secrets: Vec<_> = std::iter::once(lane.control).chain(last_lines).collect();
    for offset in &secrets {
        rustix::io::pwrite(&arena, b"secret", *offset as u64).unwrap();
    }
    let read = || {
        let secrets = secrets.iter().map(|offset| {
            let mut seen = [0; 6];
            rustix::io::pread(&arena, &mut seen, *offset as u64).unwrap();
            seen
        });
        secrets.collect::<Vec<_>>()
    };
    one.release(1);
    let (c, d) = tcp_pair();
    let (second, _, _) = pair((&one, 2, &c), (&two, 2, &d));
    assert_ne!(second.slot, first.slot, "one side is still in");
    assert_eq!(read(), vec![*b"secret"; 4], "and may still be reading");
    two.release(1);
    slots(&monitor, 1);
    assert_eq!(read(), vec![[0; 6]; 4]);
    let (e, f) = tcp_pair();
    let (third, _, _) = pair((&one, 3, &e), (&two, 3, &f));
    assert_eq!((third.arena, third.slot), (first.arena, first.slot));
}

#[test]
fn more_connections_than_slots_get_more_arenas() {
    let monitor = monitor();
    let (one, two) = (monitor.client(), monitor.client());
    let mut seen = Vec::new();
    let mut open = Vec::new();
    for token in 0..u64::from(GEOMETRY.slots) * 2 + 1 {
        let (a, b) = tcp_pair();
        let (grant, other, arena) = pair((&one, token, &a), (&two, token, &b));
        let is_new = !seen.iter().any(|(known, _)| *known == grant.arena);
        assert_eq!(arena.is_some(), is_new, "an arena is sent once");
        assert!(!seen.contains(&(grant.arena, grant.slot)));
        assert_eq!(grant.slot, other.slot);
        seen.push((grant.arena, grant.slot));
        open.push((a, b));
    }
    assert_eq!(monitor.counters().monitor.arenas, 3);
}

#[test]
fn a_process_that_is_gone_gives_everything_back() {
    let monitor = monitor();
    let (one, two) = (monitor.client(), monitor.client());
    let (a, b) = tcp_pair();
    let (_, at_two, _) = pair((&one, 1, &a), (&two, 1, &b));
    drop(one);
    slots(&monitor, 1);
    two.release(1);
    let arena = at_two.arena;
    assert_eq!(two.expect(), MonitorMessage::Retire { arena });
    monitor.wait_until("everything back", |counters| {
        let m = counters.monitor;
        (m.slots, m.arenas, m.ends) == (0, 0, 0)
    });
}

#[test]
fn a_lease_outlives_the_process_until_its_children_are_gone() {
    let monitor = monitor();
    let (one, two) = (monitor.client(), monitor.client());
    let (a, b) = tcp_pair();
    pair((&one, 1, &a), (&two, 1, &b));
    let (child, watched) = UnixStream::pair().unwrap();
    let grandchild = child.try_clone().unwrap();
    one.send(ClientMessage::Lease, &[watched.as_fd()]);
    drop(watched);
    one.release(1);
    two.release(1);
    one.expect_silence();
    two.expect_silence();
    drop(one);
    monitor.wait_until("the process is gone", |c| c.monitor.processes == 1);
    assert_eq!(monitor.counters().monitor.slots, 1);
    drop(child);
    assert_eq!(monitor.counters().monitor.slots, 1);
    drop(grandchild);
    slots(&monitor, 0);
    assert_eq!(monitor.counters().monitor.leases, 0);
}

#[test]
fn what_a_process_has_said_before_its_end_counts_though_it_had_to_wait() {
    use std::io::Write;
    let monitor = monitor();
    let (one, two) = (monitor.client(), monitor.client());
    let (a, b) = tcp_pair();
    pair((&one, 1, &a), (&two, 1, &b));
    let (mut slow, unread) = tcp_pair();
    slow.set_nonblocking(true).unwrap();
    while slow.write(&[0; 65536]).is_ok() {}
    set_socket_linger(&slow, Some(std::time::Duration::from_secs(3600))).unwrap();
    let (child, watched) = UnixStream::pair().unwrap();
    one.send(ClientMessage::Register { token: 2 }, &[slow.as_fd()]);
    one.send(ClientMessage::Lease, &[watched.as_fd()]);
    // The last close may be ours, and would wait.
    std::thread::spawn(move || drop((watched, slow)));
    drop(one);
    monitor.wait_until("the process is gone", |c| c.monitor.processes == 1);
    two.release(1);
    two.expect_silence();
    assert_eq!(monitor.counters().monitor.slots, 1, "its child has it");
    drop(child);
    slots(&monitor, 0);
    drop(unread);
}

/// It may be using them.
#[test]
fn who_is_listened_to_no_more_keeps_its_rings_until_it_ends() {
    let monitor = monitor();
    let (one, two) = (monitor.client(), monitor.client());
    let (a, b) = tcp_pair();
    pair((&one, 1, &a), (&two, 1, &b));
    let (c, d) = tcp_pair();
    pair((&one, 2, &c), (&two, 2, &d));
    one.send_bytes(b"nonsense", &[]).unwrap();
    one.expect_hangup();
    [1, 2].into_iter().for_each(|token| two.release(token));
    two.expect_silence();
    assert_eq!(monitor.counters().monitor.slots, 2);
    // What it has done with is of use to others.
    one.release(1);
    slots(&monitor, 1);
    drop(one);
    slots(&monitor, 0);
}

#[test]
fn the_child_of_a_lease_too_many_keeps_its_rings() {
    let monitor = monitor_with(|config| config.quotas.leases_per_process = 1);
    let (one, two) = (monitor.client(), monitor.client());
    let (a, b) = tcp_pair();
    pair((&one, 1, &a), (&two, 1, &b));
    let mut children = Vec::new();
    for _ in 0..2 {
        let (child, watched) = UnixStream::pair().unwrap();
        one.send(ClientMessage::Lease, &[watched.as_fd()]);
        children.push(child);
    }
    one.expect_hangup();
    two.release(1);
    drop(one);
    monitor.wait_until("the process is gone", |c| c.monitor.processes == 1);
    drop(children.remove(0));
    monitor.wait_until("one is left", |c| c.monitor.leases == 1);
    assert_eq!(monitor.counters().monitor.slots, 1);
    drop(children);
    slots(&monitor, 0);
}

#[test]
fn a_child_lends_what_its_parent_was_granted_before_it_ended() {
    let monitor = monitor();
    let (mut parent, peer) = (monitor.client(), monitor.client());
    let (a, b) = tcp_pair();
    pair((&parent, 1, &a), (&peer, 1, &b));
    let (child, watched) = UnixStream::pair().unwrap();
    parent.send(ClientMessage::Lease, &[watched.as_fd()]);
    drop(watched);
    parent.expect_silence();
    parent.socket = monitor.connect().socket;
    monitor.wait_until("the parent is gone", |c| c.monitor.processes == 1);
    parent.hello();
    let lend = ClientMessage::Lend {
        token: 1,
        member: 7,
        has_rings: true,
    };
    parent.send(lend, &[parent.slab_fd.as_fd()]);
    assert_eq!(parent.expect(), MonitorMessage::Lendable { token: 1 });
    drop(child);
}

#[test]
fn what_is_written_to_a_lease_does_not_end_it() {
    use std::io::Write;
    let monitor = monitor();
    let (one, two) = (monitor.client(), monitor.client());
    let (a, b) = tcp_pair();
    pair((&one, 1, &a), (&two, 1, &b));
    let (mut child, watched) = UnixStream::pair().unwrap();
    one.send(ClientMessage::Lease, &[watched.as_fd()]);
    child.write_all(b"noise").unwrap();
    child.shutdown(std::net::Shutdown::Write).unwrap();
    one.release(1);
    two.release(1);
    one.expect_silence();
    two.expect_silence();
    assert_eq!(monitor.counters().monitor.slots, 1);
    drop(child);
    slots(&monitor, 0);
}

/// A connection from this port, or any, of an address that no other test uses.
fn connect_from(port: u16, to: &TcpListener) -> TcpStream {
    let stream = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    set_socket_reuseaddr(&stream, true).unwrap();
    let here = std::net::SocketAddrV4::new(std::net::Ipv4Addr::new(127, 9, 8, 7), port);
    bind(&stream, &here).unwrap();
    connect(&stream, &to.local_addr().unwrap()).unwrap();
    TcpStream::from(stream)
}

#[test]
fn a_new_socket_of_the_same_names_replaces_a_dead_one() {
    let monitor = monitor();
    let (client, server) = (monitor.client(), monitor.client());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let old = connect_from(0, &listener);
    let port = old.local_addr().unwrap().port();
    let (old_accepted, _) = listener.accept().unwrap();
    let (before, _, _) = pair((&client, 1, &old), (&server, 1, &old_accepted));
    // The names are free again after a reset, while the server still holds the dead socket.
    set_socket_linger(&old, Some(std::time::Duration::ZERO)).unwrap();
    drop(old);
    let new = connect_from(port, &listener);
    let (new_accepted, _) = listener.accept().unwrap();
    client.register(2, &new);
    assert_eq!(server.expect_grant().0.token, 1, "the newest known partner");
    assert_eq!(client.expect_grant().0.token, 2);
    server.register(2, &new_accepted);
    let (at_client, _) = client.expect_grant();
    let (at_server, _) = server.expect_grant();
    assert_eq!((at_client.token, at_server.token), (2, 2));
    assert_eq!(at_client.slot, at_server.slot);
    assert_ne!(at_client.slot, before.slot);
}

#[test]
fn after_a_restart_programs_introduce_themselves_again() {
    let monitor = monitor();
    let (mut one, two) = (monitor.client(), monitor.client());
    let (a, b) = tcp_pair();
    pair((&one, 1, &a), (&two, 1, &b));
    let directory = monitor.stop();
    assert!(one.receive().is_none());
    assert!(two.receive().is_none());
    let monitor = start_in(directory, |_| {});
    one.reconnect(monitor.directory.path());
    let two = monitor.client();
    // Released here, granted by the monitor before: none of this one's business.
    one.release(1);
    let (c, d) = tcp_pair();
    pair((&one, 2, &c), (&two, 2, &d));
    assert_eq!(monitor.counters().monitor.protocol_errors, 0);
}
