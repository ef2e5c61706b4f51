//! How a sender enters a lane that it shares with another host: what it puts on TCP waits for the word that its START has
//! been found.
//!
//! A window may be slower than TCP ([`crate::posted`]), or carry nothing before anybody knows that. A receiver that has not
//! come to a START is on TCP still: it would take a doorbell behind it, or what a full lane has no room for, for the next
//! bytes of the stream. So a doorbell is owed until then, a STOP is put off, and who sleeps in the kernel is not woken by
//! a START: it is the library's thread that looks for one ([`crate::watcher`]), and says that it has found it. Where the
//! thread is at rest the lane is `DROWSY`, and not entered. A thread that is at rest looks once a second all the same.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::time::Instant;

use crosslane_ctl::lane::receiver_flags::{CLOSED, DROWSY, ENTERED, FROZEN, READY};
use crosslane_ctl::place::Place;
use crosslane_ctl::slab::{EndPhase, Ending, Mode, end_flags};
use crosslane_ring::{LaneMemory, TxCursor, WindowLane};
use crosslane_sys::{cpu, kernel};

use crate::{End, bell, kernel_view, lost, posted, rest, step, switch, watcher};

use end_flags::{AWAITED, FAR, HEARD, LOST};

/// What was written so long ago has arrived, or the window is lost.
const LONG: Duration = Duration::from_secs(2);

/// Between two looks by who waits.
const NAP: Duration = Duration::from_micros(100);

// The sender.

/// Publish a START, the last record before the cursor. The caller holds the sending direction.
pub(crate) fn publish_start(end: &End, lane: &WindowLane, cursor: TxCursor) {
    let is_far = end.has_flags(FAR);
    if is_far {
        let started = &lane.control().credit.started;
        started.store(cursor.tail, Ordering::Relaxed);
        end.add_flags(AWAITED);
    }
    end.set_tx_cursor(cursor);
    if is_far {
        // Not before: this thread may have stood still until it was posted.
        end.local.behind.started.begin(cursor.tail);
        watcher::stir();
    }
}

/// When this process has published the last START, or first seen that a relative had.
#[derive(Default)]
pub(crate) struct Started {
    /// The line behind it.
    line: AtomicU64,
    /// In ticks.
    since: AtomicU64,
}

impl Started {
    fn begin(&self, line: u64) {
        self.since.store(cpu::ticks(), Ordering::Relaxed);
        self.line.store(line, Ordering::Relaxed);
    }

    /// Whether the START before this line is old.
    fn is_old(&self, line: u64) -> bool {
        if self.line.load(Ordering::Relaxed) == line {
            return lost::has_passed(self.since.load(Ordering::Relaxed), LONG);
        }
        self.begin(line);
        false
    }

    /// The end is in other lanes.
    pub(crate) fn forget(&self) {
        self.line.store(0, Ordering::Relaxed);
    }
}

/// Whether the receiver has found our last START, so that it takes no doorbell behind it for data. One that has left the
/// window reads nothing before it knows what stood there.
pub(crate) fn is_start_found(end: &End) -> bool {
    if !end.has_flags(AWAITED) {
        return true;
    }
    let Some(lane) = end.tx_lane() else {
        return false;
    };
    match end.has_flags(LOST) {
        true => end.has_flags(HEARD),
        // In this order: what is lost says that nothing was ever started.
        false => (has_found(&lane) || is_past_finding(end, &lane)) && !lost::is_found(end),
    }
}

/// As [`is_start_found`], for who holds the sending direction, under which the next START is noted.
pub(crate) fn is_start_settled(end: &End) -> bool {
    let is_found = is_start_found(end);
    if is_found && end.has_flags(AWAITED) {
        end.clear_flags(AWAITED);
    }
    is_found
}

/// Whether a receiver whose stream has ended finds no START any more: it is dead, or has closed, and its kernel is to say so;
/// or what we have written came long ago. Who only wants room may not have been told of that end.
fn is_past_finding(end: &End, lane: &WindowLane) -> bool {
    let has_closed = || flags_of(lane) & CLOSED != 0;
    let started = || lane.control().credit.started.load(Ordering::Relaxed);
    let is_old = || end.local.behind.started.is_old(started());
    match end.ending() {
        Ending::Open => is_old() && kernel_view::has_ended(end),
        Ending::Eof => end.has_flags(end_flags::SURE) || has_closed() || is_old(),
        Ending::Reset => true,
    }
}

fn has_found(lane: &WindowLane) -> bool {
    let credit = &lane.control().credit;
    let started = credit.started.load(Ordering::Relaxed);
    // One that is far behind has long been said to be found.
    let read = Place::near(lane.consumed(), started).line;
    credit.found.load(Ordering::Acquire).max(read) >= started
}

/// Do what has waited for the word that our START has been found. The caller holds neither direction.
#[inline]
pub(crate) fn look(end: &End) {
    if is_awaited(end) && is_start_found(end) {
        catch_up(end);
    }
}

#[cold]
fn catch_up(end: &End) {
    {
        let Some((lane, _tx)) = end.hold_tx_lane() else {
            return;
        };
        if end.tx_mode() == Mode::Ring {
            bell::pay(end);
        }
        if has_put_off_stop(end) {
            switch::stop_locked(end, &lane, end.reason());
        }
    }
    switch::attend_lane(end);
}

/// Wait until our START has been found, and what has waited for that is done. False if it has not been by the deadline.
pub(crate) fn await_found(end: &End, deadline: Instant) -> bool {
    while is_awaited(end) {
        look(end);
        if is_awaited(end) {
            if Instant::now() >= deadline {
                return false;
            }
            kernel::nap(NAP);
        }
    }
    true
}

/// Whether we are in the lane, and the receiver has not said that it has found our START.
pub(crate) fn is_awaited(end: &End) -> bool {
    end.tx_mode() == Mode::Ring && end.has_flags(AWAITED)
}

/// Wait for that no longer: who sees the lane sees its START before what comes by TCP. The caller holds the sending
/// direction.
pub(crate) fn take_for_found(end: &End) {
    end.clear_flags(AWAITED);
}

/// Whether the end was to go back to TCP, and could not before its START was found.
pub(crate) fn has_put_off_stop(end: &End) -> bool {
    end.tx_mode() == Mode::Ring
        && end.is_pinned()
        && end.ending() == Ending::Open
        && is_start_found(end)
}

// The receiver.

/// The START before this line has been found: doorbells may come behind it. The caller holds the receiving direction.
pub(crate) fn tell_found(end: &End, lane: &WindowLane, line: u64) {
    if end.has_flags(FAR) {
        lane.control().credit.found.store(line, Ordering::Release);
        posted::tell_found(end, lane, line);
    }
}

/// On the program's own calls, before a START is waited for: it is looked for from now on.
pub(crate) fn wake(end: &End) {
    let Some(lane) = end.rx_lane() else { return };
    let flags = &lane.control().receiver.flags;
    if flags.load(Ordering::Relaxed) & DROWSY != 0 {
        flags.fetch_and(!DROWSY, Ordering::SeqCst);
        posted::tell_flags(end);
        watcher::stir();
    }
}

/// The receiving direction is on TCP, where a START is waited for, as long as it is not held back: somebody looks for it.
pub(crate) fn expect(end: &End) {
    if end.has_flags(FAR) {
        watcher::stir();
    }
}

/// By the library's thread: what the program may be too late for. Returns whether to look again soon; `is_idle` when the
/// process has entered or posted nothing for long.
pub(crate) fn tend(end: &End, is_idle: bool) -> bool {
    // One that rings nobody with its freeze waits for an answer.
    let is_asked = |lane: WindowLane| flags_of(&lane) & FROZEN != 0;
    if end.tx_lane().is_some_and(is_asked) {
        switch::attend_lane(end);
    }
    let is_awaited = is_awaited(end) && !is_idle && end.ending() != Ending::Reset;
    let is_resting = rest::tend(end);
    is_awaited | is_resting | (waits_for_start(end, is_idle) && end.ending() == Ending::Open)
}

fn flags_of(lane: &WindowLane) -> u32 {
    lane.control().receiver.flags.load(Ordering::Relaxed)
}

/// Find the START that may stand in the receiving lane, and say so. Returns whether one may still come.
fn waits_for_start(end: &End, is_idle: bool) -> bool {
    let Some(lane) = end.rx_lane().filter(|lane| may_come(end, lane)) else {
        return false;
    };
    if end.has_record() {
        find(end);
        return false;
    }
    let flags = &lane.control().receiver.flags;
    // Where it is not set it may just have been taken back.
    if flags.load(Ordering::Relaxed) & READY != 0 {
        if !is_idle {
            return true;
        }
        if flags.fetch_or(DROWSY, Ordering::SeqCst) & DROWSY == 0 {
            posted::tell_flags(end);
        }
    }
    // In this order: a START came before the sender heard, or is about to where it has said that it enters.
    let is_heard = posted::is_heard(end, &lane);
    let is_entering = flags.load(Ordering::SeqCst) & ENTERED != 0; // SYNC: ready
    if is_heard && end.has_record() {
        find(end);
        return false;
    }
    !is_heard || is_entering
}

fn may_come(end: &End, lane: &WindowLane) -> bool {
    end.rx_mode() == Mode::Tcp
        && !end.has_flags(end_flags::FROZEN)
        && end.phase() == EndPhase::Granted
        && end.entry.rx.tcp_limit.load(Ordering::Relaxed) == u64::MAX
        && flags_of(lane) & FROZEN == 0
}

fn find(end: &End) {
    if let Some((lane, _rx)) = end.hold_rx_lane().filter(|(lane, _)| may_come(end, lane)) {
        let _ = step::find_start(end, &lane);
    }
}
