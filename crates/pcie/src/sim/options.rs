//! What to simulate.

use super::cache::CacheState;
use crate::profile::ProfileError;

/// The most switches and bridges on a way: several times as many as a deep tree has.
pub const MAX_HOPS: usize = 32;
/// The most tags: ten bits (PCIe Base Specification 4.0).
pub const MAX_TAGS: u32 = 1024;

/// Options that cannot be simulated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum OptionsError {
    /// A way longer than anybody builds.
    #[error("{0} switches and bridges are too many: --hops takes up to {MAX_HOPS}")]
    Hops(usize),
    /// A hop that forwards before it receives, or never.
    #[error("a hop forwards in {0} ns: legal are 0 to 1000000 ns")]
    Forward(f64),
    /// No read could leave, or more than tags can tell apart.
    #[error("{0} tags: --tags takes 1 to {MAX_TAGS}")]
    Tags(u32),
}

/// A system that cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// Its host.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// What lies on the way to it.
    #[error(transparent)]
    Options(#[from] OptionsError),
}

/// What lies between the device and the root complex.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hop {
    /// Time from a packet's last byte in to its first byte out. A switch takes 100 to 150 ns; a
    /// non-transparent bridge about as much again, for its address and requester translation.
    pub forward_ns: f64,
}

/// What to simulate.
#[derive(Debug, Clone)]
pub struct Options {
    /// Seed; the same seed gives the same run, to the picosecond.
    pub seed: u64,
    /// Translate addresses.
    pub iommu: bool,
    /// The memory belongs to the other node.
    pub remote_node: bool,
    /// The window's state at the start.
    pub cache: CacheState,
    /// Address at which the window begins, in whole lines.
    pub window_start: u64,
    /// Window size.
    pub window_bytes: u64,
    /// Switches and bridges, from the device on.
    pub hops: Vec<Hop>,
    /// How many TLPs to record.
    pub trace_limit: usize,
    /// Tags: read requests that the device may have under way.
    pub tags: u32,
    /// Whether the root complex's rare deep sleeps happen. Where they do not, [`Fabric::deep_sleep`]
    /// says how much time they would have taken on average: a run of a millisecond meets none or one.
    pub deep_sleeps: bool,
}

impl Options {
    /// Checks what does not depend on the host.
    ///
    /// # Errors
    /// The first option that cannot be simulated.
    pub fn check(&self) -> Result<(), OptionsError> {
        if self.hops.len() > MAX_HOPS {
            return Err(OptionsError::Hops(self.hops.len()));
        }
        for hop in &self.hops {
            if !(0.0..=1e6).contains(&hop.forward_ns) {
                return Err(OptionsError::Forward(hop.forward_ns));
            }
        }
        if !(1..=MAX_TAGS).contains(&self.tags) {
            return Err(OptionsError::Tags(self.tags));
        }
        Ok(())
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            iommu: false,
            remote_node: false,
            cache: CacheState::HostWarm,
            window_start: 0,
            window_bytes: 8192,
            hops: Vec::new(),
            trace_limit: 0,
            tags: 256,
            deep_sleeps: true,
        }
    }
}
