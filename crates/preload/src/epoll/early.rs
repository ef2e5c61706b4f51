//! Sockets that a program adds to a set before it connects them, as nginx does with those to its
//! upstreams. They are no connections when they are added, so what the program asked for is kept
//! until they are.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};

use crosslane_ctl::reason::Reason;
use crosslane_stream::family::Family;
use crosslane_stream::{End, switch};
use crosslane_sys::kernel;
use libc::epoll_event;

use super::control::record;
use super::set::{self, Set};

/// Whether any socket has been noted: most programs have none.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// What the kernel refuses to change, or has perhaps switched off already.
const BEYOND_US: u32 = libc::EPOLLEXCLUSIVE.cast_unsigned() | libc::EPOLLONESHOT.cast_unsigned();

/// A registration of a socket that is no connection yet.
pub struct Early {
    fd: c_int,
    /// Tells whether the descriptor still means the same socket.
    cookie: u64,
    events: u32,
    data: u64,
}

/// The kernel has carried out this operation on a descriptor that is no known connection.
pub fn note(epoll: c_int, operation: c_int, fd: c_int, event: Option<epoll_event>) {
    match (operation, event) {
        (libc::EPOLL_CTL_ADD, Some(wish)) => add(epoll, fd, wish),
        (libc::EPOLL_CTL_MOD, Some(wish)) => change(epoll, fd, |early| {
            (early.events, early.data) = (wish.events, wish.u64);
            true
        }),
        (libc::EPOLL_CTL_DEL, _) => change(epoll, fd, |_| false),
        _ => {}
    }
}

#[cold]
fn add(epoll: c_int, fd: c_int, wish: epoll_event) {
    if Family::of(fd).is_none() {
        return;
    }
    let Some(cookie) = cookie(fd) else { return };
    let Some(set) = set::get_or_make(epoll) else {
        return;
    };
    let Ok(mut inner) = set.inner.lock() else {
        return;
    };
    inner.early.retain(|early| early.fd != fd);
    inner.early.push(Early {
        fd,
        cookie,
        events: wish.events,
        data: wish.u64,
    });
    drop(inner);
    IS_USED.store(true, Ordering::SeqCst);
    // Another thread may have connected it meanwhile.
    if let Some(end) = End::of(fd) {
        connected(&end);
    }
}

/// Change what was noted, or forget it when `keep` says no.
fn change(epoll: c_int, fd: c_int, mut keep: impl FnMut(&mut Early) -> bool) {
    if !IS_USED.load(Ordering::SeqCst) {
        return;
    }
    if let Some(set) = set::get(epoll)
        && let Ok(mut inner) = set.inner.lock()
    {
        inner
            .early
            .retain_mut(|early| early.fd != fd || keep(early));
    }
}

/// The socket is a connection now.
pub fn connected(end: &End) {
    if !IS_USED.load(Ordering::SeqCst) {
        return;
    }
    for set in set::sets().into_iter().filter_map(set::get) {
        take_from(set, end);
    }
}

fn take_from(set: &'static Set, end: &End) {
    let Ok(mut inner) = set.inner.lock() else {
        return;
    };
    let Some(place) = inner.early.iter().position(|early| early.fd == end.fd) else {
        return;
    };
    let early = inner.early.swap_remove(place);
    // The kernel has forgotten a socket that was closed.
    if Some(early.cookie) != cookie(end.fd) {
        return;
    }
    if early.events & BEYOND_US != 0 {
        switch::pin(end, Reason::EpollUse);
        return;
    }
    record(set, &mut inner, end, (early.events, early.data));
}

fn cookie(fd: c_int) -> Option<u64> {
    kernel::getsockopt(fd, libc::SOL_SOCKET, libc::SO_COOKIE).ok()
}
