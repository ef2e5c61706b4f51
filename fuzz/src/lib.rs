//! What the fuzz targets share with the tests of the crates.
//!
//! `cargo +nightly fuzz run --fuzz-dir fuzz lane_model`; the tests replay the corpus.

#[path = "../../crates/ring/tests/lane/support/mod.rs"]
pub mod lane;

#[path = "../../crates/monitor/tests/registry/support/mod.rs"]
pub mod registry;

#[path = "../../crates/ring/tests/posted/support/mod.rs"]
pub mod posted;

/// Where the support of posted lanes looks for it.
pub use lane::memory as lane_memory;
