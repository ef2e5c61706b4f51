//! epoll_ctl, and the passage of registrations from the kernel's care to ours.

use core::ffi::c_int;
use core::sync::atomic::{Ordering, fence};

use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndPhase, end_flags};
use crosslane_stream::end::Blocked;
use crosslane_stream::young::grow_all;
use crosslane_stream::{End, close as closing, ready, rest, room, stay, switch, watcher};
use crosslane_sys::{Errno, kernel, real};
use libc::epoll_event;

use super::asleep::has_sleepers;
use super::common::Common;
use super::kernels::{EDGE, EXCLUSIVE, IN, OUT, UNASKED, give_back, sync, tag, take_away, wish_of};
use super::news::is_told;
use super::reg::Reg;
use super::set::{self, Inner, Set};
use super::{beacon, early, shared, sharing, young};
use crate::{c, progress};

pub const ONCE: u32 = libc::EPOLLONESHOT.cast_unsigned();

/// What may be asked for with EPOLLEXCLUSIVE.
const WITH_EXCLUSIVE: u32 =
    IN | OUT | EDGE | EXCLUSIVE | (libc::EPOLLERR | libc::EPOLLHUP | libc::EPOLLWAKEUP) as u32;

/// The key of no registration: what the kernel tells by it concerns nobody.
pub const NO_KEY: u32 = u32::MAX;

/// How long the connections of a set that is nested are waited for to be back on TCP.
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
    let has_wish = operation != libc::EPOLL_CTL_DEL && c::may_be(event, 1);
    // SAFETY: the program's promise; of EPOLL_CTL_DEL the kernel looks at none.
    let wish = has_wish.then(|| unsafe { *event });
    let set = set::known(epoll);
    if let Some(set) = set {
        set.use_here();
    }
    if let Some(result) = young::control(set, (epoll, operation, fd), wish, kernel) {
        return result;
    }
    let Some(end) = End::of(fd) else {
        if operation == libc::EPOLL_CTL_ADD {
            leave_nested(fd);
        }
        let odd = early::control_odd(epoll, operation, fd, wish);
        let result = odd.unwrap_or_else(kernel);
        if result == 0 {
            early::note(epoll, operation, fd, wish);
        }
        return result;
    };
    if let Some(set) = set.filter(|set| set.sharing.is_settled()) {
        return shared::control(set, (operation, wish), &end, kernel);
    }
    let result = match (operation, wish) {
        (libc::EPOLL_CTL_ADD, Some(wish)) => add(epoll, &end, wish, kernel),
        (libc::EPOLL_CTL_MOD, Some(wish)) => modify(epoll, &end, wish, kernel),
        (libc::EPOLL_CTL_DEL, _) => delete(epoll, &end, kernel),
        _ => kernel(),
    };
    if let Some(set) = set.filter(|set| result == 0 && set.sharing.is_due()) {
        shared::repeat(set, (operation, wish), &end);
    }
    result
}

/// A set that is watched by another set must show its readiness in the kernel.
pub fn leave_nested(fd: c_int) {
    let Some(set) = set::known(fd) else { return };
    grow_all();
    set.use_here();
    set.is_nested.store(true, Ordering::Relaxed);
    let Ok(mut inner) = set.inner.lock() else {
        return;
    };
    delete_in_kernel(set, &mut inner);
    // Of what is the kernel's for good it tells already.
    let is_to_go = |reg: &&Reg| {
        let end = &reg.end;
        let is_plain = !reg.ringed && end.is_pinned() && end.phase() != EndPhase::Granted;
        reg.is_live() && !is_plain
    };
    let ends: Vec<End> = inner.all().filter(is_to_go).map(|reg| reg.end).collect();
    drop(inner);
    for end in ends {
        if !goes_to_tcp(&end) {
            show_what_stays(set, &end);
        }
    }
    if let Ok(mut inner) = set.inner.lock() {
        beacon::look(set, &mut inner);
    }
}

/// Leave a connection to the kernel, which is to show what is ready. Returns whether that has happened.
fn goes_to_tcp(end: &End) -> bool {
    // Whoever has not answered a first freeze is not waited for again.
    if !end.is_pinned() && !closing::make_plain(end, Reason::EpollUse, PATIENCE) {
        // Nobody reads it past the library, so what stands in the ring may be read there.
        rest::unfreeze(end);
    }
    progress::hand_back_now(end)
}

/// Have a polled set show no more and no less of a connection that cannot go back to TCP: nothing by what is spent, and
/// once more that it is broken, of which the kernel has told by an edge, which may have been taken.
fn show_what_stays(set: &Set, end: &End) {
    let Ok(mut inner) = set.inner.lock() else {
        return;
    };
    let keys = inner.keys_of(end);
    let keys: Vec<u32> = keys
        .filter(|key| inner.reg(*key).is_some_and(|reg| reg.ringed))
        .collect();
    // Mostly there are none, and nothing has to be asked.
    let is_broken = !keys.is_empty() && kernel::poll_now(end.fd(), 0) & UNASKED != 0;
    for key in keys {
        let Some(reg) = inner.reg(key) else {
            continue;
        };
        if reg.spent {
            give_back(set, &mut inner, key);
        } else if is_broken && !reg.is_edge() && !reg.is_silent() {
            tag(set, key, reg, wish_of(reg));
        }
    }
}

fn add(epoll: c_int, end: &End, wish: epoll_event, kernel: impl Fn() -> c_int) -> c_int {
    let is_shared = wish.events & EXCLUSIVE != 0;
    if is_shared && wish.events & !WITH_EXCLUSIVE != 0 {
        // Which refuses it.
        return kernel();
    }
    if let Some(result) = revive(epoll, end, wish) {
        return result;
    }
    let is_nested = |set: &Set| set.is_nested.load(Ordering::Relaxed);
    if set::known(epoll).is_some_and(is_nested) {
        // On its way to TCP what is to be read shows nowhere, and who sleeps in the set would be told of the rest alone.
        goes_to_tcp(end);
    }
    // With EPOLLEXCLUSIVE the kernel may wake fewer sleepers than without, and would let us change
    // nothing later; so it is not told.
    let plain = epoll_event {
        events: wish.events & !EXCLUSIVE,
        ..wish
    };
    let is_ours = end.phase() == EndPhase::Granted && set::is_known(epoll);
    let result = if is_ours {
        // The kernel must not tell of it, too, before `record` takes it over: it knows nothing of rings.
        add_as(epoll, end, EDGE, set::tagged(NO_KEY))
    } else if is_shared {
        add_as(epoll, end, plain.events, plain.u64)
    } else {
        kernel()
    };
    if result != 0 {
        return result;
    }
    let Some(set) = set::get_or_make(epoll) else {
        return result;
    };
    let Ok(mut inner) = set.inner.lock() else {
        return result;
    };
    let key = record(set, &mut inner, end, (wish.events, wish.u64));
    if is_ours && inner.reg(key).is_some_and(|reg| !reg.ringed) {
        // Another thread has had it leave its rings meanwhile.
        let _ = kernel::epoll_ctl(epoll, libc::EPOLL_CTL_MOD, end.fd, plain);
    }
    drop(inner);
    if is_nested(set) {
        leave_nested(epoll);
    }
    result
}

/// Keep a registration that the kernel has made, and take it over if its connection has rings. Returns its key.
pub fn record(set: &Set, inner: &mut Inner, end: &End, wish: (u32, u64)) -> u32 {
    let key = keep(set, inner, end, wish);
    sharing::note(set, inner, key);
    // Whoever grants rings looks for sets after that.
    fence(Ordering::SeqCst);
    if end.phase() == EndPhase::Granted {
        take_over(set, inner, key, false);
        wake_for_news(set, inner, key);
    }
    key
}

/// Keep a registration that the kernel has. Returns its key.
pub fn keep(set: &Set, inner: &mut Inner, end: &End, (events, data): (u32, u64)) -> u32 {
    let local = end.local;
    let mut reg = Reg::new(end, events, data);
    reg.count();
    let key = inner.add(reg);
    // It may be the first here, of what a relative has registered.
    set.note_used();
    if local.registrations.load(Ordering::Relaxed) > 1 {
        local.plural.store(1, Ordering::Relaxed);
    }
    let place = set.fd().cast_unsigned() + 1;
    local.epoll_set.store(place, Ordering::Relaxed);
    local.epoll_key.store(key, Ordering::Relaxed);
    key
}

fn add_as(epoll: c_int, end: &End, events: u32, data: u64) -> c_int {
    let event = epoll_event { events, u64: data };
    match kernel::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, end.fd, event) {
        Ok(()) => 0,
        Err(errno) => c::fail(errno),
    }
}

/// An addition of what the kernel still has: only our record changes. `None` when the kernel must
/// be asked.
fn revive(epoll: c_int, end: &End, wish: epoll_event) -> Option<c_int> {
    let set = set::get(epoll)?;
    let mut inner = set.inner.lock().ok()?;
    let (key, reg) = inner.find(end)?;
    if !reg.deleted {
        return Some(c::fail(Errno(libc::EEXIST)));
    }
    reg.renew(wish.events, wish.u64);
    reg.count();
    renewed(set, &mut inner, key);
    Some(0)
}

fn modify(epoll: c_int, end: &End, wish: epoll_event, kernel: impl Fn() -> c_int) -> c_int {
    let Some(set) = set::get(epoll) else {
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
    if (wish.events | reg.events) & EXCLUSIVE != 0 {
        return c::fail(Errno::INVAL);
    }
    if !reg.ringed {
        let has_rings = end.phase() == EndPhase::Granted;
        let is_used = end.local.adopted.load(Ordering::Relaxed) != 0;
        let takes_over = has_rings && (is_used || !end.is_pinned() && wish.events & ONCE != 0);
        let result = match (reg.absent, takes_over) {
            (true, true) => add_as(epoll, end, EDGE, set::tagged(NO_KEY)),
            (true, false) => add_as(epoll, end, wish.events, wish.u64),
            (false, true) => 0,
            (false, false) => kernel(),
        };
        if result == 0 {
            reg.absent = false;
            reg.renew(wish.events, wish.u64);
            sharing::note(set, &mut inner, key);
            if takes_over {
                take_over(set, &mut inner, key, false);
                tell_sleepers(set, &mut inner, key);
            }
        }
        return result;
    }
    reg.renew(wish.events, wish.u64);
    renewed(set, &mut inner, key);
    0
}

/// The program has another wish for a connection with rings.
fn renewed(set: &Set, inner: &mut Inner, key: u32) {
    sharing::note(set, inner, key);
    inner.heat(key);
    tell_sleepers(set, inner, key);
}

/// A send has found no room: the set that holds the end must look for some, although it may not
/// have looked at the end for long.
#[cold]
pub fn want_room(end: &End) {
    let noted = Blocked::Noted as u32;
    end.local.blocked.store(noted, Ordering::Relaxed);
    for_each(end, |set, inner, key| {
        let wants = |reg: &mut Reg| reg.ringed && reg.wanted() & libc::POLLOUT != 0;
        if inner.reg(key).is_some_and(wants) {
            inner.heat(key);
            tell_sleepers(set, inner, key);
        }
    });
}

/// The program has shut down a direction, for which the kernel wakes everybody.
#[cold]
pub fn note_shutdown(end: &End) {
    renew_edges(end, |_| true);
}

/// The program has set SO_RCVLOWAT, for which the kernel wakes who waits for what is there to be read.
#[cold]
pub fn note_low_water(end: &End) {
    renew_edges(end, |reg| {
        reg.wanted() & libc::POLLIN != 0 && ready::look(&reg.end, libc::POLLIN, false) != 0
    });
}

/// Edges are due anew for what is ready.
fn renew_edges(end: &End, is_due: impl Fn(&Reg) -> bool) {
    for_each(end, |set, inner, key| {
        if let Some(reg) = inner.reg(key).filter(|reg| reg.ringed && is_due(reg)) {
            reg.fresh = true;
            inner.heat(key);
            tell_sleepers(set, inner, key);
        }
    });
}

/// Do something to every registration of a connection.
fn for_each(end: &End, mut act: impl FnMut(&'static Set, &mut Inner, u32)) {
    for set in set::sets_of(end) {
        let Ok(mut inner) = set.inner.lock() else {
            continue;
        };
        for key in inner.keys_of(end) {
            act(set, &mut inner, key);
        }
    }
}

/// Threads that sleep on the set must learn of a new wish: the kernel is told now, the rings are
/// armed, and if there is news already, one sleeper is woken.
pub fn tell_sleepers(set: &Set, inner: &mut Inner, key: u32) {
    if has_sleepers(set) {
        wake_for_news(set, inner, key);
    } else if let Some(reg) = inner.reg(key)
        && reg.kernel_events & IN == 0
        && !set.is_parents()
    {
        // A set that always finds news elsewhere never sleeps, before which all others are told to the kernel.
        sync(set, key, reg);
    }
}

fn wake_for_news(set: &Set, inner: &mut Inner, key: u32) {
    let Some(reg) = inner.reg(key) else { return };
    let (end, wanted) = (reg.end, reg.wanted());
    sync(set, key, reg);
    // Of an error or an end a new wish is told whatever it is, also of one that the kernel has told while it was spent.
    let due = if reg.fresh { wanted | UNASKED } else { wanted };
    let is_missed = reg.missed;
    // What stands in a frozen ring is found by a look only.
    let is_ready =
        |end| ready::glance(end, wanted) || ready::look(end, wanted, is_missed) & due != 0;
    // Who waits for room looks again from time to time, as no doorbell may come for it.
    let lacks_limit = |reg: &Reg| !reg.timed && ready::waits_for_room(&end, reg.awaited());
    if !ready::arm(&end, wanted) || lacks_limit(reg) || is_ready(&end) {
        wake_one(set, key, reg);
    }
}

/// What the kernel has told this thread of a connection is for others to look at, too, if any sleep.
pub fn pass_on(set: &Set, inner: &mut Inner, key: u32) {
    if has_sleepers(set)
        && let Some(reg) = inner.reg(key).filter(|reg| reg.ringed)
    {
        wake_one(set, key, reg);
    }
}

/// Wake one of those who sleep on the set, to look at a registration: a socket can nearly always be written to.
fn wake_one(set: &Set, key: u32, reg: &mut Reg) {
    let events = OUT | IN | EDGE;
    if tag(set, key, reg, events) {
        reg.kernel_events = events;
    }
}

fn delete(epoll: c_int, end: &End, kernel: impl Fn() -> c_int) -> c_int {
    let Some(set) = set::get(epoll) else {
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
        reg.uncount();
        sharing::note(set, &mut inner, key);
        inner.heat(key);
        return 0;
    }
    let result = match reg.absent {
        true => 0,
        false => kernel(),
    };
    if result == 0 {
        reg.uncount();
        sharing::note_gone(set, &mut inner, key);
        inner.remove(key);
    }
    result
}

/// Let the kernel know what the program has deleted, for those who ask the kernel alone.
fn delete_in_kernel(set: &Set, inner: &mut Inner) {
    for key in inner.deleted() {
        let _ = take_away(set, inner, key);
    }
}

/// A descriptor has come from elsewhere: it may be another name of a set of this process.
pub fn received(fd: c_int) {
    let Ok(probe) = kernel::event_descriptor() else {
        return;
    };
    let nothing = epoll_event { events: 0, u64: 0 };
    let is_done = |set, operation| kernel::epoll_ctl(set, operation, probe, nothing).is_ok();
    if is_done(fd, libc::EPOLL_CTL_ADD) {
        let has_probe = |set: &c_int| *set != fd && is_done(*set, libc::EPOLL_CTL_DEL);
        match set::sets().into_iter().find(has_probe) {
            Some(set) => super::copied(set, fd),
            None => {
                super::created(fd);
                // Its other processes are to find in the kernel what is put there.
                if let Some(set) = set::known(fd) {
                    set.is_nested.store(true, Ordering::Relaxed);
                    sharing::share_with_all(set);
                }
            }
        }
    }
    kernel::close(probe);
}

/// The descriptor is being closed. With its last name the kernel forgets all registrations of a
/// connection; while another name exists the kernel keeps them, and so do the records.
pub fn forget(end: &End) {
    let is_last = end.local.names() <= 1;
    for_each(end, |set, inner, key| {
        let Some(reg) = inner.reg(key) else { return };
        let is_to_go = reg.deleted && !reg.nameless && !set.is_parents();
        if !is_last {
            if reg.end.fd != end.fd {
                return;
            }
            if !is_to_go {
                reg.nameless = true;
                reg.end = other_name(end);
                return;
            }
        }
        let stays_open = || !is_last || end.has_flags(end_flags::FORKED) || stay::is_asleep(end);
        if is_to_go
            && stays_open()
            && let Some(_held) = sharing::may_delete(set, reg)
        {
            // The kernel still has what the program has deleted, as long as anybody has the socket.
            let nothing = epoll_event { events: 0, u64: 0 };
            let _ = kernel::epoll_ctl(set.fd(), libc::EPOLL_CTL_DEL, end.fd, nothing);
            sharing::note_gone(set, inner, key);
        } else if set.sharing.common().is_some() && !stays_open() {
            sharing::note_gone(set, inner, key);
        }
        if let Some(mut reg) = inner.remove(key) {
            reg.uncount();
            if reg.ringed {
                set.ringed.fetch_sub(1, Ordering::Relaxed);
            }
        }
    });
}

/// A descriptor names the connection anew. Registrations that were made by this number can be changed again.
pub fn named(end: &End) {
    if end.local.registrations.load(Ordering::Relaxed) == 0 {
        return;
    }
    for_each(end, |_, inner, key| {
        let is_so_made = |reg: &&mut Reg| reg.nameless && reg.number == end.fd;
        if let Some(reg) = inner.reg(key).filter(is_so_made) {
            (reg.nameless, reg.end) = (false, *end);
        }
    });
}

/// The same end by another of its names.
fn other_name(end: &End) -> End {
    let is_other = |other: &End| other.index == end.index && other.fd != end.fd;
    end.process().ends().find(is_other).unwrap_or(*end)
}

/// Rings have been granted: let the sets that hold the end know, then let it take part. Whether the
/// kernel has told already what is to be told by EPOLLONESHOT, nobody can know; so the end waits until the
/// program renews such a registration. And one by a number that is closed can hardly be changed: the kernel would show
/// doorbells by it.
#[cold]
pub fn adopt(end: &End) {
    watcher::on_loss(beacon::wake);
    room::on_room(beacon::tell_room);
    let (mut waits, mut is_shared) = (false, false);
    fence(Ordering::SeqCst);
    for_each(end, |set, inner, key| {
        let Some(reg) = inner.reg(key) else { return };
        if reg.ringed {
            // It has stayed as it was; these may be other lanes than those that it knows, which another process has left.
            if reg.reported_line > ready::arrived_up_to(end, 0) {
                reg.reported_line = 0;
            }
        } else if set.sharing.common().is_some_and(Common::is_shared) {
            // Threads of this process may be asleep in it still, and know nothing of that.
            is_shared = true;
            return;
        } else if reg.nameless || reg.events & ONCE != 0 {
            waits = true;
            return;
        } else {
            let is_told = reg.is_edge() && is_told(set.fd(), reg);
            take_over(set, inner, key, is_told);
        }
        // Who fell asleep before could not ask to be rung.
        tell_sleepers(set, inner, key);
    });
    if is_shared {
        switch::pin(end, Reason::EpollShared);
    }
    if !waits {
        end.local.adopted.store(1, Ordering::Release);
    }
}

/// From now on the kernel's registration carries our tag. `is_told` says that no edge is due for what is ready
/// already.
pub fn take_over(set: &Set, inner: &mut Inner, key: u32, is_told: bool) {
    let Some(reg) = inner.reg(key) else { return };
    if reg.ringed || !sharing::may_take_over(set) {
        return;
    }
    (reg.ringed, reg.fresh, reg.kernel_events) = (true, !is_told, 0);
    reg.is_taken = true;
    // These may be other lanes than before.
    reg.reported_line = 0;
    set.ringed.fetch_add(1, Ordering::SeqCst);
    sharing::note(set, inner, key);
    if let Some(reg) = inner.reg(key) {
        sync(set, key, reg);
    }
    inner.heat(key);
}

/// The end has no rings any more: the kernel gets its registrations as the program made them.
#[cold]
pub fn hand_back(end: &End) {
    end.local.adopted.store(0, Ordering::Release);
    for_each(end, |set, inner, key| {
        if set.sharing.common().is_some_and(Common::is_shared) {
            return shared::hand_back(set, inner, key);
        }
        let Some(reg) = inner.reg(key).filter(|reg| reg.ringed) else {
            return;
        };
        // One whose number is closed would keep an end that rests off its rings.
        let is_nested = set.is_nested.load(Ordering::Relaxed);
        let may_go = is_nested || !reg.nameless || !end.has_flags(end_flags::RESTING);
        let is_gone = match (set.is_parents(), reg.deleted) {
            (true, _) => false,
            (false, true) => take_away(set, inner, key),
            (false, false) => may_go && give_back(set, inner, key),
        };
        if !is_gone && let Some(reg) = inner.reg(key) {
            // What nobody can change stays with us, and what is a parent's stays as it is. Later lanes begin anew.
            reg.reported_line = 0;
        }
    });
}
