//! Signals as something to poll.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Readable after one of these signals.
pub fn readable_after(signals: &[i32]) -> anyhow::Result<OwnedFd> {
    let (read, write) = UnixStream::pair()?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, write.try_clone()?)?;
    }
    Ok(read.into())
}
