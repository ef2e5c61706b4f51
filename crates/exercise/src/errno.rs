//! Error numbers with the names that the manual pages use.

use std::fmt;

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

macro_rules! names {
    ($($name:ident)*) => {
        fn name(errno: i32) -> Option<&'static str> {
            match errno { $(libc::$name => Some(stringify!($name)),)* _ => None }
        }
    };
}

names! {
    EACCES EADDRINUSE EADDRNOTAVAIL EAFNOSUPPORT EAGAIN EALREADY EBADF ECONNABORTED ECONNREFUSED
    ECONNRESET EDESTADDRREQ EEXIST EFAULT EINPROGRESS EINTR EINVAL EIO EISCONN ELOOP EMFILE
    EMSGSIZE ENFILE ENOBUFS ENODATA ENOENT ENOMEM ENOPROTOOPT ENOSYS ENOTCONN ENOTSOCK ENOTSUP
    ENXIO EPERM EPIPE EPROTO ESPIPE ETIMEDOUT
}

impl Errno {
    /// Why the last call of this thread failed.
    pub fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name(self.0) {
            Some(name) => f.write_str(name),
            None if self.0 == 0 => f.write_str("none"),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl std::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_is_shown_by_name() {
        assert_eq!(Errno(libc::ECONNRESET).to_string(), "ECONNRESET");
        assert_eq!(Errno(9999).to_string(), "errno 9999");
    }
}
