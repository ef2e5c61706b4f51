//! Programs that forbid system calls to themselves (seccomp(2)), which would end them at the first
//! one that the library makes of its own: connections go back to TCP before, and the library leaves
//! the process alone from then on. So it does where the program takes the number of one of its descriptors.

use core::ffi::{c_int, c_ulong};
use std::time::{Duration, Instant};

use crosslane_ctl::reason::Reason;
use crosslane_stream::{close as closing, process, rest, stranded, watcher};
use crosslane_sys::real;

use crate::{epoll, progress};

/// How long connections are waited for in all.
const PATIENCE: Duration = Duration::from_secs(1);

/// The library can go on no longer, for this reason.
pub fn leave(reason: Reason) {
    if reason == Reason::Sandbox {
        // Of its sets it could tell others nothing later.
        epoll::use_all();
    }
    let Some(process) = process::get() else {
        return process::leave();
    };
    if !process.is_current() {
        // A child of vfork: the tables are its parent's.
        return;
    }
    let deadline = Instant::now() + PATIENCE;
    // All first: their peers need not wait for one another.
    for end in process.ends() {
        closing::make_plain(&end, reason, Duration::ZERO);
    }
    for end in process.ends() {
        let left = deadline.saturating_duration_since(Instant::now());
        if !closing::make_plain(&end, reason, left) {
            rest::leave_behind(&end, reason);
        }
        stranded::leave(&end);
        progress::hand_back_now(&end);
    }
    watcher::stop();
    process::leave();
}

/// Whether a call of prctl restricts the process. Without a filter, it only asks whether it could.
pub fn is_restriction(option: c_int, mode: c_ulong, filter: c_ulong) -> bool {
    option == libc::PR_SET_SECCOMP
        && (mode == c_ulong::from(libc::SECCOMP_MODE_STRICT)
            || (mode == c_ulong::from(libc::SECCOMP_MODE_FILTER) && filter != 0))
}

/// The C function is variadic; the arguments travel alike in either case.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(
    option: c_int,
    a: c_ulong,
    b: c_ulong,
    d: c_ulong,
    e: c_ulong,
) -> c_int {
    if is_restriction(option, a, b) {
        leave(Reason::Sandbox);
    }
    // SAFETY: passed on.
    unsafe { real::prctl(option, a, b, d, e) }
}

/// As [`is_restriction`], for the system call.
pub fn is_restriction_by_call(operation: c_ulong, filter: c_ulong) -> bool {
    operation == c_ulong::from(libc::SECCOMP_SET_MODE_STRICT)
        || (operation == c_ulong::from(libc::SECCOMP_SET_MODE_FILTER) && filter != 0)
}
