//! The parts of a real bridge, by VFIO. Never run on hardware.

use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crosslane_sys::event::Event;
use crosslane_sys::memory::{Mapping, create_sealed};

use super::bridge::Device;
use super::gen4::{self, DOORBELLS, REGISTER_BYTES};
use super::hold::{Held, HeldMemory};
use super::meet::LEAST_BYTES;
use super::{Aperture, Id, Lent, MappedRegisters, NtbError, Parts, Registers, is_driven};
use crate::backend::{Kernel, PAGE_BYTES, VfioDevice, WindowError};
use crate::discover::pci::{Bar, PciDevice};

/// Most memory that is lent, unless somebody says otherwise: it is pinned as long as the bridge is open.
const MOST_LENT_BYTES: u64 = 64 << 20;

/// Below are addresses by which devices send interrupts (0xfee00000 on x86), which the IOMMU keeps.
const LEAST_ADDRESS: u64 = 1 << 32;

/// The region to use, unless somebody says otherwise.
const USUAL_BAR: u32 = 2;

/// Numbers in configuration space: vendor, device, and the revision.
const ID_AT: u64 = 0;
const REVISION_AT: u64 = 8;

const MEMORY_AND_MASTER: u16 =
    crate::backend::vfio::device::MEMORY_SPACE | crate::backend::vfio::device::BUS_MASTER;

/// Take a bridge that is bound to `vfio-pci`, and give it memory to lend.
///
/// # Errors
/// If it is another device, VFIO does not serve it, or it lacks a region.
pub fn parts(
    kernel: &dyn Kernel,
    device: &PciDevice,
    bar: Option<u32>,
) -> Result<Parts, WindowError> {
    let region = suitable(device, bar)?;
    let Opened {
        open,
        id,
        registers,
        doorbell,
        link,
    } = opened(kernel, device)?;
    Ok(Parts {
        id,
        registers,
        aperture: aperture(kernel, &open, device, region)?,
        lent: lend_own(kernel, &open, device, region)?,
        doorbell,
        link,
        keep: Box::new(open),
        address: device.address.clone(),
    })
}

/// Take a bridge in the same way, and lend so many bytes of a file, by default as many as usual. The region is left alone:
/// others map it by sysfs, whose file is returned as well, and kernels before Linux 7.1 keep them from it once VFIO has mapped
/// it.
///
/// # Errors
/// As [`parts`]; and if the file is none that can be lent, or the kernel keeps the region to itself.
pub fn held(
    kernel: &dyn Kernel,
    device: &PciDevice,
    bar: Option<u32>,
    (path, bytes): (&Path, Option<u64>),
) -> Result<(Held, PathBuf), WindowError> {
    let region = suitable(device, bar)?;
    let bytes = bytes.unwrap_or(region.bytes.min(MOST_LENT_BYTES));
    ensure_lendable(device, region, bytes)?;
    let memory = HeldMemory::open(path, bytes)?;
    let Opened {
        open,
        id,
        registers,
        doorbell,
        link,
    } = opened(kernel, device)?;
    let way = way(device, region)?;
    let lent = lend(kernel, &open, memory.map()?, region)?;
    let device = Device {
        address: device.address.clone(),
        id,
        registers,
        bar: region.index,
        start: region.start,
        bytes: region.bytes,
        doorbell,
        link,
    };
    let held = Held {
        device,
        lent,
        memory,
        keep: Box::new(open),
    };
    Ok((held, way))
}

/// The region of a device that can be driven.
fn suitable(device: &PciDevice, bar: Option<u32>) -> Result<&Bar, WindowError> {
    let is_other = |step: u8| !gen4::REVISIONS.contains(&step);
    // VFIO resets what it opens.
    if !is_driven(device.id) || device.revision.is_some_and(is_other) {
        return Err(other_device(device));
    }
    if device.has_no_iommu {
        let why = "the other host would reach all memory of this one: a bridge takes a real IOMMU; boot with \
                   intel_iommu=on";
        return Err(WindowError::Vfio {
            address: device.address.clone(),
            why: why.to_owned(),
        });
    }
    aperture_region(device, bar.unwrap_or(USUAL_BAR))
}

/// A bridge that VFIO has opened.
struct Opened {
    open: VfioDevice,
    id: Id,
    registers: Box<dyn Registers>,
    doorbell: Event,
    link: Event,
}

fn opened(kernel: &dyn Kernel, device: &PciDevice) -> Result<Opened, WindowError> {
    let address = device.address.clone();
    let open = VfioDevice::open(kernel, device, MEMORY_AND_MASTER)?;
    let registers = open.map(kernel, 0)?;
    if registers.bytes() < REGISTER_BYTES {
        return Err(WindowError::NoRegion { address, bar: 0 });
    }
    let [vendor_low, vendor_high, device_low, device_high] = open.config(ID_AT)?;
    let [revision] = open.config(REVISION_AT)?;
    let events = (|| Ok((Event::new()?, Event::new()?)))();
    let (doorbell, link) = events.map_err(|cause| NtbError::Event { address, cause })?;
    let mut interrupts = vec![doorbell.as_fd(); DOORBELLS];
    interrupts.push(link.as_fd());
    open.interrupts(kernel, &interrupts)?;
    Ok(Opened {
        id: Id {
            vendor: u16::from_le_bytes([vendor_low, vendor_high]),
            device: u16::from_le_bytes([device_low, device_high]),
            revision,
        },
        registers: Box::new(MappedRegisters::new(registers)),
        open,
        doorbell,
        link,
    })
}

/// Before a file is made of that size.
fn ensure_lendable(device: &PciDevice, region: &Bar, bytes: u64) -> Result<(), NtbError> {
    match bytes.is_power_of_two() && (LEAST_BYTES..=region.bytes).contains(&bytes) {
        true => Ok(()),
        false => Err(NtbError::Size {
            address: device.address.clone(),
            bar: region.index,
            bytes,
            most: region.bytes,
        }),
    }
}

/// The file by which others map the region, if the kernel lets them. A page is mapped as they will, and not kept: how a page
/// is mapped first binds who maps it later.
fn way(device: &PciDevice, region: &Bar) -> Result<PathBuf, NtbError> {
    let plain = device.folder.join(format!("resource{}", region.index));
    let combining = plain.with_file_name(format!("resource{}_wc", region.index));
    let path = if combining.exists() { combining } else { plain };
    let file = OpenOptions::new().read(true).write(true).open(&path);
    let mapped = file.and_then(|file| Ok(Mapping::shared(file.as_fd(), PAGE_BYTES)?));
    match mapped {
        Ok(_) => Ok(path),
        Err(cause) => Err(NtbError::Region { path, cause }),
    }
}

fn other_device(device: &PciDevice) -> WindowError {
    let (vendor, number) = device.id;
    WindowError::Ntb(NtbError::OtherDevice {
        address: device.address.clone(),
        vendor,
        device: number,
        revision: device.revision.unwrap_or(0),
    })
}

/// The region that leads to the other host.
fn aperture_region(device: &PciDevice, bar: u32) -> Result<&Bar, WindowError> {
    let address = || device.address.clone();
    if !matches!(bar, 2 | 4) {
        return Err(WindowError::Ntb(NtbError::NoAperture {
            address: address(),
            bar,
        }));
    }
    let region = device.bars.iter().find(|region| region.index == bar);
    region.ok_or_else(|| WindowError::NoRegion {
        address: address(),
        bar,
    })
}

/// VFIO maps regions uncached; sysfs maps them write-combining, where the kernel still lets it.
fn aperture(
    kernel: &dyn Kernel,
    open: &VfioDevice,
    device: &PciDevice,
    region: &Bar,
) -> Result<Aperture, WindowError> {
    let bar = region.index;
    let combined = combined(device, region);
    Ok(Aperture {
        bar,
        start: region.start,
        is_combined: combined.is_some(),
        mapping: Arc::new(match combined {
            Some(mapping) => mapping,
            None => open.map(kernel, bar)?,
        }),
    })
}

fn combined(device: &PciDevice, region: &Bar) -> Option<Mapping> {
    let path = device.folder.join(format!("resource{}_wc", region.index));
    let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
    Mapping::shared(file.as_fd(), usize::try_from(region.bytes).ok()?).ok()
}

/// Memory of this process.
fn lend_own(
    kernel: &dyn Kernel,
    open: &VfioDevice,
    device: &PciDevice,
    region: &Bar,
) -> Result<Lent, WindowError> {
    let bytes = region.bytes.min(MOST_LENT_BYTES);
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let failed = |cause| WindowError::map(&device.folder, bytes, cause);
    let object = create_sealed(c"crosslane-ntb", bytes).map_err(failed)?;
    let mapping = Mapping::shared(object.as_fd(), bytes).map_err(failed)?;
    lend(kernel, open, mapping, region)
}

/// Have memory begin where the bridge wants it: the IOMMU puts it there.
fn lend(
    kernel: &dyn Kernel,
    open: &VfioDevice,
    mapping: Mapping,
    region: &Bar,
) -> Result<Lent, WindowError> {
    let address = region.bytes.max(LEAST_ADDRESS);
    open.lend(kernel, &mapping, address)?;
    Ok(Lent { mapping, address })
}

const _: () = assert!(gen4::VECTORS == DOORBELLS + 1);

#[cfg(test)]
mod tests;
