//! Calls of this process that sleep on a connection, or look before a sleep. Such a call goes on with the connection that it
//! began with when its descriptor is closed, or made to name something else, as the kernel keeps a socket for the calls
//! inside it; until a signal begins it again ([`crate::restart`]).

use core::sync::atomic::{Ordering, fence};

use crosslane_sys::Errno;

use crate::{End, close};

/// A call that sleeps, or looks between two sleeps.
pub struct Stay(End);

impl Stay {
    /// Before each sleep of a call, the first of which counts.
    ///
    /// # Errors
    /// EBADF, as if the call had come later, if the descriptor is being closed and nothing is kept for us.
    pub(crate) fn begin_once(stay: &mut Option<Self>, end: &End) -> Result<(), Errno> {
        if stay.is_none() {
            *stay = Some(Self::begin(end)?);
        }
        Ok(())
    }

    /// As [`Stay::begin_once`], of a call that has done a part of its work for the connection with this token.
    ///
    /// # Errors
    /// EBADF, too, if it has been closed since: its entry, and its number, may be another one's by now.
    pub(crate) fn begin_with(stay: &mut Option<Self>, end: &End, token: u64) -> Result<(), Errno> {
        Self::begin_once(stay, end)?;
        match end.token() == token {
            true => Ok(()),
            false => Err(Errno::BADF),
        }
    }

    /// Before the first of several parts of a call, each of which may sleep.
    ///
    /// # Errors
    /// As [`Stay::begin_once`].
    pub fn begin(end: &End) -> Result<Self, Errno> {
        enter(end);
        let stay = Self(*end);
        // Who closes it from here on sees us.
        fence(Ordering::SeqCst);
        match has_name(end) || end.local.kept.load(Ordering::Acquire) != 0 {
            true => Ok(stay),
            false => Err(Errno::BADF),
        }
    }
}

impl Stay {
    /// What it sleeps on.
    pub fn end(&self) -> End {
        self.0
    }

    /// Whether the descriptor by which the call came still names it.
    pub fn has_name(&self) -> bool {
        has_name(&self.0)
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        leave(&self.0);
    }
}

/// Whether there is a lane to send in, or the kernel has the stream.
///
/// # Errors
/// EBADF where there is neither, because another thread has closed the connection.
pub(crate) fn check_lane(end: &End) -> Result<(), Errno> {
    match end.tx_lane().is_some() || end.is_kernels() {
        true => Ok(()),
        false => Err(Errno::BADF),
    }
}

/// A call begins to sleep.
pub(crate) fn enter(end: &End) {
    end.local.calls.fetch_add(1, Ordering::SeqCst);
}

/// It is over, or looks its connection up again.
pub(crate) fn leave(end: &End) {
    let calls = &end.local.calls;
    // An end that could not be kept has been let go meanwhile, and counts from 0.
    let _ = calls.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |calls| {
        calls.checked_sub(1)
    });
    if end.local.kept.load(Ordering::SeqCst) != 0 {
        close::finish_kept(end);
    }
}

/// Whether a call of this process sleeps on the connection.
pub fn is_asleep(end: &End) -> bool {
    end.local.calls.load(Ordering::SeqCst) > 0
}

/// Whether the descriptor by which the call came still names the connection.
pub(crate) fn has_name(end: &End) -> bool {
    end.process().index_of(end.fd) == Some(end.index)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::sync::mpsc;

    use crosslane_ring::{Part, Parts};

    use super::*;
    use crate::both::ends;
    use crate::interrupt::Waits;
    use crate::{reserve, send};

    fn send(end: &End, bytes: &[u8], dont_wait: bool) -> Result<send::Sent, Errno> {
        let part = [Part::of(bytes)];
        // SAFETY: the bytes are borrowed for longer than the cursor.
        let mut parts = unsafe { Parts::new(&part) }.unwrap();
        send::send(end, &mut parts, dont_wait, None)
    }

    /// What a call says that must not take long.
    fn soon<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
        let (says, said) = mpsc::channel();
        std::thread::spawn(move || says.send(call()));
        said.recv_timeout(Duration::from_secs(10)).unwrap()
    }

    #[test]
    fn what_has_been_closed_before_the_first_look_is_not_waited_for() {
        let ([near, _], _sockets) = ends();
        let table = near.table();
        let (_, at) = near.process().home(near.index);
        // So that no other test has the entry meanwhile.
        let other = table.expect();
        table.lend(at, other);
        close::before_close(&near);
        for dont_wait in [true, false] {
            let bad = Errno::BADF;
            assert_eq!(soon(move || send(&near, &[1; 100], dont_wait)), Err(bad));
            let reserves = move || reserve::reserve(&near, 100, dont_wait).map(|_| ());
            assert_eq!(soon(reserves), Err(bad));
            let leaves = move || send::leave_ring(&near, dont_wait);
            assert_eq!(soon(leaves), Err(bad));
        }
        table.take_back(at, other);
    }

    #[test]
    fn who_waits_for_room_keeps_the_connection_before_the_first_look() {
        let ([near, _], _sockets) = ends();
        let mut waits = Waits::default();
        assert_eq!(send::wait_for_room(&near, false, &mut waits), Ok(()));
        assert!(waits.stay.is_some());
        assert!(is_asleep(&near));
    }

    #[test]
    fn the_rest_of_a_message_is_not_for_who_has_the_entry_next() {
        let ([near, _], _sockets) = ends();
        let (token, mut stay) = (near.token(), None);
        assert_eq!(Stay::begin_with(&mut stay, &near, token), Ok(()));
        let uses = &near.entry.id.generation;
        uses.fetch_add(1, Ordering::SeqCst);
        let stayed = Stay::begin_with(&mut stay, &near, token);
        uses.fetch_sub(1, Ordering::SeqCst);
        assert_eq!(stayed, Err(Errno::BADF));
    }
}
