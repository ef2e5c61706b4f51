//! What a program inherits of signals, past the standard library, which changes it on the way.
//!
//! A Rust program ignores SIGPIPE from its start on, and what it runs by [`Command`] begins with SIGPIPE's default action
//! and with no signal held back. Who only stands between a program and its parent, as env(1) does, must change neither.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

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

/// Have the command's program begin with SIGPIPE ignored if this one was begun so, and with the signals held back that this
/// thread holds back.
pub fn signals(command: &mut Command) {
    core::hint::black_box(&NOTE);
    let ignores_sigpipe = IGNORES_SIGPIPE.load(Ordering::Relaxed);
    let mut held_back = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set has the right size; none is changed.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, core::ptr::null(), held_back.as_mut_ptr()) };
    // SAFETY: a set of zeros is an empty one.
    let held_back = unsafe { held_back.assume_init() };
    let restore = move || {
        if ignores_sigpipe {
            // SAFETY: it ignores a signal, which calls nothing.
            let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
            if before == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
        }
        // SAFETY: the set was filled above, and the old one is not asked for.
        match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &held_back, core::ptr::null_mut()) }
        {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    };
    // SAFETY: between fork and exec, after the standard library's own changes, it calls signal and pthread_sigmask alone,
    // which may be called there.
    unsafe { command.pre_exec(restore) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a test, whose parent is another Rust program.
    #[test]
    fn what_is_held_back_stays_held_back() {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the set has the right size.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: it is a set now.
        let mut set = unsafe { set.assume_init() };
        // SAFETY: as above.
        unsafe { libc::sigaddset(&mut set, libc::SIGUSR1) };
        // SAFETY: this thread alone holds it back, and nobody sends it.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, core::ptr::null_mut()) };
        let mut command = Command::new("grep");
        command.args(["-E", "Sig(Blk|Ign)", "/proc/self/status"]);
        signals(&mut command);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("SigBlk:\t0000000000000200"), "{text}");
    }
}
