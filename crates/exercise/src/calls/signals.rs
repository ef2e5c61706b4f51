//! Signals that are blocked and taken one by one.

use std::time::Duration;

use super::answer_int;
use crate::Errno;

/// What a signal tells of the descriptor that it is about (sigaction(2), SIGIO).
#[derive(Debug, PartialEq, Eq)]
pub struct Notice {
    /// The number of the signal.
    pub signal: i32,
    /// Why it was sent, as in POLL_IN.
    pub code: i32,
    /// The descriptor, where F_SETSIG has asked for it.
    pub fd: i32,
}

/// The beginning of a siginfo_t of this kind.
#[repr(C)]
struct Told {
    signal: i32,
    errno: i32,
    code: i32,
    band: libc::c_long,
    fd: i32,
}

/// A set of these signals.
pub fn signal_set(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: a set is plain integers, for which zero is a value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    for &signal in signals {
        // SAFETY: the set is writable.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
}

/// raise(3): send a signal to this thread.
pub fn raise(signal: i32) {
    // SAFETY: no memory is passed.
    let sent = unsafe { libc::raise(signal) };
    assert_eq!(sent, 0, "a thread may send signals to itself");
}

/// pthread_sigmask(3): block a signal in this thread, or let it come.
pub fn block(signal: i32, on: bool) {
    let how = if on {
        libc::SIG_BLOCK
    } else {
        libc::SIG_UNBLOCK
    };
    let set = signal_set(&[signal]);
    // SAFETY: the set is readable; null asks for nothing.
    let blocked = unsafe { libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) };
    assert_eq!(blocked, 0, "a signal can be blocked");
}

/// sigtimedwait(2): take a blocked signal that is there or comes in time; EAGAIN without one.
pub fn take_signal(signal: i32, patience: Duration) -> Result<Notice, Errno> {
    let set = signal_set(&[signal]);
    let limit = libc::timespec {
        tv_sec: i64::try_from(patience.as_secs()).expect("a test waits for seconds"),
        tv_nsec: patience.subsec_nanos().into(),
    };
    // SAFETY: the information is plain integers, for which zero is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: set and limit are readable, the information is writable.
    answer_int(unsafe { libc::sigtimedwait(&raw const set, &raw mut info, &raw const limit) })?;
    // SAFETY: the kernel's structure begins so, is longer and all integers.
    let told = unsafe { (&raw const info).cast::<Told>().read() };
    Ok(Notice {
        signal: told.signal,
        code: told.code,
        fd: told.fd,
    })
}
