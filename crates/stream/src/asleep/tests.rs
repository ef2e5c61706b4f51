use crosslane_ctl::lane::receiver_flags::ARMED;
use crosslane_ctl::reason::Reason;

use super::*;
use crate::both::{ends, ends_before_a_start, queued};
use crate::{slices, step};

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
