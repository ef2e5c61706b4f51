//! What Crosslane's benches and its demo share.
//!
//! A bench of socket programs is mostly other people's processes: started, watched, timed out,
//! stopped. This crate owns that ([`Process`]), what to say about the machine they ran on
//! ([`Machine`]), how several rounds become one number ([`stats`]) and how numbers are shown
//! ([`show`]), and it asks a running Crosslane what it did ([`Crosslane`], [`Verdict`]).
//!
//! It measures nothing itself, and it knows no bench: a bench brings its own cases and reports.
//! Read [`process`] first.
#![forbid(unsafe_code)]

mod crosslane;
mod folder;
mod machine;
pub mod process;
mod registry;
pub mod show;
pub mod stats;
mod verdict;

pub use crosslane::{Crosslane, CrosslaneError, End, plain};
pub use folder::Folder;
pub use machine::{Machine, Took};
pub use process::{Exit, Process, ProcessError};
pub use registry::{stop_benches_on_signals, stop_children_on_signals};
pub use verdict::Verdict;
