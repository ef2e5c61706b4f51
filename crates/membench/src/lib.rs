//! Measures memory windows through the CPU: any mapping, a DAX file, a PCI BAR.
//!
//! * [`map::Mapping`] is a window; [`kernel`] has the few instructions that touch it, each access checked against the
//!   window's bounds. [`node`] says where the thread runs that does so.
//! * [`chain`] lays dependent loads through a window and times them; [`stream`] times bulk moves.
//! * [`knee`] finds where a sweep leaves a plateau, and [`topology`] what the kernel says is there,
//!   so that a knee gets a name.
//!
//! It deliberately has no threads and no clock of its own beyond `Instant`: one core, one window.
//! Read `chain` first.

pub mod chain;
pub mod kernel;
pub mod knee;
pub mod map;
pub mod node;
mod pages;
pub mod stream;
pub mod topology;
