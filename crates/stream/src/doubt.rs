//! The end of a stream from another host, of which TCP tells, where the lane does not say that all is there.
//!
//! A window may carry nothing for a while, and nobody knows it yet: what the peer has sent there before it ended its
//! stream would be missing without an error. A peer that ends its stream in good order says in the lane how far that
//! goes ([`SenderLine::ended`](crosslane_ctl::lane::SenderLine::ended)). Where the lane is empty and does not say so, the
//! peer was killed, or the window stands still: the program is told nothing until the monitor has seen the window
//! carry what the other host has written since, which takes milliseconds, or finds it lost.
//!
//! The same is asked before a socket is given to somebody who may read TCP alone: a peer that cannot see that would go on
//! by the lane.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use crosslane_ctl::message::ClientMessage;
use crosslane_ctl::slab::{EndPhase, Ending, end_flags};
use crosslane_ring::{RxCursor, WindowLane};
use crosslane_sys::{cpu, kernel};

use crate::process::Process;
use crate::{End, control, lost, posted, register, switch};

use end_flags::{EOF, FAR, INVITED, JUDGED, LOST, READ_OUT, SHUT_READ, SURE};

/// How often the monitor is asked.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// Between two looks by who waits for the monitor.
const NAP: Duration = Duration::from_micros(200);

/// A monitor that looks into it says so each time, and hears of the other host, or loses it, in the end. Where none does,
/// nobody knows better than TCP.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Moments, in ticks, of a doubt of this process; 0 for none.
#[derive(Default)]
pub(crate) struct Clock {
    began: AtomicU64,
    asked: AtomicU64,
    /// When the monitor last said that it looks into it.
    answered: AtomicU64,
    /// One of the words below.
    word: AtomicU32,
}

impl Clock {
    /// The entry is another connection's.
    pub(crate) fn forget(&self) {
        for moment in [&self.began, &self.asked, &self.answered] {
            moment.store(0, Ordering::Relaxed);
        }
        self.word.store(NO_WORD, Ordering::Relaxed);
    }
}

/// Who gives the socket away waits for no word of the monitor's, waits for one, or has been told.
const NO_WORD: u32 = 0;
const WANTED: u32 = 1;
const GIVEN: u32 = 2;

/// When such a word was last waited for in vain, in ticks; 0 for never.
static IN_VAIN: AtomicU64 = AtomicU64::new(0);

/// Whether the stream has ended, and something may be missing before its end.
#[inline]
pub(crate) fn is_open(end: &End) -> bool {
    end.has_flags(FAR) && is_open_far(end)
}

/// Whether an empty lane is not the end of a stream that has ended, as records may come at any moment that were posted
/// before.
#[inline]
pub(crate) fn lacks_word(end: &End) -> bool {
    // An end that has left its lanes for good has the kernel's word.
    let is_in_doubt = end.has_flags(FAR) && may_doubt(end) && posted::is_posted(end);
    is_in_doubt && end.phase() == EndPhase::Granted && {
        let is_told = |lane: WindowLane| is_told(&lane, position(end, &lane));
        may_have_entered(end) && !end.rx_lane().is_some_and(is_told)
    }
}

/// Whether the stream stands on TCP before a passage that it never comes to: a peer that was killed has reset TCP, whose
/// queue went with that, and a send has been told the error. The caller holds neither direction.
pub(crate) fn is_cut_off(end: &End) -> bool {
    if !end.has_flags(FAR) || !may_doubt(end) || !posted::is_posted(end) {
        return false;
    }
    // Who takes bytes counts them before it lets go.
    let _rx = end.lock_rx();
    let rx = &end.entry.rx;
    let limit = rx.tcp_limit.load(Ordering::Relaxed);
    limit != u64::MAX
        && rx.tcp_bytes.load(Ordering::Relaxed) < limit
        && kernel::queued(end.fd(), libc::FIONREAD) == Ok(0)
}

/// Whether the stream has ended, and nobody has said so but TCP. A reset behind that end, as of a peer that was killed and has
/// been sent something since, says nothing of what came before it; an own shutdown for reading looks like an end.
fn may_doubt(end: &End) -> bool {
    let flags = end.entry.id.flags.load(Ordering::SeqCst);
    let has_ended = match end.ending() {
        Ending::Open => false,
        Ending::Eof => true,
        Ending::Reset => flags & EOF != 0,
    };
    has_ended && flags & (LOST | SURE | READ_OUT | JUDGED | SHUT_READ) == 0
}

/// A reset was about to be told as an end in good order, so one has come before it. Whether something may be missing before
/// that, or be there by now.
pub(crate) fn opens_behind_reset(end: &End) -> bool {
    let flags = end.entry.id.flags.load(Ordering::SeqCst);
    if flags & FAR == 0 || flags & SHUT_READ != 0 || end.ending() != Ending::Reset {
        return false;
    }
    end.add_flags(EOF);
    flags & (EOF | SURE) == 0 || is_open_far(end)
}

/// The program has been told that the connection was reset: what is missing is not asked for any more.
pub(crate) fn note_told(end: &End) {
    if end.has_flags(FAR) && end.ending() == Ending::Reset {
        end.add_flags(SURE);
    }
}

/// The peer is about to be told that it may enter the lane.
pub(crate) fn note_invited(end: &End) {
    if end.has_flags(FAR) {
        end.add_flags(INVITED);
    }
}

/// Whether the peer has ever been told that it may enter the lane, also where that has been taken back: it may not have
/// seen that, and where it is, the window may not have shown.
pub(crate) fn may_have_entered(end: &End) -> bool {
    end.has_flags(INVITED) || end.rx_cursor() != RxCursor::default()
}

fn is_open_far(end: &End) -> bool {
    if !may_doubt(end) {
        return false;
    }
    let is_missing = |rx: WindowLane| is_missing(end, &rx);
    end.phase() == EndPhase::Granted && end.rx_lane().is_some_and(is_missing)
}

/// Whether the peer, which may have been in these lanes, may have sent more there than has come.
fn is_missing(end: &End, rx: &WindowLane) -> bool {
    if posted::is_posted(end) {
        return is_behind(end, rx);
    }
    let cursor = end.rx_cursor();
    may_have_entered(end) && !cursor.has_record(rx) && !is_told(rx, cursor.head)
}

/// The same over posted writes, which the end overtakes: the START may be missing, too, and the answer to a freeze.
fn is_behind(end: &End, rx: &WindowLane) -> bool {
    let (cursor, at) = (end.rx_cursor(), position(end, rx));
    let has_ended = || rx.control().sender.ended.load(Ordering::Acquire) != 0; // SYNC: ended
    let is_frozen = end.has_flags(end_flags::FROZEN) && !is_answered(end, rx);
    may_have_entered(end)
        && match is_frozen {
            true => !has_ended(),
            false => !is_told(rx, at) && (at != cursor.head || !cursor.has_record(rx)),
        }
}

/// The line up to which nothing more is to be read: what has been sent again by TCP is not.
fn position(end: &End, rx: &WindowLane) -> u64 {
    let head = end.rx_cursor().head;
    match end.has_flags(end_flags::FROZEN) && is_answered(end, rx) {
        true => rx.control().sender.replay_end.load(Ordering::Relaxed),
        false => head,
    }
}

fn is_answered(end: &End, rx: &WindowLane) -> bool {
    let seen = end.entry.wait.replay_seen.load(Ordering::Relaxed);
    rx.control().sender.replay_seq.load(Ordering::SeqCst) != seen // SYNC: frozen
}

/// Whether the sender has said that nothing comes behind this line.
fn is_told(rx: &WindowLane, head: u64) -> bool {
    let ended = rx.control().sender.ended.load(Ordering::Acquire); // SYNC: ended
    ended != 0 && head >= ended - 1
}

/// Our stream ends behind what has been sent. The caller holds the sending direction.
pub(crate) fn say_end(end: &End, tx: &WindowLane) {
    if end.has_flags(FAR) && !end.has_flags(LOST) {
        let tail = end.entry.tx.tail.load(Ordering::Relaxed);
        let ended = &tx.control().sender.ended;
        ended.store(tail.saturating_add(1), Ordering::Release); // SYNC: ended
        posted::tell_end(end, tx);
    }
}

/// Hear from the monitor, and ask it now and then. The caller holds neither direction.
pub(crate) fn look(end: &End) {
    let clock = &end.local.doubt;
    let is_open = is_open_far(end);
    if is_open {
        let began = begin(clock);
        control::poll(end.process());
        ask(end, clock, began);
    } else if clock.began.load(Ordering::Relaxed) != 0 {
        conclude(end);
    }
}

/// When the doubt began: now, unless it is open already.
fn begin(clock: &Clock) -> u64 {
    let now = cpu::ticks();
    let never = clock
        .began
        .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    if never.is_ok() {
        clock.asked.store(0, Ordering::Relaxed);
    }
    never.err().unwrap_or(now)
}

/// `began` is as it was seen once: another thread may conclude at any moment, and 0 is long ago.
fn ask(end: &End, clock: &Clock, began: u64) {
    let since = began.max(clock.answered.load(Ordering::Relaxed));
    if lost::has_passed(since, PATIENCE) {
        settle(end);
    } else if lost::has_passed(clock.asked.load(Ordering::Relaxed), ASK_AGAIN) && tell_doubt(end) {
        clock.asked.store(cpu::ticks(), Ordering::Relaxed);
    }
}

fn find_far(process: &'static Process, token: u64, pair: u64) -> Option<End> {
    let is_meant = |end: &End| end.has_flags(FAR) && lost::pair_of(end) == pair;
    register::find(process, token).filter(is_meant)
}

/// The monitor asks the other host's.
pub(crate) fn hear_asked(process: &'static Process, token: u64, pair: u64) {
    if let Some(end) = find_far(process, token, pair) {
        let answered = &end.local.doubt.answered;
        answered.store(cpu::ticks(), Ordering::Relaxed);
    }
}

/// The window carries what has been written before we asked. Of an end that is being given away that may have been before
/// its stream has ended: a doubt asks again.
pub(crate) fn hear_carried(process: &'static Process, token: u64, pair: u64) {
    if let Some(end) = find_far(process, token, pair) {
        let relaxed = Ordering::Relaxed;
        let word = &end.local.doubt.word;
        if word
            .compare_exchange(WANTED, GIVEN, relaxed, relaxed)
            .is_err()
        {
            settle(&end);
        }
    }
}

/// Wait until the peer has answered what stands in the window, or can see it as far as the monitors know, or the window is
/// lost. Where no monitor says so, nobody knows better. The caller holds neither direction.
pub(crate) fn await_word(end: &End) {
    let is_open =
        || end.phase() == EndPhase::Granted && !end.has_flags(LOST) && end.ending() == Ending::Open;
    if !end.has_flags(FAR) || !end.process().is_current() || !is_open() || was_in_vain() {
        return;
    }
    let word = &end.local.doubt.word;
    word.store(WANTED, Ordering::Relaxed);
    let began = cpu::ticks();
    let mut asked = 0;
    while is_open() && !switch::is_plain(end) && word.load(Ordering::Relaxed) == WANTED {
        if lost::has_passed(began, PATIENCE) {
            IN_VAIN.store(cpu::ticks(), Ordering::Relaxed);
            break;
        }
        if lost::has_passed(asked, ASK_AGAIN) && tell_doubt(end) {
            asked = cpu::ticks();
        }
        control::poll(end.process());
        lost::look(end);
        kernel::nap(NAP);
    }
    word.store(NO_WORD, Ordering::Relaxed);
}

fn was_in_vain() -> bool {
    #[cfg(test)]
    if crate::posted::tests::schedules::is_played() {
        // Nobody else would have a turn.
        return true;
    }
    let when = IN_VAIN.load(Ordering::Relaxed);
    when != 0 && !lost::has_passed(when, PATIENCE)
}

/// Returns whether the monitor has been asked.
fn tell_doubt(end: &End) -> bool {
    let (token, pair) = (end.token(), lost::pair_of(end));
    control::tell(end.process(), &ClientMessage::Doubt { token, pair }, None)
}

/// What the lane shows now is all. What has come meanwhile is read first.
fn settle(end: &End) {
    {
        let _rx = end.lock_rx();
        if is_open_far(end) {
            end.add_flags(SURE);
        }
    }
    conclude(end);
}

/// What this process was refused may be had, also by those who sleep in sets of epoll.
fn conclude(end: &End) {
    if end.local.doubt.began.swap(0, Ordering::Relaxed) != 0 {
        lost::begin_anew(end);
    }
}
