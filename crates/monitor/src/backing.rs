//! Memory for rings, and the guard that keeps the machine from running out of it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crosslane_window::memory::create_sealed;
use rustix::fs::{FallocateFlags, fallocate};

use crate::arenas::Backing;

/// How long a look at the machine's free memory is good for.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Sealed memory objects, as long as the machine has memory to spare.
#[derive(Debug)]
pub struct SealedMemory {
    floor_bytes: u64,
    meminfo: Option<File>,
    last_look: Option<(Instant, bool)>,
}

impl SealedMemory {
    /// Memory is short when less than `floor_bytes` is available.
    pub fn new(floor_bytes: u64) -> Self {
        Self {
            floor_bytes,
            meminfo: File::open("/proc/meminfo").ok(),
            last_look: None,
        }
    }

    fn is_short(&mut self) -> bool {
        if let Some((when, short)) = self.last_look
            && when.elapsed() < LOOK_INTERVAL
        {
            return short;
        }
        let short = self
            .available_bytes()
            .is_some_and(|available| available < self.floor_bytes);
        self.last_look = Some((Instant::now(), short));
        short
    }

    fn available_bytes(&self) -> Option<u64> {
        let mut text = [0; 1024];
        let bytes = self.meminfo.as_ref()?.read_at(&mut text, 0).ok()?;
        available_in(std::str::from_utf8(text.get(..bytes)?).ok()?)
    }
}

/// MemAvailable in the text of /proc/meminfo.
fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

impl Backing for SealedMemory {
    type Memory = Arc<OwnedFd>;

    fn has_room(&mut self) -> bool {
        !self.is_short()
    }

    fn create(&mut self, bytes: usize) -> Option<Self::Memory> {
        match create_sealed("crosslane-arena", bytes) {
            Ok(fd) => Some(Arc::new(fd)),
            Err(error) => {
                tracing::warn!(%error, bytes, "no memory for rings");
                None
            }
        }
    }

    fn punch(&mut self, memory: &Self::Memory, offset: usize, bytes: usize) -> bool {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = fallocate(memory, flags, offset as u64, bytes as u64);
        if let Err(error) = &punched {
            tracing::warn!(%error, "a slot could not be given back and is lost");
        }
        punched.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_found_in_meminfo() {
        let text = "MemTotal:       24576000 kB\nMemAvailable:   1024 kB\nBuffers: 3 kB\n";
        assert_eq!(available_in(text), Some(1 << 20));
        assert_eq!(available_in("MemTotal: 1 kB\n"), None);
        assert_eq!(available_in("MemAvailable: x kB\n"), None);
    }

    #[test]
    fn the_floor_decides() {
        assert!(SealedMemory::new(0).has_room());
        assert!(!SealedMemory::new(u64::MAX).has_room());
    }

    #[test]
    fn a_punched_range_reads_as_zeroes() {
        let mut backing = SealedMemory::new(0);
        let memory = backing.create(3 * 4096).unwrap();
        rustix::io::pwrite(&*memory, &[7; 3 * 4096], 0).unwrap();
        assert!(backing.punch(&memory, 4096, 4096));
        let mut bytes = [1; 3 * 4096];
        rustix::io::pread(&*memory, &mut bytes, 0).unwrap();
        assert!(bytes[4096..8192].iter().all(|byte| *byte == 0));
        assert_eq!((bytes[4095], bytes[8192]), (7, 7));
    }
}
