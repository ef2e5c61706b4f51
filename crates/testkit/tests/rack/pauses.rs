//! How long connections stand still, and whether that is too long.

use crosslane_testkit::tell;

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

    fn are_short(&self) -> bool {
        self.at(99) <= GOES_ON_WITHIN_MS
    }

    pub fn tell(&self, what: &str) {
        let [half, most, all] = [50, 99, 100].map(|percent| self.at(percent));
        tell(&format!(
            "{what}: p50 {half} ms, p99 {most} ms, longest {all} ms"
        ));
    }
}

/// Traffic has gone on in time at the end of some of so many plays: what others do with the processors meanwhile is in the pauses, too.
const PLAYS: usize = 3;

/// Fail unless the pauses of a play are short. What a play checks besides holds in each.
pub fn conclude(what: &str, mut play: impl FnMut() -> Pauses) {
    let mut is_short = || {
        let pauses = play();
        pauses.tell(what);
        pauses.are_short()
    };
    let is_one = (0..PLAYS).any(|_| is_short());
    assert!(
        is_one,
        "p99 was above {GOES_ON_WITHIN_MS} ms in {PLAYS} plays"
    );
}
