//! What windows this machine has, as the kernel shows them. Nothing is opened for writing or changed.

pub mod dax;
pub mod memory;
pub mod pci;

use std::path::{Path, PathBuf};

/// Where the kernel shows things; a test has its own.
#[derive(Clone, Debug)]
pub struct Roots {
    /// `/sys/bus/pci/devices`.
    pub pci: PathBuf,
    /// `/sys/bus/dax/devices`.
    pub dax: PathBuf,
    /// `/dev`.
    pub dev: PathBuf,
    /// `/proc/self/mountinfo`.
    pub mounts: PathBuf,
}

impl Roots {
    /// This machine's.
    pub fn system() -> Self {
        Self {
            pci: "/sys/bus/pci/devices".into(),
            dax: "/sys/bus/dax/devices".into(),
            dev: "/dev".into(),
            mounts: "/proc/self/mountinfo".into(),
        }
    }
}

/// The text of a small file, trimmed; `None` if it is not there or not readable.
fn text(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// The last name of where a link leads.
fn link_name(path: &Path) -> Option<String> {
    let target = std::fs::read_link(path).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}
