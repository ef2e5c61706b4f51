//! Where a window is, as a person writes it.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crosslane_sys::device::is_dax;

use super::{BarWindow, DaxWindow, FileWindow, SystemKernel, VfioWindow, Window, WindowError};
use crate::discover::{Roots, pci};
use crate::ntb::hold::Held;
use crate::ntb::{self, NtbWindow};

/// A window's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A region of a PCI device by sysfs: `0000:00:05.0`, its largest, or `0000:00:05.0/2`.
    Pci {
        /// The device.
        address: String,
        /// The region, if one was named.
        bar: Option<u32>,
    },
    /// The same by VFIO: `vfio:0000:00:05.0/2`.
    Vfio {
        /// The device.
        address: String,
        /// The region, if one was named.
        bar: Option<u32>,
    },
    /// A bridge that Crosslane drives, by VFIO: `ntb:0000:17:00.0`, or `ntb:0000:17:00.0/4`.
    Ntb {
        /// The device.
        address: String,
        /// The region, if one was named.
        bar: Option<u32>,
    },
    /// A file or device: in tmpfs, in hugetlbfs, on DAX, `/dev/dax0.0`, or a `resourceN` in sysfs.
    Path(PathBuf),
}

impl Place {
    /// What these words mean. Any file has a name that can be written so that it is one: `./name`.
    pub fn of(words: &str) -> Self {
        let (way, rest) = match words.split_once(':') {
            Some((way @ ("vfio" | "ntb"), rest)) => (way, rest),
            _ => ("", words),
        };
        let (address, bar) = match rest.split_once('/') {
            Some((address, bar)) => (address, bar.parse().ok()),
            None => (rest, None),
        };
        let address = address.to_owned();
        match (pci::is_address(&address), way) {
            (true, "vfio") => Self::Vfio { address, bar },
            (true, "ntb") => Self::Ntb { address, bar },
            (true, _) => Self::Pci { address, bar },
            (false, _) => Self::Path(PathBuf::from(words)),
        }
    }
}

/// Open the window at a place. `coherent` says that DAX memory needs no flushes. A bridge is waited for
/// until its other host has opened it, too.
///
/// # Errors
/// If there is none, or it cannot be used.
pub fn open(place: &Place, roots: &Roots, coherent: bool) -> Result<Box<dyn Window>, WindowError> {
    Ok(match place {
        Place::Pci { address, bar } => {
            let device = device(roots, address)?;
            let bar = bar.or_else(|| device.window_bar()).unwrap_or(0);
            Box::new(BarWindow::open(&device, bar)?)
        }
        Place::Vfio { address, bar } => {
            let device = device(roots, address)?;
            let bar = bar.or_else(|| device.window_bar()).unwrap_or(0);
            Box::new(VfioWindow::open(&SystemKernel, &device, bar)?)
        }
        Place::Ntb { address, bar } => Box::new(open_bridge(address, *bar, roots, ntb::PATIENCE)?),
        Place::Path(path) => open_path(path, roots, coherent)?,
    })
}

/// Open the window of a bridge, and wait so long for the other host to do the same.
///
/// # Errors
/// If there is none, it cannot be used, or the other host does not come.
pub fn open_bridge(
    address: &str,
    bar: Option<u32>,
    roots: &Roots,
    patience: Duration,
) -> Result<NtbWindow, WindowError> {
    let device = device(roots, address)?;
    let parts = ntb::vfio::parts(&SystemKernel, &device, bar)?;
    Ok(NtbWindow::open(parts, patience)?)
}

/// Take a bridge that is to be held open for others, and lend so many bytes of a file, by default as many as usual. The file
/// by which others map its region is returned as well.
///
/// # Errors
/// If there is none, or it or the file cannot be used.
pub fn held_bridge(
    address: &str,
    bar: Option<u32>,
    roots: &Roots,
    memory: (&Path, Option<u64>),
) -> Result<(Held, PathBuf), WindowError> {
    ntb::vfio::held(&SystemKernel, &device(roots, address)?, bar, memory)
}

fn device(roots: &Roots, address: &str) -> Result<pci::PciDevice, WindowError> {
    let folder = roots.pci.join(address);
    pci::device(&folder).map_err(|cause| WindowError::open(&folder, cause))
}

fn open_path(path: &Path, roots: &Roots, coherent: bool) -> Result<Box<dyn Window>, WindowError> {
    let file = File::open(path).map_err(|cause| match cause.kind() {
        ErrorKind::NotFound if can_be_made(path) => WindowError::Missing {
            path: path.to_owned(),
        },
        _ => WindowError::open(path, cause),
    })?;
    let metadata = file
        .metadata()
        .map_err(|cause| WindowError::open(path, cause))?;
    if metadata.file_type().is_char_device() {
        return Ok(Box::new(DaxWindow::device(path, &roots.dax, coherent)?));
    }
    if let Some((folder, bar, combine)) = resource(path) {
        let device = pci::device(folder).map_err(|cause| WindowError::open(folder, cause))?;
        return Ok(Box::new(BarWindow::open_as(&device, bar, combine)?));
    }
    if is_dax(file.as_fd()) {
        return Ok(Box::new(DaxWindow::file(path, coherent)?));
    }
    Ok(Box::new(FileWindow::open(path)?))
}

/// Whether a file is none of the kernel's, and has a folder to be made in.
fn can_be_made(path: &Path) -> bool {
    let is_in = |folder| path.starts_with(folder);
    let is_kernels = is_in("/sys") || is_in("/dev") && !is_in("/dev/shm");
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    !is_kernels && folder.is_none_or(Path::is_dir)
}

/// The device, the region, and whether to combine writes, of a path such as `.../resource2_wc`.
fn resource(path: &Path) -> Option<(&Path, u32, bool)> {
    let folder = path.parent()?;
    let name = path.file_name()?.to_str()?.strip_prefix("resource")?;
    let (bar, combine) = match name.strip_suffix("_wc") {
        Some(bar) => (bar, true),
        None => (name, false),
    };
    let has_device = folder.join("vendor").exists();
    has_device.then_some((folder, bar.parse().ok()?, combine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_places() {
        let address = || "0000:00:05.0".to_owned();
        let pci = |bar| Place::Pci {
            address: address(),
            bar,
        };
        assert_eq!(Place::of("0000:00:05.0"), pci(None));
        assert_eq!(Place::of("0000:00:05.0/2"), pci(Some(2)));
        let vfio = Place::Vfio {
            address: address(),
            bar: Some(2),
        };
        assert_eq!(Place::of("vfio:0000:00:05.0/2"), vfio);
        let ntb = Place::Ntb {
            address: address(),
            bar: None,
        };
        assert_eq!(Place::of("ntb:0000:00:05.0"), ntb);
        for path in [
            "/dev/dax0.0",
            "vfio:",
            "ntb:x",
            "/dev/shm/w",
            "./0000:00:05.0",
        ] {
            assert_eq!(Place::of(path), Place::Path(path.into()));
        }
    }
}
