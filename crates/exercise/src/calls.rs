//! libc's socket calls with slices for pointers, and nothing else changed: no retry, no
//! translation, no owner of descriptors. What a C program would see is what is returned.

mod files;
mod fortified;
mod itself;
mod kernel;
mod locks;
mod masked;
mod message;
mod nowhere;
mod options;
mod ready;
mod refused;
mod signals;
mod sockets;
mod spawn;
mod threads;
mod transfer;
mod vfork;

pub use files::*;
pub use fortified::*;
pub use itself::*;
pub use kernel::*;
pub use locks::*;
pub use masked::*;
pub use message::*;
pub use nowhere::*;
pub use options::*;
pub use ready::*;
pub use refused::*;
pub use signals::*;
pub use sockets::*;
pub use spawn::*;
pub use threads::*;
pub use transfer::*;
pub use vfork::*;

use crate::{Answer, Errno};

/// Turn the convention of -1 and errno into a result.
fn answer(returned: isize) -> Answer {
    usize::try_from(returned).map_err(|_| Errno::last())
}

/// The same for calls that return an int.
fn answer_int(returned: i32) -> Answer {
    usize::try_from(returned).map_err(|_| Errno::last())
}

/// The same for calls by number.
fn answer_long(returned: libc::c_long) -> Answer {
    usize::try_from(returned).map_err(|_| Errno::last())
}

/// The same for calls that return a descriptor.
fn answer_fd(returned: i32) -> Result<std::os::fd::RawFd, Errno> {
    if returned < 0 {
        Err(Errno::last())
    } else {
        Ok(returned)
    }
}

/// The size of a type as C wants it.
fn size<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("C structures are small")
}
