//! Waiting from C.

use core::ffi::{c_int, c_short};
use core::time::Duration;
use std::io::ErrorKind;

use libc::{POLLIN, POLLOUT, size_t};

use super::{crosslane_connection, fail};
use crate::ready::{self, Interest, Rest, Watch};

/// One of those that crosslane_wait() waits for, in the manner of struct pollfd.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct crosslane_watch {
    /// Which; each in one watch only.
    pub connection: *mut crosslane_connection,
    /// For what: POLLIN, POLLOUT or both.
    pub events: c_short,
    /// What of it is ready, and POLLERR and POLLHUP as poll(2) gives them, whatever `events` are.
    pub revents: c_short,
}

fn interest(events: c_short) -> Interest {
    Interest {
        read: events & POLLIN != 0,
        write: events & POLLOUT != 0,
    }
}

/// Prepare for sleeping in poll, select or epoll on the connection's descriptor, for POLLIN,
/// POLLOUT or both. Must be called each time before, because what is in memory wakes nobody who has
/// not asked for it. It does not fail. examples/epoll_server.c shows its use.
///
/// Returns 1 and sets `*poll_for` and `*at_most_ms` if you may sleep, or 0, and sets nothing, if
/// something is ready. Poll for exactly `*poll_for`, even where that differs from `events`: the
/// wake-up for a sender that waits for room is POLLIN. Sleep no longer than `*at_most_ms`, unless that
/// is -1, which sets no limit. When the sleep is over, whatever has ended it, any call on the
/// connection goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_arm(
    connection: *mut crosslane_connection,
    events: c_short,
    poll_for: *mut c_short,
    at_most_ms: *mut c_int,
) -> c_int {
    // SAFETY: the program's promise; another thread may use the closer.
    let connection = unsafe { &mut (*connection).connection };
    let (wish, limit) = match connection.arm(interest(events)) {
        Rest::Ready => return 0,
        Rest::Sleep { events, at_most } => (events, at_most),
    };
    let millis = |limit: Duration| c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX);
    // SAFETY: the program's promise.
    unsafe { poll_for.write(wish) };
    // SAFETY: as above.
    unsafe { at_most_ms.write(limit.map_or(-1, millis)) };
    1
}

/// Wait until something is ready, spinning first as a call that waits does, for at most
/// `timeout_ms`, or for ever if that is negative. Returns how many are ready, 0 when the time is
/// up, or -1 and errno: EINVAL if there is none, or if one is NULL or stands there twice; EINTR after a
/// signal; ENOMEM as poll(2).
///
/// It uses both directions of all of them, whatever is waited for: no other thread may be in a call
/// on one meanwhile, but for those that any thread may make. A reservation stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosslane_wait(
    watches: *mut crosslane_watch,
    count: size_t,
    timeout_ms: c_int,
) -> c_int {
    if watches.is_null() || count == 0 {
        return fail(&ErrorKind::InvalidInput.into());
    }
    // SAFETY: the program's promise.
    let theirs = unsafe { core::slice::from_raw_parts_mut(watches, count) };
    if !are_distinct(theirs) {
        return fail(&ErrorKind::InvalidInput.into());
    }
    let watch = |one: &crosslane_watch| {
        // SAFETY: the program's promise, and each connection stands there once.
        let connection = unsafe { &mut (*one.connection).connection };
        Watch::new(connection, interest(one.events))
    };
    let mut ours: Vec<_> = theirs.iter().map(watch).collect();
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    let ready = match ready::wait(&mut ours, timeout) {
        Ok(ready) => ready,
        Err(error) => return fail(&error),
    };
    let found: Vec<_> = ours.iter().map(revents).collect();
    for (one, found) in theirs.iter_mut().zip(found) {
        one.revents = found;
    }
    c_int::try_from(ready).unwrap_or(c_int::MAX)
}

/// Whether each connection is one, and stands there once.
fn are_distinct(watches: &[crosslane_watch]) -> bool {
    let mut connections: Vec<_> = watches.iter().map(|watch| watch.connection).collect();
    connections.sort_unstable();
    connections.first().is_some_and(|first| !first.is_null())
        && connections.windows(2).all(|two| two[0] != two[1])
}

fn revents(watch: &Watch<'_>) -> c_short {
    let read = if watch.ready.read { POLLIN } else { 0 };
    let write = if watch.ready.write { POLLOUT } else { 0 };
    read | write | watch.broken
}
