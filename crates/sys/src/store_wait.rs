//! Waiting for a store to a line of memory without running: `umwait` of Intel's WAITPKG, `mwaitx` of AMD's
//! MONITORX. The processor rests, leaves its shared parts to its sibling thread, and goes on when another one
//! writes the line, when time is up, at an interrupt, or for no reason at all.
//!
//! Sources: Intel SDM volume 2, UMONITOR and UMWAIT; AMD APM volume 3, MONITORX and MWAITX.

use core::sync::atomic::AtomicU64;

/// What the processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreWait {
    /// `umonitor` and `umwait`.
    Umwait,
    /// `monitorx` and `mwaitx`.
    Mwaitx,
}

impl StoreWait {
    /// What this processor says that it has, and programs may use.
    pub fn here() -> Option<Self> {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use std::sync::OnceLock;

            use crate::busy::Busy;

            static FOUND: OnceLock<Option<StoreWait>> = OnceLock::new();
            let find = || {
                let _busy = Busy::begin();
                FOUND.get_or_init(x86::find)
            };
            *FOUND.get().unwrap_or_else(find)
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        None
    }

    /// The instruction's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Umwait => "umwait",
            Self::Mwaitx => "mwaitx",
        }
    }

    /// Wait until somebody writes to the line of `word`, for `ticks` at most. `is_due` is asked once the line is
    /// watched, so that what was written just before is not waited for.
    ///
    /// Only a value of [`StoreWait::here`] may be used: others are instructions that the processor does not have.
    #[inline]
    pub fn rest(self, word: &AtomicU64, ticks: u64, is_due: impl FnOnce() -> bool) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        x86::rest(self, word, ticks, is_due);
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        {
            let _ = (word, ticks, is_due);
            crate::cpu::relax();
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use core::arch::asm;
    use core::arch::x86_64::{__cpuid, __cpuid_count, __get_cpuid_max};
    use core::sync::atomic::AtomicU64;

    use super::StoreWait;
    use crate::cpu::ticks;

    /// CPUID leaf 7, ECX: WAITPKG.
    const WAITPKG: u32 = 1 << 5;
    /// CPUID leaf 8000_0001, ECX: MONITORX and MWAITX.
    const MONITORX: u32 = 1 << 29;
    const EXTENDED: u32 = 0x8000_0000;

    pub(super) fn find() -> Option<StoreWait> {
        if __get_cpuid_max(0).0 >= 7 && __cpuid_count(7, 0).ecx & WAITPKG != 0 {
            return Some(StoreWait::Umwait);
        }
        let has_leaf = __get_cpuid_max(EXTENDED).0 > EXTENDED;
        (has_leaf && __cpuid(EXTENDED + 1).ecx & MONITORX != 0).then_some(StoreWait::Mwaitx)
    }

    #[inline]
    pub(super) fn rest(how: StoreWait, word: &AtomicU64, most: u64, is_due: impl FnOnce() -> bool) {
        let line = word.as_ptr();
        match how {
            // SAFETY: umonitor reads no more than a load does, from a word that lives; the processor has it.
            StoreWait::Umwait => unsafe { asm!("umonitor {}", in(reg) line, options(nostack)) },
            // SAFETY: as above; no hints (edx), no extensions (ecx).
            StoreWait::Mwaitx => unsafe {
                asm!("monitorx", in("rax") line, in("ecx") 0, in("edx") 0, options(nostack));
            },
        }
        if is_due() {
            return;
        }
        match how {
            StoreWait::Umwait => umwait(ticks().wrapping_add(most)),
            StoreWait::Mwaitx => mwaitx(u32::try_from(most).unwrap_or(u32::MAX)),
        }
    }

    /// Until the counter is at `until`, in C0.1, which is left faster than C0.2.
    fn umwait(until: u64) {
        // SAFETY: waits and changes flags only; the processor has it. It reads the lower halves of rdx and rax.
        unsafe {
            asm!("umwait {:e}", in(reg) 1, in("rdx") until >> 32, in("rax") until, options(nostack));
        }
    }

    /// For so many ticks (ebx, by bit 1 of ecx), in C0 (f0 in eax), which is left fastest.
    fn mwaitx(most: u32) {
        // SAFETY: waits; the processor has it. rbx is the compiler's own, and restored.
        unsafe {
            asm!(
                "xchg {most}, rbx",
                "mwaitx",
                "xchg {most}, rbx",
                most = inout(reg) u64::from(most) => _,
                in("eax") 0xf0,
                in("ecx") 2,
                options(nostack),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::cpu::ticks_per_us;

    /// Runs where the processor has an instruction.
    fn with_one(test: impl FnOnce(StoreWait)) {
        match StoreWait::here() {
            Some(how) => test(how),
            None => {
                let why = "this processor has neither umwait nor mwaitx";
                let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
            }
        }
    }

    #[test]
    fn a_rest_ends_by_itself() {
        with_one(|how| {
            let (word, start) = (AtomicU64::new(0), Instant::now());
            (0..100).for_each(|_| how.rest(&word, 10 * ticks_per_us(), || false));
            assert!(start.elapsed() < Duration::from_secs(1), "{how:?}");
        });
    }

    #[test]
    fn nothing_is_waited_for_that_is_due() {
        with_one(|how| {
            let (word, start) = (AtomicU64::new(0), Instant::now());
            (0..1000).for_each(|_| how.rest(&word, 1_000_000 * ticks_per_us(), || true));
            assert!(start.elapsed() < Duration::from_secs(1), "{how:?}");
        });
    }

    #[test]
    fn a_store_by_another_thread_is_found() {
        with_one(|how| {
            let word = AtomicU64::new(0);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for round in 1..=100 {
                        while word.load(Ordering::Acquire) != 2 * round - 2 {
                            std::hint::spin_loop();
                        }
                        word.store(2 * round - 1, Ordering::Release);
                    }
                });
                for round in 1..=100 {
                    let is_there = || word.load(Ordering::Acquire) == 2 * round - 1;
                    while !is_there() {
                        how.rest(&word, 1000 * ticks_per_us(), is_there);
                    }
                    word.store(2 * round, Ordering::Release);
                }
            });
        });
    }
}
