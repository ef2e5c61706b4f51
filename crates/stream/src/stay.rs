//! Calls of this process that sleep on a connection. Such a call goes on with the connection that it began
//! with when its descriptor is closed, or made to name something else, as the kernel keeps a socket for the calls
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

/// Whether another call than the caller's does.
pub(crate) fn do_others_sleep(end: &End) -> bool {
    end.local.calls.load(Ordering::SeqCst) > 1
}

/// Whether the descriptor by which the call came still names the connection.
pub(crate) fn has_name(end: &End) -> bool {
    end.process().index_of(end.fd) == Some(end.index)
}
