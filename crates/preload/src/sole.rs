//! Sockets that this process has made and that nothing else names. Only such a one can have rings once it is connected: by a
//! copy that was made before, here or in another process, the library knows of no connection, and takes doorbells for data.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

use crosslane_stream::process::MAX_FDS;

use crate::process::is_own;

/// By number: twice the age in which a socket was made there, and 1 if it is one of TCP. Zeros, which take no memory until they
/// are written.
static MADE: [AtomicU32; MAX_FDS as usize] = [const { AtomicU32::new(0) }; MAX_FDS as usize];
/// Begins anew whenever all that there is may have been copied.
static AGE: AtomicU32 = AtomicU32::new(1);

fn made(fd: c_int) -> Option<&'static AtomicU32> {
    MADE.get(usize::try_from(fd).ok()?)
}

/// The age before a socket is made.
pub fn age() -> u32 {
    AGE.load(Ordering::SeqCst)
}

/// A socket has been made since that age, perhaps of TCP.
pub fn note(fd: c_int, age: u32, is_tcp: bool) {
    // The numbers of a child of vfork are its own.
    if is_own()
        && let Some(made) = made(fd)
    {
        made.store(age << 1 | u32::from(is_tcp), Ordering::SeqCst);
    }
}

/// Something else names what `fd` does.
pub fn share(fd: c_int) {
    if let Some(made) = made(fd) {
        made.store(0, Ordering::SeqCst);
    }
}

/// Another process, or program, has copies of all there is.
pub fn share_all() {
    AGE.fetch_add(1, Ordering::SeqCst);
}

/// Whether only `fd` names its socket.
pub fn is(fd: c_int) -> bool {
    made(fd).is_some_and(|made| made.load(Ordering::SeqCst) >> 1 == age() & u32::MAX >> 1)
}

/// Whether what `fd` names has been made as a socket of TCP.
pub fn is_tcp(fd: c_int) -> bool {
    made(fd).is_some_and(|made| made.load(Ordering::SeqCst) & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_been_copied_is_told() {
        const FD: c_int = 1000;
        MADE[1000].store(age() << 1, Ordering::SeqCst);
        assert!(is(FD) && !is(FD + 1) && !is(-1) && !is(c_int::MAX));
        share_all();
        assert!(!is(FD));
        MADE[1000].store(age() << 1 | 1, Ordering::SeqCst);
        assert!(is(FD) && is_tcp(FD));
        share(FD);
        assert!(!is(FD));
    }
}
