//! What the kernel has of a registration, while the library decides what the program is told.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use crosslane_ctl::slab::Mode;
use crosslane_stream::End;
use crosslane_sys::kernel::SignalsHeld;
use crosslane_sys::{kernel, process};
use libc::epoll_event;

use super::reg::Reg;
use super::set::{self, Inner, Set};
use super::sharing;

pub const EDGE: u32 = libc::EPOLLET.cast_unsigned();
pub const IN: u32 = libc::EPOLLIN.cast_unsigned();
pub const OUT: u32 = libc::EPOLLOUT.cast_unsigned();
const RDHUP: u32 = libc::EPOLLRDHUP.cast_unsigned();
const PRI: u32 = libc::EPOLLPRI.cast_unsigned();
pub const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE.cast_unsigned();

/// What the kernel tells without being asked for it.
pub const UNASKED: i16 = libc::POLLERR | libc::POLLHUP;

/// The kernel gets a registration as the program made it. What is spent by EPOLLONESHOT is silent until the program's
/// next EPOLL_CTL_MOD, but the kernel tells errors and ends of whatever it is given, and so gets none. Returns whether it has
/// been given back.
pub fn give_back(set: &Set, inner: &mut Inner, key: u32) -> bool {
    let Some(reg) = inner.reg(key) else {
        return false;
    };
    let Some(number) = Number::of(reg) else {
        return false;
    };
    let Some(held) = sharing::may_change(set, reg) else {
        return false;
    };
    let event = epoll_event {
        events: reg.events & !EXCLUSIVE,
        u64: reg.data,
    };
    let operation = match reg.spent {
        true => libc::EPOLL_CTL_DEL,
        false => libc::EPOLL_CTL_MOD,
    };
    let is_given = kernel::epoll_ctl(set.fd(), operation, number.fd, event).is_ok();
    if is_given {
        reg.absent = reg.spent;
        set.ringed.fetch_sub(1, Ordering::Relaxed);
        (reg.ringed, reg.hot) = (false, false);
        inner.hot.retain(|hot| *hot != key);
    }
    drop(held);
    sharing::note(set, inner, key);
    is_given
}

/// The kernel forgets a registration that the program has deleted, and so do we. Returns whether it has been told.
pub fn take_away(set: &Set, inner: &mut Inner, key: u32) -> bool {
    let Some(reg) = inner.reg(key) else {
        return false;
    };
    let Some(number) = Number::of(reg) else {
        return false;
    };
    let Some(held) = sharing::may_change(set, reg) else {
        return false;
    };
    let nothing = epoll_event { events: 0, u64: 0 };
    let _ = kernel::epoll_ctl(set.fd(), libc::EPOLL_CTL_DEL, number.fd, nothing);
    drop(held);
    set.ringed.fetch_sub(1, Ordering::Relaxed);
    sharing::note_gone(set, inner, key);
    inner.remove(key);
    true
}

/// A descriptor by which the kernel finds a registration.
struct Number {
    fd: c_int,
    /// Lent for a moment, in which no handler may take it for its own.
    lent: Option<SignalsHeld>,
}

impl Number {
    /// Where the number is closed by which it was made, a copy of the connection has it for a moment, if it is free and no other
    /// thread could close it or give it to something else. None: nobody can change the registration.
    fn of(reg: &Reg) -> Option<Self> {
        let fd = reg.end.fd;
        if !reg.nameless {
            return Some(Self { fd, lent: None });
        }
        let is_named = End::known(fd).is_some_and(|end| reg.is_of(&end));
        if !is_named || !process::is_single_threaded() {
            return None;
        }
        let held = SignalsHeld::hold();
        let lent = Self {
            fd: kernel::duplicate_above(fd, reg.number).ok()?,
            lent: Some(held),
        };
        (lent.fd == reg.number).then_some(lent)
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        if self.lent.is_some() {
            kernel::close(self.fd);
        }
    }
}

/// What the kernel should look for on behalf of a registration.
pub fn wish_of(reg: &Reg) -> u32 {
    if reg.wanted() & !UNASKED == 0 {
        return EDGE;
    }
    let end = &reg.end;
    let wanted = u32::from(reg.wanted().cast_unsigned());
    if end.rx_mode() == Mode::Ring && end.tx_mode() == Mode::Ring {
        // Doorbells and ends are edges; what is ready by level is known from the rings.
        return IN | RDHUP | EDGE | wanted & PRI;
    }
    let wanted = wanted & (IN | RDHUP | OUT | PRI);
    let wanted = if end.tx_mode() == Mode::Ring {
        wanted & !OUT
    } else {
        wanted
    };
    let bells = if end.rx_mode() == Mode::Ring { IN } else { 0 };
    // What is ready by level is found by looking, before every sleep.
    wanted | bells | EDGE
}

/// Tell the kernel what to look for, if that has changed.
pub fn sync(set: &Set, key: u32, reg: &mut Reg) {
    let wish = wish_of(reg);
    if wish != reg.kernel_events && reg.ringed && tag(set, key, reg, wish) {
        (reg.kernel_events, reg.echoes) = (wish, true);
    }
}

/// Have the kernel look for `events` on behalf of a registration. Returns whether it does.
pub fn tag(set: &Set, key: u32, reg: &Reg, events: u32) -> bool {
    if reg.nameless {
        return false;
    }
    let Some(_held) = sharing::may_change(set, reg) else {
        return false;
    };
    let event = epoll_event {
        events,
        u64: set::tagged(key),
    };
    kernel::epoll_ctl(set.fd(), libc::EPOLL_CTL_MOD, reg.end.fd, event).is_ok()
}
