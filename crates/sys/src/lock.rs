//! Locks on ranges of a file that belong to an open file description.
//!
//! A mapping keeps the description by which it was made, and so the locks on it, until it is
//! unmapped: whoever maps a range through a description that holds a lock shows that the range is
//! in use, however the process that took the lock has ended.

use core::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::Errno;
use crate::raw::syscall;

// As they stand in a lock.
const KIND_READ: i16 = 0;
const KIND_WRITE: i16 = 1;
const KIND_NONE: i16 = 2;

/// Hold the range for reading, beside others who do, for as long as this open file description
/// lives. Does not wait.
pub fn hold_range(fd: BorrowedFd<'_>, start: u64, bytes: u64) -> Result<(), Errno> {
    call(fd, libc::F_OFD_SETLK, KIND_READ, start, bytes).map(|_| ())
}

/// Whether another open file description holds a part of the range.
pub fn is_range_held(fd: BorrowedFd<'_>, start: u64, bytes: u64) -> Result<bool, Errno> {
    call(fd, libc::F_OFD_GETLK, KIND_WRITE, start, bytes).map(|kind| kind != KIND_NONE)
}

/// Ask the kernel; returns the kind of lock that it tells.
fn call(
    fd: BorrowedFd<'_>,
    command: c_int,
    kind: i16,
    start: u64,
    bytes: u64,
) -> Result<i16, Errno> {
    // SAFETY: flock is plain integers, for which zero is a value.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = kind;
    lock.l_start = i64::try_from(start).map_err(|_| Errno::INVAL)?;
    lock.l_len = i64::try_from(bytes).map_err(|_| Errno::INVAL)?;
    let lock_at = core::ptr::from_mut(&mut lock).addr();
    let fd = fd.as_raw_fd().cast_unsigned() as usize;
    let args = [fd, command.cast_unsigned() as usize, lock_at, 0, 0, 0];
    // SAFETY: the lock outlives the call.
    unsafe { syscall(libc::SYS_fcntl, args) }?;
    Ok(lock.l_type)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::memory::Mapping;

    fn open(path: &Path) -> File {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .unwrap()
    }

    /// Whether nobody holds the page after all: a child that another test starts has what is open
    /// and mapped here until it runs its own program.
    fn is_let_go(look: &File, start: u64) -> bool {
        let until = Instant::now() + Duration::from_secs(10);
        while is_range_held(look.as_fd(), start, 4096).unwrap() {
            if Instant::now() >= until {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// What quarantine stands on: the lock is seen from elsewhere, and lives as long as anybody
    /// maps the memory, whether or not a descriptor is left.
    fn a_lock_lives_as_long_as_a_mapping(path: &Path) {
        let file = open(path);
        file.set_len(4 * 4096).unwrap();
        let is_held = |start| is_range_held(file.as_fd(), start, 4096).unwrap();
        let passed = open(path);
        hold_range(passed.as_fd(), 4096, 4096).unwrap();
        let mapping = Mapping::shared_at(passed.as_fd(), 4096, 4096).unwrap();
        assert!(is_held(4096), "by its descriptor");
        drop(passed);
        assert!(is_held(4096), "by its mapping");
        assert!(!is_held(0) && !is_held(8192), "its neighbours are free");
        mapping.replace_private().unwrap();
        assert!(is_let_go(&file, 4096), "by nobody");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_lock_lives_as_long_as_a_mapping_in_tmpfs() {
        let name = format!("crosslane-test-lock-{}", std::process::id());
        a_lock_lives_as_long_as_a_mapping(&Path::new("/dev/shm").join(name));
    }

    #[test]
    fn two_hold_the_same_range_and_each_counts() {
        let name = format!("crosslane-test-share-{}", std::process::id());
        let path = Path::new("/dev/shm").join(name);
        let (a, b, look) = (open(&path), open(&path), open(&path));
        hold_range(a.as_fd(), 0, 4096).unwrap();
        hold_range(b.as_fd(), 0, 4096).unwrap();
        drop(a);
        assert!(is_range_held(look.as_fd(), 0, 4096).unwrap());
        drop(b);
        assert!(is_let_go(&look, 0));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_of_sysfs_can_be_held() {
        // Read-only, small and there on every machine; a PCI resource is such a file, too.
        let path = "/sys/kernel/mm/transparent_hugepage/enabled";
        let (Ok(holder), Ok(look)) = (File::open(path), File::open(path)) else {
            let _ = writeln!(std::io::stderr(), "SKIPPED: {path} cannot be opened here");
            return;
        };
        hold_range(holder.as_fd(), 0, 4096).unwrap();
        let kind = call(look.as_fd(), libc::F_OFD_GETLK, KIND_WRITE, 0, 4096);
        assert_eq!(kind, Ok(KIND_READ));
        drop(holder);
        assert!(is_let_go(&look, 0));
    }
}
