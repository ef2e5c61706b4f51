//! The instructions that touch a window: what is timed is exactly what is written here.
//!
//! They are assembly on x86-64, so that the compiler neither merges nor drops an access, and so that
//! unaligned and non-temporal accesses are possible; elsewhere volatile accesses stand in. Every
//! function checks its range against the window before the access.

use crate::map::Mapping;

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// Ways of storing a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Store {
    /// Through the caches.
    Cached,
    /// Around them, by way of a write-combining buffer.
    NonTemporal,
}

/// Whether this machine has a flush instruction that programs may use.
pub const CAN_FLUSH: bool = cfg!(target_arch = "x86_64");

/// Loads eight bytes at any offset.
#[inline]
#[must_use]
pub fn load(window: &Mapping, offset: usize) -> u64 {
    let address = window.address(offset, 8);
    let value: u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `address` has eight readable bytes in a live mapping; the load changes nothing else.
    unsafe {
        std::arch::asm!("mov {}, qword ptr [{}]", out(reg) value, in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let aligned = window.address(offset / 8 * 8, 8).cast::<u64>();
        let _ = address;
        // SAFETY: eight aligned readable bytes in a live mapping.
        value = unsafe { std::ptr::read_volatile(aligned) };
    }
    value
}

/// Stores eight bytes at any offset.
#[inline]
pub fn store(window: &Mapping, offset: usize, value: u64) {
    let address = window.address(offset, 8);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `address` has eight writable bytes in a live mapping that no reference points into.
    unsafe {
        std::arch::asm!("mov qword ptr [{}], {}", in(reg) address, in(reg) value, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let aligned = window.address(offset / 8 * 8, 8).cast::<u64>();
        let _ = address;
        // SAFETY: eight aligned writable bytes in a live mapping that no reference points into.
        unsafe { std::ptr::write_volatile(aligned, value) };
    }
}

/// Loads so many bytes, word by word, at any offset. Returns the words, ORed, so that it depends on each of them.
#[inline]
#[must_use]
pub fn load_words(window: &Mapping, offset: usize, bytes: usize) -> u64 {
    (0..bytes / 8).fold(0, |all, word| all | load(window, offset + word * 8))
}

/// Stores so many bytes, word by word, at any offset: a value, and zeros behind it.
#[inline]
pub fn store_words(window: &Mapping, offset: usize, bytes: usize, value: u64) {
    store(window, offset, value);
    (1..bytes / 8).for_each(|word| store(window, offset + word * 8, 0));
}

/// Loads a whole aligned line.
#[inline]
pub fn load_line(window: &Mapping, offset: usize) {
    let address = window.address(offset / LINE * LINE, LINE);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a mapping starts at a page and `offset` was cut to a line, so 64 aligned readable bytes.
    unsafe {
        std::arch::asm!(
            "movdqa {a}, xmmword ptr [{p}]",
            "movdqa {b}, xmmword ptr [{p} + 16]",
            "movdqa {c}, xmmword ptr [{p} + 32]",
            "movdqa {d}, xmmword ptr [{p} + 48]",
            p = in(reg) address, a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            options(nostack, readonly, preserves_flags)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    for word in 0..LINE / 8 {
        let _ = address;
        std::hint::black_box(load(window, offset / LINE * LINE + word * 8));
    }
}

/// Stores a whole aligned line.
#[inline]
pub fn store_line(window: &Mapping, offset: usize, how: Store) {
    let address = window.address(offset / LINE * LINE, LINE);
    #[cfg(target_arch = "x86_64")]
    match how {
        // SAFETY: 64 aligned writable bytes, as in `load_line`, that no reference points into.
        Store::Cached => unsafe {
            std::arch::asm!(
                "pxor {a}, {a}",
                "movdqa xmmword ptr [{p}], {a}",
                "movdqa xmmword ptr [{p} + 16], {a}",
                "movdqa xmmword ptr [{p} + 32], {a}",
                "movdqa xmmword ptr [{p} + 48], {a}",
                p = in(reg) address, a = out(xmm_reg) _, options(nostack, preserves_flags)
            );
        },
        // SAFETY: as above; `fence` orders these stores before anyone relies on them.
        Store::NonTemporal => unsafe {
            std::arch::asm!(
                "pxor {a}, {a}",
                "movntdq xmmword ptr [{p}], {a}",
                "movntdq xmmword ptr [{p} + 16], {a}",
                "movntdq xmmword ptr [{p} + 32], {a}",
                "movntdq xmmword ptr [{p} + 48], {a}",
                p = in(reg) address, a = out(xmm_reg) _, options(nostack, preserves_flags)
            );
        },
    }
    #[cfg(not(target_arch = "x86_64"))]
    for word in 0..LINE / 8 {
        let _ = (address, how);
        store(window, offset / LINE * LINE + word * 8, 0);
    }
}

/// Orders non-temporal stores and flushes before what follows.
#[inline]
pub fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: mfence touches no memory, no stack and no flags.
    unsafe {
        std::arch::asm!("mfence", options(nostack, preserves_flags));
    }
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Evicts every line of a range from all caches; does nothing where [`CAN_FLUSH`] is false.
pub fn flush(window: &Mapping, offset: usize, bytes: usize) {
    let mut at = offset / LINE * LINE;
    while at < offset + bytes {
        let address = window.address(at, LINE);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: clflush on a readable line of a live mapping changes no contents.
        unsafe {
            std::arch::asm!("clflush byte ptr [{}]", in(reg) address, options(nostack, preserves_flags));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = address;
        at += LINE;
    }
    fence();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Pages;

    #[test]
    fn what_is_stored_is_loaded() {
        let window = Mapping::anonymous(8192, Pages::Small).unwrap();
        for offset in [0, 8, 64, 4096, 8184] {
            store(&window, offset, offset as u64 + 7);
            assert_eq!(load(&window, offset), offset as u64 + 7);
        }
        for how in [Store::Cached, Store::NonTemporal] {
            store(&window, 128, u64::MAX);
            store_line(&window, 128, how);
            fence();
            assert_eq!(load(&window, 128), 0);
        }
        store(&window, 256, 5);
        flush(&window, 0, 8192);
        load_line(&window, 256);
        assert_eq!(load(&window, 256), 5);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn unaligned_words_straddle_lines() {
        let window = Mapping::anonymous(4096, Pages::Small).unwrap();
        store(&window, 61, 0x0102_0304_0506_0708);
        assert_eq!(load(&window, 61), 0x0102_0304_0506_0708);
        assert_eq!(load(&window, 64) & 0xff, 0x05);
    }

    #[test]
    #[should_panic(expected = "outside a window")]
    fn no_access_beyond_the_end() {
        let window = Mapping::anonymous(4096, Pages::Small).unwrap();
        let _ = load(&window, 4092);
    }
}
