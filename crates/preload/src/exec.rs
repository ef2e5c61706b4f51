//! Other programs that run with copies of our descriptors: exec and what is built on it.

use core::ffi::{c_char, c_int, c_void};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crosslane_ctl::reason::Reason;
use crosslane_stream::process::{self, Process};
use crosslane_stream::{End, adopt, close as closing, watcher, young};
use crosslane_sys::{Errno, cancel, kernel, real};

use crate::{borrow, epoll, sole};

/// How long exec waits in all for inherited connections to be back on TCP. What is not by then is
/// lent to a program that runs under Crosslane; another one gets it at the peer's next call.
const PATIENCE: Duration = Duration::from_millis(200);

/// Another program is about to run with copies of our descriptors: those without close-on-exec, and
/// `copied`. It sees TCP only, unless it runs
/// under Crosslane, too, and adopts what is not on TCP yet.
fn prepare_exec(copied: &[c_int]) -> Vec<adopt::Given> {
    sole::share_all();
    let is_given = |fd| kernel::survives_exec(fd) || copied.contains(&fd);
    young::grow_those(is_given);
    let Some(process) = process::get() else {
        return Vec::new();
    };
    let deadline = Instant::now() + PATIENCE;
    let give = |end: End| {
        let left = deadline.saturating_duration_since(Instant::now());
        adopt::give_away(&end, Reason::Exec, left)
    };
    let mut seen = BTreeSet::new();
    process
        .ends()
        .filter(|end| is_given(end.fd))
        .filter(|end| seen.insert(end.index))
        // The caller may be a handler that has interrupted a copy, which waits for it in turn.
        .filter(|end| closing::is_let_go(end, deadline))
        .map(give)
        .collect()
}

/// As [`prepare_exec`], for a call that makes the calling process another program. Says, too, whether the library had a
/// thread.
fn before_exec() -> (Vec<adopt::Given>, bool) {
    if process::has_left() {
        epoll::before_exec();
        return (Vec::new(), false);
    }
    if own().is_some() {
        // What they have moved is told by what outlives the program.
        young::grow_all();
    }
    closing::await_registrations();
    let stop = |_| watcher::stop_before_exit(Instant::now() + PATIENCE);
    let had_thread = own().is_some_and(stop);
    epoll::before_exec();
    closing::before_exec(|end| kernel::survives_exec(end.fd));
    let pid = crosslane_sys::process::pid();
    let lent = prepare_exec(&[]);
    lent.iter().for_each(|lent| lent.to_process(pid));
    (lent, had_thread)
}

/// The tables, unless they are those of a parent that waits for us.
fn own() -> Option<&'static Process> {
    process::get().filter(|process| process.is_current())
}

fn exec(call: impl FnOnce() -> c_int) -> c_int {
    let (lent, had_thread) = cancel::never(before_exec);
    let failed = call();
    let errno = Errno::last();
    cancel::never(|| {
        lent.into_iter().for_each(adopt::Given::take_back);
        if let Some(process) = own() {
            watcher::go_on(process, had_thread);
        }
    });
    errno.set();
    failed
}

/// As [`exec`], for a call that makes a child.
fn spawn(
    pid: *mut libc::pid_t,
    actions: *const c_void,
    call: impl FnOnce(*mut libc::pid_t) -> c_int,
) -> c_int {
    // posix_spawn(3) is no point of cancellation.
    cancel::never(|| spawn_uncancelled(pid, actions, call))
}

fn spawn_uncancelled(
    pid: *mut libc::pid_t,
    actions: *const c_void,
    call: impl FnOnce(*mut libc::pid_t) -> c_int,
) -> c_int {
    let lent = prepare_exec(&borrow::copied_by(actions));
    let mut child = 0;
    let result = call(&raw mut child);
    for lent in lent {
        match u32::try_from(child) {
            Ok(child) if result == 0 => lent.to_process(child),
            _ => lent.take_back(),
        }
    }
    if result == 0 && !pid.is_null() {
        // SAFETY: the program's promise.
        unsafe { pid.write(child) };
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: passed on.
    exec(|| unsafe { real::execve(path, argv, envp) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, argv: *const *const c_char) -> c_int {
    // SAFETY: passed on.
    exec(|| unsafe { real::execv(path, argv) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, argv: *const *const c_char) -> c_int {
    // SAFETY: passed on.
    exec(|| unsafe { real::execvp(file, argv) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(
    file: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: passed on.
    exec(|| unsafe { real::execvpe(file, argv, envp) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(
    fd: c_int,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: passed on.
    exec(|| unsafe { real::fexecve(fd, argv, envp) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    dir: c_int,
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: passed on.
    exec(|| unsafe { real::execveat(dir, path, argv, envp, flags) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    pid: *mut libc::pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: passed on.
    spawn(pid, actions, |pid| unsafe {
        real::posix_spawn(pid, path, actions, attributes, argv, envp)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    pid: *mut libc::pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: passed on.
    spawn(pid, actions, |pid| unsafe {
        real::posix_spawnp(pid, file, actions, attributes, argv, envp)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(command: *const c_char) -> c_int {
    let call = || {
        // SAFETY: passed on.
        unsafe { real::system(command) }
    };
    if command.is_null() {
        // It only asks whether there is a shell.
        return call();
    }
    let lent = cancel::never(|| prepare_exec(&[]));
    let expire = || lent.into_iter().for_each(adopt::Given::expire);
    let status = call();
    cancel::never(expire);
    status
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
    // The shell's pid is known to pclose only.
    cancel::never(|| prepare_exec(&[]).iter().for_each(adopt::Given::to_somebody));
    // SAFETY: passed on.
    unsafe { real::popen(command, mode) }
}
