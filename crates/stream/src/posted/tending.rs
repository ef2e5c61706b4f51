//! What has to be looked for in posted lanes, as nothing tells of it.

use core::sync::atomic::Ordering;

use crosslane_ctl::lane::posted_flags;
use crosslane_ctl::lane::receiver_flags::{ARMED, DROWSY, FROZEN, READY};
use crosslane_ctl::slab::{EndPhase, Ending, Mode, end_flags};
use crosslane_ring::WindowLane;

use super::{
    SENT, There, is_heard, is_start_found, merge, received_there, sent_there, tell_flags, there,
};
use crate::{End, bell, step, switch, unconsumed, watcher};

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
        || has_put_off_stop(end)
}

/// Whether the end was to go back to TCP, and could not before its START was found.
fn has_put_off_stop(end: &End) -> bool {
    end.tx_mode() == Mode::Ring
        && end.is_pinned()
        && end.ending() == Ending::Open
        && is_start_found(end)
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
    if has_put_off_stop(end) {
        switch::stop_locked(end, &lane, end.reason());
    }
}

/// On the program's own calls, before a START is waited for: it is looked for from now on.
pub(crate) fn wake(end: &End) {
    let Some((lane, _)) = received_there(end) else {
        return;
    };
    let flags = &lane.control().receiver.flags;
    if flags.load(Ordering::Relaxed) & DROWSY != 0 {
        flags.fetch_and(!DROWSY, Ordering::SeqCst);
        tell_flags(end);
        watcher::stir();
    }
}

/// By the library's thread: what the program may be too late for. Returns whether to look again soon; `is_idle` when the
/// process has posted nothing for long.
pub(crate) fn tend(end: &End, is_idle: bool) -> bool {
    let Some((lane, _)) = sent_there(end) else {
        return false;
    };
    if lane.control().receiver.flags.load(Ordering::Relaxed) & FROZEN != 0 {
        switch::attend_lane(end);
    }
    // A wish that crossed our credit.
    bell::answer_space(end);
    let owed = end.entry.tx.bells_owed.load(Ordering::Relaxed);
    let is_owing = end.tx_mode() == Mode::Ring && (owed != 0 || !is_start_found(end));
    (is_owing | waits_for_start(end, is_idle)) && end.ending() == Ending::Open
}

/// Find the START that may stand in the receiving lane, and say so. Returns whether one may still come.
fn waits_for_start(end: &End, is_idle: bool) -> bool {
    let may_come = |lane: &WindowLane| {
        let flags = lane.control().receiver.flags.load(Ordering::Relaxed);
        end.rx_mode() == Mode::Tcp
            && flags & FROZEN == 0
            && !end.has_flags(end_flags::FROZEN)
            && end.phase() == EndPhase::Granted
            && end.entry.rx.tcp_limit.load(Ordering::Relaxed) == u64::MAX
    };
    let Some((lane, _)) = received_there(end).filter(|(lane, _)| may_come(lane)) else {
        return false;
    };
    let find = || {
        if let Some((lane, _rx)) = end.hold_rx_lane().filter(|(lane, _)| may_come(lane)) {
            let _ = step::find_start(end, &lane);
        }
    };
    if end.has_record() {
        find();
        return false;
    }
    let flags = &lane.control().receiver.flags;
    // Where it is not set it may just have been taken back.
    if flags.load(Ordering::Relaxed) & READY != 0 {
        if !is_idle {
            return true;
        }
        if flags.fetch_or(DROWSY, Ordering::SeqCst) & DROWSY == 0 {
            tell_flags(end);
        }
    }
    let is_heard = is_heard(end, &lane);
    if is_heard && end.has_record() {
        // In this order: a START came before the sender heard.
        find();
    }
    !is_heard
}
