//! The kernel's error numbers.

use core::fmt;

/// An error number, always above zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// Resource temporarily unavailable.
    pub const AGAIN: Self = Self(libc::EAGAIN);
    /// Interrupted system call.
    pub const INTR: Self = Self(libc::EINTR);
    /// Connection reset by peer.
    pub const CONNRESET: Self = Self(libc::ECONNRESET);
    /// Device or resource busy.
    pub const BUSY: Self = Self(libc::EBUSY);
    /// Transport endpoint is not connected.
    pub const NOTCONN: Self = Self(libc::ENOTCONN);
    /// Broken pipe.
    pub const PIPE: Self = Self(libc::EPIPE);
    /// Socket operation on non-socket.
    pub const NOTSOCK: Self = Self(libc::ENOTSOCK);
    /// Bad file descriptor.
    pub const BADF: Self = Self(libc::EBADF);
    /// Bad address.
    pub const FAULT: Self = Self(libc::EFAULT);
    /// Invalid argument.
    pub const INVAL: Self = Self(libc::EINVAL);
    /// Out of memory.
    pub const NOMEM: Self = Self(libc::ENOMEM);
    /// ERESTARTSYS, which the kernel keeps to itself, and so do we: begin the call again, from its descriptor on.
    pub const RESTART: Self = Self(512);
    /// Function not implemented.
    pub const NOSYS: Self = Self(libc::ENOSYS);

    /// Make this the calling thread's `errno`.
    pub fn set(self) {
        // SAFETY: __errno_location has no preconditions and returns the thread's own errno.
        let location = unsafe { libc::__errno_location() };
        // SAFETY: the pointer is valid and only this thread uses it.
        unsafe { *location = self.0 };
    }

    /// The calling thread's `errno`.
    pub fn last() -> Self {
        // SAFETY: __errno_location has no preconditions and returns the thread's own errno.
        let location = unsafe { libc::__errno_location() };
        // SAFETY: the pointer is valid and only this thread uses it.
        Self(unsafe { *location })
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Errno({}: {})",
            self.0,
            std::io::Error::from_raw_os_error(self.0)
        )
    }
}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

/// Turn a C function's result into a `Result`: negative means `errno`.
pub fn check(result: isize) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::last())
}

/// The opposite of [`check`]: as a C function returns it.
pub fn answer(result: Result<usize, Errno>) -> isize {
    match result {
        // Lengths of buffers are at most isize::MAX.
        Ok(count) => count.cast_signed(),
        Err(errno) => {
            errno.set();
            -1
        }
    }
}
