use std::time::Instant;

use crosslane_sys::Errno;

use super::*;
use crate::both::{self, queued};
use crate::slices;

/// What has been rung, TCP on the loopback brings in less, as a rule.
const SOON: Duration = Duration::from_millis(50);
const LONG: Duration = PATIENCE.saturating_add(Duration::from_millis(100));

fn send(end: &End) {
    assert_eq!(slices::send(end, &[7; 100], false), Ok(100));
}

fn receive(end: &End) -> Result<usize, Errno> {
    slices::receive(end, &mut [0; 100], true)
}

/// See that so many doorbells have come, and no more do.
fn assert_bells(end: &End, count: u32) {
    let began = Instant::now();
    while queued(end) < count && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(SOON);
    }
    std::thread::sleep(SOON);
    assert_eq!(queued(end), count);
}

/// What the thread does, once and again after a while.
fn tend_for_long(end: &End) {
    tend(end);
    std::thread::sleep(LONG);
    tend(end);
}

#[test]
fn a_doorbell_follows_what_is_not_read_and_another_what_is_sent_later() {
    let ([near, far], _sockets) = both::ends();
    send(&near);
    tend(&near);
    // It may be read in a moment.
    assert_bells(&far, 0);
    std::thread::sleep(LONG);
    tend(&near);
    assert_bells(&far, 1);
    tend_for_long(&near);
    assert_bells(&far, 1);
    send(&near);
    tend_for_long(&near);
    assert_bells(&far, 2);
    // Nobody takes them for data.
    assert_eq!([(); 2].map(|()| receive(&far)), [Ok(100); 2]);
    assert_eq!(receive(&far), Err(Errno::AGAIN));
    assert_bells(&far, 0);
    send(&near);
    tend_for_long(&near);
    assert_bells(&far, 1);
}

#[test]
fn no_doorbell_follows_what_a_peer_reads_that_lags_behind() {
    let ([near, far], _sockets) = both::ends();
    send(&near);
    for _ in 0..3 {
        tend(&near);
        send(&near);
        assert_eq!(receive(&far), Ok(100));
        std::thread::sleep(LONG);
    }
    tend(&near);
    assert_bells(&far, 0);
}

#[test]
fn a_peer_that_takes_no_doorbells_gets_none() {
    for flag in [FROZEN, CLOSED] {
        let ([near, far], _sockets) = both::ends();
        send(&near);
        let lane = near.tx_lane().unwrap();
        let flags = &lane.control().receiver.flags;
        flags.fetch_or(flag, Ordering::SeqCst);
        tend_for_long(&near);
        assert_bells(&far, 0);
        flags.fetch_and(!flag, Ordering::SeqCst);
        tend(&near);
        assert_bells(&far, 1);
    }
}
