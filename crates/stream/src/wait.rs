//! Spinning before sleeping (DESIGN 3.6).
//!
//! A spin ends early when the processor was taken away meanwhile: then others want to run, and
//! the peer may be one of them. Where it is known to run here, it gets the processor at once, and
//! comes back with it when its lane is full or it waits for us: one change of threads for a full lane or
//! an answer, and nobody is woken.

use core::cell::Cell;

use crosslane_sys::cpu;
use crosslane_sys::store_wait::StoreWait;

use crate::config::{self, Waiting};
use crate::place::{self, Peer};
use crate::worth::Worth;

/// How long `spin` spins before it sleeps after all, so that an idle program uses no processor.
const SPIN_US: u64 = 50_000;
/// How long a processor rests at a time. What is no store to the line waits for the end of that: the end of a
/// connection, other connections, the time.
const REST_US: u64 = 20;
/// To take turns on one processor is as good as to have one each, if a turn takes so long.
const TURN_US: u64 = 10;
/// How long a receive looks before it does anything else.
const BRIEF_US: u64 = 2;
/// A sender whose processor has been taken away in the middle of a message has it back after so long, or the
/// receiver goes on without.
const REST_OF_SEND_US: u64 = 5_000;
/// A gap between two looks at the clock that can only come from having been preempted.
const PREEMPTED_US: u64 = 30;
/// How often the processor is given to others in one wait.
const YIELDS: u32 = 2;
/// A peer that has the processor needs less than this to have something for us.
const LONG_YIELD_US: u64 = 500;
/// Others than the peer want the processor: nothing is given to them for so many times as long as
/// they had it, so that little is lost to them that a sleeper would have got back at once.
const YIELD_TRUCE: u64 = 64;
/// For how long spinning is given up after having been preempted.
const TRUCE_US: u64 = 500;

thread_local! {
    static RUNG: Cell<bool> = const { Cell::new(false) };
    /// The last spin was as long as it may be, and in vain.
    static TRIED: Cell<bool> = const { Cell::new(false) };
    static WORTH: Cell<Worth> = const { Cell::new(Worth::NEW) };
    static STARTED: Cell<u64> = const { Cell::new(0) };
    static TRUCE_UNTIL: Cell<u64> = const { Cell::new(0) };
    static SELFISH_UNTIL: Cell<u64> = const { Cell::new(0) };
}

/// Look until `ready`, for as long as the strategy allows. Returns whether it became ready.
pub fn look(peer: Peer, ready: impl FnMut() -> bool) -> bool {
    look_and_rest(peer, ready, |_, _| cpu::relax())
}

/// As [`look`], where one line tells: `rest` waits for a store to it, in a way and for so many ticks at most.
pub fn look_and_rest(
    peer: Peer,
    mut ready: impl FnMut() -> bool,
    rest: impl FnMut(StoreWait, u64),
) -> bool {
    let has_rung = RUNG.take();
    TRIED.set(false);
    match peer {
        Peer::Elsewhere if has_rung && give_way(1, &mut ready) => true,
        Peer::Elsewhere => ready() || spin_for(u64::MAX, ready, rest) && note_found(),
        Peer::Here => give_way(YIELDS, ready),
    }
}

/// Whether the next look gives the processor away first, which takes as long as others want it.
pub fn gives_way() -> bool {
    RUNG.get()
}

/// This thread has rung a doorbell: who wakes may do so on this processor.
pub(crate) fn note_rung() {
    RUNG.set(true);
}

/// A spin has found what it waited for.
fn note_found() -> bool {
    let took_us = cpu::ticks().saturating_sub(STARTED.get()) / cpu::ticks_per_us();
    WORTH.set(WORTH.get().after_found(took_us));
    true
}

/// Let the peer have the processor, without being woken by it: a doorbell would wake us for each
/// message, before it can put a second one into the ring.
#[cold]
fn give_way(yields: u32, mut ready: impl FnMut() -> bool) -> bool {
    if ready() {
        return true;
    }
    let (start, rate) = (cpu::ticks(), cpu::ticks_per_us());
    STARTED.set(start);
    if config::get().waiting == Waiting::Sleep || start < SELFISH_UNTIL.get() {
        return false;
    }
    let mut found = false;
    for _ in 0..yields {
        std::thread::yield_now();
        found = ready();
        if found {
            break;
        }
    }
    let now = cpu::ticks();
    let elapsed = now.saturating_sub(start);
    if elapsed > LONG_YIELD_US * rate || !found && elapsed > PREEMPTED_US * rate {
        SELFISH_UNTIL.set(now + YIELD_TRUCE * elapsed);
    }
    if found && elapsed > TURN_US * rate {
        place::stay();
    }
    found
}

/// Spin for a moment: what an answer of a peer that spins itself takes.
#[inline]
pub fn spin_briefly(ready: impl FnMut() -> bool) -> bool {
    let found = spin_for(BRIEF_US, ready, |_, _| cpu::relax());
    if found && WORTH.get().is_in_vain() {
        WORTH.set(WORTH.get().after_brief());
    }
    found
}

#[inline]
fn spin_for(
    most_us: u64,
    mut ready: impl FnMut() -> bool,
    mut rest: impl FnMut(StoreWait, u64),
) -> bool {
    if ready() {
        return true;
    }
    let strategy = config::get().waiting;
    let budget_us = match strategy {
        Waiting::Sleep => return false,
        Waiting::Spin | Waiting::Monitor(_) => SPIN_US.min(most_us),
        Waiting::Adaptive => WORTH.get().patience_us().min(most_us),
    };
    let rate = cpu::ticks_per_us();
    let start = cpu::ticks();
    STARTED.set(start);
    if strategy == Waiting::Adaptive && start < TRUCE_UNTIL.get() {
        return false;
    }
    TRIED.set(true);
    if budget_us == 0 {
        return false;
    }
    let (mut last, end) = (start, start + budget_us * rate);
    loop {
        for _ in 0..16 {
            if ready() {
                return true;
            }
            cpu::relax();
        }
        if let Waiting::Monitor(how) = strategy {
            rest(how, REST_US * rate);
        }
        let now = cpu::ticks();
        if strategy == Waiting::Adaptive && now.saturating_sub(last) > PREEMPTED_US * rate {
            TRUCE_UNTIL.set(now + TRUCE_US * rate);
            TRIED.set(false);
            return ready();
        }
        if now >= end {
            return false;
        }
        last = now;
    }
}

/// Ticks that a call has waited for the rest of what is being sent. All of it together is limited: a peer that says again
/// and again that more follows keeps no call that is not to wait.
#[derive(Debug, Default)]
pub struct WaitedForRest(u64);

/// Wait for what a peer writes that is in the middle of a send: microseconds, unless its processor is taken away.
#[cold]
pub fn wait_for_rest(
    peer: Peer,
    spent: &mut WaitedForRest,
    mut ready: impl FnMut() -> bool,
) -> bool {
    let (start, rate, before) = (cpu::ticks(), cpu::ticks_per_us(), spent.0);
    loop {
        let waited = cpu::ticks().saturating_sub(start);
        spent.0 = before + waited;
        let waited = waited / rate;
        for _ in 0..16 {
            if ready() {
                return true;
            }
            cpu::relax();
        }
        if spent.0 / rate > REST_OF_SEND_US {
            return false;
        }
        if peer == Peer::Here || waited > BRIEF_US {
            std::thread::yield_now();
        }
    }
}

/// A sleep is over, before which there may have been a spin.
pub fn woke() {
    if TRIED.take() {
        let some = cpu::ticks() >> 4;
        WORTH.set(WORTH.get().after_sleep(some));
    }
    crate::control::tend();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_call_waits_for_the_rest_of_a_send_is_limited_together() {
        let (mut waited, mut looks) = (WaitedForRest::default(), 0);
        assert!(!wait_for_rest(Peer::Elsewhere, &mut waited, || false));
        let in_vain = || {
            looks += 1;
            false
        };
        assert!(!wait_for_rest(Peer::Elsewhere, &mut waited, in_vain));
        assert_eq!(looks, 16, "one look more, as what has come is taken");
        assert!(wait_for_rest(Peer::Elsewhere, &mut waited, || true));
    }
}
