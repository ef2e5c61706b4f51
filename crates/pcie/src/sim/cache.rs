//! The last-level cache as a device sees it: which lines of the window are in it.
//!
//! Device reads do not allocate. Device writes allocate in the DDIO share only, where they replace
//! one another at random positions; the host's own lines stay until the host replaces them.

use std::ops::Range;

/// Bytes of a line.
pub const LINE_BYTES: u64 = 64;

/// What was done to the window before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheState {
    /// All lines flushed.
    Cold,
    /// The cache is full of other, dirty lines.
    Thrashed,
    /// The device wrote the window from beginning to end.
    DeviceWarm,
    /// The host wrote the window from beginning to end.
    HostWarm,
}

/// The cache.
#[derive(Debug, Clone)]
pub struct Cache {
    /// Addresses that the host or the device left warm.
    warm: Range<u64>,
    device_lines: Vec<u32>,
}

impl Cache {
    /// The cache after `state` was established for the window at these addresses. Of a window that is
    /// too large, the part written last is still there.
    #[must_use]
    pub fn new(llc_bytes: u64, ddio_bytes: u64, state: CacheState, window: Range<u64>) -> Self {
        let kept = match state {
            CacheState::Cold | CacheState::Thrashed => 0,
            CacheState::DeviceWarm => ddio_bytes,
            CacheState::HostWarm => llc_bytes,
        };
        let lines = usize::try_from(ddio_bytes / LINE_BYTES)
            .unwrap_or(usize::MAX)
            .max(1);
        Self {
            warm: window.end.saturating_sub(kept).max(window.start)..window.end,
            device_lines: vec![u32::MAX; lines],
        }
    }

    /// Whether every line of this range is cached.
    #[must_use]
    pub fn holds(&self, address: u64, bytes: u32) -> bool {
        lines(address, bytes)
            .all(|line| self.is_warm(line) || self.device_lines[self.slot(line)] == tag(line))
    }

    /// A device write of this range. Returns whether all of its lines were there before.
    pub fn write(&mut self, address: u64, bytes: u32) -> bool {
        let mut hit = true;
        for line in lines(address, bytes) {
            if self.is_warm(line) {
                continue;
            }
            let slot = self.slot(line);
            hit &= self.device_lines[slot] == tag(line);
            self.device_lines[slot] = tag(line);
        }
        hit
    }

    fn is_warm(&self, line: u64) -> bool {
        self.warm.contains(&(line * LINE_BYTES))
    }

    #[allow(clippy::cast_possible_truncation)]
    fn slot(&self, line: u64) -> usize {
        // Multiplicative hashing (Knuth 6.4) scatters neighbours over the slots.
        let hash = line.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        ((hash * self.device_lines.len() as u64) >> 32) as usize
    }
}

fn lines(address: u64, bytes: u32) -> std::ops::RangeInclusive<u64> {
    address / LINE_BYTES..=(address + u64::from(bytes.max(1)) - 1) / LINE_BYTES
}

/// Lines of up to 256 GiB are told apart.
#[allow(clippy::cast_possible_truncation)]
fn tag(line: u64) -> u32 {
    line as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_warm_window_keeps_its_end() {
        let cache = Cache::new(1 << 20, 1 << 16, CacheState::HostWarm, 0..4 << 20);
        assert!(!cache.holds(0, 64));
        assert!(cache.holds((4 << 20) - 64, 64));
        assert!(!cache.holds((3 << 20) - 64, 128));
        let moved = Cache::new(1 << 20, 1 << 16, CacheState::HostWarm, 4096..8192);
        assert!(!moved.holds(4032, 64) && moved.holds(4096, 4096) && !moved.holds(8192, 64));
    }

    #[test]
    fn writes_make_lines_warm() {
        let mut cache = Cache::new(1 << 20, 1 << 16, CacheState::Cold, 0..1 << 20);
        assert!(!cache.write(128, 64));
        assert!(cache.holds(128, 64));
        assert!(cache.write(128, 64));
    }
}
