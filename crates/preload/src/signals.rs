//! SIGBUS belongs to the library while it maps memory that may go away, and to the program all the
//! same: the program's action is kept, and gets what is not about that memory. Of other signals the library wants to
//! know which have handlers, and whether those end calls.

use core::ffi::c_int;

use crosslane_sys::{Errno, fault, real, signals};
use libc::sighandler_t;

use crate::{c, process};

/// Pass on a call that sets the action of a signal.
fn note<T>(signal: c_int, call: impl FnOnce() -> T) -> T {
    let outcome = call();
    // A child of vfork has actions of its own, and its parent's memory.
    if process::is_own() {
        signals::note_action(signal);
    }
    outcome
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    before: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the program's promise; null means none.
    let kept = (signal == libc::SIGBUS)
        .then(|| fault::program_action(unsafe { action.as_ref() }))
        .flatten();
    match kept {
        // SAFETY: passed on.
        None if action.is_null() => unsafe { real::sigaction(signal, action, before) },
        // SAFETY: passed on.
        None => note(signal, || unsafe {
            real::sigaction(signal, action, before)
        }),
        Some(Err(errno)) => c::fail(errno),
        Some(Ok(kept)) => {
            // SAFETY: the program's promise; null means that it does not want to know.
            if let Some(before) = unsafe { before.as_mut() } {
                *before = kept;
            }
            0
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    if number != libc::SIGBUS || handler == libc::SIG_ERR {
        // SAFETY: passed on.
        return note(number, || unsafe { real::signal(number, handler) });
    }
    // SAFETY: sigaction is plain integers, for which zero is a value.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_RESTART;
    match fault::program_action(Some(&action)) {
        // SAFETY: passed on.
        None => unsafe { real::signal(number, handler) },
        Some(Ok(kept)) => kept.sa_sigaction,
        Some(Err(errno)) => {
            Errno::set(errno);
            libc::SIG_ERR
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sysv_signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: passed on.
    note(number, || unsafe { real::sysv_signal(number, handler) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn siginterrupt(number: c_int, ends_calls: c_int) -> c_int {
    // SAFETY: passed on.
    note(number, || unsafe { real::siginterrupt(number, ends_calls) })
}
