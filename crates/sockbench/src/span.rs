//! A clock that is cheap enough to read twice per round trip, and how long to use it.

use std::time::Duration;

use crate::ticks::Ticks;

/// How long a case warms up and how long it then counts.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Traffic in this time is sent and checked but not counted.
    pub warmup: Duration,
    /// The time that counts.
    pub measure: Duration,
}

/// Time since a case began.
///
/// Reads the time-stamp counter where the system vouches for it, which takes 10 ns instead of the
/// 24 ns of `clock_gettime` on the machine that this was written on.
pub struct Stopwatch {
    clock: Ticks,
    start: u64,
    warmup_ns: u64,
    end_ns: u64,
}

impl Stopwatch {
    /// Starts.
    #[must_use]
    pub fn start(span: Span) -> Self {
        let clock = Ticks::new();
        let start = clock.raw();
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let warmup_ns = nanos(span.warmup);
        Self {
            start,
            warmup_ns,
            end_ns: warmup_ns.saturating_add(nanos(span.measure)),
            clock,
        }
    }

    /// This moment, for [`Self::between_ns`].
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        self.clock.raw()
    }

    /// The time from the start to a moment.
    #[inline]
    #[must_use]
    pub fn since_start_ns(&self, moment: u64) -> u64 {
        self.between_ns(self.start, moment)
    }

    /// The time from one moment to a later one.
    #[inline]
    #[must_use]
    pub fn between_ns(&self, from: u64, to: u64) -> u64 {
        self.clock.between_ns(from, to)
    }

    /// Whether `moment` counts, being after the warm-up.
    #[inline]
    #[must_use]
    pub fn is_warm(&self, moment: u64) -> bool {
        self.between_ns(self.start, moment) >= self.warmup_ns
    }

    /// Whether time was up at `moment`.
    #[inline]
    #[must_use]
    pub fn is_over(&self, moment: u64) -> bool {
        self.between_ns(self.start, moment) >= self.end_ns
    }
}
