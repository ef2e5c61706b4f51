//! DAX devices: memory that the kernel addresses but does not use.

use std::io;
use std::path::{Path, PathBuf};

use super::{Roots, link_name, text};

/// A DAX device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaxDevice {
    /// The file to open.
    pub path: PathBuf,
    /// How large.
    pub bytes: u64,
    /// NUMA node that the memory would be, if the kernel knows.
    pub node: Option<u32>,
    /// The driver that has it: `device_dax` for programs, `kmem` where the kernel uses it as its own.
    pub driver: Option<String>,
}

/// All DAX devices, by name; none where the kernel has no such bus.
///
/// # Errors
/// If the bus is there but cannot be listed.
pub fn devices(roots: &Roots) -> io::Result<Vec<DaxDevice>> {
    let entries = match std::fs::read_dir(&roots.dax) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let device = |folder: PathBuf| {
        let path = roots.dev.join(folder.file_name()?);
        Some(DaxDevice {
            bytes: device_bytes(&path, &roots.dax).ok()?,
            path,
            node: text(&folder.join("target_node")).and_then(|node| node.parse().ok()),
            driver: link_name(&folder.join("driver")),
        })
    };
    let folders = entries.flatten().map(|entry| entry.path());
    let mut devices: Vec<_> = folders.filter_map(device).collect();
    devices.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(devices)
}

/// How large the device behind a file such as `/dev/dax0.0` is.
///
/// # Errors
/// If there is no such device below `sysfs`.
pub fn device_bytes(path: &Path, sysfs: &Path) -> io::Result<u64> {
    number(path, sysfs, "size")
}

/// Of which pages what is mapped of it must consist, and where it must begin.
///
/// # Errors
/// If there is no such device below `sysfs`.
pub fn device_align(path: &Path, sysfs: &Path) -> io::Result<u64> {
    number(path, sysfs, "align")
}

fn number(path: &Path, sysfs: &Path, file: &str) -> io::Result<u64> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let text = std::fs::read_to_string(sysfs.join(name).join(file))?;
    text.trim()
        .parse()
        .map_err(|_| io::ErrorKind::InvalidData.into())
}
