//! A driver in user space for a non-transparent bridge: Intel's of the Ice Lake generation, two of them
//! back to back.
//!
//! A bridge looks to its host like a device with registers and a region of memory. What is written to
//! the region arrives in the other host's memory, where *that* host's driver has said: it sets the
//! translation for what comes in, never for what goes out. Beside it there are sixteen words that
//! both hosts reach (scratchpads), and thirty-two doorbells.
//!
//! Read [`registers`] first (what the driver talks to), then [`bridge`] (what can be done with one), [`meet`]
//! (how two drivers learn of each other), [`NtbWindow`] (the window that comes of it) and [`vfio`] (how the
//! parts of a real device are got hold of); and [`hold`], which keeps a bridge open for a rack. Never run on hardware:
//! docs/hardware.md.

pub mod bridge;
pub mod error;
pub mod gen4;
pub mod hold;
pub mod meet;
pub mod registers;
pub mod vfio;
mod window;

pub use bridge::{Bridge, Link, Side};
pub use error::NtbError;
pub use registers::{MappedRegisters, Register, Registers};
pub use window::NtbWindow;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use crosslane_sys::event::Event;
use crosslane_sys::memory::Mapping;

/// How long to wait for the other host, unless somebody says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What device it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id {
    /// Who made it.
    pub vendor: u16,
    /// Which.
    pub device: u16,
    /// Which step of it.
    pub revision: u8,
}

/// Whether the driver knows devices of this vendor's and device's number.
pub fn is_driven(id: (u16, u16)) -> bool {
    id == (gen4::VENDOR, gen4::DEVICE)
}

/// The region through which the other host's memory is written.
#[derive(Debug)]
pub struct Aperture {
    /// Its number: 2 or 4.
    pub bar: u32,
    /// Where it begins on this host's bus. Limits of what comes in count from there, too.
    pub start: u64,
    /// The region.
    pub mapping: Arc<Mapping>,
    /// Whether it is mapped write-combining.
    pub is_combined: bool,
}

/// Memory of this host that the other one may write.
#[derive(Debug)]
pub struct Lent {
    /// The memory.
    pub mapping: Mapping,
    /// Where the device finds it: what the IOMMU translates.
    pub address: u64,
}

/// A bridge's parts, as VFIO or a test's model gives them.
pub struct Parts {
    /// Where it is, for people.
    pub address: String,
    /// What it is.
    pub id: Id,
    /// Its registers.
    pub registers: Box<dyn Registers>,
    /// What the region leads to.
    pub aperture: Aperture,
    /// What the other host may write.
    pub lent: Lent,
    /// Told at each doorbell that is not masked.
    pub doorbell: Event,
    /// Told when the link comes or goes.
    pub link: Event,
    /// What has to live as long.
    pub keep: Box<dyn Any + Send + Sync>,
}
