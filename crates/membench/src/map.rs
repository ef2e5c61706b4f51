//! Windows: anonymous memory, or a file that is memory.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use crosslane_window::view::View;
use rustix::mm::{MapFlags, ProtFlags};
use thiserror::Error;

use crate::node::{mask, online};

/// Smallest window: one page.
pub const MIN_BYTES: usize = 4096;

/// A window that cannot be had.
#[derive(Debug, Error)]
pub enum MapError {
    /// A length that is not whole pages.
    #[error("a window of {0} bytes is not whole pages of 4096, from one page up")]
    Length(usize),
    /// A file that cannot be opened.
    #[error("{}: cannot open for reading and writing: {cause}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
    /// A file that is shorter than the window.
    #[error("{}: {found} bytes are less than the window's {wanted}; {}", path.display(), shorter(*found))]
    Short {
        /// The file.
        path: PathBuf,
        /// Its length.
        found: u64,
        /// The window's.
        wanted: usize,
    },
    /// The kernel refused.
    #[error("cannot map {bytes} bytes of {what}: {cause}{hint}")]
    Map {
        /// How much.
        bytes: usize,
        /// Of what.
        what: String,
        /// Why not.
        cause: rustix::io::Errno,
        /// What to do.
        hint: &'static str,
    },
    /// The kernel refused to place it.
    #[error("cannot place the window on NUMA node {node}: this machine has {online} ({cause})")]
    Node {
        /// Which node.
        node: u32,
        /// The nodes that there are.
        online: String,
        /// Why not.
        cause: std::io::Error,
    },
}

/// Which pages anonymous memory gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pages {
    /// Base pages only.
    Small,
    /// Transparent huge pages, where the kernel has them.
    Transparent,
    /// Reserved huge pages of 2 MiB.
    Huge,
}

/// A mapped window. The pointer stays inside: everyone else uses offsets.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    /// Whether it is unmapped with this.
    is_ours: bool,
}

impl Mapping {
    /// Anonymous memory.
    ///
    /// # Errors
    /// [`MapError`] if the kernel refuses, for example because no huge pages are reserved.
    pub fn anonymous(bytes: usize, pages: Pages) -> Result<Self, MapError> {
        check(bytes)?;
        let huge = if pages == Pages::Huge {
            MapFlags::HUGETLB
        } else {
            MapFlags::empty()
        };
        // SAFETY: a new private anonymous mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | huge,
            )
        };
        let hint = if pages == Pages::Huge {
            "; reserve huge pages in /proc/sys/vm/nr_hugepages"
        } else {
            ""
        };
        let mapping = Self::new(
            base,
            bytes,
            || format!("anonymous memory ({pages:?} pages)"),
            hint,
        )?;
        mapping.advise(pages);
        Ok(mapping)
    }

    /// A file that is memory: in tmpfs or hugetlbfs, on DAX, or a PCI BAR in sysfs.
    ///
    /// # Errors
    /// [`MapError`] if it cannot be opened, is too short or cannot be mapped.
    pub fn file(path: &Path, bytes: usize) -> Result<Self, MapError> {
        check(bytes)?;
        let file = open(path)?;
        // Beyond its end a file answers with a signal; devices refuse to be mapped.
        if let Some(found) = length_of(&file).filter(|found| *found < bytes as u64) {
            return Err(MapError::Short {
                path: path.to_owned(),
                found,
                wanted: bytes,
            });
        }
        // SAFETY: a new shared mapping at an address of the kernel's choice aliases no Rust object; what
        // others do to the file is seen by accesses through raw pointers only.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
        };
        Self::new(base, bytes, || path.display().to_string(), "")
    }

    /// What another has mapped, who keeps it for as long as this is used.
    pub fn of_view(view: View) -> Self {
        Self {
            base: view.start(),
            bytes: view.bytes(),
            is_ours: false,
        }
    }

    /// The length of a file that [`Mapping::file`] would map; none of a character device, which does not
    /// say.
    ///
    /// # Errors
    /// [`MapError::Open`].
    pub fn file_bytes(path: &Path) -> Result<Option<u64>, MapError> {
        Ok(length_of(&open(path)?))
    }

    fn new(
        base: rustix::io::Result<*mut std::ffi::c_void>,
        bytes: usize,
        what: impl Fn() -> String,
        hint: &'static str,
    ) -> Result<Self, MapError> {
        let base = base.map_err(|cause| MapError::Map {
            bytes,
            what: what(),
            cause,
            hint,
        })?;
        let base = NonNull::new(base.cast::<u8>());
        let is_ours = true;
        base.map(|base| Self {
            base,
            bytes,
            is_ours,
        })
        .ok_or_else(|| MapError::Map {
            bytes,
            what: what(),
            cause: rustix::io::Errno::NOMEM,
            hint,
        })
    }

    fn advise(&self, pages: Pages) {
        let advice = match pages {
            Pages::Small => rustix::mm::Advice::LinuxNoHugepage,
            Pages::Transparent => rustix::mm::Advice::LinuxHugepage,
            Pages::Huge => return,
        };
        // SAFETY: the range is this mapping, and neither advice discards contents.
        let advised = unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.bytes, advice) };
        // A kernel without transparent huge pages refuses both, and then there are only small pages.
        let _ = advised;
    }

    /// Binds pages not yet touched to a NUMA node.
    ///
    /// # Errors
    /// [`MapError::Node`] if there is no such node.
    pub fn bind(&self, node: u32) -> Result<(), MapError> {
        let none = || no_node(node, std::io::ErrorKind::InvalidInput.into());
        let mask = mask(node).ok_or_else(none)?;
        // SAFETY: mbind(2) reads `maxnode` bits at `mask`, which has that many, and changes only the
        // placement of this mapping's pages.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.base.as_ptr(),
                self.bytes,
                libc::MPOL_BIND,
                mask.as_ptr(),
                mask.len() * 64,
                0,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(no_node(node, std::io::Error::last_os_error()))
        }
    }

    /// Size of the pages that the window has now, where it has one and the kernel says it.
    #[must_use]
    pub fn page_bytes(&self) -> Option<usize> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        crate::pages::page_bytes(&smaps, self.base.as_ptr().addr())
    }

    /// Length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of `len` bytes at `offset`.
    ///
    /// # Panics
    /// If they are not all inside the window.
    pub(crate) fn address(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            len <= self.bytes && offset <= self.bytes - len,
            "{len} bytes at {offset} are outside a window of {} bytes",
            self.bytes
        );
        // SAFETY: the assertion keeps the result inside the one mapping that `base` points to.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.is_ours {
            return;
        }
        // SAFETY: the range is exactly what was mapped, and no pointer into it outlives this value.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours can be unmapped");
    }
}

fn open(path: &Path) -> Result<File, MapError> {
    let open = OpenOptions::new().read(true).write(true).open(path);
    open.map_err(|cause| MapError::Open {
        path: path.to_owned(),
        cause,
    })
}

fn length_of(mut file: &File) -> Option<u64> {
    let metadata = file.metadata().ok()?;
    if metadata.file_type().is_block_device() {
        return file.seek(SeekFrom::End(0)).ok();
    }
    metadata.is_file().then_some(metadata.len())
}

/// What to do about a file of this length.
fn shorter(found: u64) -> String {
    let whole = (found - found % MIN_BYTES as u64).min(1 << 30);
    if whole == 0 {
        return "make it larger first, as with truncate --size 128M".to_owned();
    }
    format!("give --max-window {whole} or less")
}

fn check(bytes: usize) -> Result<(), MapError> {
    if bytes >= MIN_BYTES && bytes.is_multiple_of(MIN_BYTES) {
        Ok(())
    } else {
        Err(MapError::Length(bytes))
    }
}

fn no_node(node: u32, cause: std::io::Error) -> MapError {
    MapError::Node {
        node,
        online: online(),
        cause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_files_are_checked() {
        assert!(
            Mapping::anonymous(100, Pages::Small)
                .unwrap_err()
                .to_string()
                .contains("100 bytes")
        );
        let path = std::env::temp_dir().join(format!("crosslane-membench-{}", std::process::id()));
        std::fs::write(&path, [0; 4096]).unwrap();
        let short = Mapping::file(&path, 8192).unwrap_err().to_string();
        assert!(short.contains("4096 bytes are less"), "{short}");
        assert!(short.contains("give --max-window 4096 or less"), "{short}");
        for (length, remedy) in [
            (0, "make it larger"),
            (100, "make it larger"),
            (5000, "4096 or less"),
        ] {
            std::fs::write(&path, vec![0; length]).unwrap();
            assert_eq!(Mapping::file_bytes(&path).unwrap(), Some(length as u64));
            let short = Mapping::file(&path, 8192).unwrap_err().to_string();
            assert!(short.contains(remedy), "{short}");
        }
        std::fs::write(&path, [0; 4096]).unwrap();
        assert_eq!(Mapping::file(&path, 4096).unwrap().bytes(), 4096);
        std::fs::remove_file(&path).unwrap();
        assert!(
            Mapping::file(&path, 4096)
                .unwrap_err()
                .to_string()
                .contains("cannot open")
        );
    }

    #[test]
    fn what_another_has_mapped_is_measured_and_left_mapped() {
        let owner = Mapping::anonymous(8192, Pages::Small).unwrap();
        // SAFETY: it lives as long as this function.
        let view = unsafe { View::from_raw(owner.base, owner.bytes) };
        let part = Mapping::of_view(view.part(4096, 4096).unwrap());
        assert_eq!(part.bytes(), 4096);
        assert_eq!(part.address(8, 8), owner.address(4104, 8));
        drop(part);
        crate::kernel::store(&owner, 4104, 7);
        assert_eq!(crate::kernel::load(&owner, 4104), 7);
    }

    #[test]
    fn node_zero_exists_and_node_one_thousand_does_not() {
        let mapping = Mapping::anonymous(1 << 16, Pages::Small).unwrap();
        mapping.bind(0).unwrap();
        assert!(
            mapping
                .bind(1000)
                .unwrap_err()
                .to_string()
                .contains("node 1000")
        );
    }

    #[test]
    #[should_panic(expected = "outside a window")]
    fn addresses_are_checked() {
        let mapping = Mapping::anonymous(4096, Pages::Small).unwrap();
        let _ = mapping.address(4090, 8);
    }
}
