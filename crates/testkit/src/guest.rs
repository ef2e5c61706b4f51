//! Two more hosts: virtual machines with a network between them and one memory in both.
//!
//! [`Rack::boot`] makes the root file system out of files of this machine, starts two machines
//! under QEMU without hardware virtualisation, and waits until both take commands. Between them
//! are a virtual network (`192.0.2.1` and `192.0.2.2`, addresses that belong to nobody) and an
//! `ivshmem` device, whose second BAR is the same memory in both. Each machine has an IOMMU.
//! The first serial port carries commands and answers, the second one the kernel's messages, which
//! are the machine's standard error in the test's folder.

mod archive;
mod image;
mod machine;
mod parts;
mod server;

use crate::Host;

pub use image::Image;
pub use machine::Machine;
pub use parts::Parts;

/// Which ivshmem the machines have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Memory and nothing else.
    Plain,
    /// Memory that a server passes, and doorbells, which nobody drives.
    Doorbell,
}

impl Device {
    /// What `crosslane window probe` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "ivshmem-plain",
            Self::Doorbell => "ivshmem-doorbell",
        }
    }
}

/// Two machines.
pub struct Rack {
    /// `192.0.2.1` and `192.0.2.2`.
    pub machines: [Machine; 2],
}

impl Rack {
    /// Start two machines from `image`, and wait until both are up.
    ///
    /// # Panics
    /// When one does not come up within a minute.
    pub fn boot(host: &Host, parts: &Parts, image: Image, device: Device) -> Self {
        let initramfs = host.file("initramfs", image.finish());
        if device == Device::Doorbell {
            machine::serve_memory(host);
        }
        let machines = [1, 2].map(|number| Machine::start(host, parts, &initramfs, device, number));
        let mut rack = Self { machines };
        for machine in &mut rack.machines {
            machine.wait_until_up();
        }
        rack
    }
}
