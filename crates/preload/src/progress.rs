//! The steps of an upgrade that involve more than one connection.

use core::sync::atomic::Ordering;

use crosslane_ctl::slab::EndPhase;
use crosslane_stream::{End, register, rest, switch};

/// Move a connection towards its rings. Returns whether rings have been granted, so that the
/// library, not the kernel alone, handles its bytes.
#[inline]
pub fn is_granted(end: &End) -> bool {
    is_granted_to(end, register::progress)
}

/// As [`is_granted`], in a call that sends.
#[inline]
pub fn is_granted_to_send(end: &End) -> bool {
    is_granted_to(end, register::progress_to_send)
}

#[inline(always)]
fn is_granted_to(end: &End, progress: impl FnOnce(&End)) -> bool {
    if end.phase() != EndPhase::Granted {
        progress(end);
        if end.phase() != EndPhase::Granted {
            return false;
        }
    }
    if end.local.adopted.load(Ordering::Acquire) == 0 {
        let _ = crate::signals::take();
        crate::epoll::adopt(end);
    }
    !hand_back(end)
}

/// Leave a pinned end to the kernel altogether, once its bytes are all on TCP. Returns whether
/// that has happened.
pub fn hand_back(end: &End) -> bool {
    hand_back_by(end, switch::retire)
}

/// As [`hand_back`], where whoever uses the end next goes around the library.
pub fn hand_back_now(end: &End) -> bool {
    hand_back_by(end, switch::retire_now)
}

fn hand_back_by(end: &End, retire: impl FnOnce(&End) -> bool) -> bool {
    let back = leave_rings_by(end, retire);
    if back {
        crate::epoll::hand_back(end);
        if end.phase() == EndPhase::Granted {
            // Another thread has taken it into other lanes meanwhile.
            crate::epoll::adopt(end);
        }
    }
    back
}

/// As [`hand_back`], but for sets, which have it still.
pub fn leave_rings(end: &End) -> bool {
    leave_rings_by(end, switch::retire)
}

fn leave_rings_by(end: &End, retire: impl FnOnce(&End) -> bool) -> bool {
    rest::look(end);
    end.is_pinned() && retire(end)
}
