//! Waiting for a direction that another thread or process holds, and inheriting it from a member that has ended in the middle
//! of something.
//!
//! | what was done | what was not | what an heir does |
//! |---|---|---|
//! | a record is in the lane | the tail has moved | moves it: the line behind the last record is always clear |
//! | the sender was told what has been read | the head has moved | moves it: those bytes have ended with who read them |
//! | a request for a doorbell was taken away | the doorbell was sent | sends one, perhaps for nothing |
//! | a record was published, or read | it was looked whether the peer asks for a doorbell | looks |
//! | the kernel has moved bytes | they were counted | takes TCP's own count |
//! | anything else that takes several words | | resets the connection: nobody can know how its stream goes on |

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::time::Instant;

use crosslane_ctl::lane::RINGING;
use crosslane_ctl::lane::receiver_flags::{ARMED, FROZEN};
use crosslane_ctl::place::Place;
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndPhase, Ending, Mode, end_flags};
use crosslane_ring::{Control, LaneMemory, Next, RxCursor, WindowLane};
use crosslane_sys::{Errno, kernel};

use crate::family::Family;
use crate::holders::Member;
use crate::lock::{self, COUNTING, Guard, PASSAGE};
use crate::{End, bell, kernel_view, posted, reset, unconsumed};

/// Between two looks at a direction that is not waited for without limit.
const NAP: Duration = Duration::from_micros(200);

/// What an heir finds cannot be made whole.
struct Torn;

#[cold]
pub(crate) fn wait_for_tx(end: &End) -> Guard<'static> {
    let lock = &end.entry.tx.lock;
    let (held, inherited) = wait(end, lock);
    if let Some(marks) = inherited {
        if mend_sending(end, marks).is_err() {
            give_up_sending(end);
        }
        lock::unmark(lock);
    }
    held
}

#[cold]
pub(crate) fn wait_for_rx(end: &End) -> Guard<'static> {
    let lock = &end.entry.rx.lock;
    let (held, inherited) = wait(end, lock);
    if let Some(marks) = inherited {
        if mend_receiving(end, marks).is_err() {
            give_up_receiving(end);
        }
        lock::unmark(lock);
    }
    held
}

fn wait(end: &End, word: &'static AtomicU32) -> (Guard<'static>, Option<u32>) {
    let table = end.table();
    let lives = |owner| table.is_alive(Member::of(owner));
    lock::wait(word, table.member().number(), lives)
}

/// As [`End::lock_tx`], before `deadline`: a relative may have been stopped while it holds it.
pub(crate) fn lock_tx_before(end: &End, deadline: Instant) -> Option<Guard<'static>> {
    let table = end.table();
    let has_died = |owner| !table.is_alive(Member::of(owner));
    loop {
        if let Some(held) = end.try_lock_tx() {
            return Some(held);
        }
        if lock::owner(&end.entry.tx.lock).is_some_and(has_died) {
            return Some(end.lock_tx());
        }
        if Instant::now() >= deadline {
            return None;
        }
        kernel::nap(NAP);
    }
}

/// Inherit what the dead hold of an end: they may have left somebody asleep whom nobody else wakes.
pub(crate) fn look(end: &End) {
    if !end.has_flags(end_flags::FORKED) {
        return;
    }
    let own = end.table().member().number();
    let is_orphaned = |word| {
        let others = lock::owner(word).filter(|owner| *owner != own);
        others.is_some_and(|owner| !end.table().is_alive(Member::of(owner)))
    };
    if is_orphaned(&end.entry.rx.lock) {
        drop(end.lock_rx());
    }
    if is_orphaned(&end.entry.tx.lock) {
        drop(end.lock_tx());
    }
}

/// Whether this process holds a direction, perhaps in the call that a signal has interrupted.
pub(crate) fn is_held_here(end: &End) -> bool {
    let own = end.table().member().number();
    [&end.entry.tx.lock, &end.entry.rx.lock]
        .into_iter()
        .filter_map(lock::owner)
        .any(|owner| owner == own)
}

fn mend_sending(end: &End, marks: u32) -> Result<(), Torn> {
    if end.phase() != EndPhase::Granted {
        return Ok(());
    }
    // What has been posted to another host is not known.
    if marks & PASSAGE != 0 || marks != 0 && end.has_flags(end_flags::FAR) {
        return Err(Torn);
    }
    if marks & COUNTING != 0 {
        recount_sent(end)?;
    }
    let Some(lane) = end.tx_lane().filter(|_| end.tx_mode() == Mode::Ring) else {
        return Ok(());
    };
    find_tail(end, &lane)?;
    let is_ringing = lane.control().sender.tcp_total.load(Ordering::SeqCst) & RINGING != 0;
    if is_ringing || end.entry.tx.bells_owed.load(Ordering::Relaxed) != 0 {
        bell::ring_again(end, &lane);
    }
    if is_asleep_over_record(end, &lane) {
        bell::ring_if_armed(end, &lane);
    }
    Ok(())
}

/// Whether the receiver has asked to be rung with less read than is there.
fn is_asleep_over_record(end: &End, lane: &WindowLane) -> bool {
    lane.control().receiver.flags.load(Ordering::SeqCst) & (ARMED | FROZEN) == ARMED
        && !unconsumed::is_none(end, lane)
}

/// Only doorbells are sent with the direction held, one at a time. AF_UNIX does not tell whether one that is owed has been, and
/// one byte more or less is data behind a STOP.
fn recount_sent(end: &End) -> Result<(), Torn> {
    let tx = &end.entry.tx;
    let counted = tx.tcp_bytes.load(Ordering::Relaxed);
    let owed = tx.bells_owed.load(Ordering::Relaxed);
    if owed == 0 {
        return Ok(());
    }
    let sent = kernel_view::sent(end).ok_or(Torn)?;
    match sent.checked_sub(counted) {
        Some(0) => {}
        Some(1) => {
            tx.tcp_bytes.store(sent, Ordering::Relaxed);
            tx.bells_owed
                .store(owed.saturating_sub(1), Ordering::Relaxed);
        }
        _ => return Err(Torn),
    }
    Ok(())
}

fn find_tail(end: &End, lane: &WindowLane) -> Result<(), Torn> {
    let mut cursor = end.tx_cursor();
    let mut at = RxCursor {
        head: cursor.tail,
        taken: 0,
    };
    let lap_end = at.head + u64::from(lane.lines());
    loop {
        match at.come_to_next(lane) {
            Ok(Next::Empty) => break,
            Ok(Next::Data(left)) => at.pass(left, left),
            Ok(Next::Control(..)) => at.head += 1,
            Err(_) => return Err(Torn),
        }
        if at.head >= lap_end {
            return Err(Torn);
        }
    }
    if at.head != cursor.tail {
        if end.has_flags(end_flags::FAR) {
            return Err(Torn);
        }
        cursor.tail = at.head;
        end.set_tx_cursor(cursor);
    }
    Ok(())
}

fn mend_receiving(end: &End, marks: u32) -> Result<(), Torn> {
    if end.phase() != EndPhase::Granted {
        return Ok(());
    }
    if marks & PASSAGE != 0 || marks != 0 && end.has_flags(end_flags::FAR) {
        return Err(Torn);
    }
    if marks & COUNTING != 0 {
        let received = kernel_view::received(end).ok_or(Torn)?;
        end.entry.rx.tcp_bytes.store(received, Ordering::Relaxed);
    }
    let Some(lane) = end.rx_lane() else {
        return Ok(());
    };
    find_head(end, &lane)?;
    // A receive is followed by this, with the direction held no more, which would be taken for credit that is held.
    posted::tell_held_credit(end);
    bell::answer_space(end);
    Ok(())
}

fn find_head(end: &End, lane: &WindowLane) -> Result<(), Torn> {
    let cursor = end.rx_cursor();
    let told = Place::near(lane.consumed(), cursor.head);
    if told <= cursor.place() {
        return Ok(());
    }
    if told.line - cursor.head > u64::from(lane.lines()) {
        return Err(Torn);
    }
    end.set_rx_cursor(RxCursor::at(told));
    Ok(())
}

/// Sends are the kernel's from here on, which refuses them.
fn give_up_sending(end: &End) {
    let entry = end.entry;
    entry.tx.bells_owed.store(0, Ordering::Relaxed);
    entry.wait.replayed.store(0, Ordering::Relaxed);
    end.set_tx_mode(Mode::Tcp);
    give_up(end);
}

/// Nothing more is read but what the kernel says.
fn give_up_receiving(end: &End) {
    end.add_flags(end_flags::FROZEN);
    end.entry.rx.tcp_limit.store(u64::MAX, Ordering::Relaxed);
    end.set_rx_mode(Mode::Tcp);
    let _tx = end.lock_tx();
    give_up(end);
    if end.family() == Family::Unix {
        // What has come behind the hole, which a reset takes away, and a shutdown does not.
        while let Ok(1..) = end.family().discard(end.fd(), usize::MAX) {}
    }
}

/// The caller holds the sending direction.
fn give_up(end: &End) {
    // Whatever the kernel and the lanes say of the end.
    end.add_flags(end_flags::PINNED | end_flags::JUDGED);
    end.clear_flags(end_flags::RESTING);
    end.set_reason(Reason::Torn);
    end.process().count_reason(Reason::Torn);
    let error = &end.entry.wait.error;
    error.store(Errno::CONNRESET.0, Ordering::Relaxed);
    end.note_ending(Ending::Reset);
    if end.family() == Family::Unix {
        spoil(end);
    }
    reset::now(end);
}

/// AF_UNIX would show the peer an end in good order: it finds in its lane what no sender says there, and takes that for an error.
/// The caller holds the sending direction.
fn spoil(end: &End) {
    let Some(lane) = end.tx_lane() else { return };
    if find_tail(end, &lane).is_err() {
        return;
    }
    let mut cursor = end.tx_cursor();
    // The first may be right where the stream is on TCP.
    for _ in 0..2 {
        let _ = cursor.write_control(&lane, Control::Start, 0);
    }
    end.set_tx_cursor(cursor);
}

#[cfg(test)]
pub(crate) mod tests;
