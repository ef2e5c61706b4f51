//! epoll over rings and kernel descriptors at once.
//!
//! The program's epoll descriptor stays the kernel's. Beside it the library keeps what was
//! registered for connections ([`set`]). Once a connection has rings, its registration in the
//! kernel carries a tag of ours instead of the program's data, and wishes for doorbells instead of
//! the program's events; what the program is told is decided here ([`wait`]). epoll_ctl on such a
//! connection changes our record only ([`control`]); the kernel is told when somebody sleeps.
//!
//! A bounded number of recently active connections is watched by looking at their rings; all
//! others are armed and wake through the kernel.

mod beacon;
mod control;
mod early;
mod kept;
mod news;
mod set;
mod wait;

pub use control::{
    adopt, epoll_ctl, forget, hand_back, leave_nested, named, note_low_water, note_shutdown,
    received, want_room,
};
pub use early::{connected, dissolved};
pub use set::{Fork, before_fork, copied, forget_set, is_known, sets};
#[cfg(target_arch = "x86_64")]
pub use wait::epoll_wait;
pub use wait::{epoll_pwait, epoll_pwait2};

use core::ffi::c_int;

use crosslane_sys::real;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: passed on.
    let fd = unsafe { real::epoll_create(size) };
    set::created(fd);
    fd
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: passed on.
    let fd = unsafe { real::epoll_create1(flags) };
    set::created(fd);
    fd
}
