//! What the monitor says of lanes in a lost window: words of the other end's, and that it has none to say.

use core::sync::atomic::Ordering;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use crosslane_ctl::lane::receiver_flags::{FROZEN, STOP_WANTED};
use crosslane_ctl::message::{Position, Remainder, position_flags};
use crosslane_ctl::place::Place;
use crosslane_ctl::slab::{Ending, Mode, end_flags};
use crosslane_ring::{Control, LaneMemory, Next, PeerLied, RxCursor, WindowLane, mirror};

use super::{ASK_AGAIN, ASK_AGAIN_AT_LEISURE};
use super::{give_up, is_due, lacks_remainder, leave, owe_position, pair_of, stop};
use crate::process::Process;
use crate::{End, bell, ending, entering, register, replay, spare};

use end_flags::{CONFIRMED, FAR, HEARD, LOST, REFILLED, SHIPPED};

/// The monitor has found the window missing.
pub(crate) fn hear_lost(process: &'static Process, token: u64, pair: u64) {
    let is_meant = |end: &End| end.has_flags(FAR) && pair_of(end) == pair;
    if let Some(end) = register::find(process, token).filter(is_meant)
        && !end.has_flags(LOST)
    {
        leave(&end, is_meant);
    }
}

/// The peer has left the window, and has read so far.
pub(crate) fn hear_position(process: &'static Process, position: &Position) {
    let is_meant = |end: &End| end.has_flags(FAR) && pair_of(end) == position.pair;
    let Some(end) = register::find(process, position.token).filter(is_meant) else {
        return;
    };
    // Another process of ours may have left it, with lanes of its own.
    if !end.has_flags(LOST) || !spare::is_used(&end) {
        leave(&end, is_meant);
    }
    let Some((lane, _tx)) = end.hold_tx_lane() else {
        return;
    };
    if !end.has_flags(LOST) || !is_meant(&end) {
        return;
    }
    if end.has_flags(HEARD) {
        return hear_again(&end, position.flags);
    }
    let control = lane.control();
    let wishes = position.flags & FROZEN | STOP_WANTED;
    control
        .credit
        .consumed
        .store(position.consumed, Ordering::Relaxed);
    control
        .credit
        .tcp_taken
        .store(position.tcp_taken, Ordering::Relaxed);
    control.receiver.flags.store(wishes, Ordering::SeqCst);
    if wishes & FROZEN != 0 {
        ring_no_more(&end);
    }
    let may_ring = end.tx_mode() == Mode::Ring && wishes & FROZEN == 0;
    if may_ring && end.ending() == Ending::Open {
        // A peer that has fallen asleep over a window that went on to answer knows by now that it is lost.
        bell::probe_locked(&end, &lane);
    }
    end.add_flags(HEARD);
}

/// A doorbell that waits for our START to be found would be data to a peer that is on TCP for good, and is not needed: what
/// stands behind the START is sent again. Returns whether we were in the lane so. The caller holds the sending direction.
fn ring_no_more(end: &End) -> bool {
    let is_awaited = entering::is_awaited(end);
    if is_awaited {
        end.entry.tx.bells_owed.store(0, Ordering::Relaxed);
    }
    is_awaited
}

/// The line of the last START in our copy of what has been sent: all before it had been read when it was written. The caller
/// holds the sending direction.
fn last_start(end: &End, lane: &WindowLane) -> u64 {
    let tx = &end.entry.tx;
    let tail = tx.tail.load(Ordering::Relaxed);
    let head = tx.credit.load(Ordering::Relaxed);
    let (mut at, mut start) = (RxCursor { head, taken: 0 }, head);
    while at.head < tail {
        match at.come_to_next(lane) {
            Ok(Next::Data(left)) => at.pass(left, left),
            Ok(Next::Control(kind, _)) => {
                if kind == Control::Start {
                    start = at.head;
                }
                at.head += 1;
            }
            Ok(Next::Empty) | Err(_) => break,
        }
    }
    start
}

/// The peer tells its position again, because something is missing, or to say that nothing is.
fn hear_again(end: &End, flags: u32) {
    let clock = &end.local.clock;
    if flags & position_flags::COMPLETE != 0 {
        end.add_flags(CONFIRMED);
    } else if end.has_flags(SHIPPED) && is_due(&clock.shipped, ASK_AGAIN_AT_LEISURE) {
        // It has got lost, or a monitor has taken us for absent.
        end.clear_flags(SHIPPED);
    }
    if flags & position_flags::CONTENT == 0
        && end.has_flags(REFILLED)
        && is_due(&clock.asked, ASK_AGAIN)
    {
        owe_position(end);
    }
}

/// What we had not read has come.
pub(crate) fn hear_remainder(
    process: &'static Process,
    remainder: &Remainder,
    memory: Option<OwnedFd>,
) {
    let is_meant = |end: &End| pair_of(end) == remainder.pair;
    let Some(end) = register::find(process, remainder.token).filter(is_meant) else {
        return;
    };
    if end.has_flags(LOST) && !spare::is_used(&end) {
        leave(&end, is_meant);
    }
    let Some((lane, _rx)) = end.hold_rx_lane() else {
        return;
    };
    if !lacks_remainder(&end) || !is_meant(&end) {
        return;
    }
    let head = end.rx_cursor().head;
    if remainder.first != head || remainder.end - head > u64::from(lane.lines()) {
        let line = remainder.first;
        ending::lied(&end, PeerLied::Credit { line });
        return;
    }
    let mut bytes = vec![0; remainder.bytes()];
    let is_there = match memory {
        Some(memory) => File::from(memory).read_exact_at(&mut bytes, 0).is_ok(),
        None => bytes.is_empty(),
    };
    if !is_there {
        // It comes once.
        give_up(&end);
        return;
    }
    mirror::lines_in(&lane, head, &bytes);
    let sender = &lane.control().sender;
    sender
        .replay_at
        .store(remainder.replay_at, Ordering::Relaxed);
    sender
        .replay_end
        .store(remainder.replay_end, Ordering::Relaxed);
    sender
        .replay_seq
        .store(remainder.replay_seq, Ordering::SeqCst);
    end.add_flags(REFILLED);
    owe_position(&end);
}

/// The other end does not use the lanes: it needs nothing from us, and has sent nothing if we have seen
/// nothing.
pub(crate) fn hear_alone(process: &'static Process, token: u64, pair: u64) {
    hear_of_absence(process, token, pair, |end| {
        if end.rx_cursor() == RxCursor::default() {
            end.add_flags(REFILLED);
        }
    });
}

/// The other end uses the lanes no more: it needs nothing from us.
pub(crate) fn hear_left(process: &'static Process, token: u64, pair: u64) {
    hear_of_absence(process, token, pair, |_| {});
}

fn hear_of_absence(
    process: &'static Process,
    token: u64,
    pair: u64,
    note_received: impl FnOnce(&End),
) {
    let is_meant = |end: &End| end.has_flags(LOST) && pair_of(end) == pair;
    let Some(end) = register::find(process, token).filter(is_meant) else {
        return;
    };
    let _rx = end.lock_rx();
    let _tx = end.lock_tx();
    // As in [`leave`].
    let Some(lane) = end.tx_lane().filter(|_| is_meant(&end)) else {
        return;
    };
    if ring_no_more(&end) && !end.has_flags(HEARD) {
        // It has not come to the START, and its kernel has the stream.
        let control = lane.control();
        let consumed = Place::word(last_start(&end, &lane), 0);
        control.credit.consumed.store(consumed, Ordering::Relaxed);
        control.receiver.flags.store(FROZEN, Ordering::SeqCst);
    }
    end.add_flags(HEARD | CONFIRMED);
    stop(&end, &lane);
    replay::answer_late_freeze(&end, &lane);
    if end.tx_mode() != Mode::Ring {
        end.add_flags(SHIPPED);
    }
    note_received(&end);
    if lacks_remainder(&end) {
        // What it may have sent, and we had not read, is nowhere.
        give_up(&end);
    }
}
