//! Signals held back.

use core::mem::MaybeUninit;

use libc::{sigset_t, timespec, ucontext_t};

use crate::raw::syscall;
use crate::{busy, signals};

/// The signals of this thread, held back until this is dropped, so that none is handled between two
/// naps unseen. Not those that the thread itself causes.
#[derive(Debug)]
pub struct SignalsHeld(u64);

impl SignalsHeld {
    /// Hold them back from now on.
    pub fn hold() -> Self {
        Self(set_mask(all()) & !busy::take())
    }

    /// Sleep for about this long, or until a signal has been handled. Returns whether one has.
    pub fn nap(&self, duration: core::time::Duration) -> bool {
        self.nap_under(core::ptr::null(), duration)
    }

    /// As [`Self::nap`], under another mask than the thread's own if one is given.
    pub fn nap_under(&self, mask: *const sigset_t, duration: core::time::Duration) -> bool {
        let time = timespec {
            tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(duration.subsec_nanos()),
        };
        let time_at = core::ptr::from_ref(&time).addr();
        let own_at = core::ptr::from_ref(&self.0).addr();
        let mask_at = if mask.is_null() { own_at } else { mask.addr() };
        let args = [0, 0, time_at, mask_at, size_of::<u64>(), 0];
        // SAFETY: the time and the mask outlive the call; libc's masks begin with the kernel's.
        unsafe { syscall(libc::SYS_ppoll, args) }.is_err()
    }

    /// Which of them have come.
    pub fn pending(&self) -> u64 {
        Self::all_pending() & !self.0
    }

    /// As [`Self::pending`], of those that another mask than the thread's own lets in, if one is given.
    ///
    /// # Safety
    /// The mask must be valid for reads, or null.
    pub unsafe fn pending_under(&self, mask: *const sigset_t) -> u64 {
        // SAFETY: the caller's promise; libc's masks begin with the kernel's.
        let mask = unsafe { mask.cast::<u64>().as_ref() };
        Self::all_pending() & !mask.unwrap_or(&self.0)
    }

    /// Whether a mask, if one is given, lets in signals that have come and that the thread's own holds back.
    ///
    /// # Safety
    /// The mask must be valid for reads, or null.
    pub unsafe fn would_come(mask: *const sigset_t) -> bool {
        // SAFETY: the caller's promise; libc's masks begin with the kernel's.
        let mask = unsafe { mask.cast::<u64>().as_ref() };
        mask.is_some_and(|mask| Self::all_pending() & !mask != 0)
    }

    /// Whether a mask, if one is given, lets in signals that the thread's own holds back.
    ///
    /// # Safety
    /// The mask must be valid for reads, or null.
    pub unsafe fn is_opened_by(&self, mask: *const sigset_t) -> bool {
        // SAFETY: the caller's promise; libc's masks begin with the kernel's.
        let mask = unsafe { mask.cast::<u64>().as_ref() };
        mask.is_some_and(|mask| self.0 & !mask != 0)
    }

    fn all_pending() -> u64 {
        let mut pending = 0_u64;
        let pending_at = core::ptr::from_mut(&mut pending).addr();
        let args = [pending_at, size_of::<u64>(), 0, 0, 0, 0];
        // SAFETY: the set is of the kernel's size and outlives the call.
        let _ = unsafe { syscall(libc::SYS_rt_sigpending, args) };
        pending
    }

    /// The thread's own mask, for a call that lets in what is held back.
    pub fn mask(&self) -> sigset_t {
        libc_mask(self.0)
    }
}

impl Drop for SignalsHeld {
    fn drop(&mut self) {
        set_mask(self.0);
    }
}

/// What is held back.
fn all() -> u64 {
    signals::OWN
        .iter()
        .fold(u64::MAX, |mask, signal| mask & !signals::bit(*signal))
}

/// Whether a mask of the kernel's is one of [`SignalsHeld`].
pub(crate) fn is_all(mask: u64) -> bool {
    // Which nobody can hold back.
    let never = signals::bit(libc::SIGKILL) | signals::bit(libc::SIGSTOP);
    mask | never == all()
}

/// The kernel's part of a mask of libc's.
pub(crate) fn kernel_mask(mask: &sigset_t) -> u64 {
    let mask = core::ptr::from_ref(mask).cast::<u64>();
    // SAFETY: libc's masks begin with the kernel's, are aligned as it, and plain integers.
    unsafe { mask.read() }
}

/// Have a thread hold signals back from where a handler returns to it. The kernel's frame has room for its own mask only.
///
/// # Safety
/// The context must be the kernel's.
pub(crate) unsafe fn hold_back_after(context: *mut ucontext_t, signals: u64) {
    // SAFETY: the caller's promise.
    let mask = unsafe { &raw mut (*context).uc_sigmask }.cast::<u64>();
    // SAFETY: as above; libc's masks begin with the kernel's.
    unsafe { *mask |= signals };
}

/// A mask of the kernel's, as libc has it.
pub(crate) fn libc_mask(kernels: u64) -> sigset_t {
    let mut mask = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: libc's masks begin with the kernel's.
    unsafe { mask.as_mut_ptr().cast::<u64>().write(kernels) };
    // SAFETY: a mask is integers, and all were zeroed.
    unsafe { mask.assume_init() }
}

/// Set the mask of this thread's signals, and return the one before.
fn set_mask(mask: u64) -> u64 {
    change_mask(libc::SIG_SETMASK, mask)
}

/// As [`set_mask`], or with a mask added to the one before.
pub(crate) fn change_mask(how: libc::c_int, mask: u64) -> u64 {
    let mut before = 0_u64;
    let new_at = core::ptr::from_ref(&mask).addr();
    let old_at = core::ptr::from_mut(&mut before).addr();
    let how = usize::try_from(how).unwrap_or(0);
    let args = [how, new_at, old_at, size_of::<u64>(), 0, 0];
    // SAFETY: both masks are of the kernel's size and outlive the call.
    let _ = unsafe { syscall(libc::SYS_rt_sigprocmask, args) };
    before
}
