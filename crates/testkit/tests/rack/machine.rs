//! How late the machine lets threads run, so that a test can tell what is late by itself from what a busy machine keeps
//! waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NAP: Duration = Duration::from_millis(1);

/// Between the moment at which a loss is detected and that at which its connections go on, so many threads wake one
/// another: those of both libraries, both monitors and both programs, there and back.
const WAKE_UPS: u64 = 10;

/// A thread that wants to run every millisecond.
pub struct Machine {
    /// The latest that it has been, in microseconds.
    worst: Arc<AtomicU64>,
}

impl Machine {
    /// Look from now on.
    pub fn watch() -> Self {
        let worst = Arc::new(AtomicU64::new(0));
        let watched = Arc::downgrade(&worst);
        std::thread::spawn(move || {
            let mut since = Instant::now();
            while let Some(worst) = watched.upgrade() {
                std::thread::sleep(NAP);
                let late = since.elapsed().saturating_sub(NAP);
                let late = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
                worst.fetch_max(late, Ordering::Relaxed);
                since = Instant::now();
            }
        });
        Self { worst }
    }

    /// Look anew.
    pub fn forget(&self) {
        self.worst.store(0, Ordering::Relaxed);
    }

    /// What it may have cost since then, in milliseconds, what takes several wake-ups in turn.
    pub fn may_have_cost(&self) -> u64 {
        WAKE_UPS * self.worst.load(Ordering::Relaxed) / 1000
    }
}
