//! Readiness of a set for those who ask the kernel alone: who polls it, or holds it in another set.
//!
//! Its connections go to TCP ([`super::leave_nested`]), but what a silent peer has put into a ring
//! stays there until it is read. While there is such, the set also holds a beacon, a descriptor
//! that is always ready. It also wakes those who sleep in the kernel when windows have been lost.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::sync::TryLockError;
use std::time::Instant;

use crosslane_stream::control::OwnFd;
use crosslane_stream::{End, lost, ready, replay};
use crosslane_sys::busy::MutexGuard;
use crosslane_sys::kernel;
use libc::epoll_event;

use super::kernels::sync;
use super::news::has_news;
use super::reg::Reg;
use super::set::{self, Inner, Set};

/// Sets with a beacon.
static LIT: AtomicU32 = AtomicU32::new(0);

/// So long is a set waited for, whose other users hold it for moments.
const LOCK_PATIENCE: Duration = Duration::from_millis(10);
const LOCK_NAP: Duration = Duration::from_micros(20);

/// The key of a beacon's registration, which no connection has.
pub const KEY: u32 = u32::MAX;

/// A beacon in a set.
pub struct Beacon(OwnFd);

impl Beacon {
    fn light(set: &Set) -> Option<Self> {
        let fd = OwnFd::new(kernel::event_descriptor().ok()?);
        let event = epoll_event {
            events: libc::EPOLLOUT.cast_unsigned(),
            u64: set::tagged(KEY),
        };
        kernel::epoll_ctl(set.fd(), libc::EPOLL_CTL_ADD, fd.number(), event).ok()?;
        LIT.fetch_add(1, Ordering::Relaxed);
        Some(Self(fd))
    }
}

impl Drop for Beacon {
    fn drop(&mut self) {
        LIT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Light or put out the beacon of a set, as its rings are.
pub fn look(set: &Set, inner: &mut Inner) {
    let mut is_wanted = inner.beacon.is_some() && is_behind(inner);
    for key in inner.keys() {
        let Some(reg) = inner.reg(key).filter(|reg| reg.ringed && reg.is_live()) else {
            continue;
        };
        sync(set, key, reg);
        // The kernel is not to show doorbells that nobody needs any more.
        if !reg.end.has_record() {
            ready::take_bells(&reg.end);
        }
        if has_news(reg) {
            is_wanted = true;
            inner.heat(key);
        }
    }
    if !is_wanted {
        put_out(set, inner);
    } else if inner.beacon.is_none() {
        inner.beacon = Beacon::light(set);
    }
}

/// Whether windows have been lost since the set's connections were last looked at.
fn is_behind(inner: &Inner) -> bool {
    inner.losses != lost::all_losses()
}

/// Look at connections whose window was lost from now on, also those that have been quiet for long: the doorbell
/// that they count on may have been lost, too. And at those that have something to send again.
#[inline]
pub fn heat_lost(inner: &mut Inner) {
    if is_behind(inner) || inner.replays != replay::times_put_off() {
        heat_all_lost(inner);
    }
}

#[cold]
fn heat_all_lost(inner: &mut Inner) {
    (inner.losses, inner.replays) = (lost::all_losses(), replay::times_put_off());
    for key in inner.keys() {
        let reg = inner.reg(key).filter(|reg| reg.ringed && reg.is_live());
        let is_due =
            |reg: &mut Reg| reg.stage != lost::stage(&reg.end) || replay::is_under_way(&reg.end);
        if reg.is_some_and(is_due) {
            inner.heat(key);
        }
    }
}

/// Wake who sleeps in the kernel on sets that do not know of lost windows yet.
pub fn wake() {
    for set in set::all() {
        if let Ok(mut inner) = set.inner.lock()
            && is_behind(&inner)
            && set.ringed.load(Ordering::SeqCst) > 0
            && set.sleepers.load(Ordering::SeqCst) > 0
            && inner.beacon.is_none()
        {
            inner.beacon = Beacon::light(set);
        }
    }
}

/// A send has slept for room: who is to be told of edges looks again, whatever it has slept for.
pub fn tell_room(end: &End) {
    for set in set::sets_of(end) {
        let Some(mut inner) = lock_soon(set) else {
            continue;
        };
        let mut is_due = false;
        for key in inner.keys_of(end) {
            if inner
                .reg(key)
                .is_some_and(|reg| waits_for_edge_of_room(reg))
            {
                inner.heat(key);
                is_due = true;
            }
        }
        if is_due {
            end.note_blocked();
        }
        if is_due && set.sleepers.load(Ordering::SeqCst) > 0 && inner.beacon.is_none() {
            inner.beacon = Beacon::light(set);
        }
    }
}

/// A handler may have interrupted who has the set, and send.
fn lock_soon(set: &Set) -> Option<MutexGuard<'_, Inner>> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match set.inner.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                kernel::nap(LOCK_NAP);
            }
            tried => return tried.ok(),
        }
    }
}

fn waits_for_edge_of_room(reg: &Reg) -> bool {
    reg.ringed && reg.is_edge() && reg.wanted() & libc::POLLOUT != 0
}

/// Nothing stands in the rings any more.
#[inline]
pub fn put_out(set: &Set, inner: &mut Inner) {
    if let Some(beacon) = inner.beacon.take() {
        // Forked processes may hold it too.
        let nothing = epoll_event { events: 0, u64: 0 };
        let _ = kernel::epoll_ctl(set.fd(), libc::EPOLL_CTL_DEL, beacon.0.number(), nothing);
    }
}

/// Look after all beacons, before a call that may ask the kernel about a set.
#[inline]
pub fn refresh() {
    if LIT.load(Ordering::Relaxed) > 0 {
        refresh_all();
    }
}

#[cold]
fn refresh_all() {
    for set in set::all() {
        if let Ok(mut inner) = set.inner.lock()
            && inner.beacon.is_some()
        {
            look(set, &mut inner);
        }
    }
}
