//! Memory that is addressed like memory but may be another host's, too: a DAX device (`/dev/dax0.0`, which
//! is how Linux shows CXL and persistent memory that it does not use itself), or a file on a file system
//! mounted with DAX.
//!
//! Whether hosts' caches are kept coherent cannot be asked of the kernel. So lines are flushed unless
//! whoever opens the window says that they need not be.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::path::Path;

use crosslane_sys::memory::Mapping;

use super::{Memory, Window, WindowError, checked_bytes};
use crate::cache::Flush;
use crate::discover::dax::device_bytes;
use crate::policy::Traits;

/// A window that is DAX memory.
#[derive(Debug)]
pub struct DaxWindow {
    mapping: Mapping,
    coherent: bool,
    kind: &'static str,
}

impl DaxWindow {
    /// A DAX device, of the size that sysfs shows below `sysfs`.
    ///
    /// # Errors
    /// If it cannot be opened, asked or mapped.
    pub fn device(path: &Path, sysfs: &Path, coherent: bool) -> Result<Self, WindowError> {
        let file = open(path)?;
        let bytes = device_bytes(path, sysfs).map_err(|cause| WindowError::open(path, cause))?;
        Self::of(path, &file, bytes, coherent, "DAX device")
    }

    /// A file whose pages are the device's memory.
    ///
    /// # Errors
    /// As [`DaxWindow::device`].
    pub fn file(path: &Path, coherent: bool) -> Result<Self, WindowError> {
        let file = open(path)?;
        let bytes = file
            .metadata()
            .map_err(|cause| WindowError::open(path, cause))?
            .len();
        Self::of(path, &file, bytes, coherent, "file on DAX")
    }

    fn of(
        path: &Path,
        file: &File,
        bytes: u64,
        coherent: bool,
        kind: &'static str,
    ) -> Result<Self, WindowError> {
        if !coherent && Flush::here() == Flush::None {
            return Err(WindowError::Other {
                path: path.to_owned(),
                why: "needs an instruction that flushes cache lines, and this processor has none",
            });
        }
        let bytes = checked_bytes(path, bytes)?;
        let mapping = Mapping::shared(file.as_fd(), bytes);
        let mapping = mapping.map_err(|cause| WindowError::map(path, bytes, cause))?;
        Ok(Self {
            mapping,
            coherent,
            kind,
        })
    }
}

fn open(path: &Path) -> Result<File, WindowError> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.map_err(|cause| WindowError::open(path, cause))
}

impl Window for DaxWindow {
    fn traits(&self) -> Traits {
        match self.coherent {
            true => Traits::MEMORY,
            false => Traits::FLUSHED,
        }
    }

    fn description(&self) -> String {
        match self.coherent {
            true => format!("{}, taken for coherent", self.kind),
            false => format!("{}, flushed by {}", self.kind, Flush::here().name()),
        }
    }

    fn keeps_data(&self) -> bool {
        true
    }

    fn memory(&self) -> Memory<'_> {
        Memory::Shared(&self.mapping)
    }
}
