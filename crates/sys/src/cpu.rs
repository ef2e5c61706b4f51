//! Clocks and hints of the processor.

use core::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::kernel;

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
    // No lock, which a fork in that moment would leave locked in the child, and a handler would wait for: two may measure.
    static RATE: AtomicU64 = AtomicU64::new(0);
    match RATE.load(Ordering::Relaxed) {
        0 => {
            let rate = measure_rate();
            RATE.store(rate, Ordering::Relaxed);
            rate
        }
        rate => rate,
    }
}

#[cold]
fn measure_rate() -> u64 {
    let (clock, start) = moment();
    while clock.elapsed() < Duration::from_micros(200) {
        relax();
    }
    let (now, end) = moment();
    let elapsed_ns = u64::try_from((now - clock).as_nanos()).unwrap_or(u64::MAX);
    (end.saturating_sub(start) * 1000 / elapsed_ns.max(1)).max(1)
}

/// The same moment by the system's clock and in ticks. The processor may be taken away between two readings;
/// of some pairs, the closest is one between which it was not.
fn moment() -> (Instant, u64) {
    let pair = |_| {
        let before = ticks();
        let now = Instant::now();
        let passed = ticks().saturating_sub(before);
        (passed, now, before + passed / 2)
    };
    let closest = (0..8).map(pair).min_by_key(|(passed, ..)| *passed);
    closest.map_or_else(|| (Instant::now(), ticks()), |(_, now, at)| (now, at))
}

/// Processors that this process may run on.
pub fn available() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How many threads of the machine want to run, those that run included, and how many processors there are. `None`
/// where the kernel does not tell (proc_loadavg(5)).
pub fn load() -> Option<(u64, u64)> {
    // No lock, which a child of fork would wait for in vain if another thread had it.
    static ONLINE: AtomicU64 = AtomicU64::new(0);
    let online = match ONLINE.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: sysconf has no preconditions.
            let found = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
            let found = u64::try_from(found).unwrap_or(0);
            ONLINE.store(found, Ordering::Relaxed);
            found
        }
        known => known,
    };
    // Nothing is allocated: the caller may have interrupted an allocation.
    let mut room = [0; 64];
    let bytes = kernel::read_file(c"/proc/loadavg", &mut room).ok()?;
    // `0.20 0.18 0.12 1/80 11206`
    let said = str::from_utf8(room.get(..bytes)?).ok()?;
    let running: u64 = said.split(' ').nth(3)?.split('/').next()?.parse().ok()?;
    Some((running, online))
}

/// The processor that the calling thread runs on, if the kernel tells.
#[inline]
pub fn current() -> Option<u32> {
    // SAFETY: sched_getcpu has no preconditions.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Move the calling thread off processor `cpu`, if it may run on another one. Its own choice of
/// processors is the same afterwards.
pub fn leave(cpu: u32) -> bool {
    // SAFETY: cpu_set_t is plain integers, for which zero is a value.
    let mut own: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    let bytes = size_of::<libc::cpu_set_t>();
    // SAFETY: the set is valid for writes of its size; 0 is the calling thread.
    if unsafe { libc::sched_getaffinity(0, bytes, &raw mut own) } != 0 {
        return false;
    }
    let mut others = own;
    // SAFETY: CPU_CLR checks its bounds.
    unsafe { libc::CPU_CLR(cpu as usize, &mut others) };
    // SAFETY: counts bits only.
    if unsafe { libc::CPU_COUNT(&others) } == 0 {
        return false;
    }
    // SAFETY: both sets are valid for reads of their size; 0 is the calling thread.
    let moved = unsafe { libc::sched_setaffinity(0, bytes, &raw const others) } == 0;
    // SAFETY: as above.
    unsafe { libc::sched_setaffinity(0, bytes, &raw const own) };
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_the_load_is_part_of_it() {
        let (running, processors) = load().expect("/proc is there");
        assert!(running >= 1 && processors >= 1, "{running} on {processors}");
    }
}
