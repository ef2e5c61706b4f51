//! Waiting for a condition by looking at it.

use std::time::{Duration, Instant};

const LOOK_AGAIN: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(60);

/// Look until `look` finds something, and return it.
///
/// # Panics
/// After a minute, naming `what` was waited for.
pub fn wait_until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_or_tell(what, look, String::new)
}

/// As [`wait_until`], which also tells what there is instead.
///
/// # Panics
/// After a minute.
pub fn wait_or_tell<T>(
    what: &str,
    mut look: impl FnMut() -> Option<T>,
    tell: impl FnOnce() -> String,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        if Instant::now() >= deadline {
            let seconds = PATIENCE.as_secs();
            panic!("waited {seconds} s in vain for {what}\n{}", tell());
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
