//! epoll_wait: rings first, then the kernel.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

use crosslane_ctl::slab::{Ending, Mode};
use crosslane_stream::end::Blocked;
use crosslane_stream::send::STANDSTILL;
use crosslane_stream::{End, place, ready, wait};
use crosslane_sys::{Errno, cpu, kernel, real};
use libc::{epoll_event, sigset_t, timespec};

use super::control::sync;
use super::set::{self, Reg, Set};
use crate::{c, poll};

/// Connections that are looked at before the kernel is asked. A connection that had no news for
/// this many waits leaves the list, armed.
const QUIET_WAITS: u32 = 64;
const MOST_HOT: usize = 128;

/// With news in the rings all the time, the kernel is asked so often.
const KERNEL_LOOK_US: u64 = 20;

/// How often the kernel is asked in its turn while it has only doorbells to tell.
const LOOKS_PER_TURN: u32 = 3;

/// Kernel events taken at a time.
const BATCH: usize = 64;

/// How long to sleep while a connection has one direction on TCP and one in the ring: news may
/// come by either way, and only one of them wakes us.
const MIXED_SLICE: Duration = Duration::from_millis(1);

struct Wait<'a> {
    set: &'a Set,
    out: &'a mut [MaybeUninit<epoll_event>],
    found: usize,
}

/// Wait for events as epoll_pwait2(2) does.
fn wait_set(
    set: &Set,
    out: &mut [MaybeUninit<epoll_event>],
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> Result<usize, Errno> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut view = Wait { set, out, found: 0 };
    if view.is_kernels_turn() {
        // Doorbells fill the room that the kernel's own news may need.
        for _ in 0..LOOKS_PER_TURN {
            let taken = view.ask_kernel(Some(Duration::ZERO), core::ptr::null())?;
            if taken == 0 || view.found > 0 {
                break;
            }
        }
    }
    view.scan();
    if view.found == 0 && timeout != Some(Duration::ZERO) && view.spin() {
        view.scan();
    }
    while view.found == 0 {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        view.sleep(left, mask)?;
        wait::woke();
        view.scan();
        if left == Some(Duration::ZERO) {
            break;
        }
    }
    Ok(view.found)
}

impl Wait<'_> {
    fn tell(&mut self, events: u32, data: u64) {
        if let Some(place) = self.out.get_mut(self.found) {
            place.write(epoll_event { events, u64: data });
            self.found += 1;
        }
    }

    /// Descriptors without rings must not wait for ever behind busy rings.
    fn is_kernels_turn(&self) -> bool {
        let Ok(mut inner) = self.set.inner.lock() else {
            return true;
        };
        let now = cpu::ticks();
        // With little room, rings and the kernel take turns.
        inner.kernel_turn = !inner.kernel_turn;
        let due = if self.out.len() <= inner.hot.len() {
            inner.kernel_turn
        } else {
            now.wrapping_sub(inner.kernel_looked) > KERNEL_LOOK_US * cpu::ticks_per_us()
        };
        if due {
            inner.kernel_looked = now;
        }
        due
    }

    /// Report what the rings of the hot connections hold.
    fn scan(&mut self) {
        let set = self.set;
        let Ok(mut inner) = set.inner.lock() else {
            return;
        };
        let count = inner.hot.len();
        let start = if count == 0 { 0 } else { inner.turn % count };
        for step in 0..count {
            let place = start + step;
            if self.found == self.out.len() {
                inner.turn = place;
                return;
            }
            let key = inner.hot[if place < count { place } else { place - count }];
            let Some(reg) = inner.reg(key).filter(|reg| reg.is_live()) else {
                continue;
            };
            let events = news(reg);
            if events != 0 {
                reported(reg, events);
                if set.sleepers.load(Ordering::SeqCst) > 0 && !reg.is_silent() {
                    ready::arm_for_others(&reg.end);
                }
                self.tell(events, reg.data);
            }
        }
    }

    fn spin(&self) -> bool {
        let Ok(mut inner) = self.set.inner.lock() else {
            return false;
        };
        let mut watched = core::mem::take(&mut inner.watched);
        for place in 0..inner.hot.len() {
            let key = inner.hot[place];
            if let Some(reg) = inner
                .reg(key)
                .filter(|reg| reg.is_live() && !reg.is_silent())
            {
                watched.push((reg.end, reg.wanted()));
            }
        }
        drop(inner);
        // The one that was heated last stands for all: their peers tend to be one program.
        let found = watched
            .last()
            .is_some_and(|(end, _)| place::is_worth_spinning(end))
            && wait::spin(|| {
                watched
                    .iter()
                    .any(|(end, wanted)| ready::glance(end, *wanted))
            });
        watched.clear();
        if let Ok(mut inner) = self.set.inner.lock() {
            inner.watched = watched;
        }
        found
    }

    /// Arm everything, sleep in the kernel, and report what woke us.
    fn sleep(&mut self, left: Option<Duration>, mask: *const sigset_t) -> Result<(), Errno> {
        self.set.sleepers.fetch_add(1, Ordering::SeqCst);
        let slice = self.arm_all();
        let limit = slice.map_or(left, |slice| {
            Some(left.map_or(slice, |left| left.min(slice)))
        });
        let slept = self.ask_kernel(limit, mask);
        let others = self.set.sleepers.fetch_sub(1, Ordering::SeqCst) > 1;
        if !others {
            self.disarm_all();
        }
        slept.map(|_| ())
    }

    /// Returns how long the caller may sleep at most; zero if there may be news.
    fn arm_all(&self) -> Option<Duration> {
        let mut inner = self.set.inner.lock().ok()?;
        let (mut quiet, mut mixed, mut waits_for_room) = (true, false, false);
        let surplus = inner.hot.len().saturating_sub(MOST_HOT);
        for place in 0..inner.hot.len() {
            let key = inner.hot[place];
            let Some(reg) = inner.reg(key).filter(|reg| reg.is_live()) else {
                continue;
            };
            sync(self.set.epoll, key, reg);
            let modes = (reg.end.rx_mode(), reg.end.tx_mode());
            let armed = ready::arm(&reg.end, reg.wanted());
            if modes != (reg.end.rx_mode(), reg.end.tx_mode()) {
                // What the kernel has to tell about TCP it may have told before.
                reg.missed = true;
                quiet = false;
            }
            // Edge-triggered: arrivals already reported are no reason to stay awake.
            if !armed && news(reg) != 0 {
                // The look has used up what made it due, and the scan has yet to report it.
                reg.missed = true;
                quiet = false;
            }
            quiet &= armed || !waits_for_look(&reg.end);
            mixed |= reg.end.ending() == Ending::Open
                && (reg.end.tx_mode() == Mode::Ring) != (reg.end.rx_mode() == Mode::Ring);
            let waits = ready::waits_for_room(&reg.end, reg.wanted())
                && (!reg.is_edge() || is_blocked(&reg.end));
            waits_for_room |= waits;
            reg.quiet_waits += 1;
            let idle = reg.quiet_waits > QUIET_WAITS && reg.end.ending() == Ending::Open && !waits;
            reg.hot = place >= surplus && !idle;
        }
        let mut hot = core::mem::take(&mut inner.hot);
        hot.retain(|key| inner.reg(*key).is_some_and(|reg| reg.hot));
        inner.hot = hot;
        match (quiet, mixed, waits_for_room) {
            (false, ..) => Some(Duration::ZERO),
            (_, true, _) => Some(MIXED_SLICE),
            (.., true) => Some(STANDSTILL),
            _ => None,
        }
    }

    fn disarm_all(&self) {
        let Ok(mut inner) = self.set.inner.lock() else {
            return;
        };
        for place in 0..inner.hot.len() {
            let key = inner.hot[place];
            if let Some(reg) = inner.reg(key).filter(|reg| reg.is_live()) {
                ready::disarm(&reg.end);
            }
        }
    }

    /// Take a batch of events from the kernel and translate those of connections with rings.
    fn ask_kernel(
        &mut self,
        limit: Option<Duration>,
        mask: *const sigset_t,
    ) -> Result<usize, Errno> {
        let mut batch = [MaybeUninit::<epoll_event>::uninit(); BATCH];
        let room = (self.out.len() - self.found).min(BATCH);
        if room == 0 {
            return Ok(0);
        }
        let taken = if limit == Some(Duration::ZERO) && mask.is_null() {
            kernel::epoll_now(self.set.epoll, &mut batch[..room])?
        } else {
            block(self.set.epoll, &mut batch[..room], limit, mask)?
        };
        for event in &batch[..taken] {
            // SAFETY: the kernel has written the first `taken` events.
            let event = unsafe { event.assume_init_ref() };
            let (events, data) = (event.events, event.u64);
            match set::key_of(data) {
                None => self.tell(events, data),
                Some(key) => self.note(key),
            }
        }
        Ok(taken)
    }

    /// The kernel has seen something on a connection with rings: the next scan asks it what.
    fn note(&self, key: u32) {
        let Ok(mut inner) = self.set.inner.lock() else {
            return;
        };
        inner.heat(key);
        if let Some(reg) = inner.reg(key).filter(|reg| reg.is_live()) {
            reg.missed = true;
            ready::note_bell(&reg.end);
            if !reg.deleted && !ready::glance(&reg.end, libc::POLLIN) {
                ready::take_bells(&reg.end);
            }
        }
    }
}

/// A record that is no data yet, which a look has to take before the caller may sleep.
fn waits_for_look(end: &End) -> bool {
    end.rx_mode() == Mode::Ring
        && end.has_record()
        && ready::at_once(end, libc::POLLIN) == 0
        && ready::look(end, libc::POLLIN, false) != 0
}

/// What to tell the program about a registration now.
#[inline]
fn news(reg: &mut Reg) -> u32 {
    if reg.is_silent() {
        return 0;
    }
    let wanted = reg.wanted();
    if !reg.is_edge() && !on_tcp(&reg.end) && !reg.missed {
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

#[cold]
fn slow_news(reg: &mut Reg, wanted: i16) -> u32 {
    let on_tcp = on_tcp(&reg.end);
    let ask_kernel = reg.missed || on_tcp;
    if !ask_kernel && !ready::glance(&reg.end, wanted) {
        return 0;
    }
    let due = !reg.is_edge() || reg.fresh || has_arrivals(reg) || reg.missed && on_tcp;
    let due_for_room = may_have_room(reg);
    if !due && !due_for_room && !reg.missed {
        return 0;
    }
    reg.missed = false;
    let found = u32::from(ready::look(&reg.end, wanted, ask_kernel).cast_unsigned());
    if found == 0 {
        reg.fresh = reg.fresh && reg.is_edge();
    }
    // A doorbell for arrivals that have been reported already is no edge; an end is one.
    let ended = reg.end.ending() as u32 > reg.reported_ending;
    let has_room = due_for_room && found & libc::EPOLLOUT.cast_unsigned() != 0;
    if due || has_room || ended || has_arrivals(reg) {
        found
    } else {
        0
    }
}

fn on_tcp(end: &End) -> bool {
    end.rx_mode() != Mode::Ring || end.tx_mode() != Mode::Ring
}

/// Whether a send has found no room of which the program has not been told since.
fn is_blocked(end: &End) -> bool {
    end.local.blocked.load(Ordering::Relaxed) != Blocked::No as u32
}

/// Whether records have arrived since the last report of an edge-triggered registration.
fn has_arrivals(reg: &Reg) -> bool {
    reg.wanted() & libc::POLLIN != 0
        && reg.end.rx_mode() == Mode::Ring
        && ready::has_arrived_since(&reg.end, reg.reported_line)
}

/// Whether there may be the room that a send has not found. On TCP only the kernel knows.
fn may_have_room(reg: &Reg) -> bool {
    let end = &reg.end;
    reg.wanted() & libc::POLLOUT != 0
        && is_blocked(end)
        && (end.tx_mode() != Mode::Ring || ready::glance(end, libc::POLLOUT))
}

/// Remember that the program has been told.
#[inline]
fn reported(reg: &mut Reg, events: u32) {
    reg.fresh = false;
    reg.quiet_waits = 0;
    if events & !libc::EPOLLOUT.cast_unsigned() != 0 {
        reg.reported_ending = reg.end.ending() as u32;
    }
    // Records that arrive after the look are read with those before, or reported next.
    if reg.is_edge() && events & libc::EPOLLIN.cast_unsigned() != 0 {
        reg.reported_line = ready::arrived_up_to(&reg.end, reg.reported_line);
    }
    if events & libc::EPOLLOUT.cast_unsigned() != 0 {
        let blocked = &reg.end.local.blocked;
        blocked.store(Blocked::No as u32, Ordering::Relaxed);
    }
    if reg.events & libc::EPOLLONESHOT.cast_unsigned() != 0 {
        reg.spent = true;
    }
}

/// The program's own way into the kernel: a cancellation point, with its signal mask.
fn block(
    epoll: c_int,
    events: &mut [MaybeUninit<epoll_event>],
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> Result<usize, Errno> {
    let time = limit.map(|limit| timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    });
    let time_at = time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    let count = c_int::try_from(events.len()).unwrap_or(c_int::MAX);
    let to = events.as_mut_ptr().cast();
    // SAFETY: the events and the time outlive the call; the mask is the program's.
    let result = unsafe { real::epoll_pwait2(epoll, to, count, time_at, mask) };
    match crosslane_sys::errno::check(result as isize) {
        Err(Errno::NOSYS) => {
            // Kernels before 5.11 count milliseconds; rounding up never wakes too early.
            let millis = limit.map_or(-1, |limit| {
                c_int::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
            });
            // SAFETY: as above.
            let result = unsafe { real::epoll_pwait(epoll, to, count, millis, mask) };
            crosslane_sys::errno::check(result as isize)
        }
        outcome => outcome,
    }
}

/// The record of a set, if a connection in it has rings.
fn ringed(epoll: c_int) -> Option<&'static Set> {
    set::get(epoll).filter(|set| set.ringed.load(Ordering::SeqCst) > 0)
}

/// A wait in a set without rings, known to those who bring rings into it meanwhile.
struct Asleep(&'static Set);

impl Asleep {
    fn new(set: &'static Set) -> Self {
        set.sleepers.fetch_add(1, Ordering::SeqCst);
        Self(set)
    }
}

impl Drop for Asleep {
    fn drop(&mut self) {
        self.0.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Wait in a set that has no rings, unless it gets some before the wait begins.
fn wait_without_rings(
    epoll: c_int,
    out: &mut [MaybeUninit<epoll_event>],
    limit: Option<Duration>,
    mask: *const sigset_t,
    kernel: impl FnOnce() -> c_int,
) -> c_int {
    let asleep = set::for_wait(epoll).map(Asleep::new);
    if let Some(set) = ringed(epoll) {
        drop(asleep);
        return answer(wait_set(set, out, limit, mask));
    }
    let found = kernel();
    drop(asleep);
    recheck(epoll, out, found, limit, mask)
}

/// The program's array of events.
///
/// # Safety
/// As epoll_wait(2) demands.
unsafe fn slice<'a>(
    events: *mut epoll_event,
    count: c_int,
) -> Option<&'a mut [MaybeUninit<epoll_event>]> {
    let count = usize::try_from(count).ok().filter(|count| *count > 0)?;
    if events.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { core::slice::from_raw_parts_mut(events.cast(), count) })
}

/// A connection may have entered the rings while the kernel was asked: events with our tag are
/// not for the program, so the wait goes on here.
fn recheck(
    epoll: c_int,
    out: &mut [MaybeUninit<epoll_event>],
    found: c_int,
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> c_int {
    let taken = usize::try_from(found).unwrap_or(0);
    let ours = |event: &MaybeUninit<epoll_event>| {
        // SAFETY: the kernel has written the first `taken` events.
        let event = unsafe { event.assume_init_ref() };
        set::key_of(event.u64)
    };
    if taken == 0 || !out[..taken].iter().any(|event| ours(event).is_some()) {
        return found;
    }
    let Some(set) = set::get(epoll) else {
        return found;
    };
    let mut kept = 0;
    for place in 0..taken {
        match ours(&out[place]) {
            Some(key) => {
                if let Ok(mut inner) = set.inner.lock() {
                    inner.heat(key);
                    if let Some(reg) = inner.reg(key) {
                        reg.missed = true;
                    }
                }
            }
            None => {
                out[kept] = out[place];
                kept += 1;
            }
        }
    }
    if kept > 0 {
        return c_int::try_from(kept).unwrap_or(c_int::MAX);
    }
    answer(wait_set(set, out, limit, mask))
}

fn answer(found: Result<usize, Errno>) -> c_int {
    match found {
        Ok(count) => c_int::try_from(count).unwrap_or(c_int::MAX),
        Err(errno) => c::fail(errno),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: passed on; epoll_wait is epoll_pwait without a mask.
    unsafe { epoll_pwait(epoll, events, count, timeout, core::ptr::null()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's promise.
    let Some(out) = (unsafe { slice(events, count) }) else {
        // SAFETY: passed on, for the kernel to refuse.
        return unsafe { real::epoll_pwait(epoll, events, count, timeout, mask) };
    };
    let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
    if let Some(set) = ringed(epoll) {
        return answer(wait_set(set, out, limit, mask));
    }
    wait_without_rings(epoll, out, limit, mask, || {
        // SAFETY: passed on.
        unsafe { real::epoll_pwait(epoll, events, count, timeout, mask) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's promise; null means no limit.
    let time = unsafe { timeout.as_ref() };
    let legal =
        time.is_none_or(|time| time.tv_sec >= 0 && (0..1_000_000_000).contains(&time.tv_nsec));
    // SAFETY: the program's promise.
    let Some(out) = (unsafe { slice(events, count) }).filter(|_| legal) else {
        // SAFETY: passed on, for the kernel to refuse.
        return unsafe { real::epoll_pwait2(epoll, events, count, timeout, mask) };
    };
    let limit = time.map(poll::duration);
    if let Some(set) = ringed(epoll) {
        return answer(wait_set(set, out, limit, mask));
    }
    wait_without_rings(epoll, out, limit, mask, || {
        // SAFETY: passed on.
        unsafe { real::epoll_pwait2(epoll, events, count, timeout, mask) }
    })
}
