//! Standard streams: libc has a stream of descriptors 0, 1 and 2 from the start, and reads and writes
//! them where we do not see it.

use std::os::fd::RawFd;

use crosslane_ctl::reason::Reason;

use crate::{End, switch};

/// Whether this is a standard stream's descriptor.
pub fn is(fd: RawFd) -> bool {
    (libc::STDIN_FILENO..=libc::STDERR_FILENO).contains(&fd)
}

/// A connection whose descriptor is a standard stream stays on TCP.
pub(crate) fn keep_on_tcp(end: &End) {
    if is(end.fd) {
        switch::pin(end, Reason::Stdio);
    }
}
