//! Ends that are gone, of which a monitor that does not listen just now is told later: what it is never told of it keeps until
//! the process ends.

use core::sync::atomic::Ordering;

use crosslane_ctl::message::ClientMessage;
use crosslane_ctl::reason::Reason;

use super::{Control, NEXT_TEND};
use crate::process::Process;

impl Control {
    /// Tell the monitor that an end is gone, if it listens, or as soon as it does.
    pub(crate) fn release(&mut self, token: u64, pair: u64) {
        self.answered(token);
        let sent = self.send(&ClientMessage::Release { token, pair }, None);
        if sent.is_err() && self.socket.is_some() {
            self.owed.push_back((token, pair));
            NEXT_TEND.store(0, Ordering::Relaxed);
        }
    }

    /// Tell the monitor what it is owed.
    ///
    /// # Errors
    /// If it has not taken all of it: whatever else is to be said comes behind.
    pub(super) fn settle(&mut self) -> Result<(), Reason> {
        while let Some((token, pair)) = self.owed.front().copied() {
            self.transmit(&ClientMessage::Release { token, pair }, None)?;
            self.owed.pop_front();
        }
        Ok(())
    }

    /// Have room for the release of every end: a close may come from a handler that has interrupted the heap. While
    /// one is owed, none is registered.
    pub(super) fn expect_releases(&mut self, process: &Process) {
        let ends = process.entries_used() as usize;
        self.owed.reserve(ends.saturating_sub(self.owed.len()));
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::control::OwnFd;

    /// What the monitor reads next.
    fn read(monitor: &UnixDatagram) -> ClientMessage {
        let mut bytes = [0; 4096];
        let length = monitor.recv(&mut bytes).unwrap();
        ClientMessage::decode(&bytes[..length]).unwrap()
    }

    #[test]
    fn a_monitor_that_does_not_listen_is_told_later_which_ends_are_gone() {
        let (own, monitor) = UnixDatagram::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        monitor.set_nonblocking(true).unwrap();
        let mut control = Control::new();
        control.socket = Some(OwnFd::new(own.into_raw_fd()));
        let ends: u64 = 1000;
        (0..ends).for_each(|token| control.release(token, 7));
        assert!(!control.owed.is_empty());
        let lease = control.send(&ClientMessage::Lease, None);
        assert_eq!(lease, Err(Reason::NoMonitor), "it would overtake them");
        for token in 0..ends {
            assert_eq!(read(&monitor), ClientMessage::Release { token, pair: 7 });
            let _ = control.settle();
        }
        assert!(control.owed.is_empty());
        assert_eq!(control.send(&ClientMessage::Lease, None), Ok(()));
        assert_eq!(read(&monitor), ClientMessage::Lease);
    }

    #[test]
    fn the_next_monitor_is_owed_nothing() {
        let (own, monitor) = UnixDatagram::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        let mut control = Control::new();
        control.socket = Some(OwnFd::new(own.into_raw_fd()));
        (0..1000).for_each(|token| control.release(token, 7));
        drop(monitor);
        assert!(control.settle().is_err());
        assert!(control.owed.is_empty());
    }
}
