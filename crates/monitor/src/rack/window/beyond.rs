//! The other host's memory of a window that has one at each host: written only, by way of a bridge's region or, for two hosts
//! on one machine, of a file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crosslane_ctl::lane::Posting;
use crosslane_window::span::Span;
use rustix::fs::OFlags;

use super::{Layout, WindowError, is_fit, map_at, memory};
use crate::rack::config::{BeyondConfig, WindowConfig};

/// It, opened.
#[derive(Debug)]
pub(super) struct Beyond {
    config: BeyondConfig,
    file: File,
    /// The first page.
    header: Span,
    posting: Posting,
    /// Of the whole file that counts.
    end: u64,
}

impl Beyond {
    /// Open what the configuration names, if it does.
    pub(super) fn open(
        config: &WindowConfig,
        layout: &Layout,
    ) -> Result<Option<Self>, WindowError> {
        let Some(beyond) = &config.beyond else {
            return Ok(None);
        };
        let failed = |error| WindowError::File {
            path: beyond.path.clone(),
            error,
        };
        let end = beyond.offset.saturating_add(layout.bytes);
        let posting = posting(&beyond.path);
        let file = match posting {
            Posting::Memory => open_file(&beyond.path, end)?,
            Posting::Uncached | Posting::Combined if !is_enabled(&beyond.path) => {
                return Err(WindowError::Disabled {
                    path: beyond.path.clone(),
                });
            }
            Posting::Uncached | Posting::Combined => {
                options().open(&beyond.path).map_err(failed)?
            }
        };
        let found = file.metadata().map_err(failed)?;
        is_fit(config.kind, &beyond.path, &found)?;
        if found.len() < end {
            return Err(WindowError::Short {
                path: beyond.path.clone(),
                bytes: found.len(),
                end,
            });
        }
        let header = map_at(&file, beyond.offset, layout.header_bytes()).map_err(failed)?;
        Ok(Some(Self {
            config: beyond.clone(),
            file,
            header,
            posting,
            end,
        }))
    }

    /// Whether the file of that name is still this one, and as long; and a region's device answers.
    pub(super) fn is_there(&self) -> bool {
        let is_it = || {
            let (found, ours) = (self.config.path.metadata()?, self.file.metadata()?);
            let is_same = (found.dev(), found.ino()) == (ours.dev(), ours.ino());
            io::Result::Ok(is_same && found.len() >= self.end)
        };
        is_it().unwrap_or(false)
            && (self.posting == Posting::Memory || is_enabled(&self.config.path))
    }

    /// Have words stand there, in the header.
    pub(super) fn post(&self, at: u64, bytes: &[u8]) -> bool {
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|word| word.try_into().map_or(0, u64::from_le_bytes))
            .collect();
        self.header.post(at, &words, self.posting.into())
    }

    /// What programs map it by, where it begins there, and how it is written.
    pub(super) fn lend(&self) -> io::Result<(OwnedFd, u64, Posting)> {
        let fd = self.file.try_clone()?;
        Ok((fd.into(), self.config.offset, self.posting))
    }
}

/// A region of a device is written as its file in sysfs maps it.
pub(super) fn posting(path: &Path) -> Posting {
    let is_region = path
        .canonicalize()
        .is_ok_and(|real| real.starts_with("/sys/devices"));
    let is_combined = || path.to_string_lossy().ends_with("_wc");
    match is_region {
        true if is_combined() => Posting::Combined,
        true => Posting::Uncached,
        false => Posting::Memory,
    }
}

/// Whether a region's device is enabled, as it is while somebody drives it: what is written to one that is not is an error on
/// its bus. What sysfs does not say is believed.
pub(super) fn is_enabled(region: &Path) -> bool {
    let said = std::fs::read_to_string(region.with_file_name("enable"));
    said.map_or(true, |said| said.trim() != "0")
}

fn options() -> OpenOptions {
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options.custom_flags(no_follow);
    options
}

/// Open a file of at least so many bytes. One that is not there, or has been cut short, is made anew: who still maps what was
/// cut off must not write into what comes in its place.
pub(super) fn open_file(path: &Path, end: u64) -> Result<File, WindowError> {
    let failed = |error| WindowError::File {
        path: path.to_owned(),
        error,
    };
    let is_long = |file: &File| Ok(file.metadata()?.len() >= end);
    match options().open(path) {
        Ok(file) if is_long(&file).map_err(failed)? => return Ok(file),
        Ok(_) => std::fs::remove_file(path).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    // Nobody finds it while it is too short.
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let made = make(&new, path, end);
    if made.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    made?;
    options().open(path).map_err(failed)
}

/// Make a file under the first name, and give it the second one, and that only, if nobody has it.
fn make(new: &Path, path: &Path, end: u64) -> Result<(), WindowError> {
    let failed = |error| WindowError::File {
        path: path.to_owned(),
        error,
    };
    let file = options().create(true).truncate(true).open(new);
    let file = file.map_err(failed)?;
    file.set_len(end).map_err(failed)?;
    match memory::is_huge(new)? {
        true => memory::have_pages(path, &file, 0, end)?,
        false => file.write_all_at(&[0], 0).map_err(failed)?,
    }
    // Another monitor may have been faster, and may have begun to use it.
    match std::fs::hard_link(new, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(error)),
        _ => std::fs::remove_file(new).map_err(failed),
    }
}
