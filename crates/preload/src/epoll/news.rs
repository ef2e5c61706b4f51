//! What one registration has to tell the program.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use crosslane_ctl::slab::{Ending, Mode, end_flags};
use crosslane_stream::end::Blocked;
use crosslane_stream::{End, gone, lost, ready};
use crosslane_sys::kernel;

use super::reg::Reg;
use super::set::Inner;

/// What the kernel tells without being asked for it.
pub const BROKEN: u32 = (libc::EPOLLERR | libc::EPOLLHUP).cast_unsigned();

/// A record that is no data yet, which a look has to take before the caller may sleep.
pub fn waits_for_look(end: &End) -> bool {
    end.rx_mode() == Mode::Ring
        && end.has_record()
        && ready::at_once(end, libc::POLLIN) == 0
        && ready::look(end, libc::POLLIN, false) != 0
}

/// What to tell the program about a registration now.
#[inline]
pub fn news(reg: &mut Reg) -> u32 {
    if reg.is_silent() {
        return 0;
    }
    let wanted = reg.wanted();
    let is_open = reg.end.ending() == Ending::Open && !reg.end.has_flags(end_flags::SHUT_READ);
    if !reg.is_edge() && !on_tcp(&reg.end) && !reg.missed && is_open {
        if !ready::glance(&reg.end, wanted) {
            return 0;
        }
        let found = ready::at_once(&reg.end, wanted);
        if found != 0 {
            return u32::from(found.cast_unsigned());
        }
    }
    slow_news(reg, wanted)
}

/// Whether [`news`] may find something in the rings. Uses nothing up.
pub fn has_news(reg: &Reg) -> bool {
    let due = !reg.is_edge()
        || reg.fresh
        || is_to_begin_anew(reg)
        || reg.shutdowns != gone::shutdowns(&reg.end)
        || has_arrivals(reg);
    due && ready::look(&reg.end, reg.wanted(), false) & reg.wanted() != 0
}

/// After a lost window, once it is known what stood there, edges are due again: the program may have been
/// told of what it was refused then. Returns whether that is so, which uses it up.
pub fn begins_anew(reg: &mut Reg) -> bool {
    let is_due = is_to_begin_anew(reg);
    if is_due {
        reg.stage = lost::stage(&reg.end);
        (reg.fresh, reg.missed) = (true, true);
    }
    is_due
}

fn is_to_begin_anew(reg: &Reg) -> bool {
    reg.stage != lost::stage(&reg.end) && !lost::is_dry(&reg.end)
}

#[cold]
fn slow_news(reg: &mut Reg, wanted: i16) -> u32 {
    begins_anew(reg);
    let on_tcp = on_tcp(&reg.end);
    let ask_kernel = reg.missed || on_tcp;
    if !ask_kernel && !ready::glance(&reg.end, wanted) {
        return 0;
    }
    let is_woken = has_been_shut(reg) || reg.missed && may_be_edge(reg);
    let due = !reg.is_edge() || reg.fresh || is_woken || has_arrivals(reg);
    reg.seen_refusals = reg.end.refusals();
    let due_for_room = may_have_room(reg);
    let was_missed = reg.missed && !reg.echoes;
    if !due && !due_for_room && !reg.missed {
        return 0;
    }
    (reg.missed, reg.echoes) = (false, false);
    // What comes after this is new, though the look may find it.
    reg.seen_tcp = (reg.is_edge() && on_tcp).then(|| ready::seen_by_tcp(&reg.end));
    let mut found = ready::look(&reg.end, wanted, ask_kernel);
    if reg.is_edge() && !on_tcp && self::on_tcp(&reg.end) {
        // The look has brought it there.
        reg.seen_tcp = Some(ready::seen_by_tcp(&reg.end));
        found |= ready::look(&reg.end, wanted, true);
    }
    let found = u32::from(found.cast_unsigned());
    if found == 0 {
        reg.fresh = reg.fresh && reg.is_edge();
    }
    // A doorbell for arrivals that have been reported already is no edge; an end is one, and so is whatever the
    // kernel sees behind it.
    let ended = known_ending(&reg.end) as u32 > reg.reported_ending
        || found & BROKEN & !reg.reported_broken != 0
        || found & BROKEN != 0 && was_missed;
    let has_room = due_for_room && found & libc::EPOLLOUT.cast_unsigned() != 0;
    let has_come = || found & libc::EPOLLIN.cast_unsigned() != 0 && has_arrivals(reg);
    if due || has_room || ended || has_come() {
        found
    } else {
        0
    }
}

/// Whether a direction has been shut down since this was asked last.
fn has_been_shut(reg: &mut Reg) -> bool {
    let shutdowns = gone::shutdowns(&reg.end);
    core::mem::replace(&mut reg.shutdowns, shutdowns) != shutdowns
}

fn on_tcp(end: &End) -> bool {
    end.rx_mode() != Mode::Ring || end.tx_mode() != Mode::Ring
}

/// Whether what the kernel has seen may be an edge of a direction on TCP, where only the kernel
/// knows, and not its answer to a new wish of ours.
fn may_be_edge(reg: &Reg) -> bool {
    let reads = reg.wanted() & (libc::POLLIN | libc::POLLRDHUP | libc::POLLPRI) != 0;
    let on_tcp = reg.end.rx_mode() != Mode::Ring || ready::goes_on_by_tcp(&reg.end);
    let reads_tcp = reads && on_tcp;
    if reg.echoes {
        // The end behind a ring is found by looking.
        let seen = on_tcp.then(|| ready::seen_by_tcp(&reg.end));
        return seen.is_some_and(|seen| {
            let arrived = reads && seen.arrived > reg.reported_tcp.arrived;
            arrived || seen.ends & !reg.reported_tcp.ends != 0
        });
    }
    let writes = reg.wanted() & libc::POLLOUT != 0;
    reads_tcp || writes && reg.end.tx_mode() != Mode::Ring
}

/// Whether records have arrived since the last report of an edge-triggered registration. Also in a lane
/// that is entered once the program has read what is on TCP.
fn has_arrivals(reg: &Reg) -> bool {
    let (end, since) = (&reg.end, reg.reported_line);
    // What has been read already is an edge where there is always something to be read.
    let came = || end.has_flags(end_flags::SHUT_READ) && ready::arrived_up_to(end, 0) > since;
    reg.wanted() & libc::POLLIN != 0 && (ready::has_arrived_since(end, since) || came())
}

/// Whether there may be the room that a send has not found, for an edge. On TCP only the kernel knows.
fn may_have_room(reg: &Reg) -> bool {
    let end = &reg.end;
    if !reg.is_edge() || reg.wanted() & libc::POLLOUT == 0 || !reg.lacks_room() {
        return false;
    }
    // Little room is none to who has missed some.
    end.note_refusal();
    end.tx_mode() != Mode::Ring || ready::glance(end, libc::POLLOUT)
}

/// Whether the program has been told of all that an edge-triggered registration is about, which is to pass from
/// the kernel's care to ours: yes, if the kernel has nothing left to tell in the whole set. Edges are due then for
/// what comes from now on.
pub fn is_told(epoll: c_int, reg: &mut Reg) -> bool {
    let end = &reg.end;
    let seen = ready::seen_by_tcp(end);
    (reg.refusals, reg.seen_refusals) = (end.refusals(), end.refusals());
    let wants_room = reg.wanted() & libc::POLLOUT != 0;
    if wants_room && kernel::poll_now(end.fd, libc::POLLOUT) & libc::POLLOUT == 0 {
        end.note_blocked();
    }
    // Last: what comes after a look at it is new.
    reg.reported_tcp = seen;
    seen.ends == 0 && kernel::poll_now(epoll, libc::POLLIN) == 0
}

/// What the kernel tells by a registration whose number is closed, and whose connection has been dissolved under another: it
/// is of a plain socket by now.
#[cold]
pub fn left_over(reg: &mut Reg, told: u32) -> Option<(u32, u64)> {
    let is_left = reg.nameless && reg.ringed && !reg.is_live() && !reg.is_silent();
    // Which has room, of which the kernel has not been asked to tell.
    let room = match told & libc::EPOLLHUP.cast_unsigned() {
        0 => 0,
        _ => libc::EPOLLOUT.cast_unsigned(),
    };
    let events = (told | room) & (reg.events | BROKEN);
    let is_told = is_left && events != 0;
    reg.spent |= is_told && reg.events & libc::EPOLLONESHOT.cast_unsigned() != 0;
    is_told.then_some((events, reg.data))
}

/// Which end of the stream has come. The peer's behind an own one is an edge once more, and looks like that until it has
/// come.
fn known_ending(end: &End) -> Ending {
    match (end.has_flags(end_flags::SHUT_READ), end.ending()) {
        (true, Ending::Open | Ending::Eof) if !ready::has_ended(end) => Ending::Open,
        (true, Ending::Open) => Ending::Eof,
        (_, ending) => ending,
    }
}

/// Remember that the program has been told.
#[inline]
pub fn reported(reg: &mut Reg, events: u32) {
    reg.fresh = false;
    reg.quiet_waits = 0;
    reg.reported_broken |= events & BROKEN;
    if events & !libc::EPOLLOUT.cast_unsigned() != 0 {
        reg.reported_ending = known_ending(&reg.end) as u32;
    }
    // Records that arrive after the look are read with those before, or reported next.
    if reg.is_edge() && events & libc::EPOLLIN.cast_unsigned() != 0 {
        reg.reported_line = ready::arrived_up_to(&reg.end, reg.reported_line);
    }
    if let Some(seen) = reg.seen_tcp.take() {
        reg.reported_tcp = seen;
    }
    if events & libc::EPOLLOUT.cast_unsigned() != 0 {
        let blocked = &reg.end.local.blocked;
        blocked.store(Blocked::No as u32, Ordering::Relaxed);
        reg.refusals = reg.seen_refusals;
    }
    if reg.events & libc::EPOLLONESHOT.cast_unsigned() != 0 {
        reg.spent = true;
    }
}

/// In a set that others use, too, the key may be another process's.
#[cold]
pub fn note_all(inner: &mut Inner) {
    for key in inner.keys() {
        note_in(inner, key);
    }
}

/// The kernel has seen something on a connection with rings: the next scan asks it what.
#[inline]
pub fn note_in(inner: &mut Inner, key: u32) {
    let Some(reg) = inner.reg(key).filter(|reg| reg.is_live() && reg.ringed) else {
        return;
    };
    reg.missed = true;
    ready::note_bell(&reg.end);
    if !reg.deleted && !ready::glance(&reg.end, libc::POLLIN) {
        ready::take_bells(&reg.end);
    }
    inner.heat(key);
}
