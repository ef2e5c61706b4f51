//! epoll over rings and kernel descriptors at once.
//!
//! The program's epoll descriptor stays the kernel's. Beside it the library keeps what was
//! registered for connections ([`set`]). Once a connection has rings, its registration in the
//! kernel carries a tag of ours instead of the program's data, and wishes for doorbells instead of
//! the program's events; what the program is told is decided here ([`wait`]). epoll_ctl on such a
//! connection changes our record only ([`control`]); the kernel is told when somebody sleeps.
//!
//! A set that several processes use is the kernel's alone ([`sharing`], [`shared`]), which is given back what the program has
//! registered, as memory that they have in common tells it ([`common`]).
//!
//! A bounded number of recently active connections is watched by looking at their rings; all
//! others are armed and wake through the kernel.

mod asleep;
mod beacon;
mod calls;
mod common;
mod control;
mod early;
mod kept;
mod kernels;
mod news;
mod order;
mod reg;
mod ringless;
mod set;
mod shared;
mod sharing;
mod wait;
mod young;

#[cfg(target_arch = "x86_64")]
pub use calls::epoll_wait;
pub use calls::{epoll_pwait, epoll_pwait2};
pub use control::{
    adopt, epoll_ctl, forget, hand_back, leave_nested, named, note_low_water, note_shutdown,
    received, want_room,
};
pub use early::{connected, dissolved, may_have};
pub use set::{Fork, before_fork, forget_set, has_sets, is_known, sets};
pub use sharing::{before_exec, use_all};
pub use young::grown;

use core::ffi::c_int;

use crosslane_stream::raw;
use crosslane_stream::young::grow_all;
use crosslane_sys::real;

/// `new` is a copy of `fd`, which may be an epoll descriptor.
pub fn copied(fd: c_int, new: c_int) {
    set::copied(fd, new);
    show_to_polls(new);
}

/// A program of which nothing is known gets a copy of `fd`, which may be an epoll descriptor.
pub fn pass(fd: c_int) {
    if let Some(set) = set::known(fd) {
        grow_all();
        sharing::share_with_all(set);
    }
    leave_nested(fd);
}

fn created(fd: c_int) {
    set::created(fd);
    show_to_polls(fd);
}

/// A poll that has gone into the kernel with this number looks, when it wakes, at what the number names by then.
fn show_to_polls(fd: c_int) {
    if set::is_known(fd) && raw::is_in_kernel(fd) {
        leave_nested(fd);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: passed on.
    let fd = unsafe { real::epoll_create(size) };
    created(fd);
    fd
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: passed on.
    let fd = unsafe { real::epoll_create1(flags) };
    created(fd);
    fd
}
