//! Large pieces: through the cache or around it, whichever has cost less lately.

use core::arch::x86_64::_mm_sfence;
use core::cell::Cell;

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_sys::cpu::ticks;
use crosslane_sys::program::Fault;

use super::pieces::copy;
use super::through;

use crate::header::MAX_RECORD_BYTES;
use crate::memory::full_fence;

/// Below this, going around the cache costs more than it saves.
pub(super) const LEAST_BYTES: usize = 4096;

/// One copy in so many is measured for each of the two ways, the first ones more often.
const PERIOD: u32 = 512;

/// What the two ways have cost this thread, in ticks per 64 lines.
#[derive(Clone, Copy, Default)]
struct Costs {
    copies: u32,
    through: u64,
    around: u64,
}

thread_local! {
    static COSTS: Cell<Costs> = const {
        Cell::new(Costs { copies: 0, through: 0, around: 0 })
    };
}

impl Costs {
    /// Whether the next copy is to be measured: through the cache, then around it.
    fn is_measured(&self) -> bool {
        let pair = self.copies / 2;
        pair.is_power_of_two() || pair.is_multiple_of(PERIOD / 2)
    }

    /// Whether to go around the cache. The receiver then waits for memory, which a message of
    /// several records hides and a small one does not: there the gain must be a clear one.
    fn favours_around(&self, bytes: usize) -> bool {
        let handicap = if bytes < MAX_RECORD_BYTES { 2 } else { 1 };
        self.around * handicap < self.through
    }
}

/// What a way costs after one more measurement. Page faults and lost processors only make
/// copies slower, so the fastest counts, and is forgotten slowly.
fn settle(old: u64, new: u64) -> u64 {
    if old == 0 {
        return new;
    }
    new.min(old + old.div_ceil(8))
}

/// Copy a large piece in the way that has cost less lately.
///
/// # Safety
/// As [`super::into_ring`].
pub(super) unsafe fn into_ring(from: *const u8, to: *mut u8, bytes: usize) -> Result<(), Fault> {
    let mut costs = COSTS.get();
    costs.copies = costs.copies.wrapping_add(1);
    if !costs.is_measured() {
        let way = if costs.favours_around(bytes) {
            around
        } else {
            through
        };
        // SAFETY: the caller's promise.
        unsafe { way(from, to, bytes) }?;
    } else if costs.copies.is_multiple_of(2) {
        // SAFETY: the caller's promise.
        let cost = unsafe { measure(through, from, to, bytes) }?;
        costs.through = settle(costs.through, cost);
    } else {
        // SAFETY: the caller's promise.
        let cost = unsafe { measure(around, from, to, bytes) }?;
        costs.around = settle(costs.around, cost);
    }
    COSTS.set(costs);
    Ok(())
}

/// Copy, and return the ticks per 64 lines until all is written.
///
/// # Safety
/// As [`super::into_ring`].
unsafe fn measure(
    way: unsafe fn(*const u8, *mut u8, usize) -> Result<(), Fault>,
    from: *const u8,
    to: *mut u8,
    bytes: usize,
) -> Result<u64, Fault> {
    full_fence();
    let start = ticks();
    // SAFETY: the caller's promise.
    unsafe { way(from, to, bytes) }?;
    full_fence();
    Ok(ticks().saturating_sub(start) * 64 / (bytes / LINE_BYTES) as u64)
}

/// Copy around the cache. Only whole lines: one that is written both ways goes back and forth.
///
/// # Safety
/// As [`super::into_ring`].
pub(super) unsafe fn around(from: *const u8, to: *mut u8, bytes: usize) -> Result<(), Fault> {
    let head = to.align_offset(LINE_BYTES).min(bytes);
    let lines = (bytes - head) / LINE_BYTES;
    let tail = head + lines * LINE_BYTES;
    // SAFETY: the caller's promise, for the first `head` bytes.
    unsafe { through(from, to, head) }?;
    // SAFETY: as above, for the lines, which are the target's.
    let streamed = unsafe { stream_lines(from, to, (head, tail)) };
    // SAFETY: every x86-64 has SSE. Streaming stores are ordered by this fence only.
    unsafe { _mm_sfence() };
    streamed?;
    let (from, to) = (from.wrapping_add(tail), to.wrapping_add(tail));
    // SAFETY: the caller's promise, for what is left.
    unsafe { through(from, to, bytes - tail) }
}

/// Write lines from one place to another.
///
/// # Safety
/// As [`super::into_ring`] for these bytes; in `to` the places must be aligned to lines.
#[inline]
unsafe fn stream_lines(
    from: *const u8,
    to: *mut u8,
    (start, end): (usize, usize),
) -> Result<(), Fault> {
    for at in (start..end).step_by(LINE_BYTES) {
        copy!(
            [
                "20: movups {a}, [{from} + {at}]",
                "21: movups {b}, [{from} + {at} + 16]",
                "22: movups {c}, [{from} + {at} + 32]",
                "23: movups {d}, [{from} + {at} + 48]",
                "movntdq [{to} + {at}], {a}",
                "movntdq [{to} + {at} + 16], {b}",
                "movntdq [{to} + {at} + 32], {c}",
                "movntdq [{to} + {at} + 48], {d}"
            ],
            ["20b" "21b" "22b" "23b"],
            from = in(reg) from, to = in(reg) to, at = in(reg) at,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
        );
    }
    Ok(())
}
