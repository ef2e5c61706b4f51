//! Runs real programs natively and under Crosslane, for tests.
#![forbid(unsafe_code)]
