//! Young connections, which are in one set at most, of which the kernel alone knows.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use crosslane_stream::End;
use crosslane_stream::young::{Registration, Young};
use libc::epoll_event;

use super::control::record;
use super::kernels::EXCLUSIVE;
use super::set::{self, Set};

/// Carry out an operation on a young connection. None, and nothing is done, if it is none, or has to be an end for this.
pub fn control(
    set: Option<&Set>,
    (epoll, operation, fd): (c_int, c_int, c_int),
    wish: Option<epoll_event>,
    kernel: impl FnOnce() -> c_int,
) -> Option<c_int> {
    let young = Young::of(fd)?;
    let set = set.filter(|set| is_usual(set))?;
    let kept = young.registration();
    let is_here = || kept.is_some_and(|kept| kept.epoll == set.fd());
    let to = wish.map(|wish| Registration {
        epoll: set.fd(),
        events: wish.events,
        data: wish.u64,
    });
    let may = epoll == set.fd()
        && match (operation, wish) {
            (libc::EPOLL_CTL_ADD, Some(wish)) => wish.events & EXCLUSIVE == 0 && kept.is_none(),
            (libc::EPOLL_CTL_MOD, Some(_)) | (libc::EPOLL_CTL_DEL, None) => is_here(),
            _ => false,
        };
    may.then(|| young.register(to, kernel)).flatten()
}

/// Whether no more is to be known of a set than what is in it.
fn is_usual(set: &Set) -> bool {
    set.sharing.common().is_none() && !set.is_nested.load(Ordering::Relaxed)
}

/// An end has been in a set from its beginning.
pub fn grown(end: &End, registration: Registration) {
    if let Some(set) = set::get_or_make(registration.epoll)
        && let Ok(mut inner) = set.inner.lock()
    {
        let wish = (registration.events, registration.data);
        record(set, &mut inner, end, wish);
    }
}
