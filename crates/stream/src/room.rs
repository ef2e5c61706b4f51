//! Room that a send has slept for. The kernel tells all sets of epoll of it, in which another thread may wait for an edge.

use core::sync::atomic::Ordering;
use std::sync::OnceLock;

use crosslane_ctl::slab::EndPhase;
use crosslane_sys::{Errno, kernel};

use crate::End;

static ON_ROOM: OnceLock<fn(&End)> = OnceLock::new();

/// Have `tell` called when a send has slept for room, or may have, on an end that is registered in sets, and the sleep is over.
pub fn on_room(tell: fn(&End)) {
    ON_ROOM.get_or_init(|| tell);
}

/// Whether the kernel may sleep for room in a send of so many bytes, of which sets that wait for edges are to be told: it has
/// been asked to tell them only while somebody sleeps in them.
#[inline]
pub(crate) fn may_sleep(end: &End, bytes: usize) -> bool {
    end.local.registrations.load(Ordering::Relaxed) > 0
        && end.phase() == EndPhase::Granted
        && !end.is_nonblocking()
        && fills_buffer(end, bytes)
}

/// Half of the kernel's buffer is what it counts for its own.
#[cold]
fn fills_buffer(end: &End, bytes: usize) -> bool {
    let buffer = kernel::getsockopt::<i32>(end.fd(), libc::SOL_SOCKET, libc::SO_SNDBUF);
    let queued = kernel::queued(end.fd(), libc::TIOCOUTQ).unwrap_or(0) as usize;
    let buffer = buffer.map_or(0, |buffer| usize::try_from(buffer).unwrap_or(0));
    bytes.saturating_add(queued) > buffer / 2
}

/// A send has slept for room, or may have.
pub(crate) fn tell(end: &End) {
    if end.local.registrations.load(Ordering::Relaxed) > 0
        && let Some(tell) = ON_ROOM.get()
    {
        // A send may have failed, and its reason be there still.
        let errno = Errno::last();
        tell(end);
        errno.set();
    }
}
