//! Copies of descriptors that come to be in other programs: those that a child of vfork makes, which
//! has descriptors of its own and borrows our memory, and those that posix_spawn(3) is told to make.

use core::ffi::{c_int, c_void};
use std::time::Duration;

use crosslane_ctl::reason::Reason;
use crosslane_stream::family::Family;
use crosslane_stream::{End, adopt, process};
use crosslane_sys::busy::{Mutex, MutexGuard};
use crosslane_sys::{process as system, real};

/// How long a copy waits for its connection to be back on TCP.
const PATIENCE: Duration = Duration::from_millis(200);

/// Copies that are remembered. A child makes a few, and is another program soon.
const MOST_COPIES: usize = 256;

/// A name of an end in a child of vfork.
struct Copy {
    child: u32,
    fd: c_int,
    index: u32,
}

static COPIES: Mutex<Vec<Copy>> = Mutex::new(Vec::new());

/// A child of vfork has made a copy of a descriptor, for the program that it becomes. The connection
/// leaves us now: later the child may have closed what the library needs to say so.
#[cold]
pub fn copied(fd: c_int, new: c_int) {
    let child = system::pid();
    let Some(end) = end_of(child, fd).filter(|_| Family::of(new).is_some()) else {
        return;
    };
    let Ok(mut copies) = COPIES.lock() else {
        return;
    };
    let is_first = |copy: &Copy| copy.child != child || copy.index != end.index;
    let leaves = copies.iter().all(is_first);
    if copies.len() == MOST_COPIES {
        copies.remove(0);
    }
    copies.push(Copy {
        child,
        fd: new,
        index: end.index,
    });
    drop(copies);
    if leaves {
        let end = end.by_name(new);
        adopt::give_away(&end, Reason::Exec, PATIENCE).to_process(child);
    }
}

/// What a descriptor of the child names.
fn end_of(child: u32, fd: c_int) -> Option<End> {
    let copies = COPIES.lock().ok()?;
    let copy = copies
        .iter()
        .rfind(|copy| copy.child == child && copy.fd == fd);
    match copy {
        Some(copy) => process::get()?.ends().find(|end| end.index == copy.index),
        None => End::of(fd),
    }
}

/// What posix_spawn is to copy, and may be connections by then, each with the address of the program's list.
static ACTIONS: Mutex<Vec<(usize, c_int)>> = Mutex::new(Vec::new());

/// Held while the process forks.
pub struct Fork {
    _copies: Option<MutexGuard<'static, Vec<Copy>>>,
    _actions: Option<MutexGuard<'static, Vec<(usize, c_int)>>>,
}

/// Take every lock of this module.
pub fn before_fork() -> Fork {
    Fork {
        _copies: COPIES.lock().ok(),
        _actions: ACTIONS.lock().ok(),
    }
}

/// The descriptors that this list of actions copies.
pub fn copied_by(actions: *const c_void) -> Vec<c_int> {
    let Ok(known) = ACTIONS.lock() else {
        return Vec::new();
    };
    let of_list = known.iter().filter(|entry| entry.0 == actions.addr());
    of_list.map(|entry| entry.1).collect()
}

fn forget(actions: *mut c_void) {
    if let Ok(mut known) = ACTIONS.lock() {
        known.retain(|entry| entry.0 != actions.addr());
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn_file_actions_init(actions: *mut c_void) -> c_int {
    forget(actions);
    // SAFETY: passed on.
    unsafe { real::posix_spawn_file_actions_init(actions) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn_file_actions_destroy(actions: *mut c_void) -> c_int {
    forget(actions);
    // SAFETY: passed on.
    unsafe { real::posix_spawn_file_actions_destroy(actions) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn_file_actions_adddup2(
    actions: *mut c_void,
    fd: c_int,
    new: c_int,
) -> c_int {
    // SAFETY: passed on.
    let result = unsafe { real::posix_spawn_file_actions_adddup2(actions, fd, new) };
    let entry = (actions.addr(), fd);
    if result == 0
        && let Ok(mut known) = ACTIONS.lock()
        && !known.contains(&entry)
    {
        known.push(entry);
    }
    result
}
