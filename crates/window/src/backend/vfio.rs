//! A PCI device's memory by way of VFIO: for devices whose doorbells and registers a program drives, too,
//! and where sysfs may not be written (lockdown, containers).
//!
//! Never run on hardware: no machine of this project has an IOMMU but those that QEMU emulates, in which two guests test the
//! memory between them. Against a kernel that the test plays: the order of requests, what is refused, and that the right part
//! of the device is mapped.

pub mod device;
pub mod kernel;

use crosslane_sys::memory::Mapping;

use self::device::{MEMORY_SPACE, VfioDevice};
use self::kernel::Kernel;
use super::{Memory, Window, WindowError, checked_bytes};
use crate::discover::pci::{PciDevice, Role};
use crate::policy::Traits;

/// A window that is a region of a device under VFIO.
#[derive(Debug)]
pub struct VfioWindow {
    mapping: Mapping,
    role: Role,
    bar: u32,
    /// Stays open as long as its region is mapped.
    _device: VfioDevice,
}

impl VfioWindow {
    /// Region `bar` of a device that is bound to `vfio-pci`.
    ///
    /// # Errors
    /// If VFIO does not serve the device, or it has no such region.
    pub fn open(kernel: &dyn Kernel, device: &PciDevice, bar: u32) -> Result<Self, WindowError> {
        let open = VfioDevice::open(kernel, device, MEMORY_SPACE)?;
        let mapping = open.map(kernel, bar)?;
        checked_bytes(&device.folder, mapping.bytes() as u64)?;
        Ok(Self {
            mapping,
            role: device.role,
            bar,
            _device: open,
        })
    }
}

impl Window for VfioWindow {
    /// VFIO maps regions uncached, prefetchable or not.
    fn traits(&self) -> Traits {
        Traits::UNCACHED_BAR
    }

    fn description(&self) -> String {
        format!("{}, BAR {}, by VFIO, uncached", self.role.name(), self.bar)
    }

    fn memory(&self) -> Memory<'_> {
        Memory::Shared(&self.mapping)
    }
}

#[cfg(test)]
pub(crate) mod tests;
