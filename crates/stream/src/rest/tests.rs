use core::sync::atomic::AtomicU32;
use std::io::{Read, Write};
use std::thread::{ScopedJoinHandle, yield_now};

use crosslane_ctl::lane::receiver_flags::READY;
use crosslane_sys::kernel;

use super::*;
use crate::both::{ends, granted};
use crate::replay::tests::{ends_in_replay, read_message};

/// Until a thread sleeps for a direction.
fn await_waiter<T>(lock: &AtomicU32, thread: &ScopedJoinHandle<'_, T>) {
    while lock.load(Ordering::SeqCst) >> 31 == 0 {
        assert!(!thread.is_finished());
        yield_now();
    }
}

fn is_ready(end: &End) -> bool {
    let lane = end.rx_lane().unwrap();
    lane.control().receiver.flags.load(Ordering::SeqCst) & READY != 0
}

#[test]
fn what_is_pinned_while_its_direction_is_waited_for_does_not_enter_the_lane() {
    let ([near, far], _sockets) = granted();
    switch::advance(&far);
    assert!(is_ready(&far));
    let held = near.lock_tx();
    std::thread::scope(|scope| {
        let moves = scope.spawn(|| switch::advance(&near));
        await_waiter(&near.entry.tx.lock, &moves);
        begin(&near, Reason::Passed);
        drop(held);
    });
    assert_eq!(near.tx_mode(), Mode::Tcp);
}

#[test]
fn what_is_pinned_while_its_direction_is_waited_for_is_ready_for_no_start() {
    let ([near, _], _sockets) = granted();
    let held = near.lock_rx();
    std::thread::scope(|scope| {
        let moves = scope.spawn(|| switch::advance(&near));
        await_waiter(&near.entry.rx.lock, &moves);
        begin_alone(&near, Reason::Passed);
        drop(held);
    });
    assert!(!is_ready(&near));
}

#[test]
fn an_end_is_left_to_the_kernel_with_its_word_taken_back() {
    let ([near, _], _sockets) = granted();
    switch::pin(&near, Reason::Option);
    let held = near.lock_tx();
    std::thread::scope(|scope| {
        let retires = scope.spawn(|| switch::retire(&near));
        await_waiter(&near.entry.tx.lock, &retires);
        let lane = near.rx_lane().unwrap();
        // Another thread has been ready for rings, and has found the end pinned again.
        let flags = &lane.control().receiver.flags;
        flags.fetch_or(READY, Ordering::SeqCst);
        drop(held);
        assert!(retires.join().unwrap());
    });
    assert_eq!(near.phase(), EndPhase::Plain);
    assert!(!is_ready(&near));
}

#[test]
fn lanes_that_come_while_a_socket_is_given_away_are_frozen_as_others() {
    let ([near, _], _sockets) = granted();
    near.set_phase(EndPhase::Registered);
    let held = near.lock_tx();
    std::thread::scope(|scope| {
        let gives = scope.spawn(|| give_away(&near, Reason::Passed, Duration::from_millis(1)));
        await_waiter(&near.entry.tx.lock, &gives);
        near.set_phase(EndPhase::Granted);
        drop(held);
    });
    assert!(near.has_flags(end_flags::FROZEN));
    assert!(near.is_pinned());
}

#[test]
fn a_rest_does_not_end_when_the_socket_is_given_away_meanwhile() {
    let ([_near, far], _sockets) = ends();
    switch::freeze(&far);
    begin(&far, Reason::Passed);
    object(&far);
    let held = far.lock_rx();
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| look_now(&far));
        await_waiter(&far.entry.rx.lock, &looks);
        far.entry.wait.away.store(1, Ordering::SeqCst);
        drop(held);
    });
    let lane = far.rx_lane().unwrap();
    let flags = &lane.control().receiver.flags;
    let objections = STOP_WANTED | FROZEN;
    assert_eq!(flags.load(Ordering::SeqCst) & objections, objections);
    assert!(far.has_flags(end_flags::FROZEN));
}

#[test]
fn a_wish_for_space_does_not_outlive_a_freeze() {
    let ([near, far], _sockets) = ends();
    switch::freeze(&far);
    {
        let (lane, _tx) = far.hold_tx_lane().unwrap();
        bell::want_space(&far, &lane);
    }
    switch::leave(&far, Reason::Passed);
    bell::answer_space(&near);
    assert_eq!(kernel::queued(far.fd(), libc::FIONREAD), Ok(0));
}

/// What whoever gets it writes would stand amid what is sent again.
#[test]
fn what_is_sent_again_has_been_sent_when_the_senders_socket_is_given_away() {
    let ([near, _far], [near_socket, far_socket]) = ends_in_replay();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            read_message(&far_socket);
            let mut word = [0; 4];
            (&*far_socket).read_exact(&mut word).unwrap();
            assert_eq!(&word, b"more");
        });
        give_away(&near, Reason::Passed, Duration::from_millis(1));
        (&*near_socket).write_all(b"more").unwrap();
    });
}

/// As for a sandbox, and for standard streams: what comes by TCP would be taken for what is missing.
#[test]
fn who_leaves_what_is_behind_a_lost_window_has_the_connection_reset() {
    let ([near, _far], _sockets) = ends();
    near.add_flags(end_flags::LOST);
    assert!(lost::is_dry(&near));
    leave_behind(&near, Reason::Sandbox);
    assert!(!lost::is_dry(&near));
    assert_eq!(
        ending::take_error(&near),
        Some(crosslane_sys::Errno::CONNRESET)
    );
}
