//! A PCI device's memory by way of VFIO: for devices whose doorbells and registers a program drives, too,
//! and where sysfs may not be written (lockdown, containers).
//!
//! Never run on hardware: no machine of this project has an IOMMU. What can be tested is tested against
//! a kernel that the test plays: the order of requests, what is refused, and that the right part of the
//! device is mapped. Numbers and structures are those of the kernel's `vfio.h`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crosslane_sys::memory::Mapping;

use super::{Window, WindowError, checked_bytes};
use crate::discover::pci::{PciDevice, Role};
use crate::policy::Traits;

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
/// Where the command register lies there, and its bit that makes the device answer at its addresses.
const COMMAND: u64 = 4;
const MEMORY_SPACE: u16 = 2;

const API_VERSION: usize = 0;
const TYPE1: usize = 1;
const NO_IOMMU: usize = 8;

/// What VFIO is asked.
pub trait Kernel {
    /// Open one of its files.
    ///
    /// # Errors
    /// The kernel's.
    fn open(&self, path: &Path) -> io::Result<File>;

    /// The version of its interface.
    ///
    /// # Errors
    /// The kernel's.
    fn version(&self, container: BorrowedFd<'_>) -> io::Result<usize>;

    /// Whether all devices of a group are VFIO's.
    ///
    /// # Errors
    /// The kernel's.
    fn is_viable(&self, group: BorrowedFd<'_>) -> io::Result<bool>;

    /// Put a group into a container, and let it translate by this kind of IOMMU.
    ///
    /// # Errors
    /// The kernel's.
    fn join(
        &self,
        group: BorrowedFd<'_>,
        container: BorrowedFd<'_>,
        iommu: usize,
    ) -> io::Result<()>;

    /// The device of a group.
    ///
    /// # Errors
    /// The kernel's.
    fn device(&self, group: BorrowedFd<'_>, address: &str) -> io::Result<OwnedFd>;

    /// A region of a device.
    ///
    /// # Errors
    /// The kernel's.
    fn region(&self, device: BorrowedFd<'_>, index: u32) -> io::Result<Region>;
}

/// A window that is a region of a device under VFIO.
#[derive(Debug)]
pub struct VfioWindow {
    mapping: Mapping,
    role: Role,
    bar: u32,
    /// The device stays open as long as it is mapped, and the group and container as long as it does.
    _open: [File; 3],
}

impl VfioWindow {
    /// Region `bar` of a device that is bound to `vfio-pci`.
    ///
    /// # Errors
    /// If VFIO does not serve the device, or it has no such region.
    pub fn open(kernel: &dyn Kernel, device: &PciDevice, bar: u32) -> Result<Self, WindowError> {
        let (group, iommu) = group(device)?;
        let opened = |path: &Path| {
            kernel
                .open(path)
                .map_err(|cause| WindowError::open(path, cause))
        };
        let container = opened(Path::new("/dev/vfio/vfio"))?;
        let group = opened(&group)?;
        let failed = |what: &str| {
            let what = what.to_owned();
            move |cause: io::Error| refuse(device, format!("{what}: {cause}"))
        };
        let version = kernel
            .version(container.as_fd())
            .map_err(failed("its version"))?;
        if version != API_VERSION {
            return Err(refuse(
                device,
                format!("its interface has version {version}, not {API_VERSION}"),
            ));
        }
        if !kernel
            .is_viable(group.as_fd())
            .map_err(failed("the group's state"))?
        {
            let why = "other devices of its group have other drivers; bind them all to vfio-pci";
            return Err(refuse(device, why.to_owned()));
        }
        let joined = kernel.join(group.as_fd(), container.as_fd(), iommu);
        joined.map_err(failed("the IOMMU"))?;
        let opened = kernel.device(group.as_fd(), &device.address);
        let file = File::from(opened.map_err(failed("the device"))?);
        let config = kernel
            .region(file.as_fd(), CONFIG_REGION)
            .map_err(failed("configuration space"))?;
        enable_memory(&file, config).map_err(failed("the command register"))?;
        let region = kernel
            .region(file.as_fd(), bar)
            .map_err(failed("the region"))?;
        Ok(Self {
            mapping: map(&file, region, device, bar)?,
            role: device.role,
            bar,
            _open: [file, group, container],
        })
    }
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

/// A device that was reset does not answer at its addresses until it is told to.
fn enable_memory(device: &File, config: Region) -> io::Result<()> {
    let mut command = [0; 2];
    device.read_exact_at(&mut command, config.offset + COMMAND)?;
    let command = u16::from_le_bytes(command) | MEMORY_SPACE;
    device.write_all_at(&command.to_le_bytes(), config.offset + COMMAND)
}

fn map(file: &File, region: Region, device: &PciDevice, bar: u32) -> Result<Mapping, WindowError> {
    let needed = MAY_READ_WRITE | MAY_MAP;
    let offset = usize::try_from(region.offset).ok();
    let offset = offset.filter(|_| region.flags & needed == needed);
    let offset = offset.ok_or_else(|| WindowError::NoRegion {
        address: device.address.clone(),
        bar,
    })?;
    let bytes = checked_bytes(&device.folder, region.bytes)?;
    let mapping = Mapping::shared_at(file.as_fd(), offset, bytes);
    mapping.map_err(|cause| WindowError::map(&device.folder, bytes, cause))
}

impl Window for VfioWindow {
    /// VFIO maps regions uncached, prefetchable or not.
    fn traits(&self) -> Traits {
        Traits::UNCACHED_BAR
    }

    fn description(&self) -> String {
        format!("{}, BAR {}, by VFIO, uncached", self.role.name(), self.bar)
    }

    fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

/// The kernel that is there.
#[derive(Clone, Copy, Debug)]
pub struct SystemKernel;

/// `_IO(';', 100 + number)` of the kernel's `vfio.h`.
const fn request(number: u32) -> u32 {
    ((b';' as u32) << 8) | (100 + number)
}

/// `struct vfio_group_status`.
#[repr(C)]
struct GroupStatus {
    size: u32,
    flags: u32,
}

/// `struct vfio_region_info`.
#[repr(C)]
struct RegionInfo {
    size: u32,
    flags: u32,
    index: u32,
    capabilities: u32,
    bytes: u64,
    offset: u64,
}

const _: () = assert!(size_of::<GroupStatus>() == 8 && size_of::<RegionInfo>() == 32);

impl SystemKernel {
    /// # Safety
    /// As [`crosslane_sys::device::control`].
    unsafe fn ask(fd: BorrowedFd<'_>, number: u32, argument: usize) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        let answer = unsafe { crosslane_sys::device::control(fd, request(number), argument) };
        answer.map_err(io::Error::from)
    }
}

impl Kernel for SystemKernel {
    fn open(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(path)
    }

    fn version(&self, container: BorrowedFd<'_>) -> io::Result<usize> {
        // SAFETY: no argument.
        unsafe { Self::ask(container, 0, 0) }
    }

    fn is_viable(&self, group: BorrowedFd<'_>) -> io::Result<bool> {
        let mut status = GroupStatus { size: 8, flags: 0 };
        let at = core::ptr::from_mut(&mut status).expose_provenance();
        // SAFETY: the structure outlives the call and says its size.
        unsafe { Self::ask(group, 3, at) }?;
        Ok(status.flags & 1 != 0)
    }

    fn join(
        &self,
        group: BorrowedFd<'_>,
        container: BorrowedFd<'_>,
        iommu: usize,
    ) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let raw = container.as_raw_fd();
        let at = core::ptr::from_ref(&raw).expose_provenance();
        // SAFETY: the number outlives the call.
        unsafe { Self::ask(group, 4, at) }?;
        // SAFETY: a number only.
        unsafe { Self::ask(container, 2, iommu) }?;
        Ok(())
    }

    fn device(&self, group: BorrowedFd<'_>, address: &str) -> io::Result<OwnedFd> {
        use std::os::fd::FromRawFd;
        let address = std::ffi::CString::new(address)?;
        // SAFETY: the name is a C string that outlives the call.
        let fd = unsafe { Self::ask(group, 6, address.as_ptr().expose_provenance()) }?;
        let raw = i32::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
        // SAFETY: the kernel has just given us this descriptor and nobody else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(raw) })
    }

    fn region(&self, device: BorrowedFd<'_>, index: u32) -> io::Result<Region> {
        let mut info = RegionInfo {
            size: 32,
            flags: 0,
            index,
            capabilities: 0,
            bytes: 0,
            offset: 0,
        };
        let at = core::ptr::from_mut(&mut info).expose_provenance();
        // SAFETY: the structure outlives the call and says its size.
        unsafe { Self::ask(device, 8, at) }?;
        let RegionInfo {
            flags,
            bytes,
            offset,
            ..
        } = info;
        Ok(Region {
            flags,
            bytes,
            offset,
        })
    }
}

#[cfg(test)]
mod tests;
