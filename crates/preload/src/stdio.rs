//! stdio on sockets goes around the interposed functions inside libc: such a socket is for the
//! kernel alone.

use core::ffi::{c_char, c_int, c_void};

use crosslane_ctl::reason::Reason;
use crosslane_stream::{End, close as closing};
use crosslane_sys::real;

/// How long wrapping a socket waits for its connection to be back on TCP.
const PATIENCE: core::time::Duration = core::time::Duration::from_secs(5);

fn make_plain(fd: c_int) {
    if let Some(end) = End::of(fd) {
        closing::make_plain(&end, Reason::Stdio, PATIENCE);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void {
    make_plain(fd);
    // SAFETY: passed on.
    unsafe { real::fdopen(fd, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn vdprintf(
    fd: c_int,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    make_plain(fd);
    // SAFETY: passed on; a va_list travels as a pointer.
    unsafe { real::vdprintf(fd, format, arguments) }
}
