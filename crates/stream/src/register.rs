//! From a fresh TCP connection to granted rings.
//!
//! Upgrade is lazy: a connection must have moved something in a few calls, so that short ones cost nothing
//! but a table entry.

use core::sync::atomic::{Ordering, fence};
use std::os::fd::RawFd;

use crosslane_ctl::counter::Counter;
use crosslane_ctl::lane::Geometry;
use crosslane_ctl::message::Grant;
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndPhase, Mode, SLAB_ENTRIES, end_flags};
use crosslane_ring::WindowLane;
use crosslane_sys::{cancel, kernel};
use crosslane_window::arena::Arena;

use crate::end::End;
use crate::family::Family;
use crate::process::{self, Process};
use crate::young::Young;
use crate::{
    bell, config, control, due, ending, ledger, lost, posted, raw, rest, shown, spare, standard,
    stay, strict, switch, watcher,
};

mod entry;

use entry::reset_directions;

pub(crate) use entry::reset;

/// A registered end looks at the control socket in each of its first calls, and later in every
/// sixteenth.
const EAGER_LOOKS: u32 = 64;
const CALLS_PER_LOOK: u32 = 16;

/// Know the two ends of a socket pair. While one process has both, they stay with the kernel: they wake
/// the program's own loop then, often from a signal handler, where a lock must not be waited for.
pub fn track_pair(fds: [RawFd; 2]) {
    let [Some(a), Some(b)] = fds.map(|fd| track(fd, Family::Unix, false, None)) else {
        return;
    };
    a.local.twin.store(b.token() + 1, Ordering::Relaxed);
    b.local.twin.store(a.token() + 1, Ordering::Relaxed);
}

/// Whether this process has the other end of the same socket pair.
fn has_twin(end: &End) -> bool {
    let twin = end.local.twin.load(Ordering::Relaxed);
    twin != 0 && find(end.process(), twin - 1).is_some()
}

/// Know `fd`, a connection that has just been opened (`passive`: accepted).
pub fn track(fd: RawFd, family: Family, passive: bool, port: Option<u16>) -> Option<End> {
    if config::get().disabled {
        return None;
    }
    let process = started().inspect_err(|reason| strict::fell_back(fd, *reason));
    let process = process.ok()?;
    forget(fd);
    let end = make(process, fd, family, passive)?;
    let eager = &config::get().eager_ports;
    if port.is_some_and(|port| eager.iter().any(|range| range.contains(&port))) {
        end.add_flags(end_flags::EAGER);
    }
    process.count(Counter::Connections, 1);
    ledger::open(&end);
    settle_in(&end);
    Some(end)
}

/// An end of nothing yet, that nobody finds.
fn make(process: &'static Process, fd: RawFd, family: Family, passive: bool) -> Option<End> {
    let Some(index) = process.allocate() else {
        process.count_reason(Reason::TableFull);
        strict::fell_back(fd, Reason::TableFull);
        return None;
    };
    reset(process, index, fd, passive);
    let end = End::at(process, index, fd);
    if family == Family::Unix {
        end.add_flags(end_flags::UNIX);
    }
    Some(end)
}

/// The end is its descriptor's from now on.
fn settle_in(end: &End) {
    end.set_phase(EndPhase::Plain);
    end.process().name(end.fd, Some(end.index));
    standard::keep_on_tcp(end);
    raw::keep_on_tcp(end);
}

/// A young connection becomes an end.
pub(crate) fn grow(
    process: &'static Process,
    fd: RawFd,
    family: Family,
    young: &Young,
) -> Option<End> {
    let past = young.past();
    let end = make(process, fd, family, past.is_passive)?;
    end.entry.id.calls.store(past.calls, Ordering::Relaxed);
    end.local.heard.store(past.heard, Ordering::Relaxed);
    let (tx, rx) = (&end.entry.tx, &end.entry.rx);
    for (total, bytes) in [
        (&tx.tcp_bytes, past.sent),
        (&tx.tcp_data, past.sent),
        (&rx.tcp_bytes, past.received),
        (&rx.tcp_data, past.received),
    ] {
        total.store(bytes, Ordering::Relaxed);
    }
    ledger::open(&end);
    // Whoever finds the end finds it in its sets.
    young.hand_on(&end);
    settle_in(&end);
    Some(end)
}

/// Have the end registered at its next call, however few there were.
pub fn hasten(end: &End) {
    end.add_flags(end_flags::EAGER);
}

/// The tables, and the process known to the monitor.
pub(crate) fn started() -> Result<&'static Process, Reason> {
    match process::get() {
        Some(process) => Ok(process),
        None => cancel::never(|| process::start().inspect(|process| control::introduce(process))),
    }
}

/// `fd` names something else now, whatever it named before: it was closed behind our back. Nothing of the old
/// connection's end is done to it.
pub fn forget(fd: RawFd) {
    let Some(process) = process::get() else {
        return;
    };
    if let Some(index) = process.name(fd, None) {
        crate::close::drop_name(&End::at(process, index, CLOSING));
    }
}

/// Take the next step towards rings. Called on the program's own calls while there are none.
#[cold]
pub fn progress(end: &End) {
    lost::look(end);
    rest::look(end);
    match end.phase() {
        EndPhase::Plain => progress_plain(end, false),
        EndPhase::Registered => {
            let calls = end.entry.id.calls.fetch_add(1, Ordering::Relaxed);
            if calls < EAGER_LOOKS || calls.is_multiple_of(CALLS_PER_LOOK) {
                control::poll(end.process());
            }
        }
        EndPhase::Granted | EndPhase::Free => {}
    }
}

/// As [`progress`], in a call that sends.
#[cold]
pub fn progress_to_send(end: &End) {
    match end.phase() {
        EndPhase::Plain if due::goes_on(end) => progress_plain(end, true),
        _ => progress(end),
    }
}

fn progress_plain(end: &End, goes_on: bool) {
    if end.is_pinned() {
        return;
    }
    ledger::name(end);
    let calls = end.entry.id.calls.fetch_add(1, Ordering::Relaxed) + 1;
    if !due::is_due(end, calls, goes_on) {
        return;
    }
    if end.family() == Family::Tcp && !kernel::has_peer(end.fd) {
        // Still connecting: the monitor would find nobody, for good.
        return;
    }
    end.entry.id.calls.store(0, Ordering::Relaxed);
    if has_twin(end) {
        end.set_reason(Reason::OwnPair);
        return;
    }
    if end.process().is_shared(end.index) {
        // Only this process would have rings.
        end.set_reason(Reason::Shared);
        return;
    }
    if let Err(reason) = cancel::never(|| control::register(end)) {
        switch::pin(end, reason);
    }
}

/// False if the end was in another phase.
pub(crate) fn change_phase(end: &End, from: EndPhase, to: EndPhase) -> bool {
    let phase = &end.entry.id.phase;
    phase
        .compare_exchange(from as u32, to as u32, Ordering::SeqCst, Ordering::SeqCst)
        .is_ok()
}

/// The monitor is about to be asked for the other end; the caller is the only one who talks to it. Who closes the
/// connection from here on waits for the answer, and for the caller first: its socket and its entry are what is asked about.
/// False if another thread has had it registered, or closes it.
pub(crate) fn begin(end: &End) -> bool {
    if end.phase() != EndPhase::Plain {
        return false;
    }
    end.entry.id.cookie.store(0, Ordering::Relaxed);
    if !change_phase(end, EndPhase::Plain, EndPhase::Registered) {
        return false;
    }
    end.process().habit().note_lasting();
    // Who closes takes the name away first.
    fence(Ordering::SeqCst);
    let is_named = stay::has_name(end);
    match is_named {
        true => ending::look_whether_read_out(end),
        false => unregister(end),
    }
    is_named
}

/// The monitor has been asked.
pub(crate) fn registered(end: &End) {
    end.add_flags(end_flags::KNOWN);
    if !end.is_pinned() {
        end.set_reason(Reason::NoPeer);
    }
}

/// The monitor has ended before it found the other end, so the next one is asked, after as many
/// calls as a new connection is given.
pub(crate) fn abandoned(process: &'static Process, token: u64, reason: Reason) {
    if let Some(end) = find(process, token)
        && change_phase(&end, EndPhase::Registered, EndPhase::Plain)
    {
        end.entry.id.calls.store(0, Ordering::Relaxed);
        end.set_reason(reason);
        // That it is gone is no failure yet: the next one may be there in a second.
        if reason != Reason::NoMonitor {
            strict::fell_back(end.fd, reason);
        }
    }
}

/// The end's socket has a new owner, who registers it in his turn, or the monitor has not been asked.
pub(crate) fn unregister(end: &End) {
    change_phase(end, EndPhase::Registered, EndPhase::Plain);
}

/// Say which lanes between hosts the end is about to take, or with 0 that it has. A monitor that does not find
/// them here has told us before it looked if they are lost.
pub(crate) fn announce(process: &'static Process, token: u64, pair: u64) {
    if let Some(end) = find(process, token) {
        shown::coming(&end, pair);
        fence(Ordering::SeqCst);
    }
}

/// The lanes of a grant are gone: the end is registered anew, after as many calls as a new connection is
/// given. Returns whether it had waited for them.
pub(crate) fn missed(process: &'static Process, token: u64) -> bool {
    let Some(end) = find(process, token) else {
        return false;
    };
    let has_waited = change_phase(&end, EndPhase::Registered, EndPhase::Plain);
    if has_waited {
        end.entry.id.cookie.store(1, Ordering::Relaxed);
        end.entry.id.calls.store(0, Ordering::Relaxed);
        end.set_reason(Reason::WindowLost);
    }
    has_waited
}

/// The descriptor of an end that is about to be let go.
const CLOSING: RawFd = -1;

/// The end that a token from the monitor names, if it still lives in this process.
pub(crate) fn find(process: &'static Process, token: u64) -> Option<End> {
    let index = u32::try_from(token & 0xffff_ffff)
        .ok()
        .filter(|index| *index < SLAB_ENTRIES)?;
    let first = process.entry(index).id.fd.load(Ordering::Relaxed);
    let end = End::at(process, index, first);
    if end.token() != token || !process.holds(index) {
        return None;
    }
    match process.index_of(first) == Some(index) {
        true => Some(end),
        // The first descriptor is closed; another one may name the end, or none while it is closed.
        false => {
            let named = process.ends().find(|end| end.index == index);
            Some(named.unwrap_or(End::at(process, index, CLOSING)))
        }
    }
}

/// The monitor has read the socket and closed its copy.
pub(crate) fn acknowledged(process: &'static Process, token: u64) {
    if let Some(end) = find(process, token) {
        end.entry.id.cookie.store(1, Ordering::Relaxed);
    }
}

/// Whether the monitor may still hold a copy of the socket.
pub(crate) fn is_in_flight(end: &End) -> bool {
    end.phase() == EndPhase::Registered && end.entry.id.cookie.load(Ordering::Relaxed) == 0
}

/// As [`refused`], if nothing has been answered to the end's registration yet.
pub(crate) fn refused_in_flight(process: &'static Process, token: u64, reason: Reason) {
    if find(process, token).is_some_and(|end| is_in_flight(&end)) {
        refused(process, token, reason);
    }
}

/// The other end has been found, and there is no room in the window between their hosts.
pub(crate) fn waits_for_room(process: &'static Process, token: u64) {
    if let Some(end) = find(process, token)
        && end.phase() == EndPhase::Registered
        && !end.is_pinned()
    {
        end.set_reason(Reason::WindowFull);
        process.count_reason(Reason::WindowFull);
    }
}

/// The monitor will not find rings for this end.
pub(crate) fn refused(process: &'static Process, token: u64, reason: Reason) {
    if let Some(end) = find(process, token)
        && end.phase() == EndPhase::Registered
    {
        end.entry.id.cookie.store(1, Ordering::Relaxed);
        if reason == Reason::TooYoung {
            // Its peer has not been accepted yet, and has no name for the kernel to tell.
            end.entry.id.calls.store(0, Ordering::Relaxed);
            change_phase(&end, EndPhase::Registered, EndPhase::Plain);
            end.set_reason(reason);
            return;
        }
        end.add_flags(end_flags::PINNED);
        end.set_reason(reason);
        process.count_reason(reason);
        strict::fell_back(end.fd, reason);
    }
}

/// Whether the end has been inherited by another process, or its socket given away, since it was
/// registered. It then goes back to where it was before, until one of them has closed it.
pub(crate) fn is_shared(process: &'static Process, token: u64) -> bool {
    let Some(end) = find(process, token) else {
        return false;
    };
    let rests = end.has_flags(end_flags::RESTING);
    if end.phase() != EndPhase::Registered || !rests && !process.is_shared(end.index) {
        return false;
    }
    change_phase(&end, EndPhase::Registered, EndPhase::Plain);
    if !rests {
        end.set_reason(Reason::Shared);
    }
    true
}

/// Whether a grant is of an earlier registration of the end, since which it was let go of: the answer to a
/// registration comes before its grant.
pub(crate) fn is_outdated(process: &'static Process, grant: &Grant) -> bool {
    find(process, grant.token).is_some_and(|end| is_in_flight(&end))
}

/// The monitor has found the other end.
pub(crate) fn granted(process: &'static Process, grant: &Grant, arena: &'static Arena) {
    let Some(end) = find(process, grant.token) else {
        return;
    };
    // A broken socket that the program has not closed may have been paired with a newer one of
    // the same names; one that still has a peer after both have registered is the one.
    if !may_take_grant(&end) || !kernel::has_peer(end.fd) {
        return;
    }
    enter(&end, grant, arena, |end| takes_grant(process, end));
}

/// The end begins in these lanes, if `is_free`, which is asked while both directions are held.
pub(crate) fn enter(
    end: &End,
    grant: &Grant,
    arena: &'static Arena,
    is_free: impl FnOnce(&End) -> bool,
) {
    let Some(lanes) = lanes(grant, arena) else {
        return;
    };
    remember_settings(end);
    let _rx = end.lock_rx();
    let _tx = end.lock_tx();
    if !is_free(end) {
        return;
    }
    let was_armed = end.entry.wait.armed.load(Ordering::Relaxed) != 0;
    reset_directions(end.entry);
    // Of other lanes, which a lost window may have taken away.
    let of_lanes = end_flags::COUNTED | end_flags::AWAITED | end_flags::INVITED;
    end.clear_flags(of_lanes | end_flags::FROZEN);
    if !occupy(end, arena, lanes, grant.pair) {
        return end.set_reason(Reason::NoMemory);
    }
    let id = &end.entry.id;
    id.role.store(grant.role, Ordering::Relaxed);
    id.arena.store(grant.arena, Ordering::Relaxed);
    id.slot.store(grant.slot, Ordering::Relaxed);
    end.set_reason(Reason::Switching);
    end.set_phase(EndPhase::Granted);
    end.process().note_granted();
    // The peer may be at its close, and wait for an answer.
    if posted::is_posted(end) {
        watcher::stir();
    }
    // Who fell asleep over earlier lanes, or on TCP behind them, is rung in these.
    fence(Ordering::SeqCst);
    let sleeps = end.entry.wait.sleepers.load(Ordering::SeqCst) != 0;
    if let Some(lane) = end.rx_lane().filter(|_| was_armed || sleeps) {
        bell::arm(end, &lane);
    }
}

/// The end has these lanes from now on. False if there is no memory for what stands behind them. The
/// caller holds both directions, or is the only one who knows the end.
pub(crate) fn occupy(
    end: &End,
    arena: &'static Arena,
    [tx, rx]: [WindowLane; 2],
    pair: u64,
) -> bool {
    if arena.lost().is_none() {
        shown::lanes(end, pair);
        end.clear_flags(end_flags::FAR);
        end.set_lanes(tx, rx);
        return true;
    }
    let behind = spare::make(Geometry {
        slots: 1,
        ..arena.geometry()
    });
    let Some(sending) = behind.and_then(|memory| spare::keep(end, arena, [tx, rx], memory)) else {
        return false;
    };
    shown::lanes(end, pair);
    // Before: who changes a flag in the lanes posts it.
    end.add_flags(end_flags::FAR);
    end.set_lanes(sending, rx);
    true
}

/// The lanes in which the end of a grant sends and receives.
pub(crate) fn lanes(grant: &Grant, arena: &'static Arena) -> Option<[WindowLane; 2]> {
    let lane = |role| {
        // SAFETY: arenas are never unmapped.
        let place = unsafe { arena.lane(grant.slot, role) }?;
        WindowLane::in_arena(place, grant.geometry.ring_lines)
    };
    Some([lane(grant.role)?, lane(1 - grant.role)?])
}

fn may_take_grant(end: &End) -> bool {
    let is_of_use = matches!(end.phase(), EndPhase::Registered | EndPhase::Granted);
    is_of_use && !end.is_pinned()
}

/// A grant replaces an earlier one as long as neither direction has used it or is about to, and no forked
/// child has it: the monitor keeps for the children only what was granted before they were forked. The
/// caller holds both directions.
fn takes_grant(process: &Process, end: &End) -> bool {
    let is_first = end.phase() == EndPhase::Registered;
    let is_unused =
        || end.tx_mode() == Mode::Tcp && end.rx_mode() == Mode::Tcp && !end.has_record();
    // Another thread may just have let go of it, and relatives of ours have it still.
    process.holds(end.index)
        && may_take_grant(end)
        && (is_first || is_unused() && !process.is_shared(end.index) && takes_leave(end))
}

/// Have the peer begin in the earlier lanes no more. False where it has begun, and where the window is lost:
/// then it has yet to be told what stood there, and whether it had begun. Where it has never come to these lanes, it
/// has been registered anew since they were dealt out, or nobody would deal again: it would never say that it has heard.
fn takes_leave(end: &End) -> bool {
    let is_taken_back =
        |lane| switch::take_ready_back(end, &lane) || posted::is_deserted(end, &lane);
    // In this order: READY may have been looked for in a place that is no window any more.
    !end.has_flags(end_flags::LOST)
        && end.rx_lane().is_none_or(is_taken_back)
        && !lost::is_found(end)
}

/// The program's own TCP_NODELAY, in what is kept of its settings.
pub const NODELAY: u32 = 1;
/// Its TCP_CORK, likewise.
pub const CORK: u32 = 2;

/// Doorbells must not be held back by Nagle's algorithm nor by a cork; the program's own settings are
/// kept for its getsockopt.
pub(crate) fn remember_settings(end: &End) {
    if end.phase() == EndPhase::Granted || end.family() == Family::Unix {
        return;
    }
    let own = |name| kernel::getsockopt::<u32>(end.fd, libc::IPPROTO_TCP, name).unwrap_or(0);
    let (nodelay, cork) = (own(libc::TCP_NODELAY), own(libc::TCP_CORK));
    let bit = |setting, bit| if setting == 0 { 0 } else { bit };
    let kept = bit(nodelay, NODELAY) | bit(cork, CORK);
    end.entry.id.nodelay.store(kept, Ordering::Relaxed);
    let _ = kernel::setsockopt(end.fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, &1u32);
    if cork != 0 {
        let _ = kernel::setsockopt(end.fd, libc::IPPROTO_TCP, libc::TCP_CORK, &0u32);
    }
}

/// The end is the kernel's again, with the program's settings.
pub(crate) fn restore_settings(end: &End) {
    let kept = end.entry.id.nodelay.load(Ordering::Relaxed);
    let own = kept & NODELAY;
    let _ = kernel::setsockopt(end.fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, &own);
    if kept & CORK != 0 {
        let _ = kernel::setsockopt(end.fd, libc::IPPROTO_TCP, libc::TCP_CORK, &1u32);
    }
}

#[cfg(test)]
mod tests;
