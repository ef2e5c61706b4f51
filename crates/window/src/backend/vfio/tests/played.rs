//! A kernel that tests play: a device whose descriptor is a memory object. The conformance suite of windows has it, too
//! (`crates/ring/tests/windows`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use super::{Kernel, Mapping, Region};

/// Where the window's region begins in the descriptor.
pub const BAR_OFFSET: u64 = 1 << 16;
/// Where the configuration space does.
pub const CONFIG_OFFSET: u64 = 1 << 14;

const CONFIG_REGION: u32 = 7;
pub const MAY_READ_WRITE: u32 = 1 | 2;
const MAY_MAP: u32 = 4;

pub struct Played {
    pub device: File,
    pub asked: RefCell<Vec<String>>,
    pub is_viable: bool,
    /// What it says of interrupts.
    pub interrupts: usize,
    /// What it says when memory is to be lent, if it does not do it.
    pub lends: Option<i32>,
    pub regions: BTreeMap<u32, Region>,
}

/// A region that may be mapped.
pub fn mappable(offset: u64, bytes: u64) -> Region {
    Region {
        flags: MAY_READ_WRITE | MAY_MAP,
        bytes,
        offset,
    }
}

impl Played {
    /// With a region 2 of so many bytes.
    pub fn with_region(bytes: u64) -> Self {
        let room = (BAR_OFFSET + bytes).max(1 << 20);
        let room = usize::try_from(room).unwrap();
        let object = crosslane_sys::memory::create_sealed(c"test-vfio", room).unwrap();
        Self {
            device: File::from(object),
            asked: RefCell::default(),
            is_viable: true,
            interrupts: 0,
            lends: None,
            regions: BTreeMap::from([(2, mappable(BAR_OFFSET, bytes))]),
        }
    }

    fn note(&self, what: impl Into<String>) {
        self.asked.borrow_mut().push(what.into());
    }
}

impl Kernel for Played {
    fn open(&self, path: &Path) -> io::Result<File> {
        self.note(path.display().to_string());
        File::open("/dev/null")
    }

    fn version(&self, _container: BorrowedFd<'_>) -> io::Result<usize> {
        self.note("version");
        Ok(0)
    }

    fn is_viable(&self, _group: BorrowedFd<'_>) -> io::Result<bool> {
        self.note("viable");
        Ok(self.is_viable)
    }

    fn join(
        &self,
        _group: BorrowedFd<'_>,
        _container: BorrowedFd<'_>,
        iommu: usize,
    ) -> io::Result<()> {
        self.note(format!("join {iommu}"));
        Ok(())
    }

    fn device(&self, _group: BorrowedFd<'_>, address: &str) -> io::Result<OwnedFd> {
        self.note(address);
        Ok(self.device.try_clone()?.into())
    }

    fn region(&self, _device: BorrowedFd<'_>, index: u32) -> io::Result<Region> {
        self.note(format!("region {index}"));
        Ok(match index {
            CONFIG_REGION => Region {
                flags: MAY_READ_WRITE,
                bytes: 4096,
                offset: CONFIG_OFFSET,
            },
            _ => self.regions.get(&index).copied().unwrap_or_default(),
        })
    }

    fn lend(&self, _container: BorrowedFd<'_>, memory: &Mapping, address: u64) -> io::Result<()> {
        self.note(format!("lend {} at {address:#x}", memory.bytes()));
        match self.lends {
            None => Ok(()),
            Some(number) => Err(io::Error::from_raw_os_error(number)),
        }
    }

    fn interrupts(&self, _device: BorrowedFd<'_>, events: &[BorrowedFd<'_>]) -> io::Result<usize> {
        self.note(format!("interrupts {}", events.len()));
        Ok(self.interrupts)
    }
}
