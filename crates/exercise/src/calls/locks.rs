//! Locks of files: fcntl(2) of records, flock(2) and lockf(3).

use std::os::fd::RawFd;

use super::answer_int;
use crate::{Answer, Errno};

/// What a lock is of, and of which kind (F_RDLCK, F_WRLCK, F_UNLCK).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The kind.
    pub kind: i32,
    /// The first byte.
    pub start: i64,
    /// How many bytes; 0 for all there will ever be.
    pub bytes: i64,
}

/// fcntl(2) with a command about locks: F_SETLK, F_SETLKW, F_GETLK and those of open files. What the kernel has
/// filled in, with the process that has the lock.
pub fn lock_record(
    fd: RawFd,
    command: i32,
    record: Record,
) -> Result<(Record, libc::pid_t), Errno> {
    // SAFETY: a lock is plain integers, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = short(record.kind);
    lock.l_whence = short(libc::SEEK_SET);
    lock.l_start = record.start;
    lock.l_len = record.bytes;
    // SAFETY: these commands read and write one lock.
    answer_int(unsafe { libc::fcntl(fd, command, &raw mut lock) })?;
    let found = Record {
        kind: lock.l_type.into(),
        start: lock.l_start,
        bytes: lock.l_len,
    };
    Ok((found, lock.l_pid))
}

fn short(number: i32) -> libc::c_short {
    libc::c_short::try_from(number).expect("kinds are small numbers")
}

/// flock(2).
pub fn flock(fd: RawFd, operation: i32) -> Answer {
    // SAFETY: no memory is passed.
    answer_int(unsafe { libc::flock(fd, operation) })
}

/// lockf(3) of so many bytes from where the file stands.
pub fn lockf(fd: RawFd, command: i32, bytes: i64) -> Answer {
    // SAFETY: no memory is passed.
    answer_int(unsafe { libc::lockf(fd, command, bytes) })
}
