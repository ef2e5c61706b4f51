//! Spinning before sleeping (DESIGN 3.6).
//!
//! A spin ends early when the processor was taken away meanwhile: then others want to run, and
//! the peer may be one of them.

use core::cell::Cell;

use crosslane_sys::cpu;

use crate::config::{self, Waiting};

/// Most that an adaptive spin may take.
const ADAPTIVE_US: u64 = 20;
/// Least that an adaptive spin is tried for, so that success can be seen again.
const LEAST_US: u64 = 2;
/// How long `spin` spins before it sleeps after all, so that an idle program uses no processor.
const SPIN_US: u64 = 50_000;
/// How long a receive looks before it does anything else.
const BRIEF_US: u64 = 2;
/// A gap between two looks at the clock that can only come from having been preempted.
const PREEMPTED_US: u64 = 30;
/// For how long spinning is given up after having been preempted.
const TRUCE_US: u64 = 500;

/// A wait that ends so soon after it began would have been shorter with spinning: a doorbell
/// takes about this long by itself.
const WORTH_SPINNING_US: u64 = 100;

thread_local! {
    static STARTED: Cell<u64> = const { Cell::new(0) };
    static BUDGET_US: Cell<u64> = const { Cell::new(ADAPTIVE_US) };
    static TRUCE_UNTIL: Cell<u64> = const { Cell::new(0) };
}

/// Spin until `ready`, for as long as the strategy allows. Returns whether it became ready.
pub fn spin(ready: impl FnMut() -> bool) -> bool {
    spin_for(u64::MAX, ready)
}

/// Spin for a moment: what an answer of a peer that spins itself takes.
#[inline]
pub fn spin_briefly(ready: impl FnMut() -> bool) -> bool {
    spin_for(BRIEF_US, ready)
}

#[inline]
fn spin_for(most_us: u64, mut ready: impl FnMut() -> bool) -> bool {
    if ready() {
        return true;
    }
    let strategy = config::get().waiting;
    let budget_us = match strategy {
        Waiting::Sleep => return false,
        Waiting::Spin => SPIN_US.min(most_us),
        Waiting::Adaptive => BUDGET_US.get().min(most_us),
    };
    let rate = cpu::ticks_per_us();
    let start = cpu::ticks();
    STARTED.set(start);
    if strategy == Waiting::Adaptive && start < TRUCE_UNTIL.get() {
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
        let now = cpu::ticks();
        if strategy == Waiting::Adaptive && now - last > PREEMPTED_US * rate {
            TRUCE_UNTIL.set(now + TRUCE_US * rate);
            return ready();
        }
        if now >= end {
            return false;
        }
        last = now;
    }
}

/// The sleep after a spin in vain is over. What it waited for decides how long the next spin may
/// take: long if news come soon after all, short on a connection that is idle most of the time.
pub fn woke() {
    let waited = cpu::ticks().saturating_sub(STARTED.get());
    let soon = waited < WORTH_SPINNING_US * cpu::ticks_per_us();
    BUDGET_US.set(if soon {
        ADAPTIVE_US
    } else {
        (BUDGET_US.get() / 2).max(LEAST_US)
    });
    crate::control::tend();
}
