//! Sockets that a program adds to a set before it connects them, as nginx does with those to its
//! upstreams. They are no connections when they are added, so what the program asked for is kept
//! until they are. So are the registrations of a connection that a program dissolves, also those of which the kernel knows otherwise, or
//! not at all: with EPOLLEXCLUSIVE, and those that EPOLLONESHOT has spent.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};

use crosslane_ctl::reason::Reason;
use crosslane_stream::family::Family;
use crosslane_stream::process::MAX_FDS;
use crosslane_stream::{End, switch};
use crosslane_sys::{Errno, kernel};
use libc::epoll_event;

use super::common::Name;
use super::control::record;
use super::reg::Reg;
use super::set::{self, Set};
use super::{shared, sharing};
use crate::c;

/// Whether any socket has been noted: most programs have none.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// Whether a socket of this number has been noted. Zeros, which take no memory until they are written.
static NOTED: [AtomicBool; MAX_FDS as usize] = [const { AtomicBool::new(false) }; MAX_FDS as usize];

/// What the kernel refuses to change, or has perhaps switched off already.
const BEYOND_US: u32 = EXCLUSIVE | libc::EPOLLONESHOT.cast_unsigned();

const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE.cast_unsigned();

/// A registration of a socket that is no connection yet.
pub struct Early {
    fd: c_int,
    /// Tells whether the descriptor still means the same socket.
    cookie: u64,
    events: u32,
    data: u64,
    /// The kernel has none: see `Reg::absent`.
    absent: bool,
}

impl Early {
    pub fn name(&self) -> Name {
        Name::known(self.fd, self.cookie)
    }

    /// Whether the socket has not been closed.
    pub fn is_open(&self) -> bool {
        cookie(self.fd) == Some(self.cookie)
    }

    /// The events and the data that the program asked for.
    pub fn wish(&self) -> (u32, u64) {
        (self.events, self.data)
    }

    pub fn is_absent(&self) -> bool {
        self.absent
    }
}

/// The kernel has carried out this operation on a descriptor that is no known connection.
pub fn note(epoll: c_int, operation: c_int, fd: c_int, event: Option<epoll_event>) {
    if let Some(set) = set::known(epoll) {
        let wish = event.map(|event| (event.events, event.u64));
        sharing::note_other(set, (operation, fd), wish);
    }
    match (operation, event) {
        (libc::EPOLL_CTL_ADD, Some(wish)) => add(epoll, fd, wish),
        (libc::EPOLL_CTL_MOD, Some(wish)) => change(epoll, fd, |early| {
            (early.events, early.data, early.absent) = (wish.events, wish.u64, false);
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
        absent: false,
    });
    drop(inner);
    note_number(fd);
    // Another thread may have connected it meanwhile.
    if let Some(end) = End::of(fd) {
        connected(&end);
    }
}

/// The program dissolves a connection; the socket stays in its sets, and may be another connection soon.
pub fn dissolved(end: &End) {
    for set in set::sets_of(end) {
        let Ok(mut inner) = set.inner.lock() else {
            continue;
        };
        // What the kernel could not be given back stays as it is.
        let is_odd = |reg: &Reg| reg.absent || reg.events & EXCLUSIVE != 0;
        let stays = |reg: &Reg| (reg.ringed || reg.deleted) && !is_odd(reg);
        let Some((key, _)) = inner.find(end).filter(|(_, reg)| !stays(reg)) else {
            continue;
        };
        if let (Some(cookie), Some(mut reg)) = (cookie(end.fd), inner.remove(key)) {
            reg.uncount();
            inner.early.retain(|early| early.fd != end.fd);
            inner.early.push(Early {
                fd: end.fd,
                cookie,
                events: reg.events,
                data: reg.data,
                absent: reg.absent,
            });
            note_number(end.fd);
        }
    }
}

/// Carry out an operation on a registration that the kernel knows otherwise. `None` if it is not one.
pub fn control_odd(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    wish: Option<epoll_event>,
) -> Option<c_int> {
    if !IS_USED.load(Ordering::SeqCst) {
        return None;
    }
    let (events, absent) = find(epoll, fd)?;
    match (operation, wish) {
        (libc::EPOLL_CTL_MOD, Some(_)) if events & EXCLUSIVE != 0 => {
            Some(c::fail(Errno(libc::EINVAL)))
        }
        _ if !absent => None,
        (libc::EPOLL_CTL_ADD, Some(_)) => Some(c::fail(Errno(libc::EEXIST))),
        (libc::EPOLL_CTL_MOD, Some(wish)) => {
            let added = kernel::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, wish);
            Some(added.map_or_else(c::fail, |()| 0))
        }
        (libc::EPOLL_CTL_DEL, _) => Some(0),
        _ => None,
    }
}

/// What was asked for, and whether the kernel has none of it.
fn find(epoll: c_int, fd: c_int) -> Option<(u32, bool)> {
    let inner = set::get(epoll)?.inner.lock().ok()?;
    let early = inner.early.iter().find(|early| early.fd == fd)?;
    (Some(early.cookie) == cookie(fd)).then_some((early.events, early.absent))
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

/// Whether a socket may be in a set, as one that is no connection.
pub fn may_have(fd: c_int) -> bool {
    shared::is_any() || noted(fd).is_none_or(|noted| noted.load(Ordering::SeqCst))
}

fn note_number(fd: c_int) {
    IS_USED.store(true, Ordering::SeqCst);
    if let Some(noted) = noted(fd) {
        noted.store(true, Ordering::SeqCst);
    }
}

fn noted(fd: c_int) -> Option<&'static AtomicBool> {
    NOTED.get(usize::try_from(fd).ok()?)
}

/// The socket is a connection now.
pub fn connected(end: &End) {
    shared::connected(end);
    if !IS_USED.load(Ordering::SeqCst) {
        return;
    }
    let mut is_kept = false;
    for set in set::sets().into_iter().filter_map(set::get) {
        is_kept |= take_from(set, end);
    }
    if let Some(noted) = noted(end.fd) {
        noted.store(is_kept, Ordering::SeqCst);
    }
}

/// Whether what was noted of the socket is kept, for when this connection is dissolved, too.
fn take_from(set: &'static Set, end: &End) -> bool {
    let Ok(mut inner) = set.inner.lock() else {
        return false;
    };
    let Some(place) = inner.early.iter().position(|early| early.fd == end.fd) else {
        return false;
    };
    let early = inner.early.swap_remove(place);
    // The kernel has forgotten a socket that was closed.
    if Some(early.cookie) != cookie(end.fd) || sharing::is_deleted(set, early.name()) {
        return false;
    }
    if set.sharing.is_settled() {
        // The kernel has it, and keeps it.
        switch::pin(end, Reason::EpollShared);
        return false;
    }
    if early.events & BEYOND_US != 0 && !early.absent {
        inner.early.push(early);
        switch::pin(end, Reason::EpollEarly);
        return true;
    }
    let key = record(set, &mut inner, end, (early.events, early.data));
    if set.is_nested.load(Ordering::Relaxed) {
        // Whoever sleeps on the outer set knows nothing of doorbells.
        switch::pin(end, Reason::EpollUse);
    }
    if let Some(reg) = inner.reg(key).filter(|_| early.absent) {
        (reg.spent, reg.absent) = (true, true);
    }
    false
}

fn cookie(fd: c_int) -> Option<u64> {
    Name::of(fd).map(Name::cookie)
}
