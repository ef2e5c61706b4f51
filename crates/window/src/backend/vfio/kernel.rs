//! What VFIO can be asked, and the kernel that answers. Numbers and structures are those of its `vfio.h`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use crosslane_sys::memory::Mapping;

use super::device::Region;

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

    /// Let devices of a container reach memory of this process at an address of theirs. The pages are
    /// pinned until the container is closed.
    ///
    /// # Errors
    /// The kernel's: the memory may not be locked, or the IOMMU has no such address.
    fn lend(&self, container: BorrowedFd<'_>, memory: &Mapping, address: u64) -> io::Result<()>;

    /// Tell MSI-X interrupts, from the first on, by these events. Returns 0, or how many there could have
    /// been where there are none now.
    ///
    /// # Errors
    /// The kernel's.
    fn interrupts(&self, device: BorrowedFd<'_>, events: &[BorrowedFd<'_>]) -> io::Result<usize>;
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

/// `struct vfio_iommu_type1_dma_map`.
#[repr(C)]
struct DmaMap {
    size: u32,
    flags: u32,
    memory: u64,
    address: u64,
    bytes: u64,
}

const _: () = assert!(size_of::<GroupStatus>() == 8 && size_of::<RegionInfo>() == 32);
const _: () = assert!(size_of::<DmaMap>() == 32);

const MAY_READ_WRITE: u32 = 1 | 2;

/// Words of `struct vfio_irq_set` before its descriptors.
const INTERRUPT_WORDS: usize = 5;
const BY_EVENTS: u32 = 1 << 2;
const TRIGGERS: u32 = 1 << 5;
const MSI_X: u32 = 2;

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
        let raw = container.as_raw_fd();
        let at = core::ptr::from_ref(&raw).expose_provenance();
        // SAFETY: the number outlives the call.
        unsafe { Self::ask(group, 4, at) }?;
        // SAFETY: a number only.
        unsafe { Self::ask(container, 2, iommu) }?;
        Ok(())
    }

    fn device(&self, group: BorrowedFd<'_>, address: &str) -> io::Result<OwnedFd> {
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

    fn lend(&self, container: BorrowedFd<'_>, memory: &Mapping, address: u64) -> io::Result<()> {
        let map = DmaMap {
            size: 32,
            flags: MAY_READ_WRITE,
            memory: memory.start().as_ptr().expose_provenance() as u64,
            address,
            bytes: memory.bytes() as u64,
        };
        let at = core::ptr::from_ref(&map).expose_provenance();
        // SAFETY: the structure outlives the call and says its size; the memory is a mapping of ours,
        // in which others may write anyway.
        unsafe { Self::ask(container, 13, at) }?;
        Ok(())
    }

    fn interrupts(&self, device: BorrowedFd<'_>, events: &[BorrowedFd<'_>]) -> io::Result<usize> {
        let count = u32::try_from(events.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let words = u32::try_from(INTERRUPT_WORDS + events.len());
        let bytes = words.map_err(|_| io::ErrorKind::InvalidInput)? * 4;
        let mut set = vec![bytes, BY_EVENTS | TRIGGERS, MSI_X, 0, count];
        set.extend(events.iter().map(|event| event.as_raw_fd().cast_unsigned()));
        // SAFETY: the words outlive the call, and the first says how many there are.
        unsafe { Self::ask(device, 10, set.as_ptr().expose_provenance()) }
    }
}
