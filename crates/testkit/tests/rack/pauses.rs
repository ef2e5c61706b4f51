//! How long connections stand still, and whether that is too long.

use crosslane_testkit::tell;

use crate::machine::Machine;

/// After so long traffic must have gone on over TCP, 99 times in 100.
const GOES_ON_WITHIN_MS: u64 = 100;

/// Of programs, in milliseconds: for each of them the longest of its connections.
#[derive(Default)]
pub struct Pauses(pub Vec<u64>);

impl Pauses {
    fn at(&self, percent: usize) -> u64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted[(sorted.len() - 1) * percent / 100]
    }

    pub fn tell(&self, what: &str) {
        let [half, most, all] = [50, 99, 100].map(|percent| self.at(percent));
        tell(&format!(
            "{what}: p50 {half} ms, p99 {most} ms, longest {all} ms"
        ));
    }
}

/// Pauses from the moment at which a loss is detected until traffic goes on over TCP.
pub struct Returns {
    machine: Machine,
    pauses: Pauses,
    /// What the machine may have cost, for each loss.
    costs: Pauses,
    /// The pauses without that.
    own: Pauses,
}

impl Returns {
    pub fn watch() -> Self {
        Self {
            machine: Machine::watch(),
            pauses: Pauses::default(),
            costs: Pauses::default(),
            own: Pauses::default(),
        }
    }

    /// A loss comes next.
    pub fn begin(&self) {
        self.machine.forget();
    }

    /// So long have the programs paused at that loss.
    pub fn note(&mut self, pauses: [u64; 2]) {
        let cost = self.machine.may_have_cost();
        self.costs.0.push(cost);
        for pause in pauses {
            self.pauses.0.push(pause);
            self.own.0.push(pause.saturating_sub(cost));
        }
    }

    /// Tell, and fail unless traffic has gone on in time.
    pub fn conclude(&self, what: &str) {
        self.pauses.tell(what);
        self.costs.tell("what the machine may have cost of them");
        self.own.tell("the pauses without that");
        let most = self.own.at(99);
        assert!(most <= GOES_ON_WITHIN_MS, "p99 of those is {most} ms");
    }
}
