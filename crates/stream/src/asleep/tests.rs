use std::os::unix::thread::JoinHandleExt;

use crosslane_ctl::lane::receiver_flags::ARMED;
use crosslane_ctl::reason::Reason;
use crosslane_ring::MAX_RECORD_BYTES;

use super::*;
use crate::both::{ends, ends_before_a_start, handle, queued};
use crate::{receive, slices, step};

/// Another thread sleeps, and this one takes all, with the doorbell that was to wake that.
#[test]
fn who_sleeps_is_rung_although_its_doorbell_was_drained() {
    let ([near, far], _sockets) = ends();
    far.begin_sleep();
    assert!(prepare_sleep(&far));
    assert_eq!(slices::send(&near, b"word", true), Ok(4));
    while queued(&far) == 0 {}
    switch::leave(&near, Reason::Chaos);
    assert_eq!(slices::receive(&far, &mut [0; 10], true), Ok(4));
    step::settle(&far);
    assert_eq!((far.rx_mode(), queued(&far)), (Mode::Tcp, 0));
    let lane = far.rx_lane().unwrap();
    let flags = lane.control().receiver.flags.load(Ordering::SeqCst);
    assert_eq!(flags & ARMED, ARMED);
    far.end_sleep();
}

/// Who is woken takes the processor from the sender, and waits for the rest.
#[test]
fn a_sleeper_is_rung_when_all_is_there_that_a_call_sends() {
    const BYTES: usize = 3 * MAX_RECORD_BYTES;
    let ([near, far], _sockets) = ends();
    for _ in 0..200 {
        far.begin_sleep();
        assert!(prepare_sleep(&far));
        let there = std::thread::scope(|scope| {
            let woken = scope.spawn(|| {
                while queued(&far) == 0 {}
                receive::readable_bytes(&far)
            });
            assert_eq!(slices::send(&near, &[7; BYTES], true), Ok(BYTES));
            woken.join().unwrap()
        });
        assert_eq!(there, Ok(BYTES));
        far.end_sleep();
        after_sleep(&far);
        assert_eq!(slices::receive(&far, &mut [0; BYTES], false), Ok(BYTES));
    }
}

/// Another thread has found the START, and has yet to take what comes by TCP before it, or nothing.
#[test]
fn nobody_sleeps_over_a_start_that_nothing_comes_before() {
    let ([_near, far], _sockets) = ends_before_a_start();
    let rx = &far.entry.rx;
    let taken = rx.tcp_bytes.load(Ordering::Relaxed);
    for (limit, is_next) in [(taken + 1, false), (taken, true), (u64::MAX, true)] {
        rx.tcp_limit.store(limit, Ordering::Relaxed);
        assert_eq!(must_look(&far), is_next);
    }
}

/// By SIGXFSZ a call is begun again, by SIGXCPU it ends.
#[test]
fn where_handlers_differ_the_signal_that_comes_says_what_becomes_of_a_sleep() {
    let ([near, _far], _sockets) = ends();
    let asked = (near.fd(), libc::POLLIN);
    handle(libc::SIGXCPU, Some(0));
    handle(libc::SIGXFSZ, Some(libc::SA_RESTART));
    for (signal, becomes) in [
        (libc::SIGXFSZ, Errno::RESTART),
        (libc::SIGXCPU, Errno::INTR),
    ] {
        let sleeper = std::thread::spawn(move || poll_one(asked, -1, None, None));
        while !sleeper.is_finished() {
            // SAFETY: the thread has not been joined.
            unsafe { libc::pthread_kill(sleeper.as_pthread_t(), signal) };
        }
        assert_eq!(sleeper.join().unwrap(), Err(becomes));
    }
    handle(libc::SIGXCPU, None);
    handle(libc::SIGXFSZ, None);
}
