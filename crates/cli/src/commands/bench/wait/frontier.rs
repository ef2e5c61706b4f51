//! The efficient frontier: what nothing else is clearly better than.

/// What a way of waiting costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Latency.
    pub latency_ns: Seen,
    /// Processor time in seconds per second.
    pub cpu: Seen,
}

/// What the rounds gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// The median.
    pub median: f64,
    /// The least and the most.
    pub range: (f64, f64),
}

/// Figures closer together than this cannot be told apart from run to run.
const SAME_SHARE: f64 = 0.05;
/// Nor can such shares of a processor.
const SAME_CPU: f64 = 0.005;

/// Which of these costs are on the frontier.
pub fn frontier(costs: &[Cost]) -> Vec<bool> {
    let beaten = |cost: &Cost| costs.iter().any(|other| other.beats(cost));
    costs.iter().map(|cost| !beaten(cost)).collect()
}

impl Cost {
    /// Clearly better in one and not clearly worse in the other.
    fn beats(&self, other: &Self) -> bool {
        let faster = is_less(self.latency_ns, other.latency_ns, 0.0);
        let slower = is_less(other.latency_ns, self.latency_ns, 0.0);
        let cheaper = is_less(self.cpu, other.cpu, SAME_CPU);
        let dearer = is_less(other.cpu, self.cpu, SAME_CPU);
        (faster && !dearer) || (cheaper && !slower)
    }
}

/// Where ranges overlap, another run could say the opposite.
fn is_less(one: Seen, other: Seen, same: f64) -> bool {
    let (own, its) = (one.median, other.median);
    own < its * (1.0 - SAME_SHARE) && own < its - same && one.range.1 < other.range.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_frontier(costs: &[(f64, f64)]) -> Vec<bool> {
        let cost = |&(latency, cpu): &(f64, f64)| Cost {
            latency_ns: seen(latency),
            cpu: seen(cpu),
        };
        frontier(&costs.iter().map(cost).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_worse_in_both_is_off_the_frontier() {
        let costs = [(70e3, 0.1), (200.0, 1.0), (300.0, 0.4), (10e3, 1.0)];
        assert_eq!(on_frontier(&costs), [true, true, true, false]);
    }

    #[test]
    fn what_cannot_be_told_apart_stays_on_it() {
        assert_eq!(on_frontier(&[(100.0, 0.50), (101.0, 0.51)]), [true, true]);
        assert_eq!(on_frontier(&[(100.0, 0.001), (100.0, 0.004)]), [true, true]);
    }

    /// A figure that every round gave.
    fn seen(median: f64) -> Seen {
        Seen {
            median,
            range: (median, median),
        }
    }

    #[test]
    fn what_only_some_rounds_were_better_in_beats_nothing() {
        let cost = |median, range| Cost {
            latency_ns: Seen { median, range },
            cpu: seen(0.05),
        };
        let same = [cost(180.0, (150.0, 400.0)), cost(369.0, (170.0, 380.0))];
        assert_eq!(frontier(&same), [true, true]);
        let apart = [cost(180.0, (150.0, 200.0)), cost(369.0, (210.0, 380.0))];
        assert_eq!(frontier(&apart), [true, false]);
    }

    #[test]
    fn as_fast_for_more_is_off_it() {
        assert_eq!(on_frontier(&[(100.0, 0.5), (99.0, 1.0)]), [true, false]);
        assert_eq!(on_frontier(&[]), [false; 0]);
    }
}
