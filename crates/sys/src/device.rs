//! What files are, beyond names and bytes.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::Errno;
use crate::raw::syscall;

/// Files of tmpfs, and memory objects.
pub const TMPFS: i64 = libc::TMPFS_MAGIC;

/// Files of hugetlbfs.
pub const HUGETLBFS: i64 = libc::HUGETLBFS_MAGIC;

/// The number of the file system that a file lies in, as statfs(2) lists them.
pub fn filesystem(fd: BorrowedFd<'_>) -> Result<i64, Errno> {
    // SAFETY: statfs is plain integers, for which zero is a value.
    let mut found: libc::statfs = unsafe { core::mem::zeroed() };
    let found_at = core::ptr::from_mut(&mut found).addr();
    let fd = fd.as_raw_fd().cast_unsigned() as usize;
    // SAFETY: the structure outlives the call and is valid for writes.
    unsafe { syscall(libc::SYS_fstatfs, [fd, found_at, 0, 0, 0, 0]) }?;
    Ok(found.f_type)
}

/// Whether a file's pages are the memory of its device itself (fsdax).
pub fn is_dax(fd: BorrowedFd<'_>) -> bool {
    const STATX_ATTR_DAX: u64 = 0x20_0000;
    // SAFETY: statx is plain integers, for which zero is a value.
    let mut found: libc::statx = unsafe { core::mem::zeroed() };
    let found_at = core::ptr::from_mut(&mut found).addr();
    let fd = fd.as_raw_fd().cast_unsigned() as usize;
    let flags = libc::AT_EMPTY_PATH.cast_unsigned() as usize;
    let args = [fd, c"".as_ptr().addr(), flags, 0, found_at, 0];
    // SAFETY: the name is a C string, the structure outlives the call and is valid for writes.
    let asked = unsafe { syscall(libc::SYS_statx, args) };
    asked.is_ok() && found.stx_attributes & STATX_ATTR_DAX != 0
}

/// A device's own request, ioctl(2).
///
/// # Safety
/// As the device demands: an argument that is an address must be valid for what it does there.
pub unsafe fn control(fd: BorrowedFd<'_>, request: u32, argument: usize) -> Result<usize, Errno> {
    let fd = fd.as_raw_fd().cast_unsigned() as usize;
    let args = [fd, request as usize, argument, 0, 0, 0];
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_ioctl, args) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_memory_object_is_of_tmpfs_and_not_dax() {
        let object = crate::memory::create_sealed(c"test-device", 4096).unwrap();
        assert_eq!(filesystem(object.as_fd()), Ok(TMPFS));
        assert!(!is_dax(object.as_fd()));
        // SAFETY: no argument.
        let answer = unsafe { control(object.as_fd(), 0x3b64, 0) };
        assert_eq!(answer, Err(Errno(libc::ENOTTY)));
    }
}
