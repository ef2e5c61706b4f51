//! A device under VFIO: its group, its container, its regions.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crosslane_sys::memory::Mapping;

use super::kernel::Kernel;
use crate::backend::WindowError;
use crate::discover::pci::PciDevice;

/// A region of a device's descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// What may be done with it.
    pub flags: u32,
    /// Bytes.
    pub bytes: u64,
    /// Where it begins in the device's descriptor.
    pub offset: u64,
}

const MAY_READ_WRITE: u32 = 1 | 2;
const MAY_MAP: u32 = 4;

/// The region that is a PCI device's configuration space.
const CONFIG_REGION: u32 = 7;
/// Where the command register lies there.
const COMMAND: u64 = 4;

/// Bit of the command register: the device answers at its addresses.
pub const MEMORY_SPACE: u16 = 2;
/// Bit of the command register: the device may reach memory and send interrupts.
pub const BUS_MASTER: u16 = 4;

const API_VERSION: usize = 0;
const TYPE1: usize = 1;
const NO_IOMMU: usize = 8;

/// A device that this process drives. It stays open as long as its regions are mapped, and its group
/// and container as long as it does.
#[derive(Debug)]
pub struct VfioDevice {
    file: File,
    _group: File,
    container: File,
    config: Region,
    address: String,
    folder: PathBuf,
}

impl VfioDevice {
    /// Take a device that is bound to `vfio-pci`, and set bits of its command register.
    ///
    /// # Errors
    /// If VFIO does not serve the device.
    pub fn open(
        kernel: &dyn Kernel,
        device: &PciDevice,
        command: u16,
    ) -> Result<Self, WindowError> {
        let (group, iommu) = group(device)?;
        let opened = |path: &Path| {
            kernel
                .open(path)
                .map_err(|cause| WindowError::open(path, cause))
        };
        let container = opened(Path::new("/dev/vfio/vfio"))?;
        let group = opened(&group)?;
        join(kernel, device, &group, &container, iommu)?;
        let failed = |what: &'static str| failed(&device.address, what);
        let file = kernel.device(group.as_fd(), &device.address);
        let file = File::from(file.map_err(failed("the device"))?);
        let config = kernel
            .region(file.as_fd(), CONFIG_REGION)
            .map_err(failed("configuration space"))?;
        enable(&file, config, command).map_err(failed("the command register"))?;
        Ok(Self {
            file,
            _group: group,
            container,
            config,
            address: device.address.clone(),
            folder: device.folder.clone(),
        })
    }

    /// Map a region.
    ///
    /// # Errors
    /// If there is none, or programs may not map it.
    pub fn map(&self, kernel: &dyn Kernel, bar: u32) -> Result<Mapping, WindowError> {
        let region = kernel
            .region(self.file.as_fd(), bar)
            .map_err(failed(&self.address, "the region"))?;
        let needed = MAY_READ_WRITE | MAY_MAP;
        let offset = usize::try_from(region.offset).ok();
        let offset = offset.filter(|_| region.flags & needed == needed);
        let bytes = usize::try_from(region.bytes)
            .ok()
            .filter(|bytes| *bytes > 0);
        let (offset, bytes) = offset.zip(bytes).ok_or_else(|| WindowError::NoRegion {
            address: self.address.clone(),
            bar,
        })?;
        let mapping = Mapping::shared_at(self.file.as_fd(), offset, bytes);
        mapping.map_err(|cause| WindowError::map(&self.folder, bytes, cause))
    }

    /// Let the device reach memory at an address of its own.
    ///
    /// # Errors
    /// The kernel's.
    pub fn lend(
        &self,
        kernel: &dyn Kernel,
        memory: &Mapping,
        address: u64,
    ) -> Result<(), WindowError> {
        let lent = kernel.lend(self.container.as_fd(), memory, address);
        lent.map_err(|cause| WindowError::Vfio {
            address: self.address.clone(),
            why: format!(
                "{} bytes of memory cannot be lent at {address:#x}: {cause}{}",
                memory.bytes(),
                lending_remedy(&cause)
            ),
        })
    }

    /// Tell its MSI-X interrupts by these events.
    ///
    /// # Errors
    /// The kernel's, and if it has not as many.
    pub fn interrupts(
        &self,
        kernel: &dyn Kernel,
        events: &[BorrowedFd<'_>],
    ) -> Result<(), WindowError> {
        let set = kernel.interrupts(self.file.as_fd(), events);
        match set.map_err(failed(&self.address, "interrupts"))? {
            0 => Ok(()),
            most => Err(WindowError::Vfio {
                address: self.address.clone(),
                why: format!(
                    "this machine has {most} of {} interrupts left for it; unbind devices that have many \
                     (/proc/interrupts), or switch interrupt remapping on",
                    events.len()
                ),
            }),
        }
    }

    /// Bytes of its configuration space.
    ///
    /// # Errors
    /// The kernel's.
    pub fn config<const BYTES: usize>(&self, at: u64) -> Result<[u8; BYTES], WindowError> {
        let mut bytes = [0; BYTES];
        let read = self.file.read_exact_at(&mut bytes, self.config.offset + at);
        read.map_err(failed(&self.address, "configuration space"))?;
        Ok(bytes)
    }
}

/// What to do where the kernel does not lend memory to a device.
fn lending_remedy(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::OutOfMemory => "; they are pinned, so `ulimit -l` must allow them",
        io::ErrorKind::InvalidInput => {
            "; the IOMMU does not translate that address: see reserved_regions in the device's iommu_group in \
             sysfs, and how many bits of addresses dmesg says that it has"
        }
        _ => "",
    }
}

fn failed(address: &str, what: &'static str) -> impl FnOnce(io::Error) -> WindowError {
    let address = address.to_owned();
    move |cause| WindowError::Vfio {
        address,
        why: format!("{what}: {cause}"),
    }
}

fn join(
    kernel: &dyn Kernel,
    device: &PciDevice,
    group: &File,
    container: &File,
    iommu: usize,
) -> Result<(), WindowError> {
    let failed = |what: &'static str| failed(&device.address, what);
    let version = kernel
        .version(container.as_fd())
        .map_err(failed("its version"))?;
    if version != API_VERSION {
        let why = format!("its interface has version {version}, not {API_VERSION}");
        return Err(refuse(device, why));
    }
    let is_viable = kernel
        .is_viable(group.as_fd())
        .map_err(failed("the group's state"))?;
    if !is_viable {
        let why = "other devices of its group have other drivers; bind them all to vfio-pci";
        return Err(refuse(device, why.to_owned()));
    }
    let joined = kernel.join(group.as_fd(), container.as_fd(), iommu);
    joined.map_err(failed("the IOMMU"))
}

fn refuse(device: &PciDevice, why: String) -> WindowError {
    WindowError::Vfio {
        address: device.address.clone(),
        why,
    }
}

/// The file of a device's group, and the kind of IOMMU to ask for.
fn group(device: &PciDevice) -> Result<(PathBuf, usize), WindowError> {
    if device.driver.as_deref() != Some("vfio-pci") {
        let address = &device.address;
        let why = format!(
            "its driver is {}; as root: echo vfio-pci > {}/driver_override; \
             echo {address} > /sys/bus/pci/drivers_probe",
            device.driver.as_deref().unwrap_or("none"),
            device.folder.display()
        );
        return Err(refuse(device, why));
    }
    let number = device.iommu_group.ok_or_else(|| {
        refuse(
            device,
            "this machine has no IOMMU that is switched on".to_owned(),
        )
    })?;
    // Without an IOMMU a group exists only if the administrator asked for it.
    Ok(match device.has_no_iommu {
        true => (
            PathBuf::from(format!("/dev/vfio/noiommu-{number}")),
            NO_IOMMU,
        ),
        false => (PathBuf::from(format!("/dev/vfio/{number}")), TYPE1),
    })
}

/// A device that was reset does nothing until it is told to.
fn enable(device: &File, config: Region, bits: u16) -> io::Result<()> {
    let mut command = [0; 2];
    device.read_exact_at(&mut command, config.offset + COMMAND)?;
    let command = u16::from_le_bytes(command) | bits;
    device.write_all_at(&command.to_le_bytes(), config.offset + COMMAND)
}
