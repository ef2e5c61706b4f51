//! On which processors the two ends wait.
//!
//! The kernel likes to wake a thread on the processor of its waker, so that two programs that have
//! talked over TCP often share one. There, spinning keeps the peer from running. Each receiver
//! says on which processor it waits; if that is the peer's, one of the two moves away, and until
//! that has worked neither spins.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use crosslane_ctl::slab::end_flags;
use crosslane_sys::cpu;

use crate::End;

/// A move takes some microseconds; the kernel's balancing may undo it.
const LEAST_PAUSE_US: u64 = 2_000;
const MOST_PAUSE_US: u64 = 1_000_000;
/// A move that has lasted so long has worked.
const LASTED_US: u64 = 50_000;

thread_local! {
    static NEXT_MOVE: Cell<u64> = const { Cell::new(0) };
    static LAST_MOVE: Cell<u64> = const { Cell::new(0) };
    static PAUSE_US: Cell<u64> = const { Cell::new(LEAST_PAUSE_US) };
}

/// Say where we wait for `end`, and tell whether spinning makes sense there.
pub fn is_worth_spinning(end: &End) -> bool {
    // Another host's processors are others, whatever their numbers.
    if end.entry.id.flags.load(Ordering::Relaxed) & end_flags::FAR != 0 {
        return true;
    }
    let (Some(rx), Some(tx)) = (end.rx_lane(), end.tx_lane()) else {
        return true;
    };
    let Some(here) = cpu::current() else {
        return true;
    };
    let own = &rx.control().place.receiver_cpu;
    if own.load(Ordering::Relaxed) != here + 1 {
        own.store(here + 1, Ordering::Relaxed);
    }
    if tx.control().place.receiver_cpu.load(Ordering::Relaxed) != here + 1 {
        return true;
    }
    // Of the two, the end with role 0 moves.
    if end.entry.id.role.load(Ordering::Relaxed) != 0 || !may_move() || !cpu::leave(here) {
        return false;
    }
    if let Some(here) = cpu::current() {
        own.store(here + 1, Ordering::Relaxed);
    }
    true
}

/// Whether it is time for a move; moves that do not last become rarer.
fn may_move() -> bool {
    let (now, rate) = (cpu::ticks(), cpu::ticks_per_us());
    if now < NEXT_MOVE.get() {
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
