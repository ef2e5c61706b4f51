//! Saying that a test did not run.

use std::io::Write;

/// Say why this test does not run here, past the capture of the test runner, so that `cargo xtask test`
/// counts it as skipped.
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}
