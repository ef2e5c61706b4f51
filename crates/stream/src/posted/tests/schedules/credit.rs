//! When credit is posted, and what a sender knows by it of a receiver that is killed.

use core::sync::atomic::Ordering;

use crosslane_sys::Errno;

use super::host::MOST_BYTES;
use super::run::{Run, Step};
use super::wire::{Arrival, Fault, Posted};
use crate::heir::tests::die;
use Step::{Arrive, Look, Receive, Send};

/// Both directions are in their lanes, and nobody sleeps.
fn enter(fault: Fault) -> Run {
    let mut run = Run::with_nothing_done(fault);
    let arrive = [0, 1].map(|at| Arrive(at, Arrival::All));
    let look = [0, 1].map(|at| Look(at, false));
    let read = [0, 1].map(|at| Receive(at, MOST_BYTES));
    let calm = [arrive, look, arrive, read].concat().repeat(6);
    for _ in 0..8 {
        take(&mut run, &[Send(0, 1), Send(1, 1)]);
        take(&mut run, &calm);
    }
    assert!(run.is_in_lanes());
    run
}

fn take(run: &mut Run, steps: &[Step]) {
    let outcome = steps.iter().try_for_each(|step| run.take(*step));
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

/// What is posted for 100 messages of 64 bytes one way: records, and credit.
fn posted_for(steps: impl FnOnce(&mut Run)) -> [u64; 2] {
    let mut run = enter(Fault::None);
    let before = [0, 1].map(|at| run.posted_by(at));
    steps(&mut run);
    let after = [0, 1].map(|at| run.posted_by(at));
    run.end(Ok(())).unwrap();
    let of = |at: usize, what: fn(&Posted) -> u64| what(&after[at]) - what(&before[at]);
    [
        of(0, |posted| posted.records),
        of(1, |posted| posted.credit),
    ]
}

#[test]
fn credit_is_posted_when_the_lane_is_empty_and_for_half_a_ring() {
    const MESSAGE: [Step; 3] = [Send(0, 64), Arrive(0, Arrival::All), Receive(1, 64)];
    let one_by_one = posted_for(|run| take(run, &MESSAGE.repeat(100)));
    let behind = posted_for(|run| {
        take(run, &MESSAGE[..1].repeat(100));
        take(run, &[MESSAGE[1]]);
        take(run, &MESSAGE[2..].repeat(100));
    });
    let byte_by_byte = posted_for(|run| {
        take(run, &MESSAGE[..1].repeat(100));
        take(run, &[MESSAGE[1]]);
        take(run, &[Receive(1, 1)].repeat(6400));
    });
    let much_behind = posted_for(|run| {
        take(run, &MESSAGE[..1].repeat(200));
        take(run, &[MESSAGE[1]]);
        take(run, &MESSAGE[2..].repeat(200));
    });
    println!("{one_by_one:?} {behind:?} {byte_by_byte:?} {much_behind:?}");
    assert_eq!(one_by_one, [1700, 100]);
    assert_eq!(behind, [1700, 1]);
    assert_eq!(byte_by_byte, [1700, 1]);
    assert_eq!(much_behind, [3400, 2]);
}

/// What a sender is told whose receiver is killed, having read all or nothing.
fn told_after_kill(fault: Fault, has_read: bool) -> Result<usize, Errno> {
    let mut run = enter(fault);
    take(&mut run, &[Send(0, 1000), Arrive(0, Arrival::All)]);
    if has_read {
        take(&mut run, &[Receive(1, 1000)]);
    }
    take(&mut run, &[Arrive(1, Arrival::All)]);
    let told = run.kill_receiver();
    run.end(Ok(())).unwrap();
    told
}

/// As over TCP: whoever is killed with something unread resets the connection, and whoever has read all ends it.
#[test]
fn a_sender_knows_whether_a_receiver_that_was_killed_had_read_all() {
    assert_eq!(told_after_kill(Fault::None, true), Ok(0));
    assert_eq!(told_after_kill(Fault::None, false), Err(Errno::CONNRESET));
    // Credit for each half of a ring alone would not do.
    let told = told_after_kill(Fault::CreditForHalf, true);
    assert_eq!(told, Err(Errno::CONNRESET));
}

/// An heir holds the direction already, of which a wish for room may have to be told.
#[test]
fn an_heir_posts_the_credit_that_was_held() {
    let mut run = enter(Fault::None);
    let read_one_of_two = [
        Send(0, 64),
        Send(0, 64),
        Arrive(0, Arrival::All),
        Receive(1, 64),
    ];
    take(&mut run, &read_one_of_two);
    let before = run.posted_by(1).credit;
    let end = run.receiver();
    let lane = end.rx_lane().unwrap();
    lane.control()
        .sender
        .space_wanted
        .store(1, Ordering::SeqCst);
    die(&end, &end.entry.rx.lock, 0);
    drop(end.lock_rx());
    assert_eq!(run.posted_by(1).credit, before + 1);
    take(&mut run, &[Receive(1, 64)]);
    run.end(Ok(())).unwrap();
}
