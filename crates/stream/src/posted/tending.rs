//! What has to be looked for in posted lanes, as nothing tells of it.

use core::sync::atomic::Ordering;

use crosslane_ctl::lane::posted_flags;
use crosslane_ctl::lane::receiver_flags::ARMED;
use crosslane_ctl::slab::{Ending, Mode};
use crosslane_ring::WindowLane;

use super::{SENT, There, merge, sent_there, settle_credit, there};
use crate::{End, bell, entering, switch, unconsumed};

/// Take over what the receiver has said, ring if it has fallen asleep over a record, and send what is owed. The caller
/// holds neither direction.
pub(crate) fn look(end: &End) {
    let is_due = |(lane, _): &(WindowLane, There)| has_news(end, lane);
    if sent_there(end).is_some_and(|both| is_due(&both)) {
        catch_up(end);
    }
}

fn has_news(end: &End, lane: &WindowLane) -> bool {
    let control = lane.control();
    let (number, _) = posted_flags::of(control.receiver.posted.load(Ordering::Relaxed));
    u64::from(number) != control.sender.echo.load(Ordering::Relaxed)
        || end.entry.tx.bells_owed.load(Ordering::Relaxed) != 0
        || is_asleep_over_record(end, lane)
        || entering::has_put_off_stop(end)
}

/// Whether the receiver has asked to be rung with less read than is there.
fn is_asleep_over_record(end: &End, lane: &WindowLane) -> bool {
    end.tx_mode() == Mode::Ring
        && lane.control().receiver.flags.load(Ordering::Relaxed) & ARMED != 0
        && !unconsumed::is_none(end, lane)
}

#[cold]
fn catch_up(end: &End) {
    let Some((lane, _tx)) = end.hold_tx_lane() else {
        return;
    };
    let Some(there) = there(end, &lane, SENT) else {
        return;
    };
    merge(&lane, there);
    if is_asleep_over_record(end, &lane) {
        bell::ring_if_armed(end, &lane);
    } else if end.tx_mode() == Mode::Ring {
        bell::pay(end);
    }
    if entering::has_put_off_stop(end) {
        switch::stop_locked(end, &lane, end.reason());
    }
}

/// By the library's thread: what the program may be too late for. Returns whether to look again soon.
pub(crate) fn tend(end: &End) -> bool {
    if sent_there(end).is_none() {
        return false;
    }
    settle_credit(end);
    // A wish that crossed our credit.
    bell::answer_space(end);
    let owed = end.entry.tx.bells_owed.load(Ordering::Relaxed);
    end.tx_mode() == Mode::Ring && owed != 0 && end.ending() == Ending::Open
}
