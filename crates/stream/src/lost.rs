//! The window to another host is lost, with what stands in it, while TCP between the hosts lives.
//!
//! The end that notices leaves the window: its lanes are now the memory behind them ([`crate::spare`]), and
//! a doorbell wakes the peer. Nothing more is read before it is known what stood in the lost lane, and
//! nothing but doorbells is sent in the ring's place before it is known that the peer has left the window
//! too: what a device held that is gone for one host may go on to answer the other. Then the sending direction
//! goes on by TCP behind a STOP that stands in its own copy of the lane. That goes by the monitors:
//!
//! | message | says | then |
//! |---|---|---|
//! | Position | how far I have read | the sender takes it for the credit of its copy, and answers a freeze |
//! | Remainder | the lines from there on, STOP at last | the receiver reads them as if they had stood there |
//!
//! So every passage that was under way ends as it would have ended in the window. A remainder may get lost with
//! a monitor, or with a program's connection to it: it is sent again until a position says that it is there. When
//! both ends are content and both directions on TCP, the end is let go by the monitor and may be registered
//! anew.
//!
//! | flag | of |
//! |---|---|
//! | `LOST` | the window is left |
//! | `HEARD`, `SHIPPED` | the sending direction: the peer's position is known; its remainder is with the monitor |
//! | `CONFIRMED` | the sending direction: the peer has its remainder, or needs none |
//! | `REFILLED` | the receiving direction: our remainder is there |

mod hear;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use crosslane_ctl::counter::Counter;
use crosslane_ctl::lane::receiver_flags::{FROZEN, STOP_WANTED};
use crosslane_ctl::message::{ClientMessage, Position, Remainder, position_flags};
use crosslane_ctl::place::Place;
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndPhase, Ending, Mode, end_flags};
use crosslane_ring::{WindowLane, mirror};
use crosslane_sys::kernel::SignalsHeld;
use crosslane_sys::memory::create_sealed;
use crosslane_sys::{Errno, cancel, cpu, kernel};

use crate::{
    End, bell, control, doubt, ending, entering, posted, reset, rest, shown, spare, switch, watcher,
};

pub(crate) use hear::{hear_alone, hear_left, hear_lost, hear_position, hear_remainder};

use end_flags::{CONFIRMED, FAR, HEARD, LOST, READ_OUT, REFILLED, SHIPPED};

/// Windows that this process has lost or doubted, under all ends.
static ALL: AtomicU32 = AtomicU32::new(0);

/// How far an end has come.
const PROGRESS: u32 = HEARD | SHIPPED | CONFIRMED | REFILLED;

/// How often the position is told again while nothing comes back.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// How often it is told again by an end that misses nothing, and has sent what the other one missed; and how
/// long that one is given before it is sent the same again.
const ASK_AGAIN_AT_LEISURE: Duration = Duration::from_millis(500);

/// How long who closes a connection waits for its remainder to be under way.
pub(crate) const LAST_CALL: Duration = Duration::from_secs(1);

/// How long a remainder may still be under way when TCP has ended: a host may be between two monitors.
const PATIENCE: Duration = Duration::from_secs(3);

/// A pause while both ends' monitors talk.
const NAP: Duration = Duration::from_micros(200);

/// What a process remembers of its part: how often a window was lost or doubted, and moments, in ticks; 0 for never.
#[derive(Default)]
pub(crate) struct Clock {
    asked: AtomicU64,
    shipped: AtomicU64,
    ended: AtomicU64,
    losses: AtomicU32,
}

/// See whether the window is lost, and do what is to be done about it. Called on the program's own
/// calls; the caller holds neither direction.
#[inline]
pub fn look(end: &End) {
    if end.has_flags(FAR) {
        look_far(end);
    }
}

fn look_far(end: &End) {
    watcher::start(end.process());
    let is_lost = end.has_flags(LOST);
    if !is_lost && !spare::is_window_lost(end) {
        entering::look(end);
        posted::look(end);
        return doubt::look(end);
    }
    if !is_lost || !spare::is_used(end) {
        leave(end, |end| end.has_flags(LOST) || spare::is_window_lost(end));
    }
    if !is_content(end) || owes_position(end) {
        settle(end);
    } else if end.phase() != EndPhase::Granted {
        cast_off(end);
    }
}

/// Whether neither end misses anything, as far as this one knows.
fn is_content(end: &End) -> bool {
    end.has_flags(SHIPPED | REFILLED | CONFIRMED)
}

/// Whether what has just been read from the lane says nothing: it may be no more than the zeroes in the
/// place of a lost window, or come from one that another process which has the end has left. Asked after the
/// read, by who holds the direction.
#[inline]
pub(crate) fn is_found(end: &End) -> bool {
    end.has_flags(FAR)
        && match end.has_flags(LOST) {
            true => spare::is_left_behind(end),
            false => spare::is_window_lost(end),
        }
}

/// Whether something has yet to be told or heard: who waits should look again after a moment.
#[inline]
pub fn is_unsettled(end: &End) -> bool {
    is_on_its_way(end) || doubt::is_open(end)
}

/// Whether the other host has yet to say that it has found where we have entered the lane.
#[inline]
pub fn is_entering(end: &End) -> bool {
    entering::is_awaited(end)
}

/// Whether what stood in a lost window has yet to be told or heard.
#[inline]
fn is_on_its_way(end: &End) -> bool {
    end.has_flags(LOST) && !end.has_flags(SHIPPED | REFILLED)
}

/// Whether the position has yet to be told, which was not possible so far.
pub(crate) fn is_owing(end: &End) -> bool {
    end.has_flags(LOST) && owes_position(end)
}

/// How far this process has come with the windows that it has lost under the end, or has doubted: another number
/// whenever what was refused before may be had now.
pub fn stage(end: &End) -> u32 {
    end.local.clock.losses.load(Ordering::Relaxed) << 1 | u32::from(is_unsettled(end))
}

/// Go on to another [`stage`].
pub(crate) fn begin_anew(end: &End) {
    end.local.clock.losses.fetch_add(1, Ordering::Relaxed);
    ALL.fetch_add(1, Ordering::SeqCst);
}

/// The same under all ends.
#[inline]
pub fn all_losses() -> u32 {
    ALL.load(Ordering::SeqCst)
}

/// What has become of the end's window: if it is the same before and after a look, the look was at what
/// was there.
#[inline]
pub(crate) fn standing(end: &End) -> u32 {
    end.entry.id.flags.load(Ordering::SeqCst) & (LOST | REFILLED)
}

/// Whether what has just been seen of the receiving lane says nothing: the window is lost, and what stood there
/// has not come yet; or more is on its way. Asked after the look, by who holds the receiving direction.
#[inline]
pub(crate) fn is_unknown(end: &End) -> bool {
    is_dry(end) || is_found(end) || doubt::lacks_word(end)
}

/// Whether the peer may still look into the window, where it would find no STOP: whatever came by TCP it would
/// take for doorbells, and an end of the stream for the end of what it has found.
#[inline]
pub(crate) fn is_unheard(end: &End) -> bool {
    end.has_flags(LOST) && !end.has_flags(HEARD)
}

/// Whether nothing can be read, because it is not known what comes next.
#[inline]
pub fn is_dry(end: &End) -> bool {
    lacks_remainder(end) || doubt::is_open(end)
}

/// Whether what stood in a lost window has not come.
#[inline]
fn lacks_remainder(end: &End) -> bool {
    end.has_flags(LOST) && !end.has_flags(REFILLED)
}

/// How the monitors of both hosts call the end's lanes.
pub(crate) fn pair_of(end: &End) -> u64 {
    end.entry.wait.pair.load(Ordering::SeqCst)
}

/// Leave the window, if `is_gone`, which is asked while both directions are held: another thread may have
/// left it before, and the end may be in another one by now.
#[cold]
fn leave(end: &End, is_gone: impl FnOnce(&End) -> bool) {
    let _rx = end.lock_rx();
    let _tx = end.lock_tx();
    // Without lanes it has just been closed in this process, and its descriptor may be another's.
    if !end.has_flags(FAR) || end.tx_lane().is_none() || !is_gone(end) {
        return;
    }
    let (Some(sent), Some(received)) = (spare::sent(end), spare::received(end)) else {
        return;
    };
    let is_first = !end.has_flags(LOST);
    if is_first {
        prepare(end, &sent, &received);
        end.clear_flags(PROGRESS);
        // An end that is the kernel's already may have left something unread in the window, and has
        // nothing to read there.
        let is_out = end.phase() != EndPhase::Granted;
        end.add_flags(if is_out { LOST | REFILLED } else { LOST });
        need_no_more(end);
        rest::begin(end, Reason::WindowLost);
        end.count(Counter::WindowsLost, 1);
    }
    end.set_lanes(sent, received);
    let clock = &end.local.clock;
    owe_position(end);
    clock.ended.store(0, Ordering::Relaxed);
    begin_anew(end);
    if is_first && end.tx_mode() == Mode::Ring && end.ending() == Ending::Open {
        bell::probe_locked(end, &sent);
    }
}

/// The program has been told of the end of the stream. After its own shutdown more may come.
pub(crate) fn note_read_out(end: &End) {
    if !end.has_flags(end_flags::SHUT_READ) {
        end.add_flags(READ_OUT);
        need_no_more(end);
    }
}

/// Behind the end of the stream nothing is missing. Called after either of the flags was set.
fn need_no_more(end: &End) {
    if end.has_flags(LOST | READ_OUT) {
        end.add_flags(REFILLED);
    }
}

/// The control lines, as far as they can be known here.
fn prepare(end: &End, sent: &WindowLane, received: &WindowLane) {
    let credit = end.entry.tx.credit.load(Ordering::Relaxed);
    let control = sent.control();
    control
        .credit
        .consumed
        .store(Place::word(credit, 0), Ordering::Relaxed);
    control.receiver.flags.store(STOP_WANTED, Ordering::Relaxed);
    let control = received.control();
    let flags = own_flags(end);
    control.receiver.flags.store(flags, Ordering::Relaxed);
    let seen = end.entry.wait.replay_seen.load(Ordering::Relaxed);
    control.sender.replay_seq.store(seen, Ordering::Relaxed);
}

fn own_flags(end: &End) -> u32 {
    let frozen = end.has_flags(end_flags::FROZEN);
    STOP_WANTED | if frozen { FROZEN } else { 0 }
}

/// Go on by TCP. Put off, as every STOP is, while a doorbell is owed or a message is being built.
/// The caller holds the sending direction.
fn stop(end: &End, sent: &WindowLane) {
    if end.tx_mode() == Mode::Ring {
        // The peer reads nothing before it has what we ship behind the STOP: no room would ever come.
        if end.has_flags(HEARD) && !bell::pay(end) {
            bell::forget_owed(end, sent);
        }
        switch::stop_locked(end, sent, Reason::WindowLost);
    }
}

/// Tell and hear what is missing.
#[cold]
fn settle(end: &End) {
    control::poll(end.process());
    if let Some((sent, _tx)) = end.hold_tx_lane().filter(|_| end.has_flags(LOST)) {
        stop(end, &sent);
    }
    if end.has_flags(LOST | HEARD) && !end.has_flags(SHIPPED) {
        switch::attend_lane(end);
        // A monitor that is new knows by the position whose remainder comes.
        if end.tx_mode() != Mode::Ring && tell_position(end) {
            ship(end);
        }
    }
    let pause = match is_on_its_way(end) {
        true => ASK_AGAIN,
        false => ASK_AGAIN_AT_LEISURE,
    };
    let clock = &end.local.clock;
    if owes_position(end) || !is_content(end) && is_due(&clock.asked, pause) {
        clock.asked.store(cpu::ticks(), Ordering::Relaxed);
        tell_position(end);
    }
    if is_on_its_way(end) {
        give_up_in_time(end);
    }
}

/// Have the next look tell the position.
fn owe_position(end: &End) {
    end.local.clock.asked.store(0, Ordering::Relaxed);
}

fn owes_position(end: &End) -> bool {
    end.local.clock.asked.load(Ordering::Relaxed) == 0
}

/// Whether so much time has passed since `since`.
fn is_due(since: &AtomicU64, time: Duration) -> bool {
    has_passed(since.load(Ordering::Relaxed), time)
}

/// The same since a moment that was seen once. Another thread's may be a little later than now.
pub(crate) fn has_passed(since: u64, time: Duration) -> bool {
    #[cfg(test)]
    if crate::posted::tests::schedules::is_played() {
        return since == 0;
    }
    let passed = cpu::ticks().saturating_sub(since) / cpu::ticks_per_us();
    u128::from(passed) >= time.as_micros()
}

/// What the peer had not told before TCP ended, it does not tell any more. An end that misses nothing goes on
/// without an error: TCP may hold what its program has yet to read.
fn give_up_in_time(end: &End) {
    let is_lacking = lacks_remainder(end);
    let over = match is_lacking {
        true => libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR,
        false => libc::POLLHUP | libc::POLLERR,
    };
    let ended = &end.local.clock.ended;
    let since = ended.load(Ordering::Relaxed);
    if kernel::poll_now(end.fd(), libc::POLLRDHUP) & over == 0 {
        ended.store(0, Ordering::Relaxed);
    } else if since == 0 {
        ended.store(cpu::ticks(), Ordering::Relaxed);
    } else if has_passed(since, PATIENCE) {
        let _rx = end.lock_rx();
        let _tx = end.lock_tx();
        // Another thread may have begun anew, or heard what was missing.
        if ended.load(Ordering::Relaxed) != since || lacks_remainder(end) != is_lacking {
            return;
        }
        // As in [`leave`].
        match end.tx_lane() {
            Some(_) if is_lacking => give_up(end),
            Some(_) => end.add_flags(SHIPPED | CONFIRMED),
            None => {}
        }
    }
}

/// What stood in the window cannot be had: the connection is reset, as when a host has died.
pub(crate) fn give_up(end: &End) {
    end.count(Counter::WindowsUnsettled, 1);
    // Who has read the end of the stream reads no error behind it.
    let errno = match end.has_flags(READ_OUT) {
        true => Errno::PIPE,
        false => Errno::CONNRESET,
    };
    ending::note_error(end, errno);
    // After the error, which a receive would miss that finds nothing missing any more.
    end.add_flags(end_flags::PINNED | SHIPPED | REFILLED | CONFIRMED);
    end.clear_flags(end_flags::RESTING);
    reset::now(end);
}

/// Returns whether it has been said.
fn tell_position(end: &End) -> bool {
    // Held until the descriptor has been passed: one that is being closed has no lanes any more.
    let Some((_lane, _rx)) = end.hold_rx_lane() else {
        return false;
    };
    // Of lanes that are in use the peer must hear nothing.
    if !end.has_flags(LOST) || pair_of(end) == 0 {
        return false;
    }
    let message = ClientMessage::Position(position(end));
    let is_told = control::tell(end.process(), &message, Some(end.fd()));
    if !is_told {
        // Others talk to the monitor, or it does not listen.
        owe_position(end);
    }
    is_told
}

/// How far we have read. The caller holds the receiving direction.
fn position(end: &End) -> Position {
    Position {
        token: end.token(),
        pair: pair_of(end),
        flags: wishes(end) | known_flags(end),
        consumed: end.rx_cursor().position(),
        tcp_taken: end.entry.rx.tcp_bytes.load(Ordering::Relaxed),
    }
}

/// What the peer is asked for. An end that is the kernel's reads no lane: what it has not come to, of a START that it could
/// not see, has to come by TCP.
fn wishes(end: &End) -> u32 {
    let is_kernels = end.phase() != EndPhase::Granted;
    own_flags(end) | if is_kernels { FROZEN } else { 0 }
}

fn known_flags(end: &End) -> u32 {
    let flag = |own, told| if end.has_flags(own) { told } else { 0 };
    flag(REFILLED, position_flags::COMPLETE) | flag(CONFIRMED, position_flags::CONTENT)
}

/// Send the peer what it has not read.
fn ship(end: &End) {
    // A handler that sends must not find the direction held by its own thread for so long.
    let _held = SignalsHeld::hold();
    // Until it is said that it is done: then the end may leave the lanes.
    let Some((lane, _tx)) = end.hold_tx_lane() else {
        return;
    };
    if !end.has_flags(LOST | HEARD) || end.has_flags(SHIPPED) || end.tx_mode() == Mode::Ring {
        return;
    }
    let Some((remainder, bytes)) = remainder(end, &lane) else {
        return;
    };
    let memory = match bytes.is_empty() {
        true => None,
        false => match object_of(&bytes) {
            Some(memory) => Some(memory),
            // No memory or no descriptors: later.
            None => return,
        },
    };
    let fd = memory.as_ref().map(AsRawFd::as_raw_fd);
    // Before: a monitor that finds us out of the lanes must know that there is something to come.
    shown::shipped(end, remainder.pair);
    end.local
        .clock
        .shipped
        .store(cpu::ticks(), Ordering::Relaxed);
    if control::tell(end.process(), &ClientMessage::Remainder(remainder), fd) {
        end.add_flags(SHIPPED);
    }
}

/// What the peer has not read. The caller holds the sending direction, which has left the lane.
fn remainder(end: &End, lane: &WindowLane) -> Option<(Remainder, Vec<u8>)> {
    let control = lane.control();
    let position = control.credit.consumed.load(Ordering::Relaxed);
    let tail = end.entry.tx.tail.load(Ordering::Relaxed);
    // Another process may have sent what is not in our copy.
    if mirror::is_whole(lane, position, tail) != Ok(true) {
        give_up(end);
        return None;
    }
    let remainder = Remainder {
        token: end.token(),
        pair: pair_of(end),
        first: Place::near(position, tail).line,
        end: tail,
        replay_seq: control.sender.replay_seq.load(Ordering::Relaxed),
        replay_at: control.sender.replay_at.load(Ordering::Relaxed),
        replay_end: control.sender.replay_end.load(Ordering::Relaxed),
    };
    let mut bytes = vec![0; remainder.bytes()];
    mirror::lines_out(lane, remainder.first, &mut bytes);
    Some((remainder, bytes))
}

fn object_of(bytes: &[u8]) -> Option<File> {
    cancel::never(|| {
        let memory = File::from(create_sealed(c"crosslane-remainder", bytes.len()).ok()?);
        memory.write_all_at(bytes, 0).ok()?;
        Some(memory)
    })
}

/// The caller would sleep: rest a moment instead, and look again.
pub(crate) fn nap(end: &End) {
    kernel::nap(NAP);
    look(end);
}

/// The end is about to be closed: see that the peer gets what it has not read, or learns that it does not; and
/// what is left unread here, as it decides how the connection ends.
pub(crate) fn finish(end: &End, deadline: Instant) {
    look(end);
    while is_on_its_way(end) && Instant::now() < deadline {
        nap(end);
    }
    if !is_shipped(end) {
        reset::at_close(end);
    }
}

/// The end's sending direction is about to be shut down: see that the peer gets what it has not read.
pub(crate) fn finish_sending(end: &End) {
    let deadline = Instant::now() + PATIENCE;
    look(end);
    while !is_shipped(end) {
        if Instant::now() > deadline {
            return give_up(end);
        }
        nap(end);
    }
}

fn is_shipped(end: &End) -> bool {
    !end.has_flags(LOST) || end.has_flags(SHIPPED)
}

/// The end is on TCP both ways, and the kernel's alone: it has no lanes any more, and may be registered
/// anew.
pub(crate) fn cast_off(end: &End) {
    // Nobody registers it anew meanwhile, whom this release would undo. Where others talk to the monitor, a
    // later look does this.
    let Some(mut control) = control::try_hold() else {
        return;
    };
    let _rx = end.lock_rx();
    let _tx = end.lock_tx();
    // A forked child has lanes of its own.
    let is_shared = end.process().is_shared(end.index);
    let is_out = end.has_flags(LOST) && end.phase() != EndPhase::Granted;
    let may = is_out && is_content(end) && !is_shared && !end.is_unleased();
    if !may {
        return;
    }
    control.release(end.token(), pair_of(end));
    end.clear_lanes();
    shown::no_lanes(end);
    end.clear_flags(FAR | LOST | PROGRESS | end_flags::KNOWN);
}

#[cfg(test)]
mod tests;
