//! Children that are made in other ways than by libc's `fork`, which calls the handlers that [`crate::process`] has
//! registered: a copy of the process by clone(2) or clone3(2). What shares memory with its maker is a thread, or
//! borrows its memory until it runs another program, and is the kernel's business alone.

use core::ffi::{c_int, c_long, c_void};

use crosslane_stream::close as closing;
use crosslane_sys::real;
use libc::{CLONE_FILES, CLONE_NEWPID, CLONE_SETTLS, CLONE_VFORK, CLONE_VM};

use crate::c;
use crate::gate::{at, size};
use crate::process::fork_by;

/// What a child of [`clone`] runs.
type Run = extern "C" fn(*mut c_void) -> c_int;

/// Whether such a child has memory and descriptors of its own.
///
/// Not one in whose thread the library would not know itself, nor one of another pid namespace, where the numbers by which
/// processes hold locks mean others, nor one that its parent waits for with all locks held.
fn is_fork(flags: u64) -> bool {
    let without = CLONE_VM | CLONE_FILES | CLONE_SETTLS | CLONE_NEWPID | CLONE_VFORK;
    flags & u64::from(without.cast_unsigned()) == 0
}

/// What the child is to run, for as long as its copy of the parent's stack is there.
struct Begin {
    run: Run,
    argument: *mut c_void,
}

extern "C" fn begin(begin: *mut c_void) -> c_int {
    // SAFETY: `clone` passes one; the child has a copy of it.
    let Begin { run, argument } = unsafe { begin.cast::<Begin>().read() };
    crate::process::begin_child();
    let status = run(argument);
    // libc ends the child here, and calls nothing.
    closing::at_exit();
    status
}

/// The C function is variadic; its last three arguments travel alike in either case.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    run: Option<Run>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent: *mut c_void,
    tls: *mut c_void,
    child: *mut c_void,
) -> c_int {
    let is_fork = is_fork(flags.cast_unsigned().into());
    let Some(run_in_fork) = run.filter(|_| is_fork) else {
        // SAFETY: passed on.
        return unsafe { real::clone(run, stack, flags, argument, parent, tls, child) };
    };
    let mut own = Begin {
        run: run_in_fork,
        argument,
    };
    let own = (&raw mut own).cast();
    // SAFETY: passed on; `begin` is given what it reads.
    fork_by(|| unsafe { real::clone(Some(begin), stack, flags, own, parent, tls, child) })
}

/// fork(2), clone(2) or clone3(2), as the program makes them itself. A child that begins on another stack does not return
/// from here, and is not seen.
pub unsafe fn by_number(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [a, b, d, e, f, g] = arguments;
    // SAFETY: passed on, as the program would have called the function itself.
    let make = || unsafe { real::syscall(number, a, b, d, e, f, g) };
    let (flags, stack) = match number {
        libc::SYS_clone => (a.cast_unsigned(), b.cast_unsigned()),
        // SAFETY: the program's promise, as far as it can be seen.
        libc::SYS_clone3 => match unsafe { arguments_of_clone3(a, b) } {
            Some(both) => both,
            None => return make(),
        },
        _ => (0, 0),
    };
    match is_fork(flags) && stack == 0 {
        true => fork_by(make),
        false => make(),
    }
}

/// The flags and the stack of the child.
unsafe fn arguments_of_clone3(arguments: c_long, bytes: c_long) -> Option<(u64, u64)> {
    const WORDS: usize = 8; // CLONE_ARGS_SIZE_VER0
    const STACK: usize = 5;
    let words = at::<[u64; WORDS]>(arguments);
    if size(bytes) < size_of::<[u64; WORDS]>() || !c::may_be(words, 1) {
        return None;
    }
    // SAFETY: the caller's promise.
    let words = unsafe { words.read_unaligned() };
    Some((words[0], words[STACK]))
}
