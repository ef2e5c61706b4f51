//! When a connection asks for rings.
//!
//! Rings cost about as much as half a dozen round trips by TCP save, so a connection that ends within them is dearer than
//! one without. How long it will be nobody knows when it begins: it asks when it has moved something in a few calls, or
//! much. Where those before it have hardly used their rings, it waits for twice as long as rings take to pay; one that uses
//! them ends that habit. So it does, but for one in some, where brief ones before it have met nobody, and one that meets its
//! peer ends that.

use core::sync::atomic::{AtomicU32, Ordering};

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndPhase, end_flags};

use crate::End;

/// Calls that move data before a connection is registered. A request and its answer with the
/// end of the stream are fewer.
pub(crate) const CALLS_BEFORE_REGISTERING: u32 = 6;
/// As many where connections are usually brief.
const CALLS_OF_A_LONG_ONE: u32 = 24;
/// Bytes after which a connection is registered however few calls moved them.
const BYTES_BEFORE_REGISTERING: u64 = 256 * 1024;
/// Bytes after which a connection is registered when it begins another exchange: as many as a TLS handshake moves, which
/// costs several times what asking for rings does (60 us where they come too late, as much as an exchange of 64 bytes).
const BYTES_OF_A_CONVERSATION: u64 = 1024;
/// Lines through the rings, both ways, that have saved what asking for rings costs: seven round trips of small messages.
const LINES_THAT_PAY: u64 = 16;
/// Connections in a row that have hardly used their rings, before the next ones wait for longer.
const BRIEF_ONES: u32 = 8;
/// While nobody is met one in so many is tried as usual, as its peer may be.
const ONE_IN_SO_MANY: u32 = 16;

/// Whether an end asks for rings that has moved data in so many calls, and perhaps goes on with a conversation.
pub(crate) fn is_due(end: &End, calls: u32, goes_on: bool) -> bool {
    let habit = end.process().habit();
    goes_on && !habit.is_brief()
        || is_worth(end, calls, habit.calls_before_registering())
        || end.has_flags(end_flags::EAGER)
}

/// Who has sent, was answered, and sends again goes on with a conversation. True once: few bytes may still be all of a
/// short one.
pub(crate) fn goes_on(end: &End) -> bool {
    let sent = end.entry.tx.tcp_data.load(Ordering::Relaxed);
    let received = end.entry.rx.tcp_data.load(Ordering::Relaxed);
    let heard = end.local.heard.load(Ordering::Relaxed);
    let goes_on = is_conversation([sent, received], heard);
    let seen = if goes_on {
        u64::MAX
    } else {
        received.max(heard)
    };
    end.local.heard.store(seen, Ordering::Relaxed);
    goes_on
}

/// Whether so many calls, of which `least` are enough, and the bytes that they have moved are worth a ring.
fn is_worth(end: &End, calls: u32, least: u32) -> bool {
    calls >= least || bytes_on_tcp(end) >= BYTES_BEFORE_REGISTERING
}

/// Whether a young connection has come as far as one that asks for rings, with so many calls that move data, and so many bytes.
pub(crate) fn lasts(habit: &Habit, calls: u32, bytes: u64) -> bool {
    calls >= CALLS_BEFORE_REGISTERING && calls >= habit.calls_before_registering()
        || bytes >= BYTES_BEFORE_REGISTERING
}

/// As [`goes_on`], of a young connection that sends.
pub(crate) fn converses(habit: &Habit, [sent, received]: [u64; 2], heard: u64) -> bool {
    is_conversation([sent, received], heard) && !habit.is_brief()
}

/// Whether who has sent and received so much, and had `heard` so much when it sent last, goes on with more than a short one.
fn is_conversation([sent, received]: [u64; 2], heard: u64) -> bool {
    sent > 0 && received > heard && sent + received >= BYTES_OF_A_CONVERSATION
}

fn bytes_on_tcp(end: &End) -> u64 {
    let (tx, rx) = (&end.entry.tx, &end.entry.rx);
    tx.tcp_data.load(Ordering::Relaxed) + rx.tcp_data.load(Ordering::Relaxed)
}

/// The end is let go. Whether its rings were worth asking for is remembered; one that had to ask, or was to have some and
/// found no room, tells nothing.
pub(crate) fn judge_use(end: &End) {
    if end.has_flags(end_flags::EAGER) || end.reason() == Reason::WindowFull {
        return;
    }
    let habit = end.process().habit();
    let has_asked = end.has_flags(end_flags::KNOWN);
    if has_asked && end.reason() != Reason::NoPeer {
        let sent = end.entry.tx.tail.load(Ordering::Relaxed);
        let received = end.entry.rx.head.load(Ordering::Relaxed);
        habit.note(sent.saturating_add(received));
    } else if bytes_on_tcp(end) / (LINE_BYTES as u64) < LINES_THAT_PAY {
        habit.note_alone(has_asked);
    }
}

/// The end is let go. Whether it was over before it could ask for rings is remembered; one that was handed to a child tells nothing.
pub(crate) fn judge_age(end: &End) {
    let is_other = end_flags::EAGER | end_flags::KNOWN | end_flags::FORKED | end_flags::UNIX;
    let is_plain = end.phase() == EndPhase::Plain && end.reason() == Reason::TooYoung;
    if is_plain && !end.has_flags(is_other) {
        end.process().habit().note_young();
    }
}

/// A young connection is let go.
pub(crate) fn judge_young(habit: &Habit, bytes: u64) {
    if bytes / (LINE_BYTES as u64) < LINES_THAT_PAY {
        habit.note_alone(false);
    }
}

/// The end is let go. One that was registered at once, and is closed within the calls that others
/// have before they are registered, has not missed its peer: it was over too soon for any.
pub(crate) fn judge_unmet(end: &End) {
    let calls = end.entry.id.calls.load(Ordering::Relaxed) + 1;
    let is_young = || !is_worth(end, calls, CALLS_BEFORE_REGISTERING);
    if end.has_flags(end_flags::EAGER) && end.reason() == Reason::NoPeer && is_young() {
        end.set_reason(Reason::TooYoung);
    }
}

/// What a process remembers.
#[derive(Debug, Default)]
pub(crate) struct Habit {
    /// Connections in a row that asked for rings and hardly used any.
    brief: AtomicU32,
    /// Brief connections that met nobody, since one did: their peers are without Crosslane, or on another host, from which rings
    /// come too late. From [`BRIEF_ONES`] on also those that have not asked.
    alone: AtomicU32,
    /// Connections in a row that were over before they could ask for rings.
    young: AtomicU32,
}

impl Habit {
    /// Whether connections have lately been too short for rings. Where nobody was met, one in some is tried all the same.
    pub fn is_brief(&self) -> bool {
        let alone = self.alone.load(Ordering::Relaxed);
        let is_tried = alone.is_multiple_of(ONE_IN_SO_MANY);
        self.brief.load(Ordering::Relaxed) >= BRIEF_ONES || alone >= BRIEF_ONES && !is_tried
    }

    /// Whether connections have lately been over before they could ask for rings.
    pub fn is_young(&self) -> bool {
        self.young.load(Ordering::Relaxed) >= BRIEF_ONES
    }

    /// One was.
    pub fn note_young(&self) {
        if !self.is_young() {
            self.young.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One asks for rings.
    pub fn note_lasting(&self) {
        self.young.store(0, Ordering::Relaxed);
    }

    /// Calls that move data before a connection is registered.
    pub fn calls_before_registering(&self) -> u32 {
        match self.is_brief() {
            true => CALLS_OF_A_LONG_ONE,
            false => CALLS_BEFORE_REGISTERING,
        }
    }

    /// A brief connection is over that has met nobody, or has not asked for rings.
    pub fn note_alone(&self, has_asked: bool) {
        if has_asked || self.alone.load(Ordering::Relaxed) >= BRIEF_ONES {
            self.alone.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A connection is over that had asked for rings, and met its peer; so many lines went through them.
    pub fn note(&self, lines: u64) {
        self.alone.store(0, Ordering::Relaxed);
        match lines >= LINES_THAT_PAY {
            true => self.brief.store(0, Ordering::Relaxed),
            false if self.brief.load(Ordering::Relaxed) >= BRIEF_ONES => {}
            false => {
                self.brief.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_brief_connections_make_the_next_one_wait_and_a_long_one_ends_that() {
        let habit = Habit::default();
        for _ in 0..BRIEF_ONES {
            assert_eq!(habit.calls_before_registering(), CALLS_BEFORE_REGISTERING);
            habit.note(LINES_THAT_PAY - 1);
        }
        assert_eq!(habit.calls_before_registering(), CALLS_OF_A_LONG_ONE);
        habit.note(0);
        assert!(habit.is_brief());
        habit.note(LINES_THAT_PAY);
        assert_eq!(habit.calls_before_registering(), CALLS_BEFORE_REGISTERING);
    }

    #[test]
    fn brief_connections_that_meet_nobody_wait_but_for_one_in_some_and_a_met_one_ends_that() {
        let habit = Habit::default();
        for _ in 0..100 {
            habit.note_alone(false);
        }
        assert!(!habit.is_brief(), "who does not ask tells nothing");
        for _ in 0..BRIEF_ONES {
            assert!(!habit.is_brief());
            habit.note_alone(true);
        }
        let mut tried = 0;
        for _ in 0..10 * ONE_IN_SO_MANY {
            tried += u32::from(!habit.is_brief());
            habit.note_alone(!habit.is_brief());
        }
        assert_eq!(tried, 10);
        habit.note(0);
        assert!(!habit.is_brief());
    }

    #[test]
    fn brief_connections_among_long_ones_are_no_habit() {
        let habit = Habit::default();
        for _ in 0..5 {
            for _ in 1..BRIEF_ONES {
                habit.note(2);
            }
            habit.note(1000);
        }
        assert!(!habit.is_brief());
    }
}
