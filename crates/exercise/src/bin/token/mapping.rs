//! The mapped memory: two slots of a payload and a number.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of payload in a slot.
pub const PAYLOAD_WORDS: usize = 31;
const SLOT_WORDS: usize = PAYLOAD_WORDS + 1;
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
            self.at(slot, word).store(content(word), Ordering::Relaxed);
        }
        self.at(slot, PAYLOAD_WORDS).store(round, Ordering::Release);
    }

    /// The round that a slot was last published for.
    pub fn round(&self, slot: usize) -> u64 {
        self.at(slot, PAYLOAD_WORDS).load(Ordering::Acquire)
    }

    /// A word of a slot's payload.
    pub fn word(&self, slot: usize, word: usize) -> u64 {
        self.at(slot, word).load(Ordering::Relaxed)
    }

    fn at(&self, slot: usize, word: usize) -> &AtomicU64 {
        assert!(slot < 2 && word < SLOT_WORDS);
        // SAFETY: both slots lie in the mapped page.
        let address = unsafe { self.start.add(slot * SLOT_WORDS + word) };
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
