//! Threads that sleep in the kernel on an epoll set: they are told when something in it changes.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use crosslane_stream::ready;
use crosslane_sys::{Errno, real};
use libc::{epoll_event, sigset_t, timespec};

use super::reg::Reg;
use super::set::Set;

/// Those on descriptors that the library did not know for sets when they began.
static UNSEEN: AtomicU32 = AtomicU32::new(0);

/// A wait in a set without rings, known to those who bring rings into it meanwhile.
pub struct Asleep(&'static AtomicU32);

impl Asleep {
    pub fn new(set: Option<&'static Set>) -> Self {
        let sleepers = set.map_or(&UNSEEN, |set| &set.sleepers);
        sleepers.fetch_add(1, Ordering::SeqCst);
        Self(sleepers)
    }
}

impl Drop for Asleep {
    fn drop(&mut self) {
        count_down(self.0);
    }
}

/// One call less. Returns how many there were: in a child that was forked meanwhile, by a handler, nobody was counted.
pub fn count_down(count: &AtomicU32) -> u32 {
    let less = |count: u32| count.checked_sub(1);
    count
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
        .unwrap_or(0)
}

/// Whether somebody may sleep on a set.
pub fn has_sleepers(set: &Set) -> bool {
    set.sleepers.load(Ordering::SeqCst) > 0 || UNSEEN.load(Ordering::SeqCst) > 0
}

/// In a forked child nobody sleeps.
pub fn forget() {
    UNSEEN.store(0, Ordering::Relaxed);
}

/// Nobody sleeps on the set any more.
pub fn disarm_all(set: &Set) {
    let Ok(mut inner) = set.inner.lock() else {
        return;
    };
    if set.sleepers.load(Ordering::SeqCst) > 0 {
        // Another thread has armed them since.
        return;
    }
    for place in 0..inner.hot.len() {
        let key = inner.hot[place];
        // Of one that is not waited for any more another set may sleep.
        let is_ours = |reg: &&mut Reg| reg.is_live() && reg.is_counted();
        if let Some(reg) = inner.reg(key).filter(is_ours) {
            ready::disarm(&reg.end);
        }
    }
}

/// The program's own way into the kernel: a cancellation point, with its signal mask.
pub fn block(
    epoll: c_int,
    events: &mut [MaybeUninit<epoll_event>],
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> Result<usize, Errno> {
    let time = limit.map(|limit| timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    });
    let time_at = time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    let count = c_int::try_from(events.len()).unwrap_or(c_int::MAX);
    let to = events.as_mut_ptr().cast();
    // SAFETY: the events and the time outlive the call; the mask is the program's.
    let result = unsafe { real::epoll_pwait2(epoll, to, count, time_at, mask) };
    match crosslane_sys::errno::check(result as isize) {
        Err(Errno::NOSYS) => {
            // Kernels before 5.11 count milliseconds; rounding up never wakes too early.
            let millis = limit.map_or(-1, |limit| {
                c_int::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
            });
            // SAFETY: as above.
            let result = unsafe { real::epoll_pwait(epoll, to, count, millis, mask) };
            crosslane_sys::errno::check(result as isize)
        }
        outcome => outcome,
    }
}
