//! When a record was written.
//!
//! Who hears of several connections at once is to hear of them in the order in which their peers wrote, as from the
//! kernel. So a process with several connections writes into each header when that was, and what waits for several looks at
//! what it has found. It costs the sender 11 ns; processes with one connection leave it out.

use core::sync::atomic::{AtomicBool, Ordering};

use crosslane_sys::cpu;

/// Ticks in a unit, as a power of two: 64 at some GHz are so few that one thread writes no two records in them, and the
/// number comes round after a minute or more.
const UNIT: u32 = if cfg!(target_arch = "x86_64") { 6 } else { 0 };

static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// Whether this process says in its records when they were written.
pub fn tell(is_told: bool) {
    IS_TOLD.store(is_told, Ordering::Relaxed);
}

/// The bits of a header that say it.
#[inline]
pub(crate) fn of_this_record() -> u64 {
    match IS_TOLD.load(Ordering::Relaxed) {
        true => u64::from(now()) << 32,
        false => 0,
    }
}

/// 0 stands for a moment that was not told.
#[inline]
fn now() -> u32 {
    low_half(cpu::ticks() >> UNIT).max(1)
}

#[inline]
fn low_half(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0)
}

/// When a record was written, as its sender says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment(u32);

impl Moment {
    #[inline]
    pub(crate) fn of(header: u64) -> Self {
        Self(low_half(header >> 32))
    }

    /// Whether it was told.
    #[inline]
    pub fn is_told(self) -> bool {
        self.0 != 0
    }

    /// Whether it was before another one. Of two that are a minute apart nobody knows.
    #[inline]
    pub fn is_before(self, other: Self) -> bool {
        other.0.wrapping_sub(self.0).cast_signed() > 0
    }

    /// This moment.
    pub fn now() -> Self {
        Self(now())
    }

    /// How long before another one it was; only good to be compared with others.
    pub fn age_at(self, other: Self) -> u32 {
        other.0.wrapping_sub(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_come_round() {
        let [early, late, later] = [u32::MAX - 5, u32::MAX, 7].map(Moment);
        assert!(early.is_before(late) && late.is_before(later) && early.is_before(later));
        assert!(!later.is_before(early) && !early.is_before(early));
    }

    #[test]
    fn a_record_tells_its_moment_where_that_is_wanted() {
        assert!(!Moment::of(of_this_record()).is_told());
        let [first, second] = [(); 2].map(|()| Moment::of(u64::from(now()) << 32));
        assert!(first.is_told() && second.is_told() && !second.is_before(first));
    }
}
