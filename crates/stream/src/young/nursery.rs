//! What is kept of young connections, by their numbers.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::io;
use std::os::fd::RawFd;

use crosslane_sys::memory::Mapping;

/// Numbers from this one on name ends only.
const NUMBERS: u32 = 1 << 16;

/// Says in the table of descriptors that a number names a young connection.
pub(crate) const MARK: u32 = u32::MAX;

/// What is kept of one.
#[repr(C, align(64))]
pub(crate) struct Record {
    /// Counts the young connections of this number.
    pub generation: AtomicU32,
    pub is_passive: AtomicU32,
    /// Calls that move data.
    pub calls: AtomicU32,
    /// The epoll set, plus 1, or 0.
    pub set: AtomicU32,
    pub sent: AtomicU64,
    pub received: AtomicU64,
    /// What it had received when it sent last.
    pub heard: AtomicU64,
    pub data: AtomicU64,
    pub events: AtomicU32,
}

/// The records of a process.
pub(crate) struct Nursery {
    records: Mapping,
    count: AtomicI32,
}

impl Nursery {
    pub fn create() -> io::Result<Self> {
        Ok(Self {
            records: Mapping::private(NUMBERS as usize * size_of::<Record>())?,
            count: AtomicI32::new(0),
        })
    }

    /// So many more are young.
    pub fn count(&self, by: i32) {
        self.count.fetch_add(by, Ordering::Relaxed);
    }

    /// Whether there is one.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// The record of a number, if one of that number can be young.
    pub fn record(&self, fd: RawFd) -> Option<&Record> {
        let place = u32::try_from(fd).ok().filter(|fd| *fd < NUMBERS)?;
        let records = self.records.start().cast::<Record>();
        // SAFETY: the mapping has NUMBERS records.
        let record = unsafe { records.add(place as usize) };
        // SAFETY: inside the mapping, which is never unmapped; zeroed memory is a valid record.
        Some(unsafe { record.as_ref() })
    }
}

impl Record {
    /// Begin anew.
    pub fn reset(&self, is_passive: bool) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.is_passive.store(is_passive.into(), Ordering::Relaxed);
        for word in [&self.calls, &self.set, &self.events] {
            word.store(0, Ordering::Relaxed);
        }
        for total in [&self.sent, &self.received, &self.heard, &self.data] {
            total.store(0, Ordering::Relaxed);
        }
    }
}
