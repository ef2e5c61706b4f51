//! Load, fork, exec and exit.

use core::ffi::{c_char, c_int, c_void};
use std::cell::{Cell, RefCell};
use std::time::Duration;

use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::EndPhase;
use crosslane_stream::{close as closing, config, control, process, switch};
use crosslane_sys::{kernel, real};

use crate::epoll;
use crate::stdio::forward_variadic;

/// How long exec waits in all for inherited connections to be back on TCP. A peer that is late
/// finds out at its next call, and then sends again by TCP what was not read.
const PATIENCE: Duration = Duration::from_millis(200);

#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = unload;

extern "C" fn load() {
    // SAFETY: the three handlers are functions of this library, which is never unloaded while the
    // program runs.
    unsafe {
        libc::pthread_atfork(
            Some(before_fork),
            Some(after_in_parent),
            Some(after_in_child),
        )
    };
    real::resolve_all();
    crosslane_sys::process::resolve();
    // Now, because some programs, nginx among them, clear their environment later.
    config::get();
}

extern "C" fn unload() {
    closing::at_exit();
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    closing::at_exit();
    kernel::exit(status)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: another name of the same function.
    unsafe { _exit(status) }
}

thread_local! {
    /// Whom this thread's last fork has made, or was to make.
    static CHILD: Cell<Option<process::Member>> = const { Cell::new(None) };
    static FORK: RefCell<Option<(control::Fork, epoll::Fork)>> = const { RefCell::new(None) };
}

unsafe extern "C" fn before_fork() {
    if let Some(process) = process::get()
        && let Some(fork) = control::before_fork(process)
    {
        FORK.with(|held| *held.borrow_mut() = Some((fork, epoll::before_fork())));
    }
}

unsafe extern "C" fn after_in_parent() {
    if let Some((control, _epoll)) = FORK.with(|held| held.borrow_mut().take()) {
        CHILD.set(Some(control.parent()));
    }
}

unsafe extern "C" fn after_in_child() {
    if let Some((control, epoll)) = FORK.with(|held| held.borrow_mut().take())
        && let Some(process) = process::get()
    {
        control.child(process);
        epoll.child();
    }
}

/// The handlers do not learn which child there is, if any. Forks that libc makes by itself are not
/// seen here; only a child of such a fork that is killed at once is thought to live on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> libc::pid_t {
    CHILD.set(None);
    // SAFETY: passed on.
    let pid = unsafe { real::fork() };
    if pid != 0
        && let (Some(child), Some(process)) = (CHILD.take(), process::get())
    {
        process.note_child(child, u32::try_from(pid).ok());
    }
    pid
}

/// Another program is about to run with copies of our descriptors; it sees TCP only.
pub fn before_exec() {
    let Some(process) = process::get() else {
        return;
    };
    let deadline = std::time::Instant::now() + PATIENCE;
    for end in process.ends() {
        if end.phase() == EndPhase::Granted && kernel::survives_exec(end.fd) {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if !closing::make_plain(&end, Reason::Exec, left) {
                switch::freeze(&end);
            }
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    before_exec();
    // SAFETY: passed on.
    unsafe { real::execve(path, argv, envp) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, argv: *const *const c_char) -> c_int {
    before_exec();
    // SAFETY: passed on.
    unsafe { real::execv(path, argv) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, argv: *const *const c_char) -> c_int {
    before_exec();
    // SAFETY: passed on.
    unsafe { real::execvp(file, argv) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(
    file: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    before_exec();
    // SAFETY: passed on.
    unsafe { real::execvpe(file, argv, envp) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(
    fd: c_int,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    before_exec();
    // SAFETY: passed on.
    unsafe { real::fexecve(fd, argv, envp) }
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
    before_exec();
    // SAFETY: passed on.
    unsafe { real::posix_spawn(pid, path, actions, attributes, argv, envp) }
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
    before_exec();
    // SAFETY: passed on.
    unsafe { real::posix_spawnp(pid, file, actions, attributes, argv, envp) }
}

extern "C" fn before_execl() -> usize {
    before_exec();
    real::address(c"execl")
}

extern "C" fn before_execlp() -> usize {
    before_exec();
    real::address(c"execlp")
}

extern "C" fn before_execle() -> usize {
    before_exec();
    real::address(c"execle")
}

forward_variadic!(execl, before_execl);
forward_variadic!(execlp, before_execlp);
forward_variadic!(execle, before_execle);
