//! Clocks and hints of the processor.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Tell the processor that this is a waiting loop.
#[inline]
pub fn relax() {
    core::hint::spin_loop();
}

/// A counter that rises steadily and is read in a few nanoseconds.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: rdtsc has no preconditions.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let value: u64;
        // SAFETY: reading the virtual counter is allowed at EL0 under Linux and has no effect.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) value, options(nomem, nostack)) };
        value
    }
}

/// Ticks in a microsecond, measured once against the system's clock.
pub fn ticks_per_us() -> u64 {
    static RATE: OnceLock<u64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let (clock, start) = (Instant::now(), ticks());
        while clock.elapsed() < Duration::from_micros(200) {
            relax();
        }
        let elapsed_ns = u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX);
        ((ticks() - start) * 1000 / elapsed_ns.max(1)).max(1)
    })
}

/// Processors that this process may run on.
pub fn available() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
