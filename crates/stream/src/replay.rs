//! Sending again by TCP what a frozen receiver has not consumed.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use std::time::Instant;

use crosslane_ctl::counter::Counter;
use crosslane_ctl::lane::NO_REPLAY;
use crosslane_ctl::lane::receiver_flags::{ANSWERED, CLOSED, FROZEN};
use crosslane_ctl::place::Place;
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndPhase, Mode, end_flags};
use crosslane_ring::{LaneMemory, Next, PeerLied, RxCursor, WindowLane};
use crosslane_sys::{Errno, cancel, kernel};
use libc::sigset_t;

use crate::end::add;
use crate::family::Family;
use crate::kernel_view::{Count, compare_sent};
use crate::lock::{self, PASSAGE};
use crate::patience::Deadline;
use crate::process::{self, Process};
use crate::stay::Stay;
use crate::step::lie_at;
use crate::switch::drop_claim;
use crate::{
    End, asleep, bell, ending, gone, heir, kernel_view, posted, put_off, rest, restart, room, send,
    spare, stir, switch,
};

/// How long an end waits for a receiver that reads nothing of what is sent again, and in all for one that
/// reads slowly.
const STANDSTILL: Duration = Duration::from_secs(1);
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
const NAP: Duration = Duration::from_micros(100);
/// To send what there is room for takes less. A handler may have interrupted who holds the direction for longer.
const PUSH_PATIENCE: Duration = Duration::from_millis(10);
/// Between two looks for what no poll tells.
const STEP: Duration = Duration::from_millis(20);

/// [`times_put_off`] when this process's ends were last looked at.
static SEEN: AtomicU32 = AtomicU32::new(0);
/// Whether something may be left to send of what was found then.
static IS_ONE_LEFT: AtomicBool = AtomicBool::new(false);

/// A number that changes when what this process, or another one that has the same connection, is to send again has to wait
/// for room.
#[inline]
pub fn times_put_off() -> u32 {
    process::get().map_or(0, Process::times_put_off)
}

/// A call of this process's is about to sleep in the kernel, perhaps for what an end of the same process has to send again: no
/// other call may come that sends it. The caller holds no direction.
#[inline]
pub fn push() {
    if IS_ONE_LEFT.load(Ordering::Relaxed) || SEEN.load(Ordering::Relaxed) != times_put_off() {
        push_now();
    }
}

#[cold]
fn push_now() {
    let Some(process) = process::get() else {
        return;
    };
    // Before it is looked: another thread may say so anew.
    SEEN.store(process.times_put_off(), Ordering::SeqCst);
    IS_ONE_LEFT.store(false, Ordering::SeqCst);
    for end in put_off::all(process) {
        push_one(&end, || true);
        if put_off::is_put_off(&end) {
            IS_ONE_LEFT.store(true, Ordering::SeqCst);
        }
    }
}

/// Who holds the direction sends, or leaves it for a later call. Ends with a record when it no longer `goes_on`, or its descriptor is
/// about to be closed.
pub(crate) fn push_one(end: &End, goes_on: impl Fn() -> bool) {
    let Some(_tx) = heir::lock_tx_before(end, Instant::now()) else {
        return;
    };
    // Who drops a name waits for this: see `let_go`.
    let is_kept = || end.local.names() == 0 && end.local.kept_number() == Some(end.fd);
    let is_open = || end.process().index_of(end.fd) == Some(end.index) || is_kept();
    if end.tx_mode() == Mode::Replay
        && let Some(lane) = end.tx_lane()
    {
        let _ = continue_replay_while(end, &lane, || is_open() && goes_on());
    }
}

/// A number names an end no more, which has others: what another thread was sending again by it has been sent.
pub(crate) fn let_go(end: &End) {
    if is_under_way(end) {
        drop(heir::lock_tx_before(end, Instant::now() + PUSH_PATIENCE));
    }
}

/// Whether something is still to be sent again. A call that sleeps on the end sleeps for room, too: the kernel would have sent it.
#[inline]
pub fn is_under_way(end: &End) -> bool {
    end.tx_mode() == Mode::Replay
}

/// Whether the receiver has to have something again by TCP, or may ask for it.
pub(crate) fn is_owed(end: &End) -> bool {
    let flags = |lane: WindowLane| lane.control().receiver.flags.load(Ordering::Relaxed);
    let is_asked = || end.tx_lane().is_some_and(|lane| flags(lane) & FROZEN != 0);
    end.phase() == EndPhase::Granted && (is_under_way(end) || is_asked())
}

/// The receiver has frozen before it read our STOP. The caller holds the sending direction.
pub(crate) fn answer_late_freeze(end: &End, lane: &WindowLane) {
    let stop_at = end.entry.wait.replayed.load(Ordering::Relaxed);
    if end.tx_mode() != Mode::Tcp || stop_at == 0 {
        return;
    }
    let _passage = lock::mark(&end.entry.tx.lock, PASSAGE);
    if !claim_freeze(end, lane) {
        return;
    }
    end.entry.wait.replayed.store(0, Ordering::Relaxed);
    let tx = &end.entry.tx;
    // A call that enters the kernel's send counts itself, then looks at the mode.
    tx.mode.store(Mode::Replay as u32, Ordering::SeqCst); // SYNC: raw
    let quiet = tx.raw_calls.load(Ordering::SeqCst) == 0; // SYNC: raw
    let is_counted = || end.family() == Family::Unix || compare_sent(end) != Count::Differs;
    if quiet && tx.tcp_bytes.load(Ordering::Relaxed) + 1 == stop_at && is_counted() {
        begin_replay(end, lane);
        return;
    }
    end.set_tx_mode(Mode::Tcp);
    answer_freeze(end, lane, NO_REPLAY);
}

/// Say where on TCP the records begin that are sent again. The caller has claimed the freeze and holds
/// the sending direction.
pub(crate) fn answer_freeze(end: &End, lane: &WindowLane, at: u64) {
    let tail = end.entry.tx.tail.load(Ordering::Relaxed);
    let window = Some(*lane);
    // The answer must not be lost with a window.
    let copy = match end.has_flags(end_flags::FAR) {
        true => spare::sent(end).filter(|_| !end.has_flags(end_flags::LOST)),
        false => None,
    };
    for lane in [copy, window].into_iter().flatten() {
        let sender = &lane.control().sender;
        sender.replay_end.store(tail, Ordering::Relaxed);
        sender.replay_at.store(at, Ordering::Relaxed);
        sender.replay_seq.fetch_add(1, Ordering::SeqCst); // SYNC: frozen
    }
    posted::tell_answer(end, lane);
}

/// Say that the freeze is being answered. Returns whether the receiver still wants it. Never after our
/// own end: nothing could be sent again, and a receiver that sees the end reads the lane; nor for one that has shut down,
/// whose kernel would reset the connection for what is sent again. The caller holds the sending direction.
pub(crate) fn claim_freeze(end: &End, lane: &WindowLane) -> bool {
    if end.has_flags(end_flags::SHUT_WRITE) || posted::has_ended(end, lane) {
        return false;
    }
    let answer = |flags| (flags & (FROZEN | CLOSED) == FROZEN).then_some(flags | ANSWERED);
    let flags = &lane.control().receiver.flags;
    flags
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, answer) // SYNC: frozen
        .is_ok()
}

/// Start sending again what the receiver did not consume. The caller has claimed the freeze and
/// holds the sending direction.
pub(crate) fn begin_replay(end: &End, lane: &WindowLane) {
    let consumed = lane.consumed();
    let mut cursor = end.tx_cursor();
    if let Err(lie) = cursor.refresh(lane) {
        ending::lied(end, lie);
        return;
    }
    end.set_tx_cursor(cursor);
    end.entry
        .wait
        .replayed
        .store(Place::near(consumed, 0).taken.into(), Ordering::Relaxed);
    // Doorbells that could not be sent are forgotten: the receiver discards up to `replay_at`.
    if !bell::pay(end) {
        end.entry.tx.bells_owed.store(0, Ordering::Relaxed);
        bell::publish_total(end, lane, 0);
    }
    answer_freeze(end, lane, end.entry.tx.tcp_bytes.load(Ordering::Relaxed));
    kernel_view::count_anew(end, lane);
    end.set_tx_mode(Mode::Replay);
    drop_claim(lane);
    end.count(Counter::Replays, 1);
    end.count(Counter::Downgrades, 1);
    rest::begin(end, Reason::PeerAsked);
    if continue_replay(end, lane) == Err(Errno::AGAIN) {
        end.table().header().put_off.fetch_add(1, Ordering::SeqCst);
    }
}

/// Send more of what the receiver did not consume; `Err(AGAIN)` when TCP is full. The caller
/// holds the sending direction.
pub(crate) fn continue_replay(end: &End, lane: &WindowLane) -> Result<(), Errno> {
    continue_replay_while(end, lane, || true)
}

/// As [`continue_replay`], while it is wanted: `Err(AGAIN)` when not.
fn continue_replay_while(
    end: &End,
    lane: &WindowLane,
    is_wanted: impl Fn() -> bool,
) -> Result<(), Errno> {
    let _passage = lock::mark(&end.entry.tx.lock, PASSAGE);
    if ending::is_broken(end) {
        // The error is for the program to be told.
        end.entry.wait.replayed.store(0, Ordering::Relaxed);
        end.set_tx_mode(Mode::Tcp);
        return Ok(());
    }
    let mut at = RxCursor {
        head: end.entry.tx.credit.load(Ordering::Relaxed),
        taken: usize::try_from(end.entry.wait.replayed.load(Ordering::Relaxed)).unwrap_or(0),
    };
    let tail = end.entry.tx.tail.load(Ordering::Relaxed);
    while at.head < tail {
        if !is_wanted() {
            return Err(Errno::AGAIN);
        }
        let done = replay_record(end, lane, &mut at);
        end.entry.tx.credit.store(at.head, Ordering::Relaxed);
        end.entry
            .wait
            .replayed
            .store(at.taken as u64, Ordering::Relaxed);
        match done {
            Ok(true) => {}
            Ok(false) | Err(Errno::AGAIN) => {
                IS_ONE_LEFT.store(true, Ordering::SeqCst);
                put_off::note(end);
                return Err(Errno::AGAIN);
            }
            Err(errno) => {
                // Broken, or the receiver has spoilt the ring: there is nothing left to send.
                end.set_tx_mode(Mode::Tcp);
                if errno != Errno::PIPE {
                    ending::note_error(end, errno);
                }
                return Err(errno);
            }
        }
    }
    say_replayed(end, lane);
    end.entry.wait.replayed.store(0, Ordering::Relaxed);
    end.set_tx_mode(Mode::Tcp);
    Ok(())
}

/// A stream that ends from here on has ended behind all that was to be sent again.
fn say_replayed(end: &End, lane: &WindowLane) {
    let sender = &lane.control().sender;
    let answer = sender.replay_seq.load(Ordering::Relaxed);
    sender.replayed.store(answer, Ordering::Release); // SYNC: replayed
    posted::tell_replayed(end, lane);
}

/// As the receiver, plain again: whether nothing is there to be read yet of what stood in its lane when it froze. The peer
/// has said where that begins, and is about to send it.
pub(crate) fn is_on_its_way(end: &End) -> bool {
    let Some((lane, _rx)) = end.hold_rx_lane() else {
        return false;
    };
    let begins = lane.control().sender.replay_at.load(Ordering::Relaxed);
    end.has_flags(end_flags::FROZEN)
        && end.rx_mode() == Mode::Tcp
        && end.rx_cursor().has_data(&lane)
        && end.entry.rx.tcp_bytes.load(Ordering::Relaxed) == begins
        && kernel::poll_now(end.fd(), libc::POLLIN | libc::POLLRDHUP) == 0
}

/// Send the rest of one record; `Ok(false)` when TCP took only part of it.
fn replay_record(end: &End, lane: &WindowLane, at: &mut RxCursor) -> Result<bool, Errno> {
    // Not shut down alone, or the peer would take what it has got for all.
    let spoilt = |lie: PeerLied| ending::lied(end, lie);
    let left = match at.come_to_next(lane).map_err(spoilt)? {
        Next::Data(left) => left,
        Next::Control(..) => {
            at.head += 1;
            return Ok(true);
        }
        Next::Empty => return Err(spoilt(lie_at(at.head))),
    };
    let mut bytes = [0u8; crosslane_ring::MAX_RECORD_BYTES];
    let part = [crosslane_ring::Part::of_mut(&mut bytes[..left])];
    // SAFETY: the part is the array above.
    let Some(mut parts) = (unsafe { crosslane_ring::Parts::new(&part) }) else {
        return Ok(false);
    };
    at.copy_only(lane, &mut parts)
        .map_err(|why| ending::failed(end, why))?;
    // SAFETY: the first `left` bytes are initialised and valid for reads.
    let sent = match unsafe { kernel::send(end.fd(), bytes.as_ptr(), left, 0) } {
        Ok(sent) => sent,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
        Err(errno) => return Err(errno),
    };
    add(&end.entry.tx.tcp_bytes, sent as u64);
    at.pass(sent, left);
    Ok(sent == left)
}

/// Send what a frozen receiver has not taken.
///
/// # Errors
/// EAGAIN if TCP has no room and the call must not wait, which is known from when it began; what the kernel says of a broken
/// one; EBADF if another thread has closed it meanwhile; what a signal makes of the call, as of a send.
pub fn finish_replay(end: &End, dont_wait: bool) -> Result<(), Errno> {
    if end.tx_mode() != Mode::Replay {
        return Ok(());
    }
    let (mut stay, mut deadline) = (None, Deadline::default());
    loop {
        {
            let held = end.hold_tx_lane();
            if end.tx_mode() != Mode::Replay {
                return Ok(());
            }
            let (lane, _tx) = held.ok_or(Errno::BADF)?;
            match continue_replay(end, &lane) {
                Err(Errno::AGAIN) => {}
                Err(errno) => return Err(ending::take_error(end).unwrap_or(errno)),
                Ok(()) => return Ok(()),
            }
        }
        if dont_wait {
            return Err(Errno::AGAIN);
        }
        Stay::begin_once(&mut stay, end)?;
        let left = deadline.remaining(end)?;
        let wait = || wait_for_tcp(end, left, None);
        cancel::guarded(&stay, wait)
            .map_err(|errno| restart::interrupted(errno, left.is_some()))?;
    }
}

/// As [`finish_replay`], for a call that does nothing else where that fails: it is told of room that it has missed.
///
/// # Errors
/// As [`finish_replay`].
pub fn finish_replay_first(end: &End, dont_wait: bool) -> Result<(), Errno> {
    finish_replay(end, dont_wait).inspect_err(|errno| send::note_missed(end, *errno))
}

/// Sleep until the kernel has room or sends no more, for as long as is `left`, under another mask of signals than the thread's own
/// if one is given.
pub(crate) fn wait_for_tcp(
    end: &End,
    left: Option<Duration>,
    mask: Option<&sigset_t>,
) -> Result<(), Errno> {
    let slept = sleep_for_tcp(end, left, mask);
    // The kernel has been asked to tell the sets of it only while somebody sleeps in them.
    room::tell(end);
    slept
}

fn sleep_for_tcp(end: &End, left: Option<Duration>, mask: Option<&sigset_t>) -> Result<(), Errno> {
    let deadline = left.and_then(|left| Instant::now().checked_add(left));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // No poll tells that an AF_UNIX stream has been shut down in one direction.
        let looks = end.family() == Family::Unix && left.is_none_or(|left| left > STEP);
        let step = if looks { Some(STEP) } else { left };
        match wait_once(end, step, mask) {
            Err(Errno::AGAIN) if looks && kernel::can_send_unix(end.fd()) => {}
            Err(Errno::AGAIN) if looks => {
                gone::look(end);
                return Ok(());
            }
            waited => return waited,
        }
    }
}

fn wait_once(end: &End, left: Option<Duration>, mask: Option<&sigset_t>) -> Result<(), Errno> {
    // The kernel looks again by the number, which may name something else by then.
    let by_name = stir::Sleep::begin(end);
    let event = by_name.as_ref().map_or(-1, |sleep| sleep.event);
    let sleep = || asleep::poll_one((end.fd(), libc::POLLOUT), event, left, mask);
    match cancel::guarded(&by_name, sleep)? {
        [0, 0] => return Err(Errno::AGAIN),
        [0, _] => drop(kernel::nap(NAP)),
        _ => {}
    }
    Ok(())
}

/// How far what is sent again has been taken by TCP; only good to be compared.
pub(crate) fn position(end: &End) -> (u64, u64) {
    let replayed = end.entry.wait.replayed.load(Ordering::Relaxed);
    (end.entry.tx.credit.load(Ordering::Relaxed), replayed)
}

/// Send what a frozen receiver has not taken, before `deadline`, while TCP takes some of it now and then. Returns
/// false if something is left: after an end in good order the peer would take what it has got for all.
pub(crate) fn push_replay(end: &End, deadline: Instant) -> bool {
    let mut moved = (position(end), Instant::now());
    loop {
        // A freeze that nobody has seen yet is answered now.
        switch::attend(end);
        match finish_replay(end, true) {
            Err(Errno::AGAIN) => {}
            Err(errno) => {
                send::keep_error(end, errno);
                return true;
            }
            Ok(()) => return true,
        }
        let now = Instant::now();
        if moved.0 != position(end) {
            moved = (position(end), now);
        }
        if now >= deadline.min(moved.1 + STANDSTILL) {
            return false;
        }
        kernel::nap(NAP);
    }
}

#[cfg(test)]
pub(crate) mod tests;
