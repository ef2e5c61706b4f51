//! What a window is like: how its writes travel, and what a reader must do to see them.

use crosslane_ctl::lane::Posting;

/// How writes into the other side's memory leave this processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// Into memory that all its users' caches keep coherent: in program order on x86-64.
    Coherent,
    /// Uncached: each store is a transaction of its own, in program order.
    Uncached,
    /// Through write-combining buffers, which leave in any order, and when they like, until a fence.
    Combined,
    /// Through caches that nobody keeps coherent: around them, or flushed line by line.
    Flushed,
}

/// A window, as far as the code above it has to know. Lanes need nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// How writes leave.
    pub writes: Writes,
    /// Whether a look at this host's own side must forget what its caches hold.
    pub refreshes: bool,
    /// Whether it is seen through a write-combining mapping, too, whose loads processors may do early and in
    /// any order, so that each look at a word ends with a fence.
    pub fences_loads: bool,
    /// What to expect for a write to arrive, in ns: an order of magnitude, beside which `crosslane window test` shows what it
    /// measures. No timer depends on it.
    pub posted_latency_ns: u32,
}

impl From<Posting> for Traits {
    fn from(posting: Posting) -> Self {
        match posting {
            Posting::Memory => Self::MEMORY,
            Posting::Uncached => Self::UNCACHED_BAR,
            Posting::Combined => Self::COMBINED_BRIDGE,
        }
    }
}

impl Traits {
    /// Memory of one machine.
    pub const MEMORY: Self = Self {
        writes: Writes::Coherent,
        refreshes: false,
        fences_loads: false,
        posted_latency_ns: 100,
    };

    /// A device's memory behind PCIe, mapped uncached.
    pub const UNCACHED_BAR: Self = Self {
        writes: Writes::Uncached,
        refreshes: false,
        fences_loads: false,
        posted_latency_ns: 1_000,
    };

    /// The same, mapped write-combining, both what is written and what is read.
    pub const COMBINED_BAR: Self = Self {
        writes: Writes::Combined,
        refreshes: false,
        fences_loads: true,
        posted_latency_ns: 1_000,
    };

    /// Another host's memory behind a region that is mapped write-combining; what is read is memory of this host.
    pub const COMBINED_BRIDGE: Self = Self {
        fences_loads: false,
        ..Self::COMBINED_BAR
    };

    /// Memory that several hosts share without coherence.
    pub const FLUSHED: Self = Self {
        writes: Writes::Flushed,
        refreshes: true,
        fences_loads: false,
        posted_latency_ns: 1_000,
    };

    /// Whether caches keep both sides coherent by themselves.
    pub const fn is_coherent(&self) -> bool {
        matches!(self.writes, Writes::Coherent)
    }

    /// Whether writes gather in write-combining buffers.
    pub const fn is_write_combining(&self) -> bool {
        matches!(self.writes, Writes::Combined)
    }

    /// Whether lines must be flushed or refreshed by instructions.
    pub const fn needs_flush(&self) -> bool {
        matches!(self.writes, Writes::Flushed)
    }
}
