//! What the process does for all its connections: fork and exit.
//!
//! The preloaded library does the same for the connections of sockets; neither sees the other's.
#![allow(unsafe_code)]

use core::mem::ManuallyDrop;
use std::cell::Cell;
use std::sync::Once;

use crosslane_stream::{close, control, process};

thread_local! {
    /// Without a destructor, behind which a handler of the program's exit could not fork any more.
    static FORK: Cell<Option<ManuallyDrop<control::Fork>>> = const { Cell::new(None) };
}

/// See to it that forks and the end of the process are noticed.
pub(crate) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        crosslane_sys::process::resolve();
        // SAFETY: the handlers are functions of this library, which lives as long as the process
        // or, as a shared object, is never unloaded: its thread-local state has destructors.
        unsafe {
            libc::pthread_atfork(
                Some(before_fork),
                Some(after_in_parent),
                Some(after_in_child),
            )
        };
        // SAFETY: as above.
        unsafe { libc::atexit(at_exit) };
    });
}

extern "C" fn at_exit() {
    close::at_exit();
}

unsafe extern "C" fn before_fork() {
    if let Some(process) = process::get() {
        let fork = control::before_fork(process);
        FORK.set(fork.map(ManuallyDrop::new));
    }
}

unsafe extern "C" fn after_in_parent() {
    if let Some(fork) = FORK.take().map(ManuallyDrop::into_inner) {
        fork.parent();
    }
}

unsafe extern "C" fn after_in_child() {
    if let Some(fork) = FORK.take().map(ManuallyDrop::into_inner)
        && let Some(process) = process::get()
    {
        fork.child(process);
    }
}
