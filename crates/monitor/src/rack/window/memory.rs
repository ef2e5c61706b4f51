//! Files that two hosts on one machine share are memory. What lies on a disk, or is seen by two machines over a
//! network, is nothing of which the one reads what the other has just written; and some files of memory are no window,
//! as parts of them can be neither mapped nor given back.

use std::path::Path;

use crosslane_ctl::lane::Posting;
use rustix::fs::statfs;

use super::WindowError;
use super::beyond::posting;
use crate::rack::config::{WindowConfig, WindowKind};

/// As statfs(2) lists them.
const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58f6;
const RAMFS: u64 = 0x8584_58f6;

/// See that the files of a window are memory that it can have, or will be when they are made.
pub(super) fn ensure(config: &WindowConfig) -> Result<(), WindowError> {
    // Others than files are told of by what they are.
    let is_device = !matches!(config.kind, WindowKind::File | WindowKind::Posted);
    let beyond = config.beyond.as_ref().map(|beyond| &beyond.path);
    let mut paths = [Some(&config.path), beyond].into_iter().flatten();
    paths.try_for_each(|path| ensure_fit(path, is_device))
}

/// See that the file of this name, or what will be made there, can be a window. What `is_device`, a region or DAX memory, may
/// be on any file system but those that are known not to do.
///
/// # Errors
/// When it cannot, or the kernel does not say what it is.
pub fn ensure_fit(path: &Path, is_device: bool) -> Result<(), WindowError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let found = statfs(if path.exists() { path } else { folder });
    let found = found.map_err(|error| WindowError::File {
        path: path.to_owned(),
        error: error.into(),
    })?;
    let number = u64::try_from(found.f_type).unwrap_or(0);
    judge(path, number, is_device || posting(path) != Posting::Memory)
}

/// The same, by what statfs(2) has said.
pub(super) fn judge(path: &Path, filesystem: u64, is_device: bool) -> Result<(), WindowError> {
    let unfit = |filesystem, lack| {
        Err(WindowError::Unfit {
            path: path.to_owned(),
            filesystem,
            lack,
        })
    };
    match filesystem {
        TMPFS => Ok(()),
        HUGETLBFS => unfit(
            "hugetlbfs",
            "whose files cannot be written to, and whose pages are larger than the 4096 bytes at any of which a part \
             of a window may begin",
        ),
        RAMFS => unfit("ramfs", "whose files cannot be cleared part by part"),
        _ if is_device => Ok(()),
        _ => Err(WindowError::Disk {
            path: path.to_owned(),
        }),
    }
}
