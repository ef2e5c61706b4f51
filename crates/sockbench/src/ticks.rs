//! The processor's counter as a clock.
//!
//! `quanta` reads the counter where the system vouches for it. The first clock of a process is compared with the
//! system's for up to 200 ms where others have the processor, too, so programs make one before they do anything
//! else. How long a tick takes is measured here, because that comparison takes a loss of the processor between
//! two readings for time.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use quanta::Clock;

/// What the length of a tick is measured over. Readings are within some 50 ns of each other: to 5 in a million.
const SPAN: Duration = Duration::from_millis(10);

/// One reading in so many is undisturbed.
const TRIES: usize = 32;

/// Bits behind the point of a tick's length.
const FRACTION: u32 = 32;

/// The counter, and how long a tick takes.
#[derive(Clone, Debug)]
pub struct Ticks {
    clock: Clock,
    ns_per_tick: u128,
}

impl Ticks {
    /// The counter. The first one of a process takes 10 to 200 ms: see [`prepare`].
    #[must_use]
    pub fn new() -> Self {
        static LENGTH: OnceLock<u128> = OnceLock::new();
        let clock = Clock::new();
        let ns_per_tick = *LENGTH.get_or_init(|| length(&clock, SPAN));
        Self { clock, ns_per_tick }
    }

    /// This moment.
    #[inline]
    #[must_use]
    pub fn raw(&self) -> u64 {
        self.clock.raw()
    }

    /// The time from one moment to a later one.
    #[inline]
    #[must_use]
    pub fn between_ns(&self, from: u64, to: u64) -> u64 {
        let ticks = u128::from(to.saturating_sub(from));
        u64::try_from((ticks * self.ns_per_tick) >> FRACTION).unwrap_or(u64::MAX)
    }
}

/// Have the length of a tick before anything is measured.
pub fn prepare() {
    let _ = Ticks::new();
}

impl Default for Ticks {
    fn default() -> Self {
        Self::new()
    }
}

/// Nanoseconds of a tick, in units of 2^-[`FRACTION`].
fn length(clock: &Clock, span: Duration) -> u128 {
    let (first, from) = moment(clock);
    while first.elapsed() < span {
        std::hint::spin_loop();
    }
    let (last, to) = moment(clock);
    let ticks = u128::from(to.saturating_sub(from)).max(1);
    ((last - first).as_nanos() << FRACTION) / ticks
}

/// The same moment by the system's clock and by the counter.
fn moment(clock: &Clock) -> (Instant, u64) {
    let pair = || Pair {
        before: clock.raw(),
        now: Instant::now(),
        after: clock.raw(),
    };
    closest(std::array::from_fn(|_| pair()))
}

/// A look at the system's clock, and those at the counter on either side of it.
#[derive(Clone, Copy)]
struct Pair {
    before: u64,
    now: Instant,
    after: u64,
}

/// The moment of the pair in which the least has passed: nobody else had the processor there.
fn closest(pairs: [Pair; TRIES]) -> (Instant, u64) {
    let passed = |pair: &Pair| pair.after.saturating_sub(pair.before);
    let best = pairs.iter().min_by_key(|pair| passed(pair));
    let best = best.copied().unwrap_or(pairs[0]);
    (best.now, best.before + passed(&best) / 2)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_look_between_which_others_had_the_processor_is_not_taken() {
        let (start, lost) = (Instant::now(), 10_000_000);
        let pair = |at: usize| {
            let before = 1000 * at as u64;
            let after = before + if at == 20 { 30 } else { lost };
            let now = start + Duration::from_nanos(before);
            Pair { before, now, after }
        };
        let (now, ticks) = closest(std::array::from_fn(pair));
        assert_eq!((now - start, ticks), (Duration::from_nanos(20_000), 20_015));
    }

    /// More threads than processors, so that the measurement loses its own again and again.
    #[test]
    fn a_tick_is_as_long_where_others_take_the_processor_away() {
        let (clock, over) = (Clock::new(), AtomicBool::new(false));
        let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let lengths: Vec<_> = (0..20).map(|_| length(&clock, SPAN)).collect();
            over.store(true, Ordering::Relaxed);
            let (least, most) = (lengths.iter().min(), lengths.iter().max());
            let (least, most) = (*least.expect("some"), *most.expect("some"));
            assert!(most - least <= least / 1000, "{least} to {most}");
        });
    }
}
