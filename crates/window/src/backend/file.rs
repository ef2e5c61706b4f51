//! Memory of this machine: a memfd, or a file in tmpfs or hugetlbfs that two hosts on it share, such as
//! containers, or virtual machines' processes.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::path::Path;

use crosslane_sys::device::{HUGETLBFS, TMPFS, filesystem};
use crosslane_sys::memory::Mapping;

use super::{Memory, Window, WindowError, checked_bytes};
use crate::policy::Traits;

/// A window that is plain memory.
#[derive(Debug)]
pub struct FileWindow {
    mapping: Mapping,
    kind: &'static str,
}

impl FileWindow {
    /// A window without a name, of this process and those that get its descriptor.
    ///
    /// # Errors
    /// If there is no memory, or no descriptor.
    pub fn memfd(bytes: usize) -> Result<(Self, File), WindowError> {
        let path = Path::new("memfd");
        let bytes = checked_bytes(path, bytes as u64)?;
        let object = crate::memory::create_sealed("crosslane-window", bytes)
            .map_err(|cause| WindowError::open(path, cause))?;
        let file = File::from(object);
        Ok((Self::of(path, &file, "memfd")?, file))
    }

    /// The window that an existing file is.
    ///
    /// # Errors
    /// If it cannot be opened or mapped, or does not lie in memory: what is written to a file on a
    /// disk would be written to the disk, too.
    pub fn open(path: &Path) -> Result<Self, WindowError> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(|cause| WindowError::open(path, cause))?;
        let found = filesystem(file.as_fd()).map_err(|cause| WindowError::open(path, cause))?;
        match found {
            TMPFS => Self::of(path, &file, "file in tmpfs"),
            HUGETLBFS => Self::of(path, &file, "file in hugetlbfs"),
            _ => Err(WindowError::Other {
                path: path.to_owned(),
                why: "is no file in memory; make one in /dev/shm or in a hugetlbfs",
            }),
        }
    }

    /// The window behind a descriptor, whoever has made it.
    ///
    /// # Errors
    /// If it is too small or cannot be mapped.
    pub fn of(path: &Path, file: &File, kind: &'static str) -> Result<Self, WindowError> {
        let length = file
            .metadata()
            .map_err(|cause| WindowError::open(path, cause))?
            .len();
        let bytes = checked_bytes(path, length)?;
        let mapping = Mapping::shared(file.as_fd(), bytes);
        let mapping = mapping.map_err(|cause| WindowError::map(path, bytes, cause))?;
        Ok(Self { mapping, kind })
    }
}

impl Window for FileWindow {
    fn traits(&self) -> Traits {
        Traits::MEMORY
    }

    fn description(&self) -> String {
        self.kind.to_owned()
    }

    fn memory(&self) -> Memory<'_> {
        Memory::Shared(&self.mapping)
    }
}
