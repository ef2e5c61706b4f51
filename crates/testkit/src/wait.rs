//! Waiting for a condition by looking at it.

use std::time::{Duration, Instant};

const LOOK_AGAIN: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(60);

/// Look until `look` finds something, and return it.
///
/// # Panics
/// After a minute, naming `what` was waited for.
pub fn wait_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            Instant::now() < deadline,
            "waited {} s in vain for {what}",
            PATIENCE.as_secs()
        );
        std::thread::sleep(LOOK_AGAIN);
    }
}
