//! Files that two hosts on one machine share are memory. What lies on a disk, or is seen by two machines over a
//! network, is nothing of which the one reads what the other has just written.

use std::io;
use std::path::Path;

use crosslane_ctl::lane::Posting;
use rustix::fs::statfs;

use super::WindowError;
use super::beyond::posting;
use crate::rack::config::{WindowConfig, WindowKind};

/// tmpfs, hugetlbfs and ramfs, as statfs(2) lists them.
const IN_MEMORY: [u64; 3] = [0x0102_1994, 0x9584_58f6, 0x8584_58f6];

/// See that the files of a window are in memory, or will be when they are made.
pub(super) fn ensure(config: &WindowConfig) -> Result<(), WindowError> {
    if !matches!(config.kind, WindowKind::File | WindowKind::Posted) {
        // Others than files are told of by what they are.
        return Ok(());
    }
    let beyond = config.beyond.as_ref().map(|beyond| &beyond.path);
    for path in [Some(&config.path), beyond].into_iter().flatten() {
        let is_region = posting(path) != Posting::Memory;
        let is_in_memory = is_in_memory(path).map_err(|error| WindowError::File {
            path: path.clone(),
            error,
        })?;
        if !is_region && !is_in_memory {
            return Err(WindowError::Disk { path: path.clone() });
        }
    }
    Ok(())
}

fn is_in_memory(path: &Path) -> io::Result<bool> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let found = statfs(if path.exists() { path } else { folder })?;
    Ok(u64::try_from(found.f_type).is_ok_and(|kind| IN_MEMORY.contains(&kind)))
}
