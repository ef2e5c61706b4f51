//! Sleeping on a word of memory.

use core::sync::atomic::AtomicU32;
use core::time::Duration;

use crate::raw::syscall;

/// Sleep while `word` is `expected`, at most for `timeout`; may return early. The word may be
/// shared between processes.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Duration) {
    let timeout = libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    let args = [
        core::ptr::from_ref(word).addr(),
        libc::FUTEX_WAIT as usize,
        expected as usize,
        core::ptr::from_ref(&timeout).addr(),
        0,
        0,
    ];
    // SAFETY: the word and the timespec outlive the call; FUTEX_WAIT only reads them.
    let _ = unsafe { syscall(libc::SYS_futex, args) };
}

/// Wake up to `count` sleepers.
pub fn wake(word: &AtomicU32, count: u32) {
    let args = [
        core::ptr::from_ref(word).addr(),
        libc::FUTEX_WAKE as usize,
        count as usize,
        0,
        0,
        0,
    ];
    // SAFETY: FUTEX_WAKE takes the word as an address only.
    let _ = unsafe { syscall(libc::SYS_futex, args) };
}
