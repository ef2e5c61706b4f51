//! What a program inherits of signals, past the standard library, which changes it on the way.
//!
//! A Rust program ignores SIGPIPE from its start on, and what it runs by [`Command`] begins with SIGPIPE's default action.
//! Who only stands between a program and its parent, as env(1) does, must not change that.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use crate::held::SignalsHeld;

/// Called before `main`, and so before the standard library's start. It is not `#[used]`: only what calls [`signals`], which
/// names it, has it linked.
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

/// Our parent had us ignore SIGPIPE.
static IGNORES_SIGPIPE: AtomicBool = AtomicBool::new(false);

extern "C" fn note() {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the action has the right size; none is set.
    let failed = unsafe { libc::sigaction(libc::SIGPIPE, core::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zero is a value of each of its fields, so it is one whether it was written or not.
    let action = unsafe { action.assume_init() };
    let is_ignored = failed == 0 && action.sa_sigaction == libc::SIG_IGN;
    IGNORES_SIGPIPE.store(is_ignored, Ordering::Relaxed);
}

/// Have the command's program begin with SIGPIPE ignored if this one was begun so.
pub fn signals(command: &mut Command) {
    core::hint::black_box(&NOTE);
    if !IGNORES_SIGPIPE.load(Ordering::Relaxed) {
        return;
    }
    let ignore = || {
        // SAFETY: it ignores a signal, which calls nothing.
        let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        match before {
            libc::SIG_ERR => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: between fork and exec, after the standard library's own changes, it calls signal alone, which may be called
    // there.
    unsafe { command.pre_exec(ignore) };
}

/// Start the command's program, which begins with this thread's mask. The signals that come here are held back until what is
/// returned with it is dropped, so that none is missed by who passes them on to the program.
///
/// # Errors
/// When the program cannot be started.
pub fn spawn(command: &mut Command) -> io::Result<(Child, SignalsHeld)> {
    let held = SignalsHeld::hold();
    let own = held.mask();
    let let_in = move || {
        // SAFETY: the mask is valid for reads.
        match unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const own, core::ptr::null_mut())
        } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    };
    // SAFETY: pthread_sigmask may be called between fork and exec.
    unsafe { command.pre_exec(let_in) };
    Ok((command.spawn()?, held))
}
