//! Warnings that clients can cause, so rarely that nobody can fill a disk with them.

use std::fmt::Arguments;
use std::time::{Duration, Instant};

/// At most one warning in this time.
const INTERVAL: Duration = Duration::from_secs(1);

/// Says some of the warnings and counts the others.
#[derive(Debug, Default)]
pub struct Complaints {
    last: Option<Instant>,
    unsaid: u64,
}

impl Complaints {
    /// Warn, unless a warning was given a moment ago.
    pub fn say(&mut self, what: Arguments<'_>) {
        if self.last.is_some_and(|last| last.elapsed() < INTERVAL) {
            self.unsaid += 1;
            return;
        }
        self.last = Some(Instant::now());
        match std::mem::take(&mut self.unsaid) {
            0 => tracing::warn!("{what}"),
            unsaid => tracing::warn!(unsaid, "{what}"),
        }
    }
}
