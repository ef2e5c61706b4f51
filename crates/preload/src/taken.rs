//! Descriptors that are taken out of a process: pidfd_getfd(2).

use core::ffi::{c_int, c_long, c_uint};

use crosslane_stream::{End, process, young};
use crosslane_sys::{Errno, cancel, kernel, real};

use crate::plumbing;
use crate::process::is_own;

/// What names a connection of this process already is a copy, wherever it was taken. Any other socket is as one that has been
/// received: nobody has given it away, so its connection is on TCP here, and nobody tells the process that it was taken from.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pidfd_getfd(pidfd: c_int, target: c_int, flags: c_uint) -> c_int {
    // Older libraries have no such function.
    let (from, number, bits) = (
        c_long::from(pidfd),
        c_long::from(target),
        c_long::from(flags),
    );
    // SAFETY: numbers only.
    let taken = unsafe { real::syscall(libc::SYS_pidfd_getfd, from, number, bits, 0, 0, 0) };
    let Ok(fd @ 0..) = c_int::try_from(taken) else {
        return -1;
    };
    let errno = Errno::last();
    cancel::never(|| know(fd));
    errno.set();
    fd
}

fn know(fd: c_int) {
    match twin(fd) {
        Some(twin) => plumbing::copied(twin.fd, fd),
        None => plumbing::received(fd, 0),
    }
}

/// The connection of this process that the socket is, if it is one.
fn twin(fd: c_int) -> Option<End> {
    let cookie = |fd| kernel::getsockopt(fd, libc::SOL_SOCKET, libc::SO_COOKIE).ok();
    let own: u64 = cookie(fd)?;
    let process = process::get().filter(|_| is_own())?;
    // The number may still be thought to name what was closed unseen.
    let is_it = |end: &End| end.fd != fd && cookie(end.fd) == Some(own);
    young::grow_all();
    process.ends().find(is_it)
}
