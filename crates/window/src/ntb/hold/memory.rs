//! The file that the other host writes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crosslane_sys::device::{TMPFS, filesystem};
use crosslane_sys::memory::{Mapping, NO_FOLLOW};
use crosslane_sys::process::uid;
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock, fstatvfs, statfs};
use rustix::io::Errno;

use crate::ntb::NtbError;

const NOT_IN_TMPFS: &str = "it is not in tmpfs; name a file under /dev/shm";

/// A file in tmpfs, whose pages are pinned while a device may write there. Who takes them out of the file takes them from the
/// monitor and the programs, not from the device: so it must stay the file of its name, and as long.
#[derive(Debug)]
pub struct HeldMemory {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl HeldMemory {
    /// Open a file of so many bytes, made or lengthened if need be.
    ///
    /// # Errors
    /// If it cannot be opened, others may read it, or it is longer: what lies behind could be named as a window, and nothing would arrive there.
    pub fn open(path: &Path, bytes: u64) -> Result<Self, NtbError> {
        let refused = |why: String| NtbError::Memory {
            path: path.to_owned(),
            bytes,
            why,
        };
        let failed = |cause: io::Error| refused(cause.to_string());
        let place = if path.exists() {
            path
        } else {
            path.parent().unwrap_or(path)
        };
        // Before it is made. What the kernel does not say is found out below.
        if statfs(place).is_ok_and(|found| found.f_type != TMPFS) {
            return Err(refused(NOT_IN_TMPFS.into()));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        // As monitors want it, which follow no link either.
        options.mode(0o600).custom_flags(NO_FOLLOW);
        let file = options.open(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        let (owner, mode) = (found.uid(), found.mode());
        if !(found.is_file() && [0, uid()].contains(&owner) && mode & 0o077 == 0) {
            return Err(refused(format!(
                "it belongs to user {owner} with mode {mode:o}, and must be a file of this user or root that nobody else can \
                 read or write; name another"
            )));
        }
        if filesystem(file.as_fd()) != Ok(TMPFS) {
            return Err(refused(NOT_IN_TMPFS.into()));
        }
        // For as long as it is open: two bridges that write there would write over each other.
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            refused("another command holds it; name another file, or end that one".into())
        })?;
        if found.len() > bytes {
            let found = found.len();
            return Err(refused(format!(
                "it has {found}; name another file, or remove it while no monitor uses it, or lend more by --bytes"
            )));
        }
        reserve(&file, bytes).map_err(refused)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes,
        })
    }

    /// Map it, to be lent.
    ///
    /// # Errors
    /// The kernel's.
    pub fn map(&self) -> Result<Mapping, NtbError> {
        let bytes = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        let mapping = Mapping::shared(self.file.as_fd(), bytes);
        mapping.map_err(|cause| self.refused(io::Error::from(cause).to_string()))
    }

    /// How long it is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is still the file of its name.
    ///
    /// # Errors
    /// If it is not, or has been cut short.
    pub fn check(&self) -> Result<(), NtbError> {
        let is_same = || {
            let (named, ours) = (self.path.symlink_metadata()?, self.file.metadata()?);
            let is_it = (named.dev(), named.ino()) == (ours.dev(), ours.ino());
            io::Result::Ok(is_it && ours.len() == self.bytes)
        };
        match is_same() {
            Ok(true) => Ok(()),
            _ => Err(self.refused(format!(
                "it was removed, replaced, cut short or lengthened, as a monitor does whose rack.toml wants more; write bytes = {} at most \
                 for the window, and start this command again",
                self.bytes
            ))),
        }
    }

    /// Without its first word, what a monitor has laid out here is no window any more.
    pub(super) fn forget_header(&self) {
        // A file that was cut short is none either way, and must not be lengthened.
        if self.file.metadata().is_ok_and(|found| found.len() > 0) {
            let _ = self.file.write_all_at(&[0; 8], 0);
        }
    }

    fn refused(&self, why: String) -> NtbError {
        NtbError::Memory {
            path: self.path.clone(),
            bytes: self.bytes,
            why,
        }
    }
}

/// Make it so long, and have the pages now that a device needs: where there are none, pinning them says "Bad address" only.
fn reserve(file: &File, bytes: u64) -> Result<(), String> {
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        Err(Errno::NOSPC) => {
            let room = fstatvfs(file).map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize));
            Err(format!(
                "its file system has room for {room} more; remove files there, enlarge it (`mount -o remount,size=`), or lend less by --bytes"
            ))
        }
        Err(Errno::NOMEM) => Err(
            "the machine or this command's control group has no memory left for them; end programs, or lend less by --bytes"
                .into(),
        ),
        Err(cause) => Err(cause.to_string()),
    }
}

impl Drop for HeldMemory {
    /// A child between its fork and its exec has a copy of the descriptor, and with it would keep the lock.
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl AsFd for HeldMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_made_or_lengthened_and_what_stands_there_is_kept() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("memory");
        let made = HeldMemory::open(&path, 8192).unwrap();
        made.file.write_all_at(b"a header and more", 0).unwrap();
        let error = HeldMemory::open(&path, 1 << 16).unwrap_err().to_string();
        assert!(error.contains("another command holds it"), "{error}");
        assert_eq!(made.file.metadata().unwrap().len(), 8192);
        let inherited = made.file.try_clone().unwrap();
        drop(made);
        let memory = HeldMemory::open(&path, 1 << 16).unwrap();
        drop(inherited);
        assert_eq!(memory.map().unwrap().bytes(), 1 << 16);
        assert_eq!(memory.file.metadata().unwrap().mode() & 0o777, 0o600);
        memory.check().unwrap();
        memory.forget_header();
        let mut found = [0; 17];
        memory.file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(&found, b"\0\0\0\0\0\0\0\0 and more");
        memory.file.set_len(1 << 17).unwrap();
        assert!(memory.check().is_err(), "what lies behind is not lent");
        drop(memory);
        let error = HeldMemory::open(&path, 8192).unwrap_err().to_string();
        for word in [path.to_str().unwrap(), "8192", "131072", "--bytes"] {
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn more_than_the_file_system_has_room_for_is_refused_and_told() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("memory");
        let all = rustix::fs::statvfs(folder.path()).unwrap();
        let bytes = (all.f_blocks * all.f_frsize).next_power_of_two() * 2;
        let error = HeldMemory::open(&path, bytes).unwrap_err().to_string();
        for word in [
            path.to_str().unwrap(),
            &bytes.to_string(),
            "room for",
            "--bytes",
        ] {
            assert!(error.contains(word), "{error}");
        }
        assert_eq!(path.metadata().unwrap().len(), 0);
        let memory = HeldMemory::open(&path, 8192).unwrap();
        // They are there, not only promised.
        assert_eq!(memory.file.metadata().unwrap().blocks() * 512, 8192);
    }

    #[test]
    fn a_file_that_is_another_or_shorter_is_found_out() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("memory");
        let memory = HeldMemory::open(&path, 8192).unwrap();
        memory.file.set_len(4096).unwrap();
        let error = memory.check().unwrap_err().to_string();
        assert!(error.contains("bytes = 8192 at most"), "{error}");
        memory.file.set_len(0).unwrap();
        memory.forget_header();
        assert_eq!(memory.file.metadata().unwrap().len(), 0);
        memory.file.set_len(8192).unwrap();
        memory.check().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(memory.check().is_err());
        std::fs::write(&path, [0; 8192]).unwrap();
        assert!(memory.check().is_err());
        // Others may read this one.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        let error = HeldMemory::open(&path, 8192).unwrap_err().to_string();
        assert!(error.contains("mode 100644"), "{error}");
        std::os::unix::fs::symlink(&path, folder.path().join("link")).unwrap();
        assert!(HeldMemory::open(&folder.path().join("link"), 8192).is_err());
    }
}
