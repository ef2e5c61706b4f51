//! Schedules that once went wrong, step by step.

use super::host::{MOST_BYTES, Sleep};
use super::run::{Run, Step};
use super::wire::{Arrival, Fault};
use crate::bell::Bells;
use Step::{
    Arrive, Fill, GiveAway, GiveUp, Leave, Look, Receive, Reenter, Rest, Return, Send,
    Sleep as FallAsleep,
};

/// The receiver is ready for the lane, and the sender, at host 0, knows.
const READY: [Step; 3] = [Receive(1, 8), Arrive(1, Arrival::All), Look(0, false)];

fn play(scripts: &[&[Step]]) {
    let mut run = Run::with_nothing_done(Fault::None);
    let steps = scripts.iter().copied().flatten();
    let outcome = steps.copied().try_for_each(|step| run.take(step));
    run.end(outcome)
        .unwrap_or_else(|failure| panic!("{failure}"));
}

/// A doorbell that was owed when the receiver froze is never sent: what is sent again by TCP comes in its place, before
/// the answer to the freeze.
#[test]
fn a_doorbell_that_waits_for_a_start_to_be_found_is_not_promised() {
    let to_fence = Arrive(1, Arrival::ToFence);
    play(&[
        &READY,
        &[FallAsleep(1, Sleep::Poll), Arrive(1, Arrival::All)],
        &[Look(0, false), Send(0, 3), Arrive(0, Arrival::All)],
        // A wish, credit and the freeze; not that the START has been found.
        &[GiveUp(1), GiveAway(1), to_fence, to_fence, to_fence],
        &[Look(0, false), Receive(1, 8), Rest],
    ]);
}

/// Whoever closes waits for it all the same.
#[test]
fn a_doorbell_that_waits_for_a_start_to_be_found_is_on_its_way() {
    let mut run = Run::with_nothing_done(Fault::None);
    let mut take = |steps: &[Step]| {
        let outcome = steps.iter().try_for_each(|step| run.take(*step));
        outcome.unwrap_or_else(|failure| panic!("{failure}"));
        run.bells_of_receiver()
    };
    take(&READY);
    take(&[FallAsleep(1, Sleep::Poll), Arrive(1, Arrival::All)]);
    take(&[Look(0, false), Send(0, 3), Arrive(0, Arrival::All)]);
    let bells = take(&[GiveUp(1), Look(1, false), Receive(1, 8)]);
    assert_eq!(bells, Bells::Some);
    let bells = take(&[Arrive(1, Arrival::All), Look(0, false)]);
    assert_eq!(bells, Bells::Some);
    assert_eq!(take(&[Arrive(0, Arrival::All)]), Bells::None);
}

/// The sender sees neither the freeze nor its end before it says START.
#[test]
fn a_freeze_that_is_taken_back_hides_no_start() {
    play(&[
        &READY,
        &[GiveAway(1), Return(1), Send(0, 3)],
        &[FallAsleep(1, Sleep::Poll), Rest],
    ]);
}

/// The doorbell that answers it is taken behind a STOP.
#[test]
fn a_wish_for_room_is_told_again_after_its_doorbell() {
    let mut run = Run::with_nothing_done(Fault::None);
    let mut take = |steps: &[Step]| {
        let outcome = steps.iter().try_for_each(|step| run.take(*step));
        outcome.unwrap_or_else(|failure| panic!("{failure}"));
        run.is_in_lanes()
    };
    let arrive = [0, 1].map(|at| Arrive(at, Arrival::All));
    let look = [0, 1].map(|at| Look(at, false));
    let read = [0, 1].map(|at| Receive(at, MOST_BYTES));
    // Nobody sleeps, and nobody is rung.
    let calm = [arrive, look, arrive, read].concat().repeat(6);
    let enter = [&[Send(0, 1), Send(1, 1)][..], &calm].concat().repeat(8);
    let fill = [Fill(0, 500), FallAsleep(0, Sleep::Poll)];
    assert!(take(&enter));
    take(&fill);
    take(&[Arrive(0, Arrival::All)]);
    take(&[Receive(1, MOST_BYTES); 5]);
    // So is the one that it has asked for as a receiver.
    take(&[GiveUp(0), Send(1, 1), Leave(1), Arrive(1, Arrival::All)]);
    take(&[Receive(0, 8), Receive(0, 8), Send(0, 1), Reenter(1)]);
    assert!(take(&enter), "both are back");
    take(&fill);
    take(&[Rest]);
}
