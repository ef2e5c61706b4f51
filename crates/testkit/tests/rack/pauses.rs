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

    /// Tell, and fail unless traffic has gone on in time.
    pub fn conclude(&self, what: &str) {
        self.tell(what);
        let most = self.at(99);
        assert!(most <= GOES_ON_WITHIN_MS, "p99 of those is {most} ms");
    }

    pub fn tell(&self, what: &str) {
        let [half, most, all] = [50, 99, 100].map(|percent| self.at(percent));
        tell(&format!(
            "{what}: p50 {half} ms, p99 {most} ms, longest {all} ms"
        ));
    }
}
