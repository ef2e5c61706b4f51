//! The instructions that order writes and move cache lines.

const LINE_BYTES: usize = crosslane_ctl::lane::LINE_BYTES;

/// All stores of this processor before it, write-combined ones too, are performed before those after it;
/// write-combining buffers are emptied.
#[inline]
pub(crate) fn store_fence() {
    #[cfg(test)]
    count(&STORE_FENCES, 1);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 has SSE; the instruction touches no memory.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a barrier touches no memory.
    unsafe {
        core::arch::asm!("dsb oshst", options(nostack, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// No load of this processor behind it is done before those in front of it, of write-combining memory either.
#[inline]
pub(crate) fn load_fence() {
    #[cfg(test)]
    count(&LOAD_FENCES, 1);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 has SSE2; the instruction touches no memory.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a barrier touches no memory.
    unsafe {
        core::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::Acquire);
}

#[cfg(test)]
type Counter = std::thread::LocalKey<core::cell::Cell<usize>>;

#[cfg(test)]
fn count(counter: &'static Counter, more: usize) {
    counter.set(counter.get() + more);
}

// How many there were: what they do cannot be seen in memory of this machine.
#[cfg(test)]
thread_local! {
    pub(crate) static LOAD_FENCES: core::cell::Cell<usize> = const { core::cell::Cell::new(0) };
    pub(crate) static STORE_FENCES: core::cell::Cell<usize> = const { core::cell::Cell::new(0) };
    /// Lines that were flushed, and words that were stored around the caches.
    pub(crate) static FLUSHED_LINES: core::cell::Cell<usize> = const { core::cell::Cell::new(0) };
    pub(crate) static WORDS_AROUND: core::cell::Cell<usize> = const { core::cell::Cell::new(0) };
}

/// Instructions for flushing, as far as they depend on the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// x86-64 before 2015: ordered, and slow.
    Clflush,
    /// x86-64: not ordered among each other.
    Clflushopt,
    /// aarch64: `dc civac`, which Linux allows to programs.
    DataCache,
    /// No such instruction is known for this processor.
    None,
}

impl Flush {
    /// The best of this processor.
    pub fn here() -> Self {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use core::arch::x86_64::{__cpuid, __cpuid_count};
            const CLFLUSH_EDX: u32 = 1 << 19;
            const CLFLUSHOPT_EBX: u32 = 1 << 23;
            let has_leaf_7 = __cpuid(0).eax >= 7;
            if has_leaf_7 && __cpuid_count(7, 0).ebx & CLFLUSHOPT_EBX != 0 {
                return Self::Clflushopt;
            }
            if __cpuid(1).edx & CLFLUSH_EDX != 0 {
                return Self::Clflush;
            }
            Self::None
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        {
            Self::DataCache
        }
        #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
        {
            Self::None
        }
    }

    /// Its name, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clflush => "clflush",
            Self::Clflushopt => "clflushopt",
            Self::DataCache => "dc civac",
            Self::None => "none",
        }
    }

    /// Write every line of a range back to memory if it is dirty, and forget it; complete before what
    /// follows.
    ///
    /// # Safety
    /// The range must be mapped.
    #[inline]
    pub(crate) unsafe fn lines(self, start: *const u8, bytes: usize) {
        let skew = start.addr() % LINE_BYTES;
        let first = start.wrapping_sub(skew);
        for line in 0..(skew + bytes).div_ceil(LINE_BYTES) {
            // SAFETY: a line that has a byte of the range, which lies on a mapped page.
            unsafe { self.line(first.wrapping_add(line * LINE_BYTES)) };
        }
        full_fence();
    }

    /// # Safety
    /// The line must be mapped.
    #[inline]
    unsafe fn line(self, line: *const u8) {
        #[cfg(test)]
        count(&FLUSHED_LINES, 1);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        match self {
            // SAFETY: the caller's promise; contents stay as they are.
            Self::Clflush => unsafe {
                core::arch::asm!("clflush byte ptr [{}]", in(reg) line, options(nostack, preserves_flags));
            },
            // SAFETY: as above, and the processor was asked for the instruction.
            Self::Clflushopt => unsafe {
                core::arch::asm!("clflushopt byte ptr [{}]", in(reg) line, options(nostack, preserves_flags));
            },
            Self::DataCache | Self::None => {}
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: the caller's promise; contents stay as they are.
        unsafe {
            core::arch::asm!("dc civac, {}", in(reg) line, options(nostack, preserves_flags));
        }
        #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
        let _ = (self, line);
    }
}

/// Flushes are complete, and later loads come later.
#[inline]
fn full_fence() {
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a barrier touches no memory.
    unsafe {
        core::arch::asm!("dsb osh", options(nostack, preserves_flags));
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 has SSE2; the instruction touches no memory.
    unsafe {
        core::arch::x86_64::_mm_mfence();
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// Store a word around the caches where the processor has such stores; elsewhere as usual.
///
/// # Safety
/// `to` must be aligned and valid for writes.
#[inline]
pub(crate) unsafe fn store_around(to: *mut u64, word: u64) {
    #[cfg(test)]
    count(&WORDS_AROUND, 1);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller's promise; every x86-64 has SSE2.
    unsafe {
        core::arch::asm!("movnti qword ptr [{}], {}", in(reg) to, in(reg) word, options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller's promise.
    unsafe {
        to.write_volatile(word)
    };
}

/// Whether [`store_around`] leaves nothing in the caches.
pub(crate) const GOES_AROUND: bool = cfg!(all(target_arch = "x86_64", not(miri)));
