//! Load, fork and exit.

use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::cell::Cell;

use crosslane_ctl::slab::EndPhase;
use crosslane_stream::{End, adopt, close as closing, config, control, process, rest, young};
use crosslane_sys::busy::{Busy, MutexGuard};
use crosslane_sys::{cancel, kernel, process as system, real};

use crate::{borrow, epoll, memory, signals, sole, stdin};

#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = unload;

/// The process that this memory belongs to; a child of vfork borrows it.
static OWN: AtomicU32 = AtomicU32::new(0);

/// Whether the caller runs in the process that the library's tables belong to, and has not left alone: whose filter of system
/// calls may allow none but the program's own.
pub fn is_own() -> bool {
    !process::has_left() && OWN.load(Ordering::Relaxed) == system::pid()
}

/// That process's number, asked from nobody.
pub fn own() -> u32 {
    OWN.load(Ordering::Relaxed)
}

extern "C" fn load() {
    OWN.store(system::pid(), Ordering::Relaxed);
    see_forks();
    // The first is the last to be run.
    // SAFETY: as above.
    unsafe { __cxa_at_quick_exit(at_quick_exit, core::ptr::null_mut()) };
    real::resolve_all();
    young::on_registered(epoll::grown);
    system::resolve();
    // Now, because some programs, nginx among them, clear their environment later.
    config::get();
    adopt::adopt_inherited();
    stdin::look();
    if process::get().is_some() {
        let _ = signals::take();
    }
}

type Handler = Option<unsafe extern "C" fn()>;

/// Have libc run our handlers around forks, inside all others: what those call may take our locks, which are held between ours.
fn see_forks() {
    static SEES: AtomicBool = AtomicBool::new(false);
    if SEES.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the three handlers are functions of this library, which is never unloaded while the
    // program runs.
    unsafe {
        libc::pthread_atfork(
            Some(before_fork),
            Some(after_in_parent),
            Some(after_in_child),
        )
    };
}

/// What pthread_atfork(3) calls, of libraries that are initialised before ours, too. The first to be set are the innermost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __register_atfork(
    prepare: Handler,
    parent: Handler,
    child: Handler,
    library: *mut c_void,
) -> c_int {
    see_forks();
    // SAFETY: passed on.
    unsafe { real::__register_atfork(prepare, parent, child, library) }
}

extern "C" fn unload() {
    closing::at_exit();
}

unsafe extern "C" {
    /// at_quick_exit(3), as the C library has it.
    fn __cxa_at_quick_exit(function: extern "C" fn(*mut c_void), library: *mut c_void) -> c_int;
}

/// quick_exit(3) runs no other function of ours.
extern "C" fn at_quick_exit(_: *mut c_void) {
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
    static CHILD: Cell<Option<process::Children>> = const { Cell::new(None) };
    /// Without a destructor, behind which a handler of the program's exit could not fork any more.
    static FORK: Cell<Option<ManuallyDrop<Held>>> = const { Cell::new(None) };
}

/// Every lock of the library, so that none is held in the child by a thread that it has not.
struct Held {
    control: Option<control::Fork>,
    epoll: epoll::Fork,
    _borrow: borrow::Fork,
    _start: Option<MutexGuard<'static, ()>>,
    _young: Option<MutexGuard<'static, ()>>,
}

unsafe extern "C" fn before_fork() {
    // fork(3) is no point of cancellation, nor what a handler of it may call.
    cancel::never(take_locks);
}

fn take_locks() {
    sole::share_all();
    let young = young::before_fork();
    unused_ends().for_each(|end| epoll::adopt(&end));
    let start = process::hold_start();
    let fork = Held {
        control: process::get().and_then(control::before_fork),
        epoll: epoll::before_fork(),
        _borrow: borrow::before_fork(),
        _start: start,
        _young: young,
    };
    FORK.set(Some(ManuallyDrop::new(fork)));
    memory::before_fork();
}

unsafe extern "C" fn after_in_parent() {
    cancel::never(go_on);
}

fn go_on() {
    memory::after_fork();
    sole::share_all();
    let fork = FORK.take().map(ManuallyDrop::into_inner);
    if let Some(control) = fork.and_then(|fork| fork.control) {
        CHILD.set(Some(control.parent()));
    }
}

unsafe extern "C" fn after_in_child() {
    cancel::never(begin);
}

fn begin() {
    memory::after_fork();
    sole::share_all();
    if !process::has_left() {
        OWN.store(system::pid(), Ordering::Relaxed);
    }
    let Some(fork) = FORK.take().map(ManuallyDrop::into_inner) else {
        return;
    };
    if let (Some(control), Some(process)) = (fork.control, process::get()) {
        control.child(process);
    }
    fork.epoll.child();
    let is_waited_for = |end: &End| end.local.registrations.load(Ordering::Relaxed) > 0;
    unused_ends()
        .filter(is_waited_for)
        .for_each(|end| rest::share(&end));
}

/// Ends that have been granted rings which this process does not use yet.
fn unused_ends() -> impl Iterator<Item = End> {
    let ends = process::get().into_iter().flat_map(process::Process::ends);
    ends.filter(|end| {
        end.phase() == EndPhase::Granted && end.local.adopted.load(Ordering::Acquire) == 0
    })
}

/// The handlers do not learn which child there is, if any. Forks that libc makes by itself are not
/// seen here; only a child of such a fork that is killed at once is thought to live on, for a while.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> libc::pid_t {
    CHILD.set(None);
    // SAFETY: passed on.
    let pid = unsafe { real::fork() };
    note_child(pid.into());
    pid
}

/// What calls do of a thread that has been cancelled is theirs ([`cancel::test`]).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cancel(thread: libc::pthread_t) -> c_int {
    cancel::announce();
    // SAFETY: passed on.
    unsafe { real::pthread_cancel(thread) }
}

/// fork(3) without the handlers that libc calls around it, for signal handlers: no lock may be waited for. So the child is not seen,
/// but for what it has copies of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> libc::pid_t {
    // No handler opens another one in between.
    let _busy = Busy::begin();
    young::grow_all();
    sole::share_all();
    // SAFETY: passed on.
    let pid = unsafe { real::_Fork() };
    sole::share_all();
    pid
}

/// Fork by a call that tells no handler of it, and returns what fork(2) does.
pub fn fork_by<T: Into<i64> + Copy>(make: impl FnOnce() -> T) -> T {
    CHILD.set(None);
    // SAFETY: as libc calls them around a fork.
    unsafe { before_fork() };
    let pid = make();
    match pid.into() {
        0 => begin_child(),
        // SAFETY: as above.
        _ => unsafe { after_in_parent() },
    }
    note_child(pid.into());
    pid
}

/// In a child that has been made by such a call.
pub fn begin_child() {
    // SAFETY: as libc calls it after a fork.
    unsafe { after_in_child() };
}

fn note_child(pid: i64) {
    if pid != 0
        && let (Some(child), Some(process)) = (CHILD.take(), process::get())
    {
        process.note_child(child, u32::try_from(pid).ok());
    }
}
