//! Events that a kernel, a device or another process tells by a descriptor, eventfd(2).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::kernel;

/// Something that happens, and is counted until it is waited for.
#[derive(Debug)]
pub struct Event {
    file: File,
}

impl Event {
    /// An event that has not happened.
    ///
    /// # Errors
    /// The kernel's, when there are no more descriptors.
    pub fn new() -> io::Result<Self> {
        let fd = kernel::event_descriptor()?;
        // SAFETY: the kernel has just given us this descriptor and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self::from(fd))
    }

    /// Let it happen.
    ///
    /// # Errors
    /// The kernel's.
    pub fn signal(&self) -> io::Result<()> {
        (&self.file).write_all(&1_u64.to_ne_bytes())
    }

    /// Wait until it has happened since the last time, or the time is over; returns which.
    ///
    /// # Errors
    /// The kernel's; a signal that interrupts counts as the end of the time.
    pub fn wait(&self, most: Duration) -> io::Result<bool> {
        if readable([self.as_fd()], most)? == [false] {
            return Ok(false);
        }
        let mut count = [0; 8];
        (&self.file).read_exact(&mut count)?;
        Ok(true)
    }
}

/// Which of these descriptors can be read, or are at their end, after at most this time.
///
/// # Errors
/// The kernel's; a signal that interrupts counts as the end of the time.
pub fn readable<const N: usize>(fds: [BorrowedFd<'_>; N], most: Duration) -> io::Result<[bool; N]> {
    let mut polled = fds.map(|fd| libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let time = libc::timespec {
        tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(most.subsec_nanos()),
    };
    match kernel::poll(&mut polled, Some(time)) {
        Err(error) if error.0 == libc::EINTR => return Ok([false; N]),
        found => found?,
    };
    Ok(polled.map(|one| one.revents != 0))
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl From<OwnedFd> for Event {
    /// An event that somebody has passed.
    fn from(fd: OwnedFd) -> Self {
        Self { file: fd.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_seen_once() {
        let event = Event::new().unwrap();
        assert!(!event.wait(Duration::ZERO).unwrap());
        event.signal().unwrap();
        event.signal().unwrap();
        assert!(event.wait(Duration::from_secs(60)).unwrap());
        assert!(!event.wait(Duration::ZERO).unwrap());
    }

    #[test]
    fn of_several_descriptors_those_are_told_that_can_be_read() {
        let events = [Event::new().unwrap(), Event::new().unwrap()];
        let look = |most| readable(events.each_ref().map(AsFd::as_fd), most).unwrap();
        assert_eq!(look(Duration::ZERO), [false, false]);
        events[1].signal().unwrap();
        assert_eq!(look(Duration::from_secs(60)), [false, true]);
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(theirs);
        assert_eq!(readable([ours.as_fd()], Duration::ZERO).unwrap(), [true]);
    }
}
