//! On which processors the two ends wait.
//!
//! The kernel likes to wake a thread on the processor of its waker, so that two programs that have
//! talked over a socket often share one. There, spinning keeps the peer from running. Each receiver
//! says on which processor it waits, and each who rings; if that is the peer's, none of the two spins.
//! They take turns instead ([`crate::wait`]), without being woken, and one of the two moves away unless
//! turns are as good as that. Ends on two hosts may still have one kernel, as containers do: what they say
//! names it, too, so that equal numbers of other machines' processors mean nothing.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};

use crosslane_ctl::slab::end_flags;
use crosslane_ring::WindowLane;
use crosslane_sys::{cpu, process};

use crate::{End, posted};

/// A move takes some microseconds; the kernel's balancing may undo it.
const LEAST_PAUSE_US: u64 = 2_000;
const MOST_PAUSE_US: u64 = 1_000_000;
/// While all processors are busy, the next look at that is so late. Of those who want to run, the two ends are two, and
/// share one.
const BUSY_PAUSE_US: u64 = 20_000;
/// A move that has lasted so long has worked.
const LASTED_US: u64 = 50_000;

thread_local! {
    static NEXT_MOVE: Cell<u64> = const { Cell::new(0) };
    static LAST_MOVE: Cell<u64> = const { Cell::new(0) };
    static PAUSE_US: Cell<u64> = const { Cell::new(LEAST_PAUSE_US) };
}

/// Where the other end runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// On another processor, or it is not known where.
    Elsewhere,
    /// On this one: it can only go on when we do not.
    Here,
}

/// Whether spinning for `end` makes sense where we are. Moves nobody: that takes long, and the caller holds no signals
/// back, which would end a call of the kernel.
#[inline]
pub fn is_worth_spinning(end: &End) -> bool {
    shared_with_peer(end, 1).is_none()
}

/// Where the peers of `ends` run, if any of them is elsewhere. `before_move` is called first if one of them may have to
/// move away, or they are to take turns.
pub fn peers(ends: impl Iterator<Item = End> + Clone, before_move: impl FnOnce()) -> Peer {
    let count = ends.clone().count();
    let mut shared = ends.clone().map(|end| shared_with_peer(&end, count));
    if shared.any(|shared| shared.is_none()) {
        return Peer::Elsewhere;
    }
    before_move();
    match ends
        .map(|end| peer_of_many(&end, count))
        .any(|peer| peer == Peer::Elsewhere)
    {
        true => Peer::Elsewhere,
        false => Peer::Here,
    }
}

/// Say where we wait for `end`, and tell where its peer is.
pub fn peer(end: &End) -> Peer {
    peer_of_many(end, 1)
}

/// As [`peers`], where `end` stands for the `count` ends that are waited for.
pub fn peer_for_many(end: &End, count: usize, before_move: impl FnOnce()) -> Peer {
    if shared_with_peer(end, count).is_none() {
        return Peer::Elsewhere;
    }
    before_move();
    peer_of_many(end, count)
}

/// As [`peer`], where `count` ends are waited for.
fn peer_of_many(end: &End, count: usize) -> Peer {
    let Some(shared) = shared_with_peer(end, count) else {
        return Peer::Elsewhere;
    };
    let is_pair = count == 1 && !shared.waits_for_many;
    // Of the two, the end with role 0 moves.
    if end.entry.id.role.load(Ordering::Relaxed) != 0
        || !may_move(is_pair)
        || !cpu::leave(shared.processor)
    {
        return Peer::Here;
    }
    tell(end);
    Peer::Elsewhere
}

/// The processor on which both ends wait.
struct Shared {
    processor: u32,
    /// The peer waits for others, too.
    waits_for_many: bool,
}

/// Say where we wait for `end`, one of `count`. None if its peer is elsewhere.
fn shared_with_peer(end: &End, count: usize) -> Option<Shared> {
    let (rx, tx) = (end.rx_lane()?, end.tx_lane()?);
    let processor = cpu::current()?;
    let word = word(end, processor)?;
    say(end, &rx, word);
    say_count(end, &rx, count > 1);
    let place = &tx.control().place;
    (place.receiver_cpu.load(Ordering::Relaxed) == word).then(|| Shared {
        processor,
        waits_for_many: place.waits_for_many.load(Ordering::Relaxed) != 0,
    })
}

/// Say where we are to a peer that is about to wake on our processor, without having waited.
pub(crate) fn tell(end: &End) {
    let word = cpu::current().and_then(|here| word(end, here));
    if let (Some(rx), Some(word)) = (end.rx_lane(), word) {
        say(end, &rx, word);
    }
}

fn say(end: &End, rx: &WindowLane, word: u32) {
    if set(&rx.control().place.receiver_cpu, word) {
        posted::tell_place(end, rx);
    }
}

fn say_count(end: &End, rx: &WindowLane, is_many: bool) {
    if set(&rx.control().place.waits_for_many, u32::from(is_many)) {
        posted::tell_place(end, rx);
    }
}

/// Say that we wait for others, too, when we wait for `end`.
pub fn say_many(end: &End) {
    if let Some(rx) = end.rx_lane() {
        say_count(end, &rx, true);
    }
}

/// Store what has changed, so that the peer's copy of the line stays good. Returns whether it has.
fn set(cell: &AtomicU32, value: u32) -> bool {
    let is_new = cell.load(Ordering::Relaxed) != value;
    if is_new {
        cell.store(value, Ordering::Relaxed);
    }
    is_new
}

/// What this end says when it is on processor `here`. None: nothing that its peer could compare.
fn word(end: &End, here: u32) -> Option<u32> {
    match end.entry.id.flags.load(Ordering::Relaxed) & end_flags::FAR {
        0 => Some(here + 1),
        _ => far_word(process::boot(), here),
    }
}

/// The same between hosts: some bits of what only this boot of this kernel has.
fn far_word(boot: u64, here: u32) -> Option<u32> {
    let kernel = u32::try_from(boot >> 48).ok()?;
    (kernel != 0 && here < 0xffff).then_some(kernel << 16 | (here + 1))
}

/// To share a processor with the peer has just been good enough: it needs longer for an answer than a
/// spin elsewhere would have waited.
pub(crate) fn stay() {
    let until = cpu::ticks() + LEAST_PAUSE_US * cpu::ticks_per_us();
    NEXT_MOVE.set(NEXT_MOVE.get().max(until));
}

/// Whether it is time for a move; moves that do not last become rarer. While all processors are busy, two that talk to
/// each other alone stay together: an answer needs the other one's processor anyway.
fn may_move(is_pair: bool) -> bool {
    let (now, rate) = (cpu::ticks(), cpu::ticks_per_us());
    if now < NEXT_MOVE.get() {
        return false;
    }
    if is_pair && cpu::load().is_some_and(|(running, processors)| running > processors) {
        NEXT_MOVE.set(now + BUSY_PAUSE_US * rate);
        return false;
    }
    let lasted = now.saturating_sub(LAST_MOVE.get()) > LASTED_US * rate;
    let pause_us = if lasted {
        LEAST_PAUSE_US
    } else {
        (PAUSE_US.get() * 2).min(MOST_PAUSE_US)
    };
    PAUSE_US.set(pause_us);
    LAST_MOVE.set(now);
    NEXT_MOVE.set(now + pause_us * rate);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: u64 = 0x9f3c_0000_0000_0001;

    #[test]
    fn hosts_of_one_kernel_compare_their_processors() {
        assert_eq!(far_word(BOOT, 3), far_word(BOOT, 3));
        assert_ne!(far_word(BOOT, 3), far_word(BOOT, 4));
        let this = process::boot();
        assert!(this == process::boot() && far_word(this, 0).is_some_and(|word| word > 0xffff));
    }

    #[test]
    fn equal_numbers_on_other_machines_mean_nothing() {
        assert_ne!(far_word(BOOT, 3), far_word(!BOOT, 3));
        // A kernel that does not tell is like no other.
        assert_eq!(far_word(0, 3), None);
        assert_eq!(far_word(BOOT, 0xffff), None);
    }
}
