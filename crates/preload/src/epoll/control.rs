//! epoll_ctl, and the passage of registrations from the kernel's care to ours.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndPhase, Mode};
use crosslane_stream::end::Blocked;
use crosslane_stream::{End, close as closing, ready};
use crosslane_sys::{Errno, kernel, real};
use libc::epoll_event;

use super::set::{self, Inner, Reg, Set};
use crate::{c, progress};

const EDGE: u32 = libc::EPOLLET.cast_unsigned();
const IN: u32 = libc::EPOLLIN.cast_unsigned();
const OUT: u32 = libc::EPOLLOUT.cast_unsigned();
const RDHUP: u32 = libc::EPOLLRDHUP.cast_unsigned();
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE.cast_unsigned();

/// How long a connection that enters a second set is waited for to be back on TCP.
const PATIENCE: core::time::Duration = core::time::Duration::from_secs(1);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: passed on.
    let kernel = || unsafe { real::epoll_ctl(epoll, operation, fd, event) };
    let Some(end) = End::of(fd) else {
        if operation == libc::EPOLL_CTL_ADD {
            leave_nested(fd);
        }
        return kernel();
    };
    // SAFETY: the program's promise; null is legal for EPOLL_CTL_DEL only.
    let wish = unsafe { event.as_ref() }.copied();
    match (operation, wish) {
        (libc::EPOLL_CTL_ADD, Some(wish)) => add(epoll, &end, wish, kernel),
        (libc::EPOLL_CTL_MOD, Some(wish)) => modify(epoll, &end, wish, kernel),
        (libc::EPOLL_CTL_DEL, _) => delete(epoll, &end, kernel),
        _ => kernel(),
    }
}

/// A set that is watched by another set must show its readiness in the kernel.
pub fn leave_nested(fd: c_int) {
    let Some(set) = set::get(fd) else { return };
    let Ok(inner) = set.inner.lock() else { return };
    let ends: Vec<End> = inner
        .all()
        .filter(|reg| reg.is_live())
        .map(|reg| reg.end)
        .collect();
    drop(inner);
    for end in ends {
        closing::make_plain(&end, Reason::EpollUse, PATIENCE);
        progress::hand_back(&end);
    }
}

fn add(epoll: c_int, end: &End, wish: epoll_event, kernel: impl Fn() -> c_int) -> c_int {
    if let Some(result) = revive(epoll, end, wish) {
        return result;
    }
    let elsewhere = end.entry.wait.epolls.load(Ordering::Relaxed) > 0;
    if wish.events & EXCLUSIVE != 0 || elsewhere {
        // One doorbell wakes one set: a connection in two stays on TCP.
        closing::make_plain(end, Reason::EpollUse, PATIENCE);
        progress::hand_back(end);
        return kernel();
    }
    let result = kernel();
    if result != 0 {
        return result;
    }
    let Some(set) = set::get_or_make(epoll) else {
        return result;
    };
    let Ok(mut inner) = set.inner.lock() else {
        return result;
    };
    let key = inner.add(Reg::new(end, wish.events, wish.u64));
    end.entry.wait.epolls.fetch_add(1, Ordering::Relaxed);
    end.local
        .epoll_set
        .store(epoll.cast_unsigned() + 1, Ordering::Relaxed);
    end.local.epoll_key.store(key, Ordering::Relaxed);
    if end.phase() == EndPhase::Granted {
        take_over(set, &mut inner, key);
        wake_for_news(set, &mut inner, key);
    }
    result
}

/// An addition of what the kernel still has: only our record changes. `None` when the kernel must
/// be asked.
fn revive(epoll: c_int, end: &End, wish: epoll_event) -> Option<c_int> {
    if set_of(end) != Some(epoll) {
        return None;
    }
    let set = set::get(epoll)?;
    let mut inner = set.inner.lock().ok()?;
    let (key, reg) = inner.find(end)?;
    if !reg.deleted {
        return Some(c::fail(Errno(libc::EEXIST)));
    }
    if wish.events & EXCLUSIVE != 0 {
        return None;
    }
    reg.renew(wish.events, wish.u64);
    end.entry.wait.epolls.fetch_add(1, Ordering::Relaxed);
    inner.heat(key);
    tell_sleepers(set, &mut inner, key);
    Some(0)
}

/// The set that holds the end.
fn set_of(end: &End) -> Option<c_int> {
    let stored = end.local.epoll_set.load(Ordering::Relaxed);
    stored.checked_sub(1).map(u32::cast_signed)
}

fn modify(epoll: c_int, end: &End, wish: epoll_event, kernel: impl Fn() -> c_int) -> c_int {
    let Some(set) = set::get(epoll).filter(|_| set_of(end) == Some(epoll)) else {
        return kernel();
    };
    let Ok(mut inner) = set.inner.lock() else {
        return kernel();
    };
    let Some((key, reg)) = inner.find(end) else {
        return kernel();
    };
    if reg.deleted {
        return c::fail(Errno(libc::ENOENT));
    }
    if !reg.ringed {
        let result = kernel();
        if result == 0 {
            reg.renew(wish.events, wish.u64);
        }
        return result;
    }
    if wish.events & EXCLUSIVE != 0 {
        return c::fail(Errno::INVAL);
    }
    reg.renew(wish.events, wish.u64);
    inner.heat(key);
    tell_sleepers(set, &mut inner, key);
    0
}

/// A send has found no room: the set that holds the end must look for some, although it may not
/// have looked at the end for long.
#[cold]
pub fn want_room(end: &End) {
    let noted = Blocked::Noted as u32;
    end.local.blocked.store(noted, Ordering::Relaxed);
    let Some(set) = set_of(end).and_then(set::get) else {
        return;
    };
    let Ok(mut inner) = set.inner.lock() else {
        return;
    };
    if let Some((key, reg)) = inner.find_by_any_name(end)
        && reg.ringed
        && reg.wanted() & libc::POLLOUT != 0
    {
        inner.heat(key);
        tell_sleepers(set, &mut inner, key);
    }
}

/// Threads that sleep on the set must learn of a new wish: the kernel is told now, the rings are
/// armed, and if there is news already, one sleeper is woken.
fn tell_sleepers(set: &Set, inner: &mut Inner, key: u32) {
    if set.sleepers.load(Ordering::SeqCst) > 0 {
        wake_for_news(set, inner, key);
    }
}

fn wake_for_news(set: &Set, inner: &mut Inner, key: u32) {
    let Some(reg) = inner.reg(key) else { return };
    let (end, wanted) = (reg.end, reg.wanted());
    sync(set.epoll, key, reg);
    if !ready::arm(&end, wanted) || ready::glance(&end, wanted) {
        // A socket can nearly always be written to, so this wakes exactly one sleeper.
        let events = OUT | IN | EDGE;
        let event = epoll_event {
            events,
            u64: set::tagged(key),
        };
        if kernel::epoll_ctl(set.epoll, libc::EPOLL_CTL_MOD, end.fd, event).is_ok() {
            reg.kernel_events = events;
        }
    }
}

fn delete(epoll: c_int, end: &End, kernel: impl Fn() -> c_int) -> c_int {
    let Some(set) = set::get(epoll).filter(|_| set_of(end) == Some(epoll)) else {
        return kernel();
    };
    let Ok(mut inner) = set.inner.lock() else {
        return kernel();
    };
    let Some((key, reg)) = inner.find(end) else {
        return kernel();
    };
    if reg.deleted {
        return c::fail(Errno(libc::ENOENT));
    }
    if reg.ringed {
        // Programs that delete and add for every request would spend their time in the kernel.
        reg.deleted = true;
        end.entry.wait.epolls.fetch_sub(1, Ordering::Relaxed);
        inner.heat(key);
        return 0;
    }
    let result = kernel();
    if result == 0 {
        inner.remove(key);
        end.entry.wait.epolls.fetch_sub(1, Ordering::Relaxed);
        end.local.epoll_set.store(0, Ordering::Relaxed);
    }
    result
}

/// The descriptor is being closed. With its last name the kernel forgets the registration; while
/// another name exists the kernel keeps it, and so does the record.
pub fn forget(end: &End) {
    let Some(set) = set_of(end).and_then(set::get) else {
        return;
    };
    let Ok(mut inner) = set.inner.lock() else {
        return;
    };
    let Some((key, reg)) = inner.find(end) else {
        return;
    };
    if end.local.fds.load(Ordering::Relaxed) > 1 {
        if !reg.deleted {
            return;
        }
        // The kernel still has what the program has deleted.
        let nothing = epoll_event { events: 0, u64: 0 };
        let _ = kernel::epoll_ctl(set.epoll, libc::EPOLL_CTL_DEL, end.fd, nothing);
    }
    if let Some(reg) = inner.remove(key) {
        if !reg.deleted {
            end.entry.wait.epolls.fetch_sub(1, Ordering::Relaxed);
        }
        if reg.ringed {
            set.ringed.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Rings have been granted: let the set that holds the end know, then let it take part.
#[cold]
pub fn adopt(end: &End) {
    if let Some(set) = set_of(end).and_then(set::get)
        && let Ok(mut inner) = set.inner.lock()
        && let Some((key, _)) = inner.find_by_any_name(end)
    {
        take_over(set, &mut inner, key);
    }
    end.local.adopted.store(1, Ordering::Release);
}

/// From now on the kernel's registration carries our tag.
fn take_over(set: &Set, inner: &mut Inner, key: u32) {
    let Some(reg) = inner.reg(key) else { return };
    if reg.ringed {
        return;
    }
    (reg.ringed, reg.fresh, reg.kernel_events) = (true, true, 0);
    set.ringed.fetch_add(1, Ordering::Release);
    sync(set.epoll, key, reg);
    inner.heat(key);
}

/// The end has no rings any more: the kernel gets the registration as the program made it.
#[cold]
pub fn hand_back(end: &End) {
    end.local.adopted.store(0, Ordering::Release);
    let Some(set) = set_of(end).and_then(set::get) else {
        return;
    };
    let Ok(mut inner) = set.inner.lock() else {
        return;
    };
    let Some((key, reg)) = inner.find_by_any_name(end) else {
        return;
    };
    if !reg.ringed {
        return;
    }
    let fd = reg.end.fd;
    set.ringed.fetch_sub(1, Ordering::Relaxed);
    if reg.deleted {
        let nothing = epoll_event { events: 0, u64: 0 };
        let _ = kernel::epoll_ctl(set.epoll, libc::EPOLL_CTL_DEL, fd, nothing);
        inner.remove(key);
        return;
    }
    // Spent by EPOLLONESHOT: silent until the program's next EPOLL_CTL_MOD.
    let events = if reg.spent { EDGE } else { reg.events };
    let event = epoll_event {
        events,
        u64: reg.data,
    };
    let _ = kernel::epoll_ctl(set.epoll, libc::EPOLL_CTL_MOD, fd, event);
    (reg.ringed, reg.hot) = (false, false);
    inner.hot.retain(|hot| *hot != key);
}

/// What the kernel should look for on behalf of a registration.
fn wish_of(reg: &Reg) -> u32 {
    if reg.is_silent() {
        return EDGE;
    }
    let (edge, end) = (reg.events & EDGE, &reg.end);
    if end.rx_mode() == Mode::Ring && end.tx_mode() == Mode::Ring {
        // Doorbells and ends are edges; what is ready by level is known from the rings.
        return IN | RDHUP | EDGE;
    }
    let wanted = reg.events & (IN | RDHUP | OUT);
    let wanted = if end.tx_mode() == Mode::Ring {
        wanted & !OUT
    } else {
        wanted
    };
    let bells = if end.rx_mode() == Mode::Ring { IN } else { 0 };
    wanted | bells | edge
}

/// Tell the kernel what to look for, if that has changed.
pub fn sync(epoll: c_int, key: u32, reg: &mut Reg) {
    let wish = wish_of(reg);
    if wish == reg.kernel_events {
        return;
    }
    let event = epoll_event {
        events: wish,
        u64: set::tagged(key),
    };
    if kernel::epoll_ctl(epoll, libc::EPOLL_CTL_MOD, reg.end.fd, event).is_ok() {
        reg.kernel_events = wish;
    }
}
