//! epoll_ctl, and the passage of registrations from the kernel's care to ours.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndPhase, Mode};
use crosslane_stream::{End, ready, switch};
use crosslane_sys::{Errno, kernel, real};
use libc::epoll_event;

use super::set::{self, Inner, Reg, Set};
use crate::c;

const EDGE: u32 = libc::EPOLLET as u32;
const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const RDHUP: u32 = libc::EPOLLRDHUP as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;

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
fn leave_nested(fd: c_int) {
    let Some(set) = set::get(fd) else { return };
    let Ok(inner) = set.inner.lock() else { return };
    let ends: Vec<End> = inner.regs.values().filter_map(Reg::end).collect();
    drop(inner);
    for end in ends {
        switch::pin(&end, Reason::EpollUse);
    }
}

fn add(epoll: c_int, end: &End, wish: epoll_event, kernel: impl Fn() -> c_int) -> c_int {
    let elsewhere = end.entry.wait.epolls.load(Ordering::Relaxed) > 0;
    if wish.events & EXCLUSIVE != 0 || elsewhere && set_of(end) != Some(epoll) {
        // One doorbell wakes one set: a connection in two stays on TCP.
        crosslane_stream::close::make_plain(end, Reason::EpollUse, PATIENCE);
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
    let key = inner.add(Reg {
        fd: end.fd,
        events: wish.events,
        data: wish.u64,
        index: end.index,
        ringed: false,
        kernel_events: 0,
        spent: false,
        fresh: true,
        reported_line: 0,
        quiet_waits: 0,
        hot: false,
    });
    end.entry.wait.epolls.fetch_add(1, Ordering::Relaxed);
    end.local
        .epoll_set
        .store(epoll.cast_unsigned() + 1, Ordering::Relaxed);
    if end.phase() == EndPhase::Granted {
        take_over(&set, &mut inner, key, end);
    }
    result
}

/// The set that holds the end.
fn set_of(end: &End) -> Option<c_int> {
    let stored = end.local.epoll_set.load(Ordering::Relaxed);
    stored.checked_sub(1).map(u32::cast_signed)
}

fn modify(epoll: c_int, end: &End, wish: epoll_event, kernel: impl Fn() -> c_int) -> c_int {
    let Some(set) = set::get(epoll) else {
        return kernel();
    };
    let Ok(mut inner) = set.inner.lock() else {
        return kernel();
    };
    let Some(key) = inner.by_fd.get(&end.fd).copied() else {
        return kernel();
    };
    let Some(reg) = inner.regs.get_mut(&key) else {
        return kernel();
    };
    if !reg.ringed {
        let result = kernel();
        if result == 0 {
            (reg.events, reg.data, reg.fresh) = (wish.events, wish.u64, true);
        }
        return result;
    }
    if wish.events & EXCLUSIVE != 0 {
        return c::fail(Errno::INVAL);
    }
    (reg.events, reg.data, reg.fresh, reg.spent) = (wish.events, wish.u64, true, false);
    inner.heat(key);
    // A thread that sleeps on the set must learn of the new wish.
    if set.sleepers.load(Ordering::SeqCst) > 0 {
        settle(&set, &mut inner, key);
    }
    0
}

/// While others sleep: tell the kernel now, arm, and wake a sleeper if there is news already.
fn settle(set: &Set, inner: &mut Inner, key: u32) {
    let Some(reg) = inner.regs.get_mut(&key) else {
        return;
    };
    let Some(end) = reg.end() else { return };
    let wanted = reg.wanted();
    sync(set.epoll, key, reg, &end);
    if !ready::arm(&end, wanted) || ready::glance(&end, wanted) {
        // An event of the kernel's that is always there wakes exactly one sleeper.
        let event = epoll_event {
            events: OUT | IN | EDGE,
            u64: set::tagged(key),
        };
        if kernel::epoll_ctl(set.epoll, libc::EPOLL_CTL_MOD, reg.fd, event).is_ok() {
            reg.kernel_events = OUT | IN | EDGE;
        }
    }
}

fn delete(epoll: c_int, end: &End, kernel: impl Fn() -> c_int) -> c_int {
    let result = kernel();
    if result == 0 {
        drop_from(epoll, end);
    }
    result
}

fn drop_from(epoll: c_int, end: &End) {
    let Some(set) = set::get(epoll) else { return };
    let Ok(mut inner) = set.inner.lock() else {
        return;
    };
    if let Some(reg) = inner.remove(end.fd) {
        end.entry.wait.epolls.fetch_sub(1, Ordering::Relaxed);
        if reg.ringed {
            set.ringed.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The descriptor is being closed. With its last name the kernel forgets the registration; while
/// another name exists the kernel keeps it, and so does the record.
pub fn forget(end: &End) {
    if end.entry.wait.epolls.load(Ordering::Relaxed) == 0 {
        return;
    }
    if end.local.fds.load(Ordering::Relaxed) <= 1
        && let Some(epoll) = set_of(end)
    {
        drop_from(epoll, end);
    }
}

/// Rings have been granted: let the set that holds the end know, then let it take part.
#[cold]
pub fn adopt(end: &End) {
    if let Some(set) = set_of(end).and_then(set::get)
        && let Ok(mut inner) = set.inner.lock()
        && let Some(key) = inner.by_fd.get(&end.fd).copied()
    {
        take_over(&set, &mut inner, key, end);
    }
    end.local.adopted.store(1, Ordering::Release);
}

/// From now on the kernel's registration carries our tag.
fn take_over(set: &Set, inner: &mut Inner, key: u32, end: &End) {
    let Some(reg) = inner.regs.get_mut(&key) else {
        return;
    };
    if reg.ringed {
        return;
    }
    reg.ringed = true;
    reg.fresh = true;
    set.ringed.fetch_add(1, Ordering::Release);
    reg.kernel_events = 0;
    sync(set.epoll, key, reg, end);
    inner.heat(key);
}

/// What the kernel should look for on behalf of a registration.
fn wish_of(reg: &Reg, end: &End) -> u32 {
    if reg.spent {
        return EDGE;
    }
    let edge = reg.events & EDGE;
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
pub fn sync(epoll: c_int, key: u32, reg: &mut Reg, end: &End) {
    let wish = wish_of(reg, end);
    if wish == reg.kernel_events {
        return;
    }
    let event = epoll_event {
        events: wish,
        u64: set::tagged(key),
    };
    if kernel::epoll_ctl(epoll, libc::EPOLL_CTL_MOD, reg.fd, event).is_ok() {
        reg.kernel_events = wish;
    }
}
