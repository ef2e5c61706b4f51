//! Ends a test that hangs: first its programs, then, if that does not help, the test program.

use std::io::Write;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use crate::cast::Cast;

/// How long a test may take to notice that its programs are gone.
const GRACE: Duration = Duration::from_secs(20);

/// Watches until it is dropped.
pub struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    /// Give the test `limit` to end; then kill the programs of `cast` and show their logs.
    pub fn watch(cast: Cast, limit: Duration) -> Self {
        let (alive, gone) = mpsc::channel::<()>();
        let is_over = move |limit| gone.recv_timeout(limit) == Err(RecvTimeoutError::Disconnected);
        std::thread::spawn(move || {
            if is_over(limit) {
                return;
            }
            say(&format!(
                "the watchdog ends this test after {} s\n",
                limit.as_secs()
            ));
            say(&cast.tails());
            cast.kill();
            if !is_over(GRACE) {
                say("the test hangs although its programs are gone: aborting\n");
                std::process::abort();
            }
        });
        Self { _alive: alive }
    }
}

/// Past the capture of the test runner, which is lost when the process is aborted.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
