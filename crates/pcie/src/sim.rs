//! Transaction-level simulation: every TLP crosses every link, in virtual time, repeatably by seed.
//!
//! [`fabric::Fabric`] is the system: links, switches, root complex, IOMMU, cache. Its user submits
//! transactions and polls for what happens, so that a NIC is a state machine on top of it, without
//! callbacks. [`engine`] is such a user, the DMA engine of a programmable NIC, and [`bench`] runs the
//! five micro-benchmarks of pcie-bench on it. [`trace`] shows single TLPs.
//!
//! Time is in picoseconds, [`Ps`]. Nothing here reads a clock or a random source of the machine.

pub mod bench;
pub mod cache;
pub mod engine;
pub mod fabric;
pub mod iommu;
mod link;
mod options;
mod rng;
mod root;
mod slab;
mod split;
pub mod trace;

/// Virtual time in picoseconds since the start.
pub type Ps = u64;

/// Nanoseconds as [`Ps`]; negative times are zero.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn ps(ns: f64) -> Ps {
    (ns * 1000.0).max(0.0) as Ps
}

/// [`Ps`] as nanoseconds.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn ns(time: Ps) -> f64 {
    time as f64 / 1000.0
}
