//! The mapped memory: two slots of a payload and a number, and a sum.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of payload in a slot.
pub const PAYLOAD_WORDS: usize = 31;
const SLOT_WORDS: usize = PAYLOAD_WORDS + 1;
/// Where both sides add.
const SUM_AT: usize = 2 * SLOT_WORDS;
const BYTES: usize = 4096;

/// The first page of a file, shared with whoever maps it too.
pub struct Mapping {
    start: NonNull<AtomicU64>,
}

impl Mapping {
    /// Map the file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, where the kernel likes, overlaps nothing.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("nothing is mapped at address 0");
        Ok(Self { start })
    }

    /// Write a slot's payload, then its round, so that who sees the round sees the payload.
    pub fn publish(&self, slot: usize, round: u64, content: impl Fn(usize) -> u64) {
        for word in 0..PAYLOAD_WORDS {
            self.in_slot(slot, word)
                .store(content(word), Ordering::Relaxed);
        }
        self.in_slot(slot, PAYLOAD_WORDS)
            .store(round, Ordering::Release);
    }

    /// The round that a slot was last published for.
    pub fn round(&self, slot: usize) -> u64 {
        self.in_slot(slot, PAYLOAD_WORDS).load(Ordering::Acquire)
    }

    /// A word of a slot's payload.
    pub fn word(&self, slot: usize, word: usize) -> u64 {
        self.in_slot(slot, word).load(Ordering::Relaxed)
    }

    /// Write zeros everywhere.
    pub fn clear(&self) {
        for word in 0..=SUM_AT {
            self.at(word).store(0, Ordering::Relaxed);
        }
    }

    /// Add 1 to the sum.
    pub fn add(&self) {
        self.at(SUM_AT).fetch_add(1, Ordering::Relaxed);
    }

    /// The sum.
    pub fn sum(&self) -> u64 {
        self.at(SUM_AT).load(Ordering::Relaxed)
    }

    fn in_slot(&self, slot: usize, word: usize) -> &AtomicU64 {
        assert!(slot < 2 && word < SLOT_WORDS);
        self.at(slot * SLOT_WORDS + word)
    }

    fn at(&self, word: usize) -> &AtomicU64 {
        assert!(word <= SUM_AT);
        // SAFETY: the slots and the sum lie in the mapped page.
        let address = unsafe { self.start.add(word) };
        // SAFETY: mapped for as long as `self`, aligned, and only ever used as atomics.
        unsafe { address.as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `open`, and no reference outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), BYTES) };
    }
}
