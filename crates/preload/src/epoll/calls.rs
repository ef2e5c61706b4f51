//! The calls that wait in an epoll set.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::time::Duration;

use crosslane_stream::process;
use crosslane_sys::{Errno, cancel, real};
use libc::{epoll_event, sigset_t, timespec};

use super::ringless::{ringed, wait_without_rings};
use super::wait::wait_set;
use crate::{c, poll};

/// Events that are told at a time at most, so that no more memory is looked at than is used.
const MOST_EVENTS: usize = 1024;

/// The program's array of events. Where there are rings, it is taken [`with_room`].
///
/// # Safety
/// As epoll_wait(2) demands.
unsafe fn slice<'a>(
    events: *mut epoll_event,
    count: c_int,
) -> Option<&'a mut [MaybeUninit<epoll_event>]> {
    let count = usize::try_from(count).ok().filter(|count| *count > 0)?;
    if !c::may_be(events, 1) {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { core::slice::from_raw_parts_mut(events.cast(), count) })
}

/// What such a call returns.
pub(super) fn answer(found: Result<usize, Errno>) -> c_int {
    match found {
        Ok(count) => c_int::try_from(count).unwrap_or(c_int::MAX),
        Err(errno) => c::fail(errno),
    }
}

/// As the kernel, which tells of those events for which there is room.
pub(super) fn with_room(
    events: &mut [MaybeUninit<epoll_event>],
) -> Result<&mut [MaybeUninit<epoll_event>], Errno> {
    let wanted = events.len().min(MOST_EVENTS) * size_of::<epoll_event>();
    match c::room(events.as_mut_ptr(), wanted) / size_of::<epoll_event>() {
        0 => Err(Errno::FAULT),
        count => Ok(&mut events[..count]),
    }
}

/// A wait with an array of events that is nowhere. The kernel refuses that when it has something to tell, but cannot know where
/// there are rings.
fn refuse(epoll: c_int, count: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    match ringed(epoll) {
        Some(_) if count > 0 => c::fail(Errno::FAULT),
        _ => kernel(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
) -> c_int {
    if process::has_left() && ringed(epoll).is_none() {
        // A filter of system calls may not know the other.
        // SAFETY: passed on.
        return unsafe { real::epoll_wait(epoll, events, count, timeout) };
    }
    // SAFETY: passed on; epoll_wait is epoll_pwait without a mask.
    unsafe { epoll_pwait(epoll, events, count, timeout, core::ptr::null()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: passed on.
    let kernel = || unsafe { real::epoll_pwait(epoll, events, count, timeout, mask) };
    if poll::is_bad_mask(mask) {
        return kernel();
    }
    // SAFETY: the program's promise.
    let Some(out) = (unsafe { slice(events, count) }) else {
        return refuse(epoll, count, kernel);
    };
    let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
    cancel::test();
    if let Some(set) = ringed(epoll) {
        return answer(wait_set(set, out, limit, mask));
    }
    wait_without_rings(epoll, out, limit, mask, kernel)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: passed on.
    let kernel = || unsafe { real::epoll_pwait2(epoll, events, count, timeout, mask) };
    let is_bad_time = !timeout.is_null() && !c::may_be(timeout, 1);
    let time = match is_bad_time {
        true => None,
        // SAFETY: the program's promise; null means no limit.
        false => unsafe { timeout.as_ref() },
    };
    if is_bad_time || !time.is_none_or(poll::is_legal) || poll::is_bad_mask(mask) {
        // For the kernel to refuse.
        return kernel();
    }
    // SAFETY: the program's promise.
    let Some(out) = (unsafe { slice(events, count) }) else {
        return refuse(epoll, count, kernel);
    };
    let limit = time.map(poll::duration);
    cancel::test();
    if let Some(set) = ringed(epoll) {
        return answer(wait_set(set, out, limit, mask));
    }
    wait_without_rings(epoll, out, limit, mask, kernel)
}
