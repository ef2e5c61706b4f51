//! Files that two hosts on one machine share are memory. What lies on a disk, or is seen by two machines over a
//! network, is nothing of which the one reads what the other has just written; and some files of memory are no window,
//! as parts of them can be neither mapped nor given back.

use std::fs::{File, Metadata};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crosslane_ctl::lane::{Pages, Posting};
use crosslane_window::discover::{Roots, dax};
use rustix::fs::{FallocateFlags, fallocate, fstatfs, statfs};

use super::beyond::posting;
use super::{Layout, WindowError};
use crate::rack::config::{WindowConfig, WindowKind};

/// As statfs(2) lists them.
const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58f6;
const RAMFS: u64 = 0x8584_58f6;

/// See that the files of a window are memory that it can have, or will be when they are made, and that there is room in
/// it for the header and a part.
///
/// # Errors
/// When it is not so.
pub fn ensure(config: &WindowConfig) -> Result<(), WindowError> {
    layout(config).map(drop)
}

/// How a window is cut, in the pages of its memory.
pub(super) fn layout(config: &WindowConfig) -> Result<Layout, WindowError> {
    // Others than files are told of by what they are.
    let is_device = !matches!(config.kind, WindowKind::File | WindowKind::Posted);
    let beyond = config.beyond.as_ref().map(|beyond| &beyond.path);
    let mut pages = Pages::SMALL;
    for path in [Some(&config.path), beyond].into_iter().flatten() {
        ensure_fit(path, is_device)?;
        pages = pages.max(pages_of(path, &Roots::system().dax)?);
    }
    Layout::of(config, pages)
}

/// The pages of a file's memory, or of what will be made there: those of a hugetlbfs, and of a DAX device, are large.
pub(super) fn pages_of(path: &Path, sysfs: &Path) -> Result<Pages, WindowError> {
    let failed = |error| WindowError::File {
        path: path.to_owned(),
        error,
    };
    let is_device = |found: &Metadata| found.file_type().is_char_device();
    let bytes = match path.metadata() {
        Ok(found) if is_device(&found) => dax::device_align(path, sysfs).map_err(failed)?,
        _ => match filesystem(path)? {
            (HUGETLBFS, bytes) => bytes,
            _ => return Ok(Pages::SMALL),
        },
    };
    Pages::of(bytes).ok_or_else(|| WindowError::Pages {
        path: path.to_owned(),
        bytes,
    })
}

/// Whether a file's pages, or those of what will be made there, are kept by the kernel for such files. They cannot be
/// written to but by a mapping.
pub(super) fn is_huge(path: &Path) -> Result<bool, WindowError> {
    Ok(filesystem(path)?.0 == HUGETLBFS)
}

/// Have the pages of such a file, up to `end`, which any other has when it is touched: who touches what is not there is
/// killed. Where there are not as many, the file is as long as `before`.
pub(super) fn have_pages(
    path: &Path,
    file: &File,
    before: u64,
    end: u64,
) -> Result<(), WindowError> {
    let found = fstatfs(file).map_err(|error| WindowError::File {
        path: path.to_owned(),
        error: error.into(),
    })?;
    if u64::try_from(found.f_type) != Ok(HUGETLBFS) {
        return Ok(());
    }
    let page = u64::try_from(found.f_bsize).unwrap_or(0).max(1);
    let have = || fallocate(file, FallocateFlags::empty(), 0, end);
    rustix::io::retry_on_intr(have).map_err(|error| {
        // Those that it had got are others' again.
        if before < end {
            let _ = file.set_len(before);
        }
        WindowError::NoPages {
            path: path.to_owned(),
            count: end / page,
            page,
            error: error.into(),
        }
    })
}

/// The number of the file system in which a file is, or will be, and the bytes of its blocks.
fn filesystem(path: &Path) -> Result<(u64, u64), WindowError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let found = statfs(if path.exists() { path } else { folder });
    let found = found.map_err(|error| WindowError::File {
        path: path.to_owned(),
        error: error.into(),
    })?;
    let number = |number| u64::try_from(number).unwrap_or(0);
    Ok((number(found.f_type), number(found.f_bsize)))
}

/// See that the file of this name, or what will be made there, can be a window. What `is_device`, a region or DAX memory, may
/// be on any file system but those that are known not to do.
///
/// # Errors
/// When it cannot, or the kernel does not say what it is.
pub fn ensure_fit(path: &Path, is_device: bool) -> Result<(), WindowError> {
    let (number, _) = filesystem(path)?;
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
        TMPFS | HUGETLBFS => Ok(()),
        RAMFS => unfit("ramfs", "whose files cannot be cleared part by part"),
        _ if is_device => Ok(()),
        _ => Err(WindowError::Disk {
            path: path.to_owned(),
        }),
    }
}
