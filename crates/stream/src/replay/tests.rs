use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use super::*;
use crate::both::{Socket, ends};
use crate::{close, ready, slices, step};

/// More than sockets with small buffers take.
pub(crate) const BYTES: usize = 28 << 10;

/// Nothing here takes so long.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(20);

/// Have the kernel take little at a time.
pub(crate) fn make_small(sockets: &[impl AsRawFd]) {
    for socket in sockets {
        for option in [libc::SO_SNDBUF, libc::SO_RCVBUF] {
            kernel::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, &1).unwrap();
        }
    }
}

pub(crate) fn message() -> Vec<u8> {
    let byte = |at: usize| u8::try_from(at % 251).unwrap();
    (0..BYTES).map(byte).collect()
}

/// Two ends and the sockets below. The first has sent what the second has not read and wants to have by TCP, which has no
/// room for all of it.
pub(crate) fn ends_in_replay() -> ([End; 2], [Socket<TcpStream>; 2]) {
    let ([near, far], sockets) = ends();
    make_small(&sockets);
    assert_eq!(slices::send(&near, &message(), true), Ok(BYTES));
    switch::freeze(&far);
    switch::pin(&far, Reason::Passed);
    switch::attend(&near);
    assert_eq!(near.tx_mode(), Mode::Replay);
    ([near, far], sockets)
}

/// Read the message as somebody who knows nothing of lanes.
pub(crate) fn read_message(mut socket: &TcpStream) {
    socket.set_read_timeout(Some(WATCHDOG)).unwrap();
    let mut read = vec![0; BYTES];
    socket.read_exact(&mut read).unwrap();
    assert!(read == message());
}

#[test]
fn a_receive_that_sleeps_sends_again_when_there_is_room() {
    let ([near, _far], [_socket, far_socket]) = ends_in_replay();
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| slices::receive(&near, &mut [0; 10], false));
        let is_read = scope.spawn(|| read_message(&far_socket)).join();
        (&*far_socket).write_all(b"answer").unwrap();
        assert!(is_read.is_ok());
        assert_eq!(answer.join().unwrap(), Ok(6));
    });
}

/// It goes on to rest before all has come.
#[test]
fn any_receive_goes_on_sending_again_for_one_that_asks_no_more() {
    let ([near, _far], [_socket, far_socket]) = ends_in_replay();
    let lane = near.tx_lane().unwrap();
    lane.control().receiver.flags.store(0, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_message(&far_socket));
        while !reader.is_finished() {
            assert_eq!(
                slices::receive(&near, &mut [0; 10], true),
                Err(Errno::AGAIN)
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn who_waits_to_read_is_woken_by_room_for_what_is_to_be_sent_again() {
    let ([near, _far], [_socket, far_socket]) = ends_in_replay();
    std::thread::scope(|scope| {
        scope.spawn(|| read_message(&far_socket));
        loop {
            step::settle(&near);
            if !is_under_way(&near) {
                break;
            }
            assert!(ready::waits_for_room(&near, libc::POLLIN));
            let wish = ready::kernel_wish(&near, libc::POLLIN);
            assert_eq!(wish & libc::POLLOUT, libc::POLLOUT);
            assert!(ready::prepare_sleep(&near, libc::POLLIN));
            asleep::poll_one((near.fd(), wish), -1, Some(send::STANDSTILL), None).unwrap();
            ready::after_sleep(&near);
        }
    });
}

/// It is about to be closed, or the thread that sends by it to end.
#[test]
fn nothing_more_is_sent_by_a_descriptor_when_it_is_not_wanted() {
    let ([near, far], sockets) = ends();
    for _ in 0..100 {
        assert_eq!(slices::send(&near, b".", true), Ok(1));
    }
    switch::freeze(&far);
    switch::pin(&far, Reason::Passed);
    let lane = near.tx_lane().unwrap();
    assert!(claim_freeze(&near, &lane));
    answer_freeze(
        &near,
        &lane,
        near.entry.tx.tcp_bytes.load(Ordering::Relaxed),
    );
    near.set_tx_mode(Mode::Replay);
    let mut cursor = near.tx_cursor();
    cursor.refresh(&lane).unwrap();
    near.set_tx_cursor(cursor);
    let asked = AtomicU32::new(0);
    push_one(&near, || asked.fetch_add(1, Ordering::Relaxed) < 3);
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    assert!(is_under_way(&near));
    let before = position(&near);
    near.process().name(near.fd, None);
    push_one(&near, || true);
    assert_eq!(position(&near), before);
    near.process().name(near.fd, Some(near.index));
    push_one(&near, || true);
    assert!(!is_under_way(&near));
    sockets[1].set_read_timeout(Some(WATCHDOG)).unwrap();
    (&*sockets[1]).read_exact(&mut [0; 100]).unwrap();
}

/// They sleep with a descriptor of ours.
#[test]
fn what_is_closed_under_a_sleep_is_sent_again() {
    let ([near, _far], [_socket, far_socket]) = ends_in_replay();
    let stay = Stay::begin(&near).unwrap();
    close::before_close(&near);
    let is_near = |end: &End| end.index == near.index;
    let kept = put_off::all(near.process()).find(is_near).unwrap();
    assert_ne!(kept.fd, near.fd);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_message(&far_socket));
        while !reader.is_finished() {
            push_one(&kept, || true);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    drop(stay);
}

#[test]
fn who_becomes_another_program_sends_again_for_others() {
    let ([near, _far], [_socket, far_socket]) = ends_in_replay();
    let table = near.table();
    let (_, at) = near.process().home(near.index);
    let other = table.expect();
    table.lend(at, other);
    near.add_flags(end_flags::FORKED);
    std::thread::scope(|scope| {
        scope.spawn(|| read_message(&far_socket));
        close::before_exec(|end| end.index != near.index);
    });
    table.take_back(at, other);
}

#[test]
fn who_closes_sends_again_for_others_who_make_no_call() {
    let ([near, _far], [_socket, far_socket]) = ends_in_replay();
    let table = near.table();
    let (_, at) = near.process().home(near.index);
    let other = table.expect();
    table.lend(at, other);
    near.add_flags(end_flags::FORKED);
    std::thread::scope(|scope| {
        scope.spawn(|| read_message(&far_socket));
        close::before_close(&near);
    });
    table.take_back(at, other);
}

/// Else nobody tells a set of epoll of the room that there is later.
#[test]
fn whoever_gives_up_behind_what_is_to_be_sent_again_has_missed_room() {
    type Call = fn(&End) -> Result<(), Errno>;
    let calls: [(&str, Call); 4] = [
        ("send", |end| slices::send(end, b"more", true).map(|_| ())),
        ("enter", |end| send::enter(end, true).map(|_| ())),
        ("leave the ring", |end| send::leave_ring(end, true)),
        ("reserve", |end| {
            crate::reserve::reserve(end, 10, true).map(|_| ())
        }),
    ];
    for (name, call) in calls {
        let ([near, _far], _sockets) = ends_in_replay();
        let before = near.refusals();
        assert_eq!(call(&near), Err(Errno::AGAIN), "{name}");
        assert!(near.is_blocked() && near.refusals() != before, "{name}");
    }
}
