//! What to simulate.

use super::cache::CacheState;

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
