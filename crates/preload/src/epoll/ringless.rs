//! Waits in sets none of whose connections has rings yet: the kernel's, unless one gets some meanwhile.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

use crosslane_stream::{replay, watcher};
use crosslane_sys::kernel::SignalsHeld;
use crosslane_sys::{Errno, cancel};
use libc::{epoll_event, sigset_t};

use super::asleep::Asleep;
use super::beacon;
use super::calls::answer;
use super::kept::Waiting;
use super::set::{self, Set};
use super::wait::{told_by, wait_set};

/// The record of a set, if a connection in it has rings.
pub fn ringed(epoll: c_int) -> Option<&'static Set> {
    set::get(epoll).filter(|set| set.ringed.load(Ordering::SeqCst) > 0)
}

/// What a wait gives back, the first first, also where its thread is cancelled or a handler leaves it.
struct Begun {
    asleep: Option<Asleep>,
    _waiting: Option<Waiting>,
    held: Option<SignalsHeld>,
}

/// Wait in a set that has no rings, unless it gets some before the wait begins.
pub fn wait_without_rings(
    epoll: c_int,
    out: &mut [MaybeUninit<epoll_event>],
    limit: Option<Duration>,
    mask: *const sigset_t,
    kernel: impl FnOnce() -> c_int,
) -> c_int {
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    beacon::refresh();
    watcher::tend();
    let set = set::for_wait(epoll);
    let known = set.or_else(|| set::known(epoll));
    // The process may have its first connection, and lose the set's number, before this one wakes.
    let mut begun = Begun {
        _waiting: known.map(Waiting::begin),
        asleep: Some(Asleep::new(known)),
        held: None,
    };
    if let Some(set) = known {
        set.use_here();
    }
    if let Some(set) = ringed(epoll) {
        begun.asleep = None;
        return answer(wait_set(set, out, limit, mask));
    }
    replay::push();
    // What the mask holds back is not to come before the wait that may follow this one.
    begun.held = (!mask.is_null()).then(SignalsHeld::hold);
    let found = cancel::guarded(&begun, kernel);
    begun.asleep = None;
    let made = || set::made_since(known, epoll);
    let left = || deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let answered = recheck(|| set.or_else(made), out, found, left, mask);
    let saved = Errno::last();
    // Handlers come here, and may leave an error of their own.
    begun.held = None;
    saved.set();
    answered
}

/// A connection may have entered the rings while the kernel was asked: events with our tag are
/// not for the program, so the wait goes on here. It ends if the set has been closed meanwhile and could not be kept.
fn recheck(
    set: impl FnOnce() -> Option<&'static Set>,
    out: &mut [MaybeUninit<epoll_event>],
    found: c_int,
    left: impl FnOnce() -> Option<Duration>,
    mask: *const sigset_t,
) -> c_int {
    let taken = usize::try_from(found).unwrap_or(0);
    let ours = |event: &MaybeUninit<epoll_event>| {
        // SAFETY: the kernel has written the first `taken` events.
        let event = unsafe { event.assume_init_ref() };
        set::key_of(event.u64)
    };
    if taken == 0 || !out[..taken].iter().any(|event| ours(event).is_some()) {
        return found;
    }
    let set = set().filter(|set| set.is_open());
    if let Some(Ok(mut inner)) = set.map(|set| set.inner.lock()) {
        inner.scan = inner.scan.wrapping_add(1);
    }
    let mut kept = 0;
    for place in 0..taken {
        let told = match (ours(&out[place]), set) {
            (None, _) => Some(out[place]),
            (Some(key), Some(set)) => told_by(set, key),
            (Some(_), None) => None,
        };
        if let Some(told) = told {
            out[kept] = told;
            kept += 1;
        }
    }
    match set {
        Some(set) if kept == 0 => answer(wait_set(set, out, left(), mask)),
        _ => c_int::try_from(kept).unwrap_or(c_int::MAX),
    }
}
