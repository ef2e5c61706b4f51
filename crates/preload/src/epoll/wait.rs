//! epoll_wait: rings first, then the kernel.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use crosslane_ctl::slab::{Ending, Mode};
use crosslane_stream::{End, place, ready, wait};
use crosslane_sys::{Errno, kernel, real};
use libc::{epoll_event, sigset_t, timespec};

use super::control::sync;
use super::set::{self, Reg, Set};
use crate::{c, poll};

/// Connections that are looked at before the kernel is asked. A connection that had no news for
/// this many waits leaves the list, armed.
const QUIET_WAITS: u32 = 64;
const MOST_HOT: usize = 128;

/// With news in the rings all the time, the kernel is asked in every so many waits.
const WAITS_PER_KERNEL_LOOK: u32 = 8;

/// Kernel events taken at a time.
const BATCH: usize = 64;

/// A direction between TCP and ring while space is wanted: doorbells cannot reach us.
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
    let mut first = true;
    loop {
        if view.look_at_rings(first)? > 0 {
            return Ok(view.found);
        }
        if timeout == Some(Duration::ZERO) {
            view.ask_kernel(Duration::ZERO, core::ptr::null())?;
            return Ok(view.found);
        }
        if first && view.spin() {
            first = false;
            continue;
        }
        first = false;
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        view.sleep(left, mask)?;
        wait::woke();
        let over = left == Some(Duration::ZERO);
        if view.found > 0 || over {
            return Ok(view.found);
        }
    }
}

impl Wait<'_> {
    fn room(&self) -> bool {
        self.found < self.out.len()
    }

    fn tell(&mut self, events: u32, data: u64) {
        if let Some(place) = self.out.get_mut(self.found) {
            place.write(epoll_event { events, u64: data });
            self.found += 1;
        }
    }

    /// Report what the rings of the hot connections hold.
    fn look_at_rings(&mut self, may_ask_kernel: bool) -> Result<usize, Errno> {
        {
            let set = self.set;
            let Ok(mut inner) = set.inner.lock() else {
                return Ok(0);
            };
            let inner = &mut *inner;
            let count = inner.hot.len();
            let start = if count == 0 { 0 } else { inner.turn % count };
            for step in 0..count {
                if !self.room() {
                    inner.turn = start + step;
                    break;
                }
                let key = inner.hot[(start + step) % count];
                let Some(reg) = inner.regs.get_mut(&key) else {
                    continue;
                };
                let Some(end) = reg.end() else { continue };
                let events = news(reg, &end, false);
                if events != 0 {
                    let data = reg.data;
                    reported(reg, &end);
                    self.tell(events, data);
                }
            }
            if self.found == 0 {
                return Ok(0);
            }
            inner.skipped += 1;
            if !may_ask_kernel || inner.skipped < WAITS_PER_KERNEL_LOOK {
                return Ok(self.found);
            }
            inner.skipped = 0;
        }
        self.ask_kernel(Duration::ZERO, core::ptr::null())?;
        Ok(self.found)
    }

    fn spin(&self) -> bool {
        let Ok(inner) = self.set.inner.lock() else {
            return false;
        };
        let watched: Vec<(End, i16)> = inner
            .hot
            .iter()
            .filter_map(|key| inner.regs.get(key))
            .filter_map(|reg| Some((reg.end()?, reg.wanted())))
            .collect();
        drop(inner);
        // The most recently heated stands for all: their peers tend to be one program.
        watched
            .last()
            .is_some_and(|(end, _)| place::is_worth_spinning(end))
            && wait::spin(|| {
                watched
                    .iter()
                    .any(|(end, wanted)| ready::glance(end, *wanted))
            })
    }

    /// Arm everything, sleep in the kernel, and report what woke us.
    fn sleep(&mut self, left: Option<Duration>, mask: *const sigset_t) -> Result<(), Errno> {
        self.set.sleepers.fetch_add(1, Ordering::SeqCst);
        let (quiet, mixed) = self.arm_all();
        let mut limit = left;
        if !quiet {
            limit = Some(Duration::ZERO);
        } else if mixed {
            limit = Some(left.map_or(MIXED_SLICE, |left| left.min(MIXED_SLICE)));
        }
        let slept = self.ask_kernel_for(limit, mask);
        let others = self.set.sleepers.fetch_sub(1, Ordering::SeqCst) > 1;
        if !others {
            self.disarm_all();
        }
        slept
    }

    /// Returns whether the caller may sleep, and whether a direction is between TCP and ring.
    fn arm_all(&self) -> (bool, bool) {
        let Ok(mut inner) = self.set.inner.lock() else {
            return (true, false);
        };
        let inner = &mut *inner;
        let (mut quiet, mut mixed) = (true, false);
        let mut cold = Vec::new();
        for key in &inner.hot {
            let Some(reg) = inner.regs.get_mut(key) else {
                cold.push(*key);
                continue;
            };
            let Some(end) = reg.end() else { continue };
            sync(self.set.epoll, *key, reg, &end);
            let wanted = reg.wanted();
            // Edge-triggered: arrivals already reported are no reason to stay awake.
            let armed = ready::arm(&end, wanted);
            quiet &= armed || news(reg, &end, false) == 0 && !waits_for_look(&end);
            mixed |= (end.tx_mode() == Mode::Ring) != (end.rx_mode() == Mode::Ring);
            reg.quiet_waits += 1;
            if reg.quiet_waits > QUIET_WAITS && end.ending() == Ending::Open {
                reg.hot = false;
                cold.push(*key);
            }
        }
        if inner.hot.len() > MOST_HOT {
            let surplus = inner.hot.len() - MOST_HOT;
            for key in inner.hot.iter().take(surplus) {
                if let Some(reg) = inner.regs.get_mut(key) {
                    reg.hot = false;
                }
                cold.push(*key);
            }
        }
        inner.hot.retain(|key| !cold.contains(key));
        (quiet, mixed)
    }

    fn disarm_all(&self) {
        let Ok(inner) = self.set.inner.lock() else {
            return;
        };
        for end in inner
            .hot
            .iter()
            .filter_map(|key| inner.regs.get(key)?.end())
        {
            ready::disarm(&end);
        }
    }

    fn ask_kernel(&mut self, limit: Duration, mask: *const sigset_t) -> Result<(), Errno> {
        self.ask_kernel_for(Some(limit), mask)
    }

    /// Take a batch of events from the kernel and translate those of connections with rings.
    fn ask_kernel_for(
        &mut self,
        limit: Option<Duration>,
        mask: *const sigset_t,
    ) -> Result<(), Errno> {
        let mut batch = [MaybeUninit::<epoll_event>::uninit(); BATCH];
        let room = (self.out.len() - self.found).min(BATCH);
        if room == 0 {
            return Ok(());
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
                Some(key) => self.translate(key),
            }
        }
        Ok(())
    }

    /// The kernel has seen something on a connection with rings.
    fn translate(&mut self, key: u32) {
        let set = self.set;
        let Ok(mut inner) = set.inner.lock() else {
            return;
        };
        inner.heat(key);
        let Some(reg) = inner.regs.get_mut(&key) else {
            return;
        };
        let Some(end) = reg.end() else { return };
        if !ready::glance(&end, libc::POLLIN) {
            ready::swallow(&end);
        }
        let events = news(reg, &end, true);
        if events != 0 {
            let data = reg.data;
            reported(reg, &end);
            self.tell(events, data);
        }
    }
}

/// A record that is no data yet, which a look has to take before the caller may sleep.
fn waits_for_look(end: &End) -> bool {
    end.rx_mode() == Mode::Ring && end.has_record() && ready::look(end, libc::POLLIN, false) != 0
}

/// What to tell the program about a registration now.
fn news(reg: &mut Reg, end: &End, ask_kernel: bool) -> u32 {
    if reg.spent {
        return 0;
    }
    let wanted = reg.wanted();
    let by_kernel = ask_kernel || reg.fresh || on_tcp(end);
    if !by_kernel && !ready::glance(end, wanted) {
        return 0;
    }
    if reg.is_edge() && !reg.fresh && !ask_kernel && !has_edge(reg, end) {
        return 0;
    }
    let found = ready::look(end, wanted, by_kernel);
    let found = u32::from(found.cast_unsigned());
    if found == 0 && !reg.is_edge() {
        reg.fresh = false;
    }
    if reg.is_edge() && found != 0 && ask_kernel && !reg.fresh && !has_edge(reg, end) {
        // A doorbell for arrivals that a look at the ring has already reported.
        let ended = end.ending() != Ending::Open;
        return if ended || on_tcp(end) { found } else { 0 };
    }
    found
}

fn on_tcp(end: &End) -> bool {
    end.rx_mode() != Mode::Ring || end.tx_mode() != Mode::Ring
}

/// Whether something has happened since the last report of an edge-triggered registration.
fn has_edge(reg: &Reg, end: &End) -> bool {
    let wanted = reg.wanted();
    let arrived = wanted & libc::POLLIN != 0
        && end.rx_mode() == Mode::Ring
        && ready::has_arrived_since(end, reg.reported_line);
    let space = wanted & libc::POLLOUT != 0
        && end.local.blocked.load(Ordering::Relaxed) != 0
        && ready::glance(end, libc::POLLOUT);
    arrived || space
}

/// Remember that the program has been told.
fn reported(reg: &mut Reg, end: &End) {
    reg.fresh = false;
    reg.quiet_waits = 0;
    if reg.is_edge() {
        reg.reported_line = ready::arrived_up_to(end, reg.reported_line);
        end.local.blocked.store(0, Ordering::Relaxed);
    }
    if reg.events & libc::EPOLLONESHOT as u32 != 0 {
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
fn ringed(epoll: c_int) -> Option<Arc<Set>> {
    set::get(epoll).filter(|set| set.ringed.load(Ordering::Acquire) > 0)
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
    if let Some(out) = unsafe { slice(events, count) }
        && let Some(set) = ringed(epoll)
    {
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        return answer(wait_set(&set, out, timeout, mask));
    }
    // SAFETY: passed on.
    unsafe { real::epoll_pwait(epoll, events, count, timeout, mask) }
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
    if let Some(out) = unsafe { slice(events, count) }
        && legal
        && let Some(set) = ringed(epoll)
    {
        return answer(wait_set(&set, out, time.map(poll::duration), mask));
    }
    // SAFETY: passed on.
    unsafe { real::epoll_pwait2(epoll, events, count, timeout, mask) }
}
