//! A PCI device's memory by way of sysfs: `resourceN`, and `resourceN_wc` where the region is
//! prefetchable. No driver is needed, and nothing of the device is changed.

use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crosslane_sys::memory::Mapping;

use super::{Memory, PAGE_BYTES, Window, WindowError, checked_bytes};
use crate::discover::pci::{PciDevice, Role};
use crate::policy::Traits;

/// A window that is a region of a PCI device.
#[derive(Debug)]
pub struct BarWindow {
    mapping: Mapping,
    path: PathBuf,
    combined: bool,
    role: Role,
    bar: u32,
}

impl BarWindow {
    /// Region `bar` of a device, write-combining if that can be had.
    ///
    /// # Errors
    /// If the device has no such region or is not enabled, or the file cannot be mapped.
    pub fn open(device: &PciDevice, bar: u32) -> Result<Self, WindowError> {
        Self::open_as(device, bar, true)
    }

    /// The same, write-combining only if wanted.
    ///
    /// # Errors
    /// As [`BarWindow::open`].
    pub fn open_as(device: &PciDevice, bar: u32, combine: bool) -> Result<Self, WindowError> {
        let (path, bytes, combined) = resource(device, bar, combine)?;
        Ok(Self {
            mapping: map(&path, bytes)?,
            path,
            combined,
            role: device.role,
            bar,
        })
    }

    /// Whether [`BarWindow::open`] would open it: a page of it is mapped, and none is touched. As it is mapped without
    /// combining, whoever maps it so at the same time is not given combined writes.
    ///
    /// # Errors
    /// As [`BarWindow::open`].
    pub fn try_open(device: &PciDevice, bar: u32) -> Result<(), WindowError> {
        let (path, _, _) = resource(device, bar, false)?;
        map(&path, PAGE_BYTES).map(drop)
    }

    /// The file that is mapped.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The file of a region, its size, and whether it is mapped write-combining.
fn resource(
    device: &PciDevice,
    bar: u32,
    combine: bool,
) -> Result<(PathBuf, usize, bool), WindowError> {
    let missing = || WindowError::NoRegion {
        address: device.address.clone(),
        bar,
    };
    let region = device.bars.iter().find(|found| found.index == bar);
    let region = region.ok_or_else(missing)?;
    if !device.is_enabled {
        return Err(WindowError::Disabled {
            address: device.address.clone(),
            driver: device.driver.clone(),
            switch: device.folder.join("enable"),
        });
    }
    let combined = combine && region.can_combine;
    let suffix = if combined { "_wc" } else { "" };
    let path = device.folder.join(format!("resource{bar}{suffix}"));
    let bytes = checked_bytes(&path, region.bytes)?;
    Ok((path, bytes, combined))
}

fn map(path: &Path, bytes: usize) -> Result<Mapping, WindowError> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(|cause| WindowError::open(path, cause))?;
    Mapping::shared(file.as_fd(), bytes).map_err(|cause| WindowError::map(path, bytes, cause))
}

impl Window for BarWindow {
    fn traits(&self) -> Traits {
        match self.combined {
            true => Traits::COMBINED_BAR,
            false => Traits::UNCACHED_BAR,
        }
    }

    fn description(&self) -> String {
        let way = if self.combined {
            "write-combining"
        } else {
            "uncached"
        };
        format!("{}, BAR {}, {way}", self.role.name(), self.bar)
    }

    fn memory(&self) -> Memory<'_> {
        Memory::Shared(&self.mapping)
    }
}
