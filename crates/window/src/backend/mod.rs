//! Windows, whatever they are made of.
//!
//! A [`Window`] is memory that two hosts can reach. Of one that both map, each lends the other one half:
//! side 0 reads the first and writes the second. A bridge ([`crate::ntb`]) has two memories instead, one
//! at each host. Code above asks for [`halves`] and gets what may be read and what may be written.

use std::io;
use std::path::{Path, PathBuf};

use crosslane_sys::memory::Mapping;
use thiserror::Error;

use crate::inbound::Inbound;
use crate::ntb::NtbError;
use crate::outbound::Outbound;
use crate::policy::Traits;
use crate::view::View;

mod bar;
mod dax;
mod file;
mod place;
pub(crate) mod vfio;

pub use bar::BarWindow;
pub use dax::DaxWindow;
pub use file::FileWindow;
pub use place::{Place, held_bridge, open, open_bridge};
pub use vfio::VfioWindow;
pub use vfio::device::{Region, VfioDevice};
pub use vfio::kernel::{Kernel, SystemKernel};

/// A page: windows are mapped in whole ones.
pub const PAGE_BYTES: usize = crosslane_ctl::lane::PAGE_BYTES;

/// Memory that another host can reach, too.
pub trait Window: Send + Sync {
    /// In which ways it differs from others.
    fn traits(&self) -> Traits;

    /// What it is, for people: "ivshmem BAR, uncached".
    fn description(&self) -> String;

    /// Whether what is in it may be somebody's data, and not just what is on its way.
    fn keeps_data(&self) -> bool {
        false
    }

    /// Which side this host is, where that is not for the user to say.
    fn side(&self) -> Option<u8> {
        None
    }

    /// Whether it is still what was opened: over a bridge, whether the link is up, and the other host's driver
    /// the one that was met.
    ///
    /// # Errors
    /// What is wrong.
    fn check(&self) -> Result<(), WindowError> {
        Ok(())
    }

    /// The mapped memory. It is not handed out as such to anybody: see [`halves`].
    fn memory(&self) -> Memory<'_>;
}

/// Where the memory of a window is.
#[derive(Clone, Copy, Debug)]
pub enum Memory<'a> {
    /// Both hosts map the same, and each reads one half.
    Shared(&'a Mapping),
    /// At each host is one, which the other writes.
    Apart {
        /// This host's.
        local: &'a Mapping,
        /// The way to the other's.
        remote: &'a Mapping,
        /// How much of each counts.
        bytes: usize,
    },
}

/// A window that cannot be opened.
#[derive(Debug, Error)]
pub enum WindowError {
    /// A file that cannot be opened, or asked what it is.
    #[error("{}: cannot open the window: {cause}{}", path.display(), remedy(cause))]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// The kernel refused to map it.
    #[error("{}: cannot map {bytes} bytes: {cause}{}", path.display(), map_remedy(path, cause))]
    Map {
        /// The file.
        path: PathBuf,
        /// How much.
        bytes: usize,
        /// Why not.
        cause: io::Error,
    },
    /// No room for two halves of a page.
    #[error("{}: {bytes} bytes are too small for a window; two pages of {PAGE_BYTES} at least", path.display())]
    Small {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// A device that does not answer at its addresses.
    #[error("{address}: the device is not enabled; {}", enable_remedy(address, driver.as_deref(), switch))]
    Disabled {
        /// The device.
        address: String,
        /// The driver that has it.
        driver: Option<String>,
        /// The file that enables it.
        switch: PathBuf,
    },
    /// A device without such a region.
    #[error("{address} has no memory region {bar} that programs may map")]
    NoRegion {
        /// The device.
        address: String,
        /// Which.
        bar: u32,
    },
    /// VFIO is not there, or does not serve the device.
    #[error("{address}: VFIO cannot be used: {why}")]
    Vfio {
        /// The device.
        address: String,
        /// What is missing, and what to do.
        why: String,
    },
    /// A bridge that cannot be used, or whose other side does not answer.
    #[error(transparent)]
    Ntb(#[from] NtbError),
    /// No such file.
    #[error("{}: there is no such file; make one: truncate -s 64M {}", path.display(), path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// Something that is no window.
    #[error("{}: {why}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// What it is.
        why: &'static str,
    },
}

fn remedy(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::PermissionDenied => "; it takes root, or a group that owns the file",
        io::ErrorKind::NotFound => "; `crosslane window probe` lists those that there are",
        io::ErrorKind::ResourceBusy => {
            "; another process has it: of `crosslane window test` and `hold` one can run, and no other driver"
        }
        _ => "",
    }
}

/// What the kernel means where it lets a device's region be opened, and not be mapped.
fn map_remedy(path: &Path, cause: &io::Error) -> &'static str {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match cause.kind() {
        _ if !name.starts_with("resource") => "",
        io::ErrorKind::PermissionDenied => {
            "; the kernel is locked down (secure boot), which keeps programs from regions in sysfs: bind the device to \
             vfio-pci, and name it vfio:ADDRESS"
        }
        io::ErrorKind::InvalidInput => {
            "; a driver has the region for itself (see /proc/iomem): unbind it, as root: echo ADDRESS > \
             /sys/bus/pci/devices/ADDRESS/driver/unbind"
        }
        _ => "",
    }
}

/// The kernel enables no device by hand that has a driver.
fn enable_remedy(address: &str, driver: Option<&str>, switch: &Path) -> String {
    let enable = format!("echo 1 > {}", switch.display());
    match driver {
        None => format!("as root: {enable}"),
        Some("vfio-pci") => {
            format!(
                "its driver is vfio-pci, which enables it for who opens it: name it vfio:{address}"
            )
        }
        Some(driver) => format!(
            "the driver {driver} has it and has not enabled it; as root: echo {address} > \
             /sys/bus/pci/devices/{address}/driver/unbind; {enable}"
        ),
    }
}

impl WindowError {
    pub(crate) fn open(path: &Path, cause: impl Into<io::Error>) -> Self {
        Self::Open {
            path: path.to_owned(),
            cause: cause.into(),
        }
    }

    pub(crate) fn map(path: &Path, bytes: usize, cause: impl Into<io::Error>) -> Self {
        Self::Map {
            path: path.to_owned(),
            bytes,
            cause: cause.into(),
        }
    }
}

/// Bytes of what each side lends: whole pages.
pub fn half_bytes(window: &dyn Window) -> usize {
    let bytes = match window.memory() {
        Memory::Shared(mapping) => mapping.bytes() / 2,
        Memory::Apart {
            local,
            remote,
            bytes,
        } => bytes.min(local.bytes()).min(remote.bytes()),
    };
    bytes / PAGE_BYTES * PAGE_BYTES
}

/// What `side`, 0 or 1, may read and write of a window that is never closed, as those of lanes are
/// (docs/decisions/arenas-stay-mapped.md).
///
/// # Panics
/// If there is no such side.
pub fn lasting_halves(window: &'static dyn Window, side: usize) -> (Inbound, Outbound) {
    // SAFETY: it outlives everything.
    unsafe { halves(window, side) }
}

/// A part of a window that is never closed, for lanes whose sides share all of it; `None` where they do
/// not, or it does not lie inside.
pub fn lasting_view(window: &'static dyn Window, offset: usize, bytes: usize) -> Option<View> {
    let Memory::Shared(mapping) = window.memory() else {
        return None;
    };
    // SAFETY: it outlives everything.
    let whole = unsafe { View::of(mapping) };
    whole.part(offset, bytes)
}

/// A part of the other host's memory, of a window that has one at each host and is never closed, for benches: loads
/// of it cross the bridge, which lanes never do. `None` where both hosts map the same, or it does not lie inside.
pub fn lasting_view_beyond(
    window: &'static dyn Window,
    offset: usize,
    bytes: usize,
) -> Option<View> {
    let Memory::Apart {
        remote,
        bytes: counted,
        ..
    } = window.memory()
    else {
        return None;
    };
    // SAFETY: it outlives everything.
    let whole = unsafe { View::of(remote) };
    let counted = whole.part(0, counted.min(remote.bytes()))?;
    counted.part(offset, bytes)
}

/// What `side`, 0 or 1, may read and write.
///
/// # Safety
/// The window must outlive every use of what is returned.
///
/// # Panics
/// If there is no such side.
pub unsafe fn halves(window: &dyn Window, side: usize) -> (Inbound, Outbound) {
    assert!(side < 2, "a window has sides 0 and 1");
    let half = half_bytes(window);
    let (local, remote) = match window.memory() {
        Memory::Shared(mapping) => {
            // SAFETY: the caller's promise.
            let whole = unsafe { View::of(mapping) };
            (
                whole.part(side * half, half),
                whole.part((1 - side) * half, half),
            )
        }
        Memory::Apart { local, remote, .. } => {
            // SAFETY: the caller's promise.
            let local = unsafe { View::of(local) };
            // SAFETY: as above.
            let remote = unsafe { View::of(remote) };
            (local.part(0, half), remote.part(0, half))
        }
    };
    let traits = window.traits();
    let local = local.and_then(|view| Inbound::new(view, traits));
    let remote = remote.and_then(|view| Outbound::new(view, traits));
    let both = local.zip(remote);
    both.expect("halves of whole pages lie inside and are aligned")
}

/// A size from the kernel, if a window of it has room for two halves.
fn checked_bytes(path: &Path, bytes: u64) -> Result<usize, WindowError> {
    let small = || WindowError::Small {
        path: path.to_owned(),
        bytes,
    };
    let bytes = usize::try_from(bytes).map_err(|_| small())?;
    match bytes / PAGE_BYTES * PAGE_BYTES {
        whole if whole >= 2 * PAGE_BYTES => Ok(whole),
        _ => Err(small()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_mapped_is_told_of_by_its_cause() {
        const EPERM: i32 = 1;
        const EINVAL: i32 = 22;
        let said = |path: &str, number| {
            let cause = io::Error::from_raw_os_error(number);
            WindowError::map(Path::new(path), 8192, cause).to_string()
        };
        let region = "/sys/bus/pci/devices/0000:00:05.0/resource2_wc";
        assert!(said(region, EPERM).contains("vfio:ADDRESS"));
        assert!(said(region, EINVAL).contains("driver/unbind"));
        assert!(said("/dev/shm/w", EINVAL).ends_with("(os error 22)"));
    }
}
