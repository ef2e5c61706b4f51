//! A process's table of connections as mapped memory.

use core::sync::atomic::Ordering;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crosslane_ctl::ABI_VERSION;
use crosslane_ctl::ledger::{EndRecord, LEDGER_RECORDS};
use crosslane_ctl::slab::{
    EndEntry, LEDGER_OFFSET, SLAB_BYTES, SLAB_ENTRIES, SLAB_MAGIC, SlabHeader,
};
use crosslane_sys::memory::{Mapping, is_sealed};
use thiserror::Error;

/// Why a slab that a process has passed cannot be used. All but `Map` are that process's fault.
#[derive(Debug, Error)]
pub enum SlabError {
    /// Not sealed memory of the right size.
    #[error("slab is not sealed memory of {SLAB_BYTES} bytes")]
    Unsealed,
    /// Not a slab.
    #[error("slab starts with {0:#018x}, not {SLAB_MAGIC:#018x}")]
    Magic(u64),
    /// A slab of another version.
    #[error("slab of version {0}, this is version {ABI_VERSION}")]
    Version(u32),
    /// It could not be mapped.
    #[error("cannot map a slab of {SLAB_BYTES} bytes: {0:?}")]
    Map(crosslane_sys::Errno),
}

/// A mapped slab.
#[derive(Debug)]
pub struct SlabMap {
    mapping: Mapping,
}

impl SlabMap {
    /// Make the slab of the calling process; the descriptor is for the monitor.
    ///
    /// # Errors
    /// When descriptors, memory or address space are exhausted.
    pub fn create(pid: u32) -> io::Result<(Self, OwnedFd)> {
        let fd = crate::memory::create_sealed("crosslane-slab", SLAB_BYTES)?;
        let slab = Self {
            mapping: Mapping::shared(fd.as_fd(), SLAB_BYTES)?.with_small_pages(),
        };
        let header = slab.header();
        header.magic.store(SLAB_MAGIC, Ordering::Relaxed);
        header
            .version
            .store(u32::from(ABI_VERSION), Ordering::Relaxed);
        header.pid.store(pid, Ordering::Relaxed);
        Ok((slab, fd))
    }

    /// Map another process's slab for reading, after checking that it is one.
    ///
    /// # Errors
    /// See [`SlabError`].
    pub fn open(fd: BorrowedFd<'_>) -> Result<Self, SlabError> {
        Self::checked(fd, Mapping::shared_read_only)
    }

    /// Map another process's slab, in which an end has been lent, for use like one's own.
    ///
    /// # Errors
    /// See [`SlabError`].
    pub fn join(fd: BorrowedFd<'_>) -> Result<Self, SlabError> {
        Self::checked(fd, Mapping::shared)
    }

    fn checked(
        fd: BorrowedFd<'_>,
        map: impl FnOnce(BorrowedFd<'_>, usize) -> Result<Mapping, crosslane_sys::Errno>,
    ) -> Result<Self, SlabError> {
        if !is_sealed(fd, SLAB_BYTES) {
            return Err(SlabError::Unsealed);
        }
        let mapping = map(fd, SLAB_BYTES).map_err(SlabError::Map)?;
        let slab = Self {
            mapping: mapping.with_small_pages(),
        };
        let magic = slab.header().magic.load(Ordering::Relaxed);
        if magic != SLAB_MAGIC {
            return Err(SlabError::Magic(magic));
        }
        let version = slab.header().version.load(Ordering::Relaxed);
        if version != u32::from(ABI_VERSION) {
            return Err(SlabError::Version(version));
        }
        Ok(slab)
    }

    /// The first page. Its owner may write anything to it at any time. A slab opened for reading
    /// must only be loaded from.
    pub fn header(&self) -> &SlabHeader {
        let header = self.mapping.start().cast::<SlabHeader>();
        // SAFETY: the mapping has SLAB_BYTES, is page-aligned, and every field is an atomic, for
        // which any bytes are a value and changes by others are allowed.
        unsafe { header.as_ref() }
    }

    /// An entry, or `None` beyond the last one.
    pub fn entry(&self, index: u32) -> Option<&EndEntry> {
        if index >= SLAB_ENTRIES {
            return None;
        }
        // SAFETY: the header and `index` entries after it lie inside the mapping of SLAB_BYTES.
        let first = unsafe { self.mapping.start().add(size_of::<SlabHeader>()) };
        // SAFETY: as above; `index` is below SLAB_ENTRIES.
        let entry = unsafe { first.cast::<EndEntry>().add(index as usize) };
        // SAFETY: inside the mapping, aligned to 64 because the header is a page, and every field
        // is an atomic.
        Some(unsafe { entry.as_ref() })
    }

    /// A record of the ledger, or `None` beyond the last one.
    pub fn record(&self, index: u32) -> Option<&EndRecord> {
        if index >= LEDGER_RECORDS {
            return None;
        }
        // SAFETY: the ledger lies inside the mapping of SLAB_BYTES.
        let first = unsafe { self.mapping.start().add(LEDGER_OFFSET) };
        // SAFETY: as above; `index` is below LEDGER_RECORDS.
        let record = unsafe { first.cast::<EndRecord>().add(index as usize) };
        // SAFETY: inside the mapping, aligned to 64 as header and entries are multiples of that,
        // and every field is an atomic.
        Some(unsafe { record.as_ref() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slab_is_shown_to_another_mapping() {
        let (slab, fd) = SlabMap::create(42).unwrap();
        slab.entry(SLAB_ENTRIES - 1)
            .unwrap()
            .id
            .fd
            .store(7, Ordering::Relaxed);
        let shown = SlabMap::open(fd.as_fd()).unwrap();
        assert_eq!(shown.header().pid.load(Ordering::Relaxed), 42);
        assert_eq!(
            shown
                .entry(SLAB_ENTRIES - 1)
                .unwrap()
                .id
                .fd
                .load(Ordering::Relaxed),
            7
        );
        assert!(shown.entry(SLAB_ENTRIES).is_none());
        let last = slab.record(LEDGER_RECORDS - 1).unwrap();
        last.fd.store(9, Ordering::Relaxed);
        let shown_last = shown.record(LEDGER_RECORDS - 1).unwrap();
        assert_eq!(shown_last.fd.load(Ordering::Relaxed), 9);
        assert!(shown.record(LEDGER_RECORDS).is_none());
    }

    #[test]
    fn what_is_no_slab_is_refused() {
        let zeroes = crate::memory::create_sealed("test", SLAB_BYTES).unwrap();
        assert!(matches!(
            SlabMap::open(zeroes.as_fd()),
            Err(SlabError::Magic(0))
        ));
        let small = crate::memory::create_sealed("test", 4096).unwrap();
        assert!(matches!(
            SlabMap::open(small.as_fd()),
            Err(SlabError::Unsealed)
        ));
    }
}
