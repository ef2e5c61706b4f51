//! Saying what a test that passes has to say all the same.

use std::io::Write;

/// Say why this test does not run here, so that `cargo xtask test` counts it as skipped.
pub fn skipped(why: &str) {
    tell(&format!("SKIPPED: {why}"));
}

/// Say which difference this test forgives, so that `cargo xtask test` lists it in its summary.
pub fn forgiven(what: &str) {
    tell(&format!("WAVERING: {what}"));
}

/// Say it past the capture of the test runner, which drops what tests print that pass.
pub fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
