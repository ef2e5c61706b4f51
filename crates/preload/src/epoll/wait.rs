//! epoll_wait: rings first, then the kernel.

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

use crosslane_ctl::slab::{Ending, Mode};
use crosslane_ring::Moment;
use crosslane_stream::interrupt::{self, Since, Spinning};
use crosslane_stream::send::STANDSTILL;
use crosslane_stream::{control, lost, place, ready, replay, wait, watcher};
use crosslane_sys::kernel::SignalsHeld;
use crosslane_sys::{Errno, cancel, cpu, kernel};
use libc::{epoll_event, sigset_t};

use super::asleep::{block, count_down, disarm_all, has_sleepers};
use super::beacon;
use super::calls::with_room;
use super::control::pass_on;
use super::kept::Waiting;
use super::kernels::{UNASKED, sync};
use super::news::{begins_anew, left_over, news, note_all, note_in, reported, waits_for_look};
use super::order::Order;
use super::reg::Reg;
use super::set::{self, Inner, Set};
use super::sharing;
use crate::kernel_looks::{KERNEL_LOOK_US, KernelLooks, Overdue};

/// Connections that are looked at before the kernel is asked. A connection that had no news for
/// this many waits leaves the list, armed.
const QUIET_WAITS: u32 = 64;
const MOST_HOT: usize = 1024;

/// How often the kernel is asked in its turn while it has only doorbells to tell.
const LOOKS_PER_TURN: u32 = 3;

/// Kernel events taken at a time.
const BATCH: usize = 64;

/// How long to sleep while a connection has one direction on TCP and one in the ring: news may
/// come by either way, and only one of them wakes us.
const MIXED_SLICE: Duration = Duration::from_millis(1);

/// So many sleeps in a row may end at once and for nothing. Then each is followed by a nap, which signals end: the kernel tells of
/// what it has before them.
const MOST_IN_VAIN: u32 = 16;
const NAP: Duration = Duration::from_micros(100);
/// While another process has a beacon in the set, which only that can put out.
const LONG_NAP: Duration = Duration::from_millis(1);

/// Who is asked before the rings are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The kernel.
    Kernels,
    /// Nobody, unless the rings have nothing: the kernel has had all the room before.
    Rings,
    /// Nobody.
    Nobodys,
}

struct Wait<'a> {
    set: &'static Set,
    out: &'a mut [MaybeUninit<epoll_event>],
    found: usize,
    arrivals: Arrivals,
    /// Sleeps in a row that have ended at once.
    short_sleeps: u32,
    /// Whether a beacon has ended one.
    is_dazzled: bool,
}

/// What the kernel has told and the program has not been told, in the kernel's order: whoever
/// sends on one connection and then on another expects them to be heard in this order.
struct Arrivals {
    events: [MaybeUninit<epoll_event>; BATCH],
    count: usize,
    /// Those among them that are not of connections with rings, which the kernel may not tell
    /// again.
    plain: usize,
}

/// Wait for events as epoll_pwait2(2) does.
pub fn wait_set(
    set: &'static Set,
    out: &mut [MaybeUninit<epoll_event>],
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> Result<usize, Errno> {
    let out = with_room(out)?;
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let since = Since::now(mask);
    beacon::refresh();
    watcher::tend();
    set.use_here();
    let mut view = Wait::new(set, out);
    let turn = view.turn();
    if turn == Turn::Kernels {
        control::tend();
        // Doorbells fill the room that the kernel's own news may need.
        for _ in 0..LOOKS_PER_TURN {
            let taken = view.ask_kernel(Some(Duration::ZERO), core::ptr::null())?;
            if taken == 0 || view.arrivals.plain > 0 {
                break;
            }
        }
    }
    view.scan();
    if turn == Turn::Rings && view.found == 0 {
        view.ask_kernel(Some(Duration::ZERO), core::ptr::null())?;
        view.scan();
    }
    let (mut waiting, mut held) = (None, None);
    // SAFETY: the program's mask, by the manual of its call.
    let spinning = unsafe { Spinning::new(&mut held, mask, since) };
    // SAFETY: as before.
    let is_signalled = || unsafe { SignalsHeld::would_come(mask) };
    let may_wait = view.found == 0 && timeout != Some(Duration::ZERO);
    if may_wait && !is_signalled() {
        view.spin_and_scan(Overdue::after(deadline), spinning)?;
    }
    while view.found == 0 {
        interrupt::hold_for_sleep(&mut held, waiting.is_some() || !mask.is_null());
        Waiting::begin_once(&mut waiting, set);
        // It may have forked since, or others that it has forked use the set.
        set.use_here();
        if !set.is_open() {
            return Err(Errno::BADF);
        }
        since.check()?;
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let own = held.as_ref().filter(|_| mask.is_null());
        let own = own.map(SignalsHeld::mask);
        let mask = own.as_ref().map_or(mask, core::ptr::from_ref);
        let sleep = || view.sleep(left, mask);
        cancel::guarded(&held, || cancel::guarded(&waiting, sleep))?;
        wait::woke();
        view.scan();
        if left == Some(Duration::ZERO) {
            break;
        }
        view.rest(held.as_ref(), mask)?;
    }
    if set.is_nested.load(Ordering::Relaxed)
        && let Ok(mut inner) = set.inner.lock()
    {
        // Something may be left, which who watches the set is to see.
        beacon::look(set, &mut inner);
    }
    Ok(view.found)
}

impl<'a> Wait<'a> {
    fn new(set: &'static Set, out: &'a mut [MaybeUninit<epoll_event>]) -> Self {
        Self {
            set,
            out,
            found: 0,
            arrivals: Arrivals {
                events: [const { MaybeUninit::uninit() }; BATCH],
                count: 0,
                plain: 0,
            },
            short_sleeps: 0,
            is_dazzled: false,
        }
    }

    /// After several sleeps in vain: nap.
    fn rest(&self, held: Option<&SignalsHeld>, mask: *const sigset_t) -> Result<(), Errno> {
        if self.found > 0 || self.short_sleeps <= MOST_IN_VAIN {
            return Ok(());
        }
        let nap = if self.is_dazzled { LONG_NAP } else { NAP };
        match held.is_some_and(|held| held.nap_under(mask, nap)) {
            true => Err(Errno::INTR),
            false => Ok(()),
        }
    }

    fn tell(&mut self, order: &mut Order, (events, data): (u32, u64), moment: Moment) {
        if let Some(place) = self.out.get_mut(self.found) {
            place.write(epoll_event { events, u64: data });
            order.note(self.found, moment);
            self.found += 1;
        }
    }

    /// Whether all that a registration shows has been told of with its data. Others may have the same.
    #[cold]
    fn has_told(&self, reg: &Reg) -> bool {
        let told = reg.wanted() | UNASKED;
        let shown = ready::look(&reg.end, reg.wanted(), true) & told;
        let shown = u32::from(shown.cast_unsigned());
        self.out[..self.found].iter().any(|event| {
            // SAFETY: the first `found` have been written.
            let told = unsafe { event.assume_init_ref() };
            told.u64 == reg.data && shown & !told.events == 0
        })
    }

    /// Descriptors without rings must not wait for ever behind busy rings, nor these behind those.
    fn turn(&self) -> Turn {
        let Ok(mut inner) = self.set.inner.lock() else {
            return Turn::Kernels;
        };
        if core::mem::take(&mut inner.rings_turn) {
            return Turn::Rings;
        }
        let now = cpu::ticks();
        // With little room, rings and the kernel take turns.
        inner.kernel_turn = !inner.kernel_turn;
        let due = if self.out.len() <= inner.hot.len() {
            inner.kernel_turn
        } else {
            now.wrapping_sub(inner.kernel_looked) > KERNEL_LOOK_US * cpu::ticks_per_us()
        };
        if !due {
            return Turn::Nobodys;
        }
        inner.kernel_looked = now;
        Turn::Kernels
    }

    /// Report what the kernel has told, then what the rings of the other hot connections hold.
    fn scan(&mut self) {
        let set = self.set;
        let Ok(mut inner) = set.inner.lock() else {
            return;
        };
        inner.scan = inner.scan.wrapping_add(1);
        self.report_arrivals(&mut inner);
        let last = self.look_at_hot(&mut inner);
        self.look_again(&mut inner, last);
        inner.order.sort(&mut self.out[..self.found]);
    }

    /// Returns how many have been looked at before the last one of which there was something to tell.
    fn look_at_hot(&mut self, inner: &mut Inner) -> usize {
        let (count, start, mut last) = (inner.hot.len(), inner.first_hot(), 0);
        for step in 0..count {
            if self.found == self.out.len() {
                (inner.turn, inner.rings_turn) = (start + step, step == 0);
                break;
            }
            let (key, found) = (inner.hot_behind(start, step), self.found);
            self.look_at(inner, key);
            if self.found > found {
                last = step;
            }
        }
        last
    }

    /// What was written before something that has been found is there by now, though it was not when it was looked at, and is
    /// told of, too.
    fn look_again(&mut self, inner: &mut Inner, count: usize) {
        let Some(newest) = inner.order.newest().filter(|_| count > 0) else {
            return;
        };
        let (start, scan) = (inner.first_hot(), inner.scan);
        for step in 0..count {
            if self.found == self.out.len() {
                return;
            }
            let key = inner.hot_behind(start, step);
            let is_left = |reg: &&mut Reg| reg.told_by != scan && reg.is_live();
            let Some(reg) = inner.reg(key).filter(is_left) else {
                continue;
            };
            let moment = ready::moment(&reg.end, reg.news_since());
            if moment.is_told() && !newest.is_before(moment) {
                reg.scan = scan.wrapping_sub(1);
                self.look_at(inner, key);
            }
        }
    }

    fn report_arrivals(&mut self, inner: &mut Inner) {
        for place in 0..core::mem::take(&mut self.arrivals.count) {
            // SAFETY: the kernel has written the first `count` events.
            let event = unsafe { self.arrivals.events[place].assume_init() };
            let (events, data) = (event.events, event.u64);
            match set::key_of(data) {
                None => {
                    self.arrivals.plain -= 1;
                    self.tell(&mut inner.order, (events, data), Moment::default());
                }
                Some(key) if self.found + self.arrivals.plain < self.out.len() => {
                    match inner.reg(key).and_then(|reg| left_over(reg, events)) {
                        Some(told) => self.tell(&mut inner.order, told, Moment::default()),
                        None => self.look_at(inner, key),
                    }
                }
                // What finds no room now is found by the next scan of this thread, or by others.
                Some(key) => pass_on(self.set, inner, key),
            }
        }
    }

    /// Report what a connection has to tell, once in a scan.
    #[inline]
    fn look_at(&mut self, inner: &mut Inner, key: u32) {
        let scan = inner.scan;
        let reg = inner.reg(key);
        // Of one that another thread has handed back meanwhile the kernel tells.
        let is_ours = |reg: &&mut Reg| reg.is_live() && reg.ringed && reg.scan != scan;
        let Some(reg) = reg.filter(is_ours) else {
            return;
        };
        (reg.scan, reg.timed) = (scan, false);
        if core::mem::take(&mut reg.is_taken) && self.has_told(reg) {
            // The next wait tells of what has come since, as the kernel's would.
            return;
        }
        let has_others = has_sleepers(self.set);
        if reg.missed && has_others && !reg.is_silent() {
            // The doorbell may be for what has been reported. What comes after the look rings again.
            ready::arm_for_others(&reg.end);
        }
        let events = news(reg);
        if events != 0 {
            let moment = ready::moment(&reg.end, reg.news_since());
            if reg.is_once() && !sharing::spend(self.set, reg) {
                // Another process has been told, or is told by the kernel.
                reg.spent = true;
                return;
            }
            reg.told_by = scan;
            reported(reg, events);
            if has_others && !reg.is_silent() {
                ready::arm_for_others(&reg.end);
            }
            let is_level = !reg.is_edge() && !reg.is_silent();
            let told = (events & reg.told(), reg.data);
            self.tell(&mut inner.order, told, moment);
            if has_others && is_level {
                // As the kernel, which wakes the next one for what is ready still.
                pass_on(self.set, inner, key);
            }
        }
    }

    /// Look at the rings for as long as that pays, and report what has ended it.
    fn spin_and_scan(&mut self, overdue: Overdue, spinning: Spinning<'_>) -> Result<(), Errno> {
        let mut looks = KernelLooks::default();
        if self.spin(overdue, spinning, &mut looks) {
            if looks.is_long() {
                // Who writes by TCP and then into a ring expects to be heard in this order.
                self.ask_kernel(Some(Duration::ZERO), core::ptr::null())?;
            }
            self.scan();
        }
        Ok(())
    }

    /// Whether there is something to look at: news, in rings or the kernel, that time is up, or that a signal has come.
    fn spin(
        &self,
        mut overdue: Overdue,
        mut spinning: Spinning<'_>,
        looks: &mut KernelLooks,
    ) -> bool {
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
        let found = watched.last().is_some_and(|(end, _)| {
            let peer = place::peer_for_many(end, watched.len(), || spinning.hold());
            spinning.hold_if(wait::gives_way());
            let ready = || {
                let mut watched = watched.iter();
                let news = watched.any(|(end, wanted)| ready::glance(end, *wanted));
                let has_kernel_news = || kernel::poll_now(self.set.fd(), libc::POLLIN) != 0;
                news || overdue.is_due()
                    || spinning.is_interrupted()
                    || looks.is_due() && has_kernel_news()
            };
            let rest = |how, ticks| match watched.len() {
                1 => end.rest_for_record(how, ticks),
                // News may come by any of them.
                _ => cpu::relax(),
            };
            wait::look_and_rest(peer, ready, rest)
        });
        watched.clear();
        if let Ok(mut inner) = self.set.inner.lock() {
            inner.watched = watched;
        }
        found
    }

    /// Arm everything, sleep in the kernel, and report what woke us.
    fn sleep(&mut self, left: Option<Duration>, mask: *const sigset_t) -> Result<(), Errno> {
        replay::push();
        self.set.sleepers.fetch_add(1, Ordering::SeqCst);
        let slice = self.arm_all();
        let limit = slice.map_or(left, |slice| {
            Some(left.map_or(slice, |left| left.min(slice)))
        });
        let set = self.set;
        let wake = || {
            let others = count_down(&set.sleepers) > 1;
            if !others {
                disarm_all(set);
            }
        };
        let slept = cancel::undone(wake, || self.ask_kernel(limit, mask));
        wake();
        let is_short = slept? > 0 || limit == Some(Duration::ZERO);
        self.short_sleeps = if is_short { self.short_sleeps + 1 } else { 0 };
        Ok(())
    }

    /// Returns how long the caller may sleep at most; zero if there may be news.
    fn arm_all(&self) -> Option<Duration> {
        let mut inner = self.set.inner.lock().ok()?;
        beacon::put_out(self.set, &mut inner);
        beacon::heat_lost(&mut inner);
        let (mut quiet, mut mixed, mut waits_for_room) = (true, false, false);
        let surplus = inner.hot.len().saturating_sub(MOST_HOT);
        let is_one_of_many = inner.hot.len() > 1;
        for place in 0..inner.hot.len() {
            let key = inner.hot[place];
            let Some(reg) = inner.reg(key).filter(|reg| reg.is_live() && reg.ringed) else {
                continue;
            };
            sync(self.set, key, reg);
            if is_one_of_many {
                place::say_many(&reg.end);
            }
            let modes = (reg.end.rx_mode(), reg.end.tx_mode());
            let armed = ready::arm(&reg.end, reg.awaited());
            let mut is_quiet = true;
            if modes != (reg.end.rx_mode(), reg.end.tx_mode()) {
                // What the kernel has to tell about TCP it may have told before.
                reg.missed = true;
                is_quiet = false;
            }
            // Edge-triggered: arrivals already reported are no reason to stay awake.
            if !armed && news(reg) != 0 {
                // The look has used up what made it due, and the scan has yet to report it.
                (reg.missed, reg.fresh) = (true, true);
                is_quiet = false;
            }
            is_quiet &= armed || !waits_for_look(&reg.end);
            // In this order: it may be settled meanwhile.
            let unsettled = lost::is_unsettled(&reg.end) || ready::is_early(&reg.end);
            // Another process may be woken in our place.
            mixed |= self.set.sharing.is_settled();
            is_quiet &= !begins_anew(reg);
            quiet &= is_quiet;
            mixed |= unsettled;
            mixed |= reg.end.ending() == Ending::Open
                && (reg.end.tx_mode() == Mode::Ring) != (reg.end.rx_mode() == Mode::Ring);
            let sends_again = replay::is_under_way(&reg.end);
            let waits = sends_again
                || ready::waits_for_room(&reg.end, reg.wanted())
                    && (!reg.is_edge() || reg.lacks_room());
            waits_for_room |= waits;
            reg.quiet_waits += 1;
            // For the next scan to look at.
            let due = !is_quiet || unsettled || sends_again;
            let idle = reg.quiet_waits > QUIET_WAITS && reg.end.ending() == Ending::Open && !waits;
            reg.hot = due || place >= surplus && !idle;
            reg.timed = waits && reg.hot;
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

    /// Take a batch of events from the kernel, for the next scan to report.
    fn ask_kernel(
        &mut self,
        limit: Option<Duration>,
        mask: *const sigset_t,
    ) -> Result<usize, Errno> {
        let told = self.arrivals.count;
        let room = self.out.len() - self.found - self.arrivals.plain;
        let room = room.min(BATCH - told);
        if room == 0 {
            return Ok(0);
        }
        let batch = &mut self.arrivals.events[told..told + room];
        let taken = if limit == Some(Duration::ZERO) && mask.is_null() {
            kernel::epoll_now(self.set.fd(), batch)?
        } else {
            block(self.set.fd(), batch, limit, mask)?
        };
        self.set.use_here();
        self.arrivals.count += taken;
        for place in told..told + taken {
            // SAFETY: the kernel has written these events.
            let event = unsafe { self.arrivals.events[place].assume_init() };
            match set::key_of(event.u64) {
                None => self.arrivals.plain += 1,
                Some(beacon::KEY) => self.is_dazzled = true,
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
        if !self.set.sharing.is_settled() {
            return note_in(&mut inner, key);
        }
        note_all(&mut inner);
    }
}

/// What the program is to be told of a connection with rings by which the kernel has ended a wait.
pub fn told_by(set: &'static Set, key: u32) -> Option<MaybeUninit<epoll_event>> {
    let mut inner = set.inner.lock().ok()?;
    inner.reg(key).filter(|reg| reg.ringed)?.missed = true;
    inner.heat(key);
    let mut told = [MaybeUninit::uninit()];
    let mut view = Wait::new(set, &mut told);
    view.look_at(&mut inner, key);
    let is_told = view.found > 0;
    is_told.then_some(told[0])
}
