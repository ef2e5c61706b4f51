//! When requests arrive: a Poisson process, the same one for the same seed.

/// The moments at which requests are due, in nanoseconds from the start; without end.
#[derive(Clone, Debug)]
pub struct Arrivals {
    random: fastrand::Rng,
    mean_gap_ns: f64,
    at_ns: f64,
}

impl Arrivals {
    /// Arrivals at `per_second` on average, which must be positive.
    #[must_use]
    pub fn new(per_second: f64, seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            mean_gap_ns: 1e9 / per_second,
            at_ns: 0.0,
        }
    }
}

impl Iterator for Arrivals {
    type Item = u64;

    /// The next moment: gaps are independent and exponentially distributed.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "sums of positive gaps; a bench is over long before 2^53 ns"
    )]
    fn next(&mut self) -> Option<u64> {
        // In (0, 1], so that the logarithm is finite.
        let share = 1.0 - self.random.f64();
        self.at_ns -= share.ln() * self.mean_gap_ns;
        Some(self.at_ns as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_arrivals_and_another_one_others() {
        let first = |seed| Arrivals::new(1e5, seed).take(100).collect::<Vec<_>>();
        assert_eq!(first(7), first(7));
        assert_ne!(first(7), first(8));
    }

    #[test]
    fn gaps_are_exponential_with_the_mean_that_was_asked_for() {
        let times: Vec<u64> = Arrivals::new(1e5, 1).take(100_000).collect();
        let gaps: Vec<f64> = times
            .windows(2)
            .map(|pair| f64::from(u32::try_from(pair[1] - pair[0]).expect("in order")))
            .collect();
        let count = f64::from(u32::try_from(gaps.len()).expect("few"));
        let mean = gaps.iter().sum::<f64>() / count;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count;
        assert!((9_800.0..10_200.0).contains(&mean), "{mean}");
        // An exponential distribution's deviation is its mean; evenly spaced ones have none.
        assert!((0.97..1.03).contains(&(variance.sqrt() / mean)));
        let short = gaps.iter().filter(|gap| **gap < mean).count();
        assert!((0.62..0.645).contains(&(f64::from(u32::try_from(short).expect("few")) / count)));
    }
}
