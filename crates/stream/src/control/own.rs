//! The library's own descriptors: out of the program's way where that can be had, and known, so that programs which close
//! everything leave them alone.

use core::sync::atomic::{AtomicI32, Ordering};
use std::os::fd::RawFd;

use crosslane_sys::kernel;

use super::{LOWEST_FD, LOWEST_FD_FALLBACK};

/// Numbers of the library's descriptors, 0 where there is none; the program must not close them. Below 0, one that has been
/// handed over to the program.
static OWN: [AtomicI32; 32] = [const { AtomicI32::new(0) }; 32];

/// None of them has ever been less: most numbers that programs close are.
static LOWEST: AtomicI32 = AtomicI32::new(i32::MAX);

/// A descriptor of the library. Closed past our own `close`, which would ask for locks.
#[derive(Debug)]
pub struct OwnFd(RawFd);

impl OwnFd {
    /// Take a descriptor that the kernel has just made, to a high number if there is one.
    pub fn new(fd: RawFd) -> Self {
        let moved = kernel::duplicate_above(fd, LOWEST_FD)
            .or_else(|_| kernel::duplicate_above(fd, LOWEST_FD_FALLBACK));
        let fd = match moved {
            Ok(moved) => {
                kernel::close(fd);
                moved
            }
            Err(_) => fd,
        };
        Self::unmoved(fd)
    }

    /// Take one where it is: to close it would cost the process the record locks that it has on the file.
    pub(crate) fn unmoved(fd: RawFd) -> Self {
        let free = |cell: &&AtomicI32| {
            cell.compare_exchange(0, fd, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        LOWEST.fetch_min(fd, Ordering::AcqRel);
        // Were there no place, a program that closes everything could close it: then the
        // connections stay as they are and new ones stay on TCP.
        let _ = OWN.iter().find(free);
        Self(fd)
    }

    /// One whose number alone has been kept.
    pub(crate) fn known(fd: RawFd) -> Self {
        Self(fd)
    }

    /// The number.
    pub fn number(&self) -> RawFd {
        self.0
    }
}

impl Drop for OwnFd {
    fn drop(&mut self) {
        let clear = |number| {
            let mut cells = OWN.iter();
            cells.any(|cell| {
                cell.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            })
        };
        if !clear(-self.0) {
            clear(self.0);
            kernel::close(self.0);
        }
    }
}

/// Whether a descriptor belongs to the library.
pub fn owns(fd: RawFd) -> bool {
    let may_be = fd > 0 && fd >= LOWEST.load(Ordering::Acquire);
    may_be && OWN.iter().any(|cell| cell.load(Ordering::Relaxed) == fd)
}

/// See [`super::hand_over`].
pub(super) fn mark_handed_over(fd: RawFd) {
    for cell in &OWN {
        let _ = cell.compare_exchange(fd, -fd, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Whether a number of the library's is the program's by now.
pub(crate) fn is_handed_over(fd: RawFd) -> bool {
    OWN.iter().any(|cell| cell.load(Ordering::Relaxed) == -fd)
}

/// The library's descriptors, in order.
pub fn descriptors() -> Vec<RawFd> {
    let numbers = OWN.iter().map(|cell| cell.load(Ordering::Relaxed));
    let mut all: Vec<RawFd> = numbers.filter(|fd| *fd > 0).collect();
    all.sort_unstable();
    all
}
