//! SIGSEGV and SIGBUS belong to the library once it may copy where the program says, and to the program all the
//! same: the program's action is kept, and gets what is not about such a copy. Of other signals the library wants to
//! know which have handlers, and whether those end calls; and its own is run for them, which has them wait while their
//! thread holds something.

use core::ffi::c_int;

use crosslane_sys::fault::{self, Program};
use crosslane_sys::{Errno, program, real, signals};
use libc::sighandler_t;

use crate::{c, process};

/// Handle the faults of copies from now on. Returns whether that can be.
#[inline]
pub fn take() -> bool {
    program::CAN_TELL && (fault::is_ours(libc::SIGSEGV) || take_now())
}

#[cold]
fn take_now() -> bool {
    if process::is_own() {
        // Where the kernel does not let us, they are the program's.
        let _ = fault::take(libc::SIGBUS);
        let _ = fault::take(libc::SIGSEGV);
    }
    fault::is_ours(libc::SIGSEGV)
}

/// Pass on a call that sets the action of a signal. With what it returns comes what the program has to be told of before.
fn note<T>(signal: c_int, call: impl FnOnce() -> T) -> (T, Program) {
    let before = Program::handler(signal);
    let outcome = call();
    // A child of vfork has actions of its own, and its parent's memory.
    if process::is_own() {
        signals::note_action(signal);
    }
    (outcome, before)
}

/// As [`note`], and the program is told its own handler of before.
fn tell(signal: c_int, call: impl FnOnce() -> sighandler_t) -> sighandler_t {
    let (handler, before) = note(signal, call);
    before.unmask_handler(handler)
}

/// The action that the program has for a signal that is ours, and the one that it sets, if any. `None` if the signal is not
/// ours, or the caller is a child of vfork.
fn program_action(
    signal: c_int,
    new: Option<&libc::sigaction>,
) -> Option<Result<libc::sigaction, Errno>> {
    process::is_own()
        .then(|| fault::program_action(signal, new))
        .flatten()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    before: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the program's promise; null means none.
    let new = unsafe { action.as_ref() };
    // SAFETY: passed on.
    let pass_on = || unsafe { real::sigaction(signal, action, before) };
    let (kept, program) = match program_action(signal, new) {
        None if action.is_null() => (pass_on(), Program::handler(signal)),
        None => note(signal, pass_on),
        Some(Err(errno)) => return c::fail(errno),
        Some(Ok(kept)) => {
            // SAFETY: the program's promise; null means that it does not want to know.
            if let Some(before) = unsafe { before.as_mut() } {
                *before = kept;
            }
            return 0;
        }
    };
    if kept == 0
        // SAFETY: as above.
        && let Some(before) = unsafe { before.as_mut() }
    {
        program.unmask(before);
    }
    kept
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    let kept = (handler != libc::SIG_ERR)
        .then(|| keep(number, handler, libc::SA_RESTART))
        .flatten();
    // SAFETY: passed on.
    kept.unwrap_or_else(|| tell(number, || unsafe { real::signal(number, handler) }))
}

/// Set the program's action for a signal, if that is ours. Returns the handler before.
fn keep(signal: c_int, handler: sighandler_t, flags: c_int) -> Option<sighandler_t> {
    // SAFETY: sigaction is plain integers, for which zero is a value.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    Some(match program_action(signal, Some(&action))? {
        Ok(kept) => kept.sa_sigaction,
        Err(errno) => {
            errno.set();
            libc::SIG_ERR
        }
    })
}

/// `SIG_HOLD`, which blocks the signal, and tells that it was blocked.
const HOLD: sighandler_t = 2;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigset(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: passed on.
    let kernel = |handler| tell(number, || unsafe { real::sigset(number, handler) });
    if [libc::SIG_ERR, HOLD].contains(&handler) {
        return kernel(handler);
    }
    let Some(kept) = keep(number, handler, 0) else {
        return kernel(handler);
    };
    // SAFETY: a set is plain integers, for which zero is a value.
    let [mut alone, mut before]: [libc::sigset_t; 2] = unsafe { core::mem::zeroed() };
    // SAFETY: the set is writable.
    unsafe { libc::sigaddset(&raw mut alone, number) };
    // SAFETY: both sets outlive the call.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const alone, &raw mut before) };
    // SAFETY: the set has been filled in.
    match unsafe { libc::sigismember(&raw const before, number) } {
        1 => HOLD,
        _ => kept,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigignore(number: c_int) -> c_int {
    match keep(number, libc::SIG_IGN, 0) {
        Some(libc::SIG_ERR) => -1,
        Some(_) => 0,
        // SAFETY: passed on.
        None => note(number, || unsafe { real::sigignore(number) }).0,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sysv_signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    let flags = libc::SA_RESETHAND | libc::SA_NODEFER;
    let kept = (handler != libc::SIG_ERR)
        .then(|| keep(number, handler, flags))
        .flatten();
    // SAFETY: passed on.
    kept.unwrap_or_else(|| tell(number, || unsafe { real::sysv_signal(number, handler) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn siginterrupt(number: c_int, ends_calls: c_int) -> c_int {
    // SAFETY: passed on.
    note(number, || unsafe { real::siginterrupt(number, ends_calls) }).0
}
