//! Lanes of which each host has a copy: over a window that carries writes only, in the order in which they leave, and late
//! (docs/windows.md). All code reads and writes the slot in this host's own memory, as between programs. What this end
//! has changed there is *posted* to the same place in the other's.
//!
//! | what | posted by | when |
//! |---|---|---|
//! | records | the sender | with its cursor |
//! | `tcp_total`, `replay_*`, `ended`, a wish for space | the sender | where they are stored |
//! | `tcp_taken`, `found` | the receiver | where they are stored |
//! | `consumed` | the receiver | when its lane is empty, for half a ring, before a request, and when it must be exact |
//! | its flags, numbered | the receiver | after each change, and anew with each arming |
//! | `echo` | the sender | the number of the flags that it has merged last, behind what it did before |
//!
//! The sender *merges* what has come of the receiver's flags into those that the code looks at: `ENTERED` and `ANSWERED`
//! there are its own. So a word has one writer, and what an exchange settles between programs is settled by the echo.
//!
//! TCP overtakes what is posted. A doorbell before its total stays where it is; before its START there is none
//! ([`crate::entering`]). A request that crosses a record, and a freeze, are the business of the library's
//! thread ([`crate::watcher`]), which calls [`tend`].

use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crosslane_ctl::lane::receiver_flags::{ANSWERED, ARMED, CLOSED, ENTERED, FROZEN};
use crosslane_ctl::lane::{
    CreditLine, LaneControl, PlaceLine, ReceiverLine, SenderLine, posted_flags,
};
use crosslane_ctl::place::Place;
use crosslane_ctl::slab::{Mode, end_flags};
use crosslane_ring::memory::full_fence;
use crosslane_ring::posted::memory::Remote;
use crosslane_ring::{LaneMemory, WindowLane, mirror};
use crosslane_sys::kernel;
use crosslane_window::arena::Arena;
use crosslane_window::outbound::Outbound;

pub(crate) use tending::{look, tend};

use crate::{End, bell, unconsumed, watcher};

mod tending;

const SENDER: usize = offset_of!(LaneControl, sender);
const CREDIT: usize = offset_of!(LaneControl, credit);
/// The wish for space and, in the upper half, `replay_seq`.
const WISH: usize = SENDER + offset_of!(SenderLine, space_wanted);
const REPLAY_AT: usize = SENDER + offset_of!(SenderLine, replay_at);
const REPLAY_END: usize = SENDER + offset_of!(SenderLine, replay_end);
const TCP_TOTAL: usize = SENDER + offset_of!(SenderLine, tcp_total);
/// A word that the receiver does not read and, in the upper half, `replayed`.
const REPLAYED: usize = SENDER + offset_of!(SenderLine, grown);
const ENDED: usize = SENDER + offset_of!(SenderLine, ended);
const ECHO: usize = SENDER + offset_of!(SenderLine, echo);
const POSTED: usize = offset_of!(LaneControl, receiver) + offset_of!(ReceiverLine, posted);
const CONSUMED: usize = CREDIT + offset_of!(CreditLine, consumed);
const TCP_TAKEN: usize = CREDIT + offset_of!(CreditLine, tcp_taken);
const FOUND: usize = CREDIT + offset_of!(CreditLine, found);
/// The processor and, in the upper half, whether the receiver waits for many.
const PLACE: usize = offset_of!(LaneControl, place) + offset_of!(PlaceLine, receiver_cpu);

const _: () = {
    // What shares a word of eight bytes is posted together.
    assert!(offset_of!(SenderLine, replay_seq) == offset_of!(SenderLine, space_wanted) + 4);
    assert!(offset_of!(SenderLine, replayed) == offset_of!(SenderLine, grown) + 4);
    assert!(offset_of!(PlaceLine, waits_for_many) == offset_of!(PlaceLine, receiver_cpu) + 4);
};

/// What the sender adds to the flags that it merges.
const SENDERS: u32 = ENTERED | ANSWERED;

/// So often a thread posts what others have changed meanwhile.
const MOST_POSTS: u32 = 64;

const SENT: usize = 0;
const RECEIVED: usize = 1;

/// The other host's memory behind an end's lanes.
#[derive(Default)]
pub(crate) struct Beyond {
    memory: AtomicPtr<Outbound>,
    /// Control lines in our own memory of the lanes that it is behind; other lanes of the end's are not posted.
    own: [AtomicPtr<LaneControl>; 2],
    /// Where the same lanes begin there.
    at: [AtomicUsize; 2],
    /// The credit that this process has posted last.
    credited: AtomicU64,
    /// Whether more has been read since.
    holds_credit: AtomicBool,
    /// Points to a word that is not 0 once it has been found missing.
    lost: AtomicPtr<AtomicU32>,
}

/// One lane in the other host's memory.
#[derive(Clone, Copy)]
struct There {
    memory: &'static Outbound,
    at: usize,
}

impl Remote for There {
    #[inline]
    unsafe fn write(&self, at: usize, from: *const u8, words: usize) {
        #[cfg(test)]
        // SAFETY: the caller's promise.
        if unsafe { tests::wire::take(self.memory, self.at + at, from, words) } {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { self.memory.write(self.at + at, from, words) };
    }

    #[inline]
    fn store(&self, at: usize, word: u64) {
        #[cfg(test)]
        // SAFETY: one word.
        if unsafe {
            tests::wire::take(self.memory, self.at + at, (&raw const word).cast::<u8>(), 1)
        } {
            return;
        }
        self.memory.store(self.at + at, word);
    }

    #[inline]
    fn fence(&self) {
        #[cfg(test)]
        tests::wire::fence(self.memory);
        self.memory.fence();
    }
}

impl There {
    /// Post one word, behind all that was posted before.
    fn say(&self, at: usize, word: u64) {
        self.store(at, word);
        self.fence();
    }
}

/// The end's lanes are in this arena from now on. The caller holds both directions, or is the only one who knows the
/// end.
pub(crate) fn keep(end: &End, arena: &'static Arena, lanes: [&WindowLane; 2]) {
    let beyond = &end.local.behind.beyond;
    // Who looks meanwhile finds no lane, rather than another one's place.
    forget(end);
    let Some(memory) = arena.beyond() else {
        beyond.lost.store(core::ptr::null_mut(), Ordering::Release);
        return;
    };
    let lost = arena
        .lost_beyond()
        .map_or(core::ptr::null(), core::ptr::from_ref);
    beyond.lost.store(lost.cast_mut(), Ordering::Release);
    let memory = core::ptr::from_ref(memory).cast_mut();
    beyond.memory.store(memory, Ordering::SeqCst);
    beyond.credited.store(0, Ordering::Relaxed);
    for (which, lane) in lanes.into_iter().enumerate() {
        let (control, ..) = lane.into_raw();
        if let Some(at) = arena.offset_of(control.addr()) {
            beyond.at[which].store(at, Ordering::SeqCst);
            beyond.own[which].store(control, Ordering::SeqCst);
        }
    }
}

/// The end has no lanes any more.
pub(crate) fn forget(end: &End) {
    let beyond = &end.local.behind.beyond;
    for own in &beyond.own {
        own.store(core::ptr::null_mut(), Ordering::SeqCst);
    }
    beyond.holds_credit.store(false, Ordering::Relaxed);
}

/// Whether the other host's memory has been found missing.
#[inline]
pub(crate) fn is_lost(end: &End) -> bool {
    let lost = end.local.behind.beyond.lost.load(Ordering::Relaxed);
    // SAFETY: `keep` has stored a reference that lives for ever; zeroed memory is null.
    unsafe { lost.as_ref() }.is_some_and(|lost| lost.load(Ordering::SeqCst) != 0)
}

/// Where a lane of the end's is in the other host's memory; `None` where both hosts have the same, and for lanes that the
/// end has left. Good for who holds no direction, too.
fn there(end: &End, lane: &WindowLane, which: usize) -> Option<There> {
    let beyond = &end.local.behind.beyond;
    let (control, ..) = lane.into_raw();
    let is_it = || core::ptr::eq(beyond.own[which].load(Ordering::SeqCst), control);
    if !is_it() {
        return None;
    }
    let memory = beyond.memory.load(Ordering::SeqCst);
    let at = beyond.at[which].load(Ordering::SeqCst);
    // SAFETY: `keep` has stored a reference that lives for ever; zeroed memory is null.
    let memory = unsafe { memory.as_ref() }.filter(|_| is_it())?;
    Some(There { memory, at })
}

fn sent_there(end: &End) -> Option<(WindowLane, There)> {
    let lane = end.tx_lane()?;
    there(end, &lane, SENT).map(|there| (lane, there))
}

fn received_there(end: &End) -> Option<(WindowLane, There)> {
    let lane = end.rx_lane()?;
    there(end, &lane, RECEIVED).map(|there| (lane, there))
}

/// Whether what this end writes into its lanes has to be posted.
pub(crate) fn is_posted(end: &End) -> bool {
    end.has_flags(end_flags::FAR) && sent_there(end).is_some()
}

// What a sender posts. The caller holds the sending direction.

/// Post the records from line `first` up to `tail`, and merge what the receiver has said meanwhile. False where both
/// hosts have the same memory.
pub(crate) fn post(end: &End, lane: &WindowLane, first: u64, tail: u64) -> bool {
    let Some(there) = there(end, lane, SENT) else {
        return false;
    };
    mirror::post_away(lane, &there, 0, first, tail);
    merge(lane, there);
    watcher::stir();
    true
}

/// Post the sum of what is on TCP.
pub(crate) fn tell_total(end: &End, lane: &WindowLane) {
    if let Some(there) = there(end, lane, SENT) {
        let total = lane.control().sender.tcp_total.load(Ordering::Relaxed);
        there.say(TCP_TOTAL, total);
    }
}

/// Before a STOP, behind which no doorbell may come: one for a receiver that may have fallen asleep over what it has yet to
/// read, and whose request is on its way.
pub(crate) fn ring_before_stop(end: &End, lane: &WindowLane) {
    let flags = lane.control().receiver.flags.load(Ordering::Relaxed);
    let may_sleep = there(end, lane, SENT).is_some() && flags & (CLOSED | FROZEN) == 0;
    // One that was owed before may be taken before what was sent since has come.
    if may_sleep && unconsumed::in_lane(end, lane) > 0 && bell::pay(end) {
        bell::probe_locked(end, lane);
    }
}

/// Post whether space is wanted. The receiver takes the wish away in its own memory.
pub(crate) fn tell_wish(end: &End, lane: &WindowLane) {
    if let Some(there) = there(end, lane, SENT) {
        say_wish(lane, there);
    }
}

fn say_wish(lane: &WindowLane, there: There) {
    let sender = &lane.control().sender;
    let wish = sender.space_wanted.load(Ordering::Relaxed);
    let answers = sender.replay_seq.load(Ordering::Relaxed);
    there.say(WISH, u64::from(answers) << 32 | u64::from(wish));
}

/// Post the answer to a freeze, whose number comes last. The direction leaves the lane, and wants no space there.
pub(crate) fn tell_answer(end: &End, lane: &WindowLane) {
    if let Some(there) = there(end, lane, SENT) {
        let sender = &lane.control().sender;
        sender.space_wanted.store(0, Ordering::Relaxed);
        there.store(REPLAY_END, sender.replay_end.load(Ordering::Relaxed));
        there.say(REPLAY_AT, sender.replay_at.load(Ordering::Relaxed));
        say_wish(lane, there);
    }
}

/// Post that all records of the answer are on TCP.
pub(crate) fn tell_replayed(end: &End, lane: &WindowLane) {
    if let Some(there) = there(end, lane, SENT) {
        let answers = lane.control().sender.replayed.load(Ordering::Relaxed);
        there.say(REPLAYED, u64::from(answers) << 32);
    }
}

/// Post how far the stream goes.
pub(crate) fn tell_end(end: &End, lane: &WindowLane) {
    if let Some(there) = there(end, lane, SENT) {
        there.say(ENDED, lane.control().sender.ended.load(Ordering::Relaxed));
    }
}

/// Whether we have said that our stream ends: the receiver waits for no answer to a freeze any more.
pub(crate) fn has_ended(end: &End, lane: &WindowLane) -> bool {
    there(end, lane, SENT).is_some() && ends(lane)
}

fn ends(lane: &WindowLane) -> bool {
    lane.control().sender.ended.load(Ordering::Acquire) != 0 // SYNC: ended
}

/// Take over what the receiver has said since. The echo comes behind all that was posted under the flags before.
fn merge(lane: &WindowLane, there: There) {
    let control = lane.control();
    let (number, told) = posted_flags::of(control.receiver.posted.load(Ordering::Acquire)); // SYNC: posted
    let echo = &control.sender.echo;
    let [a, b, c, d, ..] = echo.load(Ordering::Relaxed).to_le_bytes();
    if !posted_flags::is_later(number, u32::from_le_bytes([a, b, c, d])) {
        return;
    }
    let merged = |flags| {
        let own = match told & FROZEN {
            0 => ENTERED,
            _ => SENDERS,
        };
        Some(told & !SENDERS | flags & own)
    };
    let flags = &control.receiver.flags;
    let _ = flags.fetch_update(Ordering::SeqCst, Ordering::SeqCst, merged);
    echo.store(number.into(), Ordering::Relaxed);
    there.say(ECHO, number.into());
}

// What a receiver posts.

/// Post how far has been read. The caller holds the receiving direction, and has stored that.
#[cold]
pub(crate) fn tell_credit(end: &End) {
    if let Some((lane, there)) = received_there(end) {
        say_credit(end, &lane, there);
    }
}

fn say_credit(end: &End, lane: &WindowLane, there: There) {
    let beyond = &end.local.behind.beyond;
    let consumed = lane.consumed();
    beyond.holds_credit.store(false, Ordering::Relaxed);
    there.say(CONSUMED, consumed);
    beyond.credited.store(consumed, Ordering::Relaxed);
}

/// Something has been read. Credit is posted where nothing more stands in the lane, as the sender of one that is killed has to
/// know whether anything was unread, and for half a ring; else it is held, for the library's thread at the latest. As
/// [`tell_credit`].
#[cold]
pub(crate) fn note_read(end: &End) {
    let Some((lane, there)) = received_there(end) else {
        return;
    };
    let beyond = &end.local.behind.beyond;
    let cursor = end.rx_cursor();
    let credited = Place::near(beyond.credited.load(Ordering::Relaxed), cursor.head).line;
    let is_due = cursor.head.abs_diff(credited) >= u64::from(lane.lines() / 2);
    if is_due || !cursor.has_record(&lane) {
        say_credit(end, &lane, there);
    } else if !beyond.holds_credit.swap(true, Ordering::Relaxed) {
        watcher::stir();
    }
}

/// Post credit that is held. The caller holds the receiving direction.
pub(crate) fn tell_held_credit(end: &End) {
    if holds_credit(end) {
        tell_credit(end);
    }
}

fn holds_credit(end: &End) -> bool {
    let beyond = &end.local.behind.beyond;
    beyond.holds_credit.load(Ordering::Relaxed)
}

/// As [`tell_held_credit`], before the sender is rung that waits for room, and by the library's thread. The caller holds neither
/// direction.
pub(crate) fn settle_credit(end: &End) {
    if holds_credit(end)
        && let Some((_lane, _rx)) = end.hold_rx_lane()
    {
        tell_held_credit(end);
    }
}

/// Post how much has been taken from TCP. The caller holds the receiving direction.
pub(crate) fn tell_taken(end: &End, lane: &WindowLane) {
    if let Some(there) = there(end, lane, RECEIVED) {
        let taken = lane.control().credit.tcp_taken.load(Ordering::Relaxed);
        there.say(TCP_TAKEN, taken);
    }
}

/// Post that the START before this line has been found. The caller holds the receiving direction.
pub(crate) fn tell_found(end: &End, lane: &WindowLane, line: u64) {
    if let Some(there) = there(end, lane, RECEIVED) {
        there.say(FOUND, line);
        watcher::stir();
    }
}

/// Post our flags, or the same again as a new request. Takes no lock.
#[inline]
pub(crate) fn tell_flags(end: &End) {
    if end.has_flags(end_flags::FAR) {
        say_flags(end);
    }
}

#[cold]
fn say_flags(end: &End) {
    let Some((lane, there)) = received_there(end) else {
        return;
    };
    let line = &lane.control().receiver;
    let next = |word| Some(posted_flags::next(word, line.flags.load(Ordering::SeqCst)));
    let _ = line
        .posted
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    // Of several threads that post, none leaves an older word behind. Only a peer that scribbles here changes it on and on.
    for _ in 0..MOST_POSTS {
        let word = line.posted.load(Ordering::SeqCst);
        there.say(POSTED, word);
        full_fence();
        if line.posted.load(Ordering::SeqCst) == word {
            return;
        }
    }
}

/// Post that the receiver is about to sleep. A request that the sender has not merged yet stands for this one, too.
#[cold]
pub(crate) fn tell_request(end: &End, lane: &WindowLane) {
    tell_held_credit(end);
    let (_, told) = posted_flags::of(lane.control().receiver.posted.load(Ordering::SeqCst));
    if told & ARMED == 0 || is_echoed(lane) {
        say_flags(end);
    }
}

/// A doorbell has been taken, and with it perhaps a request that the other end has taken up without our knowing: the
/// next one is posted anew.
#[inline]
pub(crate) fn note_taken(end: &End) {
    if end.has_flags(end_flags::FAR) {
        forget_requests(end);
    }
}

#[cold]
fn forget_requests(end: &End) {
    say_flags(end);
    if let Some((lane, _)) = sent_there(end) {
        let wish = &lane.control().sender.space_wanted;
        wish.store(0, Ordering::SeqCst);
    }
}

/// Whether the sender has merged our flags as they are: what it did before stands in our memory, and what it does from
/// now on is by them. Always where it looks at them itself.
pub(crate) fn is_heard(end: &End, lane: &WindowLane) -> bool {
    if there(end, lane, RECEIVED).is_none() {
        return true;
    }
    let line = &lane.control().receiver;
    let (_, told) = posted_flags::of(line.posted.load(Ordering::SeqCst));
    if told != line.flags.load(Ordering::SeqCst) {
        tell_flags(end);
    }
    is_echoed(lane)
}

/// Whether nothing has ever come of the other end in these lanes, where that is posted: neither a word of ours has been
/// merged there, without which nobody enters, nor has it said anything as a receiver.
pub(crate) fn is_deserted(end: &End, lane: &WindowLane) -> bool {
    let has_spoken =
        |(lane, _): (WindowLane, There)| lane.control().receiver.posted.load(Ordering::SeqCst) != 0;
    there(end, lane, RECEIVED).is_some()
        && !sent_there(end).is_some_and(has_spoken)
        && lane.control().sender.echo.load(Ordering::Acquire) == 0
}

fn is_echoed(lane: &WindowLane) -> bool {
    let control = lane.control();
    let (number, _) = posted_flags::of(control.receiver.posted.load(Ordering::SeqCst));
    control.sender.echo.load(Ordering::Acquire) == u64::from(number)
}

/// Whether the sender has said that its stream ends, as far as that is posted.
pub(crate) fn is_over(end: &End, lane: &WindowLane) -> bool {
    there(end, lane, RECEIVED).is_some() && ends(lane)
}

/// Post where we wait.
pub(crate) fn tell_place(end: &End, lane: &WindowLane) {
    if let Some(there) = there(end, lane, RECEIVED) {
        let place = &lane.control().place;
        let cpu = place.receiver_cpu.load(Ordering::Relaxed);
        let many = place.waits_for_many.load(Ordering::Relaxed);
        there.say(PLACE, u64::from(many) << 32 | u64::from(cpu));
    }
}

/// Whether something has come by TCP before what tells of it: a doorbell of a record, or data behind a STOP. Nothing more
/// will tell of that, so who has been woken by it looks again after a moment.
pub(crate) fn is_early(end: &End) -> bool {
    end.has_flags(end_flags::FAR) && has_early_bytes(end)
}

#[cold]
fn has_early_bytes(end: &End) -> bool {
    let Some((lane, _)) = received_there(end).filter(|_| end.rx_mode() == Mode::Ring) else {
        return false;
    };
    let total = lane.control().sender.tcp_total.load(Ordering::Acquire) >> 1;
    let taken = end.entry.rx.tcp_bytes.load(Ordering::Relaxed);
    let queued = kernel::queued(end.fd(), libc::FIONREAD).unwrap_or(0);
    !end.has_record() && u64::from(queued) > total.saturating_sub(taken)
}

#[cfg(test)]
pub(crate) mod tests;
