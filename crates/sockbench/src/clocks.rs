//! Whether the time-stamp counters of two CPUs agree, so that a moment on the one can be compared with
//! a moment on the other.
//!
//! One CPU reads its counter, asks the other for its own, and reads again: the other's value lies
//! between the two, the more exactly the sooner the answer came.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::limit::{LimitError, STOP, between_two_cpus};
use crate::outcome::Clocks;
use crate::ticks::Ticks;

/// The shortest round trip of so long a time is undisturbed.
const LONG_ENOUGH: Duration = Duration::from_millis(100);
const LOOKS: u32 = 100_000;

/// Compares the two CPUs that [`crate::cpus::two_cpus`] names.
///
/// # Errors
/// [`LimitError`].
pub fn compare() -> Result<Clocks, LimitError> {
    let clock = Ticks::new();
    let answerer = clock.clone();
    between_two_cpus(
        move |ping, pong| answer(&answerer, ping, pong),
        |ping, pong| Ok(ask(&clock, ping, pong)),
    )
}

fn ask(clock: &Ticks, ping: &AtomicU64, pong: &AtomicU64) -> Clocks {
    let (mut shortest, mut ahead) = (u64::MAX, 0.0);
    let mut seen = 0;
    let start = Instant::now();
    let mut number = 0;
    while start.elapsed() < LONG_ENOUGH {
        number += 1;
        let asked = clock.raw();
        ping.store(number, Ordering::Release); // SYNC: ping
        let there = loop {
            let word = pong.load(Ordering::Acquire); // SYNC: pong
            if word != seen {
                break word;
            }
        };
        let back = clock.raw();
        seen = there;
        if back - asked < shortest {
            shortest = back - asked;
            // Differences, which are small, so that nothing of a large counter is lost.
            ahead = signed(there, asked) - exact(shortest) / 2.0;
        }
    }
    let ticks_per_us = ticks_per_us(clock);
    Clocks {
        offset_ns: ahead / ticks_per_us * 1e3,
        within_ns: exact(shortest) / 2.0 / ticks_per_us * 1e3,
        look_ns: look(clock) / ticks_per_us * 1e3,
        ticks_per_us,
    }
}

fn answer(clock: &Ticks, ping: &AtomicU64, pong: &AtomicU64) {
    let mut last = 0;
    loop {
        let now = ping.load(Ordering::Acquire); // SYNC: ping
        if now == STOP {
            return;
        }
        if now != last {
            last = now;
            pong.store(clock.raw(), Ordering::Release); // SYNC: pong
        }
    }
}

/// Ticks that one look takes when one follows the other.
fn look(clock: &Ticks) -> f64 {
    let start = clock.raw();
    let mut end = start;
    for _ in 0..LOOKS {
        end = clock.raw();
    }
    exact(end - start) / f64::from(LOOKS)
}

fn ticks_per_us(clock: &Ticks) -> f64 {
    const TICKS: u64 = 1 << 40;
    exact(TICKS) * 1e3 / exact(clock.between_ns(0, TICKS))
}

/// By how much `later` is later.
fn signed(later: u64, earlier: u64) -> f64 {
    if later >= earlier {
        exact(later - earlier)
    } else {
        -exact(earlier - later)
    }
}

#[expect(clippy::cast_precision_loss, reason = "differences far below 2^53")]
fn exact(ticks: u64) -> f64 {
    ticks as f64
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::cpus::PlaceError;

    #[test]
    fn two_counters_of_one_machine_are_compared() {
        match compare() {
            Ok(clocks) => {
                assert!(clocks.within_ns > 0.0 && clocks.look_ns > 0.0, "{clocks:?}");
                assert!(clocks.ticks_per_us > 1.0, "{clocks:?}");
            }
            Err(LimitError::Place(PlaceError::TooFew(count))) => {
                let _ = writeln!(std::io::stderr(), "SKIPPED: only {count} CPU here");
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn an_earlier_counter_is_behind() {
        assert_eq!(signed(5, 7), -2.0);
        assert_eq!(signed(7, 5), 2.0);
    }
}
