//! Build, demo, test tiers and tidy: `cargo xtask --help`.

fn main() {}
