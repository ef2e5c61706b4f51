//! `crosslane run --strict`: a program ends rather than go on slowly because Crosslane has failed.

use std::os::fd::RawFd;

use crosslane_ctl::reason::{Reason, STRICT_STATUS};
use crosslane_sys::{kernel, process};

use crate::config;
use crate::family::Family;

/// Whether the peer is on this host.
fn may_be_accelerated(fd: RawFd) -> bool {
    Family::of(fd) == Some(Family::Unix) || kernel::is_local(fd)
}

/// A connection stays on TCP for `reason`. Under `--strict` this ends the process, with a line on
/// standard error, if the reason is a failure of Crosslane and the peer is on this host. A peer
/// that is not, and one that has not answered yet, could not be accelerated anyway.
pub(crate) fn fell_back(fd: RawFd, reason: Reason) {
    if config::get().strict && reason.is_failure() && may_be_accelerated(fd) {
        process::give_up(
            &format!(
                "crosslane: a connection is not accelerated: {} ({}); ending because of --strict\n",
                reason.text(),
                reason.remedy()
            ),
            STRICT_STATUS,
        );
    }
}
