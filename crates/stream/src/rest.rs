//! Rests: a connection is on TCP for a while, because a copy of its socket has been given away to
//! somebody who may know nothing of rings, and goes back into the same lanes when all who have the
//! socket are known again.
//!
//! Both ends rest: the one whose socket was given away (`passed`, `exec`), and its peer, which has been
//! asked to send again by TCP what stood in the lane (`peer-asked`). So does one that was inherited by a
//! fork before its rings were used (`shared`). Each decides by itself when its rest is over, and says so
//! by no longer objecting; the rings are used when neither objects. The rules are in
//! `docs/decisions/lending.md`.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

use crosslane_ctl::counter::Counter;
use crosslane_ctl::lane::receiver_flags::{ANSWERED, CLOSED, FROZEN, STOP_WANTED};
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndPhase, Ending, Mode, end_flags};
use crosslane_ring::{LaneMemory, RxCursor, WindowLane};

use crate::due::CALLS_BEFORE_REGISTERING;
use crate::lock::{self, PASSAGE};
use crate::{
    End, bell, close, cut_short, doubt, ending, entering, lost, posted, register, replay, step,
    switch,
};

/// A rest is twice as long as the one before, in calls, so many times. A peer that goes to and fro
/// cannot make us follow it often.
const MOST_DOUBLINGS: u32 = 10;

/// A copy of the socket is about to leave this process, for whoever gets it. Brings the connection
/// back to TCP, waiting at most for `patience`. Returns whether that has been reached.
pub fn give_away(end: &End, reason: Reason, patience: Duration) -> bool {
    end.entry.wait.away.fetch_add(1, Ordering::SeqCst); // SYNC: away
    if end.phase() != EndPhase::Granted {
        begin_alone(end, reason);
        // No rings are granted from here on; another thread may just have taken some.
        if end.phase() != EndPhase::Granted {
            return true;
        }
    }
    switch::freeze(end);
    begin_alone(end, reason);
    object(end);
    switch::leave(end, reason);
    // A peer that cannot see this would go on by the lane.
    doubt::await_word(end);
    if replay::is_under_way(end) {
        // What others write would come amid what is sent again.
        replay::push_replay(end, Instant::now() + replay::PATIENCE);
    }
    let is_plain = close::await_plain(end, patience);
    if !is_plain {
        leave_behind(end, reason);
    }
    is_plain
}

/// Others have the socket from now on, though the connection has not come back to TCP in time.
pub fn leave_behind(end: &End, reason: Reason) {
    match end.has_flags(end_flags::LOST) {
        // Nobody else can have what is behind the lost window, and what comes by TCP would be taken for it.
        true => lost::give_up(end),
        false => leave_unrung(end, reason),
    }
}

/// Leave the lane for whoever gets the socket, though the peer has not said for long that it has found our START, or TCP has had
/// no room for a doorbell: what they write would be taken for it. It is forgotten then, and the peer told so before it is told of
/// the STOP.
fn leave_unrung(end: &End, reason: Reason) {
    let Some((lane, _tx)) = end.hold_tx_lane() else {
        return;
    };
    if end.tx_mode() != Mode::Ring || end.is_reserved() || posted::is_posted(end) {
        return;
    }
    entering::take_for_found(end);
    switch::stop_locked(end, &lane, reason);
    if end.tx_mode() != Mode::Ring {
        return;
    }
    // Before: it may be one more.
    bell::answer_space_locked(end);
    bell::forget_owed(end, &lane);
    switch::stop_locked(end, &lane, reason);
}

/// A forked child has an end whose rings its parent had been granted and does not use yet: the parent's epoll sets wait
/// for it in the kernel alone, which the child cannot change. It stays on TCP until one of them alone has it.
pub fn share(end: &End) {
    begin_alone(end, Reason::Shared);
    object(end);
    switch::leave(end, Reason::Shared);
}

/// As [`begin`], against a thread that is about to end an earlier rest.
fn begin_alone(end: &End, reason: Reason) {
    let _tx = end.lock_tx();
    begin(end, reason);
}

/// Stay on TCP from now on, until [`look`] finds the reason gone. The caller holds the sending
/// direction.
pub(crate) fn begin(end: &End, reason: Reason) {
    if end.is_pinned() {
        return;
    }
    end.set_reason(reason);
    end.process().count_reason(reason);
    end.add_flags(end_flags::PINNED | end_flags::RESTING);
    end.entry.id.calls.store(0, Ordering::Relaxed);
}

/// Tell the peer to stay on TCP, also while it rests.
pub(crate) fn object(end: &End) {
    if let Some(lane) = end.rx_lane() {
        let flags = &lane.control().receiver.flags;
        flags.fetch_or(STOP_WANTED, Ordering::SeqCst);
        posted::tell_flags(end);
    }
}

/// See now and then whether a rest is over. Called on the program's own calls.
#[cold]
pub fn look(end: &End) {
    if !end.has_flags(end_flags::RESTING) || end.has_flags(end_flags::LOST) {
        return;
    }
    let calls = end.entry.id.calls.fetch_add(1, Ordering::Relaxed) + 1;
    let rests = end.entry.wait.rests.load(Ordering::Relaxed);
    let due = match end.tx_lane() {
        Some(_) => CALLS_BEFORE_REGISTERING << rests.min(MOST_DOUBLINGS),
        // It has never been in the rings.
        None => 1,
    };
    if calls >= due {
        end.entry.id.calls.store(0, Ordering::Relaxed);
        look_now(end);
    }
}

/// End a rest if it is over.
pub(crate) fn look_now(end: &End) {
    let closing = end_flags::SHUT_READ | end_flags::SHUT_WRITE;
    let is_closing = end.entry.id.flags.load(Ordering::Relaxed) & closing != 0;
    if !end.has_flags(end_flags::RESTING)
        || end.has_flags(end_flags::LOST)
        || close::has_copies(end)
        || is_closing
        || end.ending() != Ending::Open
        || end.process().is_shared(end.index)
    {
        return;
    }
    // It is ours alone: what shows it shows whose it is.
    let id = &end.entry.id;
    id.pid.store(end.process().pid(), Ordering::Relaxed);
    id.fd.store(end.fd, Ordering::Relaxed);
    match end.tx_lane() {
        Some(_) => return_to_lanes(end),
        None => return_to_start(end),
    }
}

/// An end that has no lanes may be registered again.
fn return_to_start(end: &End) {
    let _tx = end.lock_tx();
    let has_lanes = end.tx_lane().is_some();
    if end.phase() != EndPhase::Plain || has_lanes || !may_end(end) {
        return;
    }
    end.set_reason(Reason::TooYoung);
    end.clear_flags(end_flags::PINNED | end_flags::RESTING);
}

fn return_to_lanes(end: &End) {
    if end.tx_mode() == Mode::Replay || !withdraw(end) {
        return;
    }
    let _rx = end.lock_rx();
    let _tx = end.lock_tx();
    let objections = STOP_WANTED | FROZEN | CLOSED;
    let objects =
        |lane: WindowLane| lane.control().receiver.flags.load(Ordering::SeqCst) & objections != 0;
    // In this order: a lost window has no objections.
    if end.tx_lane().is_none_or(objects) || lost::is_found(end) || !may_end(end) {
        return;
    }
    if end.phase() == EndPhase::Plain {
        register::remember_settings(end);
        // Whoever waits in the kernel learns of the rings before they are used.
        end.local.adopted.store(0, Ordering::Release);
    }
    end.entry.wait.rests.fetch_add(1, Ordering::Relaxed);
    end.set_reason(Reason::Switching);
    end.add_flags(end_flags::RESUMED);
    end.clear_flags(end_flags::PINNED | end_flags::RESTING);
    end.set_phase(EndPhase::Granted);
    end.process().note_granted();
    end.count(Counter::Resumes, 1);
}

/// Whether nothing has been given away meanwhile. The caller holds the sending direction, under
/// which rests begin.
fn may_end(end: &End) -> bool {
    end.has_flags(end_flags::RESTING) && !end.has_flags(end_flags::LOST) && !close::has_copies(end)
}

/// Object to the rings no more. Returns whether our receiving direction is ready for that.
fn withdraw(end: &End) -> bool {
    let Some((lane, _rx)) = end.hold_rx_lane() else {
        return false;
    };
    // With the direction held, which who gives a copy away takes after it has counted it.
    if close::has_copies(end) || end.has_flags(end_flags::LOST) {
        return false;
    }
    let flags = &lane.control().receiver.flags;
    if flags.load(Ordering::SeqCst) & STOP_WANTED == 0 && !end.has_flags(end_flags::FROZEN) {
        return true;
    }
    if end.has_flags(end_flags::FROZEN) && !end_freeze(end, &lane) {
        return false;
    }
    flags.fetch_and(!STOP_WANTED, Ordering::SeqCst);
    posted::tell_flags(end);
    true
}

/// Between hosts: whether a sender that was out of its lane, and so has nothing to answer, has heard that the freeze is
/// over. The caller holds the receiving direction.
fn has_missed_freeze(end: &End, lane: &WindowLane) -> bool {
    let is_on_tcp =
        end.rx_mode() == Mode::Tcp && end.entry.rx.tcp_limit.load(Ordering::Relaxed) == u64::MAX;
    if !is_on_tcp || !posted::is_posted(end) {
        return false;
    }
    let flags = &lane.control().receiver.flags;
    if flags.fetch_and(!FROZEN, Ordering::SeqCst) & FROZEN != 0 {
        posted::tell_flags(end);
    }
    let seen = end.entry.wait.replay_seen.load(Ordering::Relaxed);
    // In this order: an answer came before the echo.
    posted::is_heard(end, lane) && lane.control().sender.replay_seq.load(Ordering::SeqCst) == seen
}

/// By the library's thread: forget a freeze that was taken back when the sender has heard so, who may have entered the lane
/// before: its START is not looked for until then. Returns whether to look again soon.
pub(crate) fn tend(end: &End) -> bool {
    let is_taken_back = |lane: &WindowLane| {
        let flags = lane.control().receiver.flags.load(Ordering::Relaxed);
        // One that is given up is on TCP for good.
        let is_open = end.ending() != Ending::Reset && !end.has_flags(end_flags::LOST);
        is_open && end.has_flags(end_flags::FROZEN) && flags & FROZEN == 0
    };
    if !end.rx_lane().is_some_and(|lane| is_taken_back(&lane)) {
        return false;
    }
    let Some((lane, _rx)) = end.hold_rx_lane().filter(|(lane, _)| is_taken_back(lane)) else {
        return false;
    };
    if has_missed_freeze(end, &lane) {
        end.clear_flags(end_flags::FROZEN);
        return false;
    }
    !posted::is_heard(end, &lane)
}

/// Take a freeze back for good, unless the sender has begun to answer it: all who have the socket from now on know the ring.
/// What the kernel has stays with it. Not while others have copies, of whom nothing is known.
pub fn unfreeze(end: &End) {
    unfreeze_if(end, |end| !close::has_copies(end));
}

/// As [`unfreeze`], of an end that is read past the library no more.
pub fn read_here(end: &End) {
    unfreeze(end);
    end.clear_flags(end_flags::OTHERS_READ);
}

/// As [`unfreeze`], whoever has copies: there is nothing to receive any more by any of them.
pub(crate) fn unfreeze_shut(end: &End) {
    unfreeze_if(end, |_| true);
}

fn unfreeze_if(end: &End, may: impl FnOnce(&End) -> bool) {
    let _rx = end.lock_rx();
    let Some(lane) = end.rx_lane() else { return };
    let is_frozen = end.phase() == EndPhase::Granted
        && end.has_flags(end_flags::FROZEN)
        && end.rx_mode() == Mode::Replay
        && !end.has_flags(end_flags::LOST);
    // With the direction held, which who gives a copy away takes after it has counted it.
    if !is_frozen || !may(end) {
        return;
    }
    bell::arm_again(end, &lane);
    let _passage = lock::mark(&end.entry.rx.lock, PASSAGE);
    if step::take_back_freeze(end, &lane) {
        step::thaw(end, &lane);
    }
}

/// Take a freeze back, or pass what its answer was about. The caller holds the receiving direction.
fn end_freeze(end: &End, lane: &WindowLane) -> bool {
    bell::arm_again(end, lane);
    if step::take_back_freeze(end, lane) || has_missed_freeze(end, lane) {
        end.clear_flags(end_flags::FROZEN);
        if end.rx_mode() == Mode::Replay {
            end.set_rx_mode(Mode::Ring);
        }
        return true;
    }
    let sender = &lane.control().sender;
    let seen = end.entry.wait.replay_seen.load(Ordering::Relaxed);
    let is_answered = sender.replay_seq.load(Ordering::SeqCst) != seen; // SYNC: frozen
    let is_done =
        end.rx_mode() == Mode::Tcp && end.entry.rx.tcp_limit.load(Ordering::Relaxed) == u64::MAX;
    // What TCP has brought is taken by the receives that follow.
    if !is_answered || !is_done || cut_short::needs_lane(end) {
        return false;
    }
    let (head, next) = (
        end.rx_cursor().head,
        sender.replay_end.load(Ordering::Relaxed),
    );
    if next < head || next - head > u64::from(lane.lines()) {
        ending::lied(end, step::lie_at(next));
        return false;
    }
    let cursor = RxCursor {
        head: next,
        taken: 0,
    };
    lane.set_consumed(cursor.position(), true);
    end.set_rx_cursor(cursor);
    let flags = &lane.control().receiver.flags;
    flags.fetch_and(!(FROZEN | ANSWERED), Ordering::SeqCst); // SYNC: frozen
    posted::tell_flags(end);
    end.clear_flags(end_flags::FROZEN);
    true
}

#[cfg(test)]
mod tests;
