use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Barrier;

use crosslane_ctl::slab::Ending;

use super::*;
use crate::both::{Socket, ends, ends_before_a_start, granted, queued};
use crate::replay::tests::{WATCHDOG, ends_in_replay, make_small};
use crate::stay::Stay;
use crate::{pieces, rest, slices};

/// Whether the kernel resets the connection when it is closed.
fn lingers(socket: &TcpStream) -> bool {
    let linger = kernel::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER);
    linger == Ok([1, 0])
}

/// The kernel would reset a connection that is closed before its doorbells are read.
#[test]
fn the_last_doorbells_are_taken_from_a_peer_that_stops_when_it_sees_the_close() {
    let ([end, peer], _sockets) = ends();
    bell::arm(&end, &end.rx_lane().unwrap());
    assert_eq!(slices::send(&peer, &[2; 8], false), Ok(8));
    assert_eq!(slices::receive(&end, &mut [0; 8], false), Ok(8));
    assert_eq!(queued(&end), 1, "the doorbell");
    before_shutdown(&peer, libc::SHUT_WR);
    kernel::shutdown(peer.fd(), libc::SHUT_WR).unwrap();
    end.note_ending(Ending::Eof);
    say_closed(&end);
    switch::attend(&peer);
    assert_eq!(peer.tx_mode(), Mode::Tcp, "the peer has said STOP");
    assert!(!are_bells_over(&end));
    await_last_bells(&end, Instant::now() + Duration::from_secs(10));
    assert_eq!(queued(&end), 0);
}

/// The peer's START and the shutdown of both directions have crossed each other: natively nothing comes then, which the kernel would
/// answer with a reset.
#[test]
fn a_start_rings_nobody_who_has_shut_down_meanwhile() {
    let ([near, far], _sockets) = ends_before_a_start();
    say_closed(&far);
    kernel::shutdown(far.fd(), libc::SHUT_RDWR).unwrap();
    let (lane, tx) = near.hold_tx_lane().unwrap();
    switch::attend_start(&near, &lane);
    drop(tx);
    assert_eq!(slices::receive(&near, &mut [0; 10], false), Ok(0));
    assert!(!ending::has_error(&near), "it was reset");
}

/// Who rings has said so, and has no processor for the call.
#[test]
fn a_close_waits_for_a_doorbell_that_is_being_rung() {
    let ([near, far], [_near_socket, far_socket]) = ends();
    bell::publish_total(&near, &near.tx_lane().unwrap(), RINGING);
    std::thread::scope(|scope| {
        let closes = scope.spawn(|| {
            before_close(&far);
            drop(far_socket);
        });
        std::thread::sleep(3 * PATIENCE);
        let is_closed = closes.is_finished();
        let (lane, _tx) = near.hold_tx_lane().unwrap();
        near.entry.tx.bells_owed.store(1, Ordering::Relaxed);
        assert!(bell::pay(&near));
        bell::publish_total(&near, &lane, 0);
        assert!(!is_closed);
    });
    assert_eq!(slices::receive(&near, &mut [0; 10], false), Ok(0));
}

/// Both have looked before either has gone.
#[test]
fn the_last_of_two_that_leave_at_the_same_time_closes() {
    let ([end, _peer], _sockets) = ends();
    let lane = end.rx_lane().unwrap();
    let table = end.table();
    let (_, at) = end.process().home(end.index);
    let other = table.expect();
    table.lend(at, other);
    end.add_flags(end_flags::FORKED);
    end.entry
        .tx
        .lock
        .store(other.number().into(), Ordering::SeqCst);
    std::thread::scope(|scope| {
        let closes = scope.spawn(|| before_close(&end));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!closes.is_finished());
        table.take_back(at, other);
    });
    let flags = lane.control().receiver.flags.load(Ordering::SeqCst);
    assert_ne!(flags & receiver_flags::CLOSED, 0);
}

#[test]
fn who_goes_on_is_left_the_close_and_who_ends_is_not() {
    let ([end, _peer], _sockets) = ends();
    let table = end.table();
    let (_, at) = end.process().home(end.index);
    let other = table.expect();
    table.lend(at, other);
    assert!(end.process().is_kept_by_others(end.index));
    let slab = std::fs::File::options()
        .write(true)
        .open(format!("/proc/self/fd/{}", table.fd()))
        .unwrap();
    crate::holders::tests::lock_of_the_file(&slab, i64::from(other.number()) + (1 << 16));
    assert!(!end.process().is_kept_by_others(end.index));
    assert!(end.process().is_shared(end.index));
    table.take_back(at, other);
}

#[test]
fn who_exits_waits_for_nobody_who_has_been_stopped() {
    let ([end, _peer], _sockets) = ends();
    let other = end.table().expect();
    end.add_flags(end_flags::FORKED);
    let lock = &end.entry.tx.lock;
    lock.store(other.number().into(), Ordering::SeqCst);
    let soon = || Instant::now() + Duration::from_millis(20);
    assert!(!is_to_be_closed(&end, soon()));
    end.table().family().forget(other);
    assert!(is_to_be_closed(&end, soon()), "by its heir");
}

#[test]
fn who_exits_waits_for_a_moment_in_which_another_thread_has_a_direction() {
    let ([end, _peer], _sockets) = ends();
    let is_held = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _rx = end.lock_rx();
            is_held.wait();
            std::thread::sleep(Duration::from_millis(5));
        });
        is_held.wait();
        assert!(is_to_be_closed(&end, Instant::now() + WATCHDOG));
    });
}

/// A fork holds the list of free entries, and waits for others who wait for a direction.
#[test]
fn directions_are_free_before_the_list_of_free_entries_is_waited_for() {
    let ([end, _peer], _sockets) = ends();
    let list = end.process().hold_returned();
    std::thread::scope(|scope| {
        scope.spawn(|| before_close(&end));
        let deadline = Instant::now() + Duration::from_secs(5);
        while end.rx_lane().is_some() {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
        for direction in [&end.entry.rx.lock, &end.entry.tx.lock] {
            while direction.load(Ordering::SeqCst) != 0 && Instant::now() < deadline {
                std::thread::yield_now();
            }
        }
        let is_held = heir::is_held_here(&end);
        drop(list);
        assert!(!is_held);
    });
}

#[test]
fn what_could_not_be_sent_again_is_not_waited_for_once_more() {
    let ([near, _far], [socket, _far_socket]) = ends_in_replay();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let given_up = scope.spawn(|| {
            while !lingers(&socket) {
                assert!(began.elapsed() < WATCHDOG);
                std::thread::sleep(Duration::from_millis(1));
            }
            began.elapsed()
        });
        before_close(&near);
        let all = began.elapsed();
        let first = given_up.join().unwrap();
        assert!(all < first * 3 / 2, "{first:?} of {all:?}");
    });
}

/// Two ends of which the first owes a doorbell, for which TCP has no room before so many bytes of it are read.
fn ends_with_a_bell_owed() -> ([End; 2], [Socket<TcpStream>; 2], usize) {
    let ([near, far], sockets) = ends();
    make_small(&sockets);
    let mut socket = &*sockets[0];
    socket.set_nonblocking(true).unwrap();
    let writes = core::iter::from_fn(|| socket.write(&[0; 1024]).ok());
    let filled: usize = writes.sum();
    socket.set_nonblocking(false).unwrap();
    let counted = &near.entry.tx.tcp_bytes;
    counted.fetch_add(filled as u64, Ordering::Relaxed);
    bell::probe(&near, 0);
    assert_eq!(near.entry.tx.bells_owed.load(Ordering::Relaxed), 1);
    ([near, far], sockets, filled)
}

#[test]
fn a_direction_that_owes_a_doorbell_leaves_its_lane_when_tcp_has_room() {
    let ([near, _far], [_socket, mut far_socket], filled) = ends_with_a_bell_owed();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            far_socket.read_exact(&mut vec![0; filled]).unwrap();
        });
        assert!(make_plain(&near, Reason::Call, WATCHDOG));
    });
    assert_eq!(near.tx_mode(), Mode::Tcp);
    assert_eq!(near.entry.tx.bells_owed.load(Ordering::Relaxed), 0);
}

#[test]
fn what_is_written_by_who_got_the_socket_is_not_taken_for_a_doorbell_that_was_owed() {
    let ([near, far], [mut socket, far_socket], _) = ends_with_a_bell_owed();
    far_socket.set_read_timeout(Some(WATCHDOG)).unwrap();
    assert!(!rest::give_away(
        &near,
        Reason::Passed,
        Duration::from_millis(20)
    ));
    std::thread::scope(|scope| {
        scope.spawn(|| socket.write_all(b"word").unwrap());
        let mut word = [0; 5];
        assert_eq!(slices::receive(&far, &mut word, false), Ok(4));
        assert_eq!(&word[..4], b"word");
    });
}

#[test]
fn who_closes_leaves_the_stream_whole_to_who_has_a_copy() {
    let ([near, far], [_socket, far_socket]) = ends();
    let mut copy = far_socket.try_clone().unwrap();
    assert_eq!(slices::send(&near, &[1; 100], false), Ok(100));
    far.entry.wait.away.store(1, Ordering::SeqCst);
    switch::freeze(&far);
    switch::pin(&far, Reason::Passed);
    before_close(&far);
    drop(far_socket);
    assert_eq!(slices::send(&near, &[2; 50], false), Ok(50));
    copy.set_read_timeout(Some(WATCHDOG)).unwrap();
    let mut read = [0; 150];
    copy.read_exact(&mut read).unwrap();
    assert_eq!((&read[..100], &read[100..]), (&[1; 100][..], &[2; 50][..]));
    assert!(!lingers(&copy));
}

/// Whichever is first, and wherever the sleep ends.
#[test]
fn a_descriptor_that_is_kept_goes_with_the_last_of_two_names() {
    for _ in 0..200 {
        let ([end, _peer], sockets) = ends();
        let table = end.table();
        let (_, at) = end.process().home(end.index);
        // So that no other test has the entry meanwhile.
        let other = table.expect();
        table.lend(at, other);
        let twin = sockets[0].try_clone().unwrap();
        add_name(&end, twin.as_raw_fd());
        let second = end.by_name(twin.as_raw_fd());
        let sleep = Stay::begin(&end).unwrap();
        let begins = Barrier::new(3);
        std::thread::scope(|scope| {
            for name in [&end, &second] {
                scope.spawn(|| {
                    begins.wait();
                    before_close(name);
                });
            }
            begins.wait();
            drop(sleep);
        });
        assert_eq!(end.local.names(), 0);
        assert_eq!(end.local.kept.load(Ordering::SeqCst), 0);
        assert!(end.tx_lane().is_none(), "it has been let go");
        table.take_back(at, other);
    }
}

/// Between two looks of the receiver's, its peer enters the lane and rings.
#[test]
fn a_doorbell_behind_an_own_shutdown_is_no_data() {
    let ([near, far], _sockets) = granted();
    switch::advance(&far);
    before_shutdown(&far, libc::SHUT_RD);
    kernel::shutdown(far.fd(), libc::SHUT_RD).unwrap();
    bell::arm(&far, &far.rx_lane().unwrap());
    let rings = move || {
        switch::advance(&near);
        assert_eq!(near.tx_mode(), Mode::Ring);
        while queued(&far) == 0 {
            std::thread::yield_now();
        }
    };
    pieces::tests::meanwhile(rings);
    assert_eq!(slices::receive(&far, &mut [0; 8], true), Ok(0));
}
