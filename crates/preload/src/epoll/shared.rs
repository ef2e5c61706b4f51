//! Epoll sets that several living processes use: the kernel has the program's registrations, and tells each of them.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::time::Instant;

use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndPhase, end_flags};
use crosslane_stream::{End, close as closing, rest};
use crosslane_sys::{Errno, kernel};
use libc::epoll_event;

use super::common::{Common, Kind, Name, Slot, Wish};
use super::control::{self, NO_KEY, ONCE};
use super::kernels::{EDGE, EXCLUSIVE, OUT};
use super::reg::Reg;
use super::set::{self, Inner, Set};
use super::sharing;
use crate::{c, progress};

/// How long the connections of a set are waited for in all to be back on TCP: peers that sleep answer sooner, and of what stands in
/// memory the caller is to be told in time.
const PATIENCE: Duration = Duration::from_millis(3);

/// How long a process that sleeps in the set may take to learn that it is shared.
const NOTICE: Duration = Duration::from_millis(5);

/// Whether any set of this process is shared.
static IS_ANY_SHARED: AtomicBool = AtomicBool::new(false);

/// Several processes use the set.
#[cold]
pub fn live_with_it(set: &Set, common: &Common) {
    let knows = set.sharing.know_stuck(common.stuck());
    let is_first = !set.sharing.is_settled() && settle(set, common);
    if !is_first && (set.ringed.load(Ordering::Relaxed) > 0 || !knows) {
        look_again(set, common);
    }
}

/// What was stuck may be free by now, or be wished for otherwise.
fn look_again(set: &Set, common: &Common) {
    let stuck = |inner: &Inner| {
        inner
            .all()
            .filter(|reg| reg.ringed)
            .map(|reg| reg.end)
            .collect()
    };
    let ends: Vec<End> = set
        .inner
        .lock()
        .map_or_else(|_| Vec::new(), |inner| stuck(&inner));
    for end in ends {
        progress::hand_back_now(&end);
    }
    if let Ok(mut inner) = set.inner.lock() {
        let _held = common.hold();
        refresh(set, common, &mut inner);
    }
}

/// A connection has left its rings. The caller holds the record.
pub fn hand_back(set: &Set, inner: &mut Inner, key: u32) {
    let Some(common) = set.sharing.common() else {
        return;
    };
    let _held = common.hold();
    let Some(reg) = inner.reg(key).filter(|reg| !reg.nameless) else {
        return;
    };
    if reg.end.phase() == EndPhase::Granted {
        return;
    }
    let Some(slot) = sharing::slot_of(common, reg) else {
        return leave(set, inner, key);
    };
    let (number, wish) = (reg.number, slot.wish());
    if wish.kind.is_tagged() {
        give(set, slot, number, wish);
    }
    sharing::drop_reg(set, inner, key);
}

/// epoll_ctl(2) of a connection in a shared set.
pub fn control(
    set: &Set,
    (operation, wish): (c_int, Option<epoll_event>),
    end: &End,
    kernel: impl Fn() -> c_int,
) -> c_int {
    let Some((common, name)) = set.sharing.common().zip(Name::of(end.fd)) else {
        return kernel();
    };
    if operation == libc::EPOLL_CTL_ADD {
        go_to_tcp(&[*end]);
    }
    let wish = wish.map(|wish| (wish.events, wish.u64));
    let (result, is_news) = {
        let Ok(mut inner) = set.inner.lock() else {
            return kernel();
        };
        let _held = common.hold();
        let change = Change {
            set,
            common,
            name,
            end,
        };
        let stuck = common.stuck();
        let result = match operation {
            libc::EPOLL_CTL_DEL => change.delete(&mut inner, kernel),
            _ => change.wish(&mut inner, (operation, wish), kernel),
        };
        (result, common.stuck() != stuck)
    };
    if is_news && operation == libc::EPOLL_CTL_ADD {
        // Of those who sleep the kernel wakes one by an edge, who may lack the connection.
        ring_all(set, || false);
    }
    result
}

/// What the program changes of one connection. The caller holds the record, and the common memory.
struct Change<'a> {
    set: &'a Set,
    common: &'a Common,
    name: Name,
    end: &'a End,
}

impl Change<'_> {
    fn wish(
        &self,
        inner: &mut Inner,
        (operation, wish): (c_int, Option<(u32, u64)>),
        kernel: impl Fn() -> c_int,
    ) -> c_int {
        let known = self.common.wish(self.name);
        let kind = known.map_or(Kind::None, |wish| wish.kind);
        let was = known.map_or(0, |wish| wish.events);
        let is_stuck = self.end.phase() == EndPhase::Granted;
        match (operation, wish, kind) {
            (libc::EPOLL_CTL_ADD, Some(_), Kind::Absent | Kind::Tagged | Kind::Spent) => {
                c::fail(Errno(libc::EEXIST))
            }
            (libc::EPOLL_CTL_ADD, Some(wish), _) if is_stuck => {
                self.keep(inner, libc::EPOLL_CTL_ADD, wish)
            }
            (libc::EPOLL_CTL_ADD, Some(wish), _) => self.noted(kernel(), wish),
            // The kernel may have it without that.
            (libc::EPOLL_CTL_MOD, Some((events, _)), kind)
                if kind != Kind::None && (events | was) & EXCLUSIVE != 0 =>
            {
                c::fail(Errno::INVAL)
            }
            (libc::EPOLL_CTL_MOD, Some(wish), Kind::Absent) if is_stuck => {
                self.keep(inner, libc::EPOLL_CTL_ADD, wish)
            }
            (libc::EPOLL_CTL_MOD, Some(wish), Kind::Absent) => {
                let added = change(self.set, libc::EPOLL_CTL_ADD, self.end.fd, wish);
                self.noted(added.map_or_else(c::fail, |()| 0), wish)
            }
            (libc::EPOLL_CTL_MOD, Some((events, data)), Kind::Tagged | Kind::Spent) => {
                let kind = Kind::Tagged;
                self.common.add(self.name, Wish { kind, events, data });
                tell_of_stuck(self.set, self.common, inner, self.end);
                0
            }
            (libc::EPOLL_CTL_MOD, Some(wish), Kind::Kernels) if is_stuck => {
                self.keep(inner, libc::EPOLL_CTL_MOD, wish)
            }
            (libc::EPOLL_CTL_MOD, Some(wish), _) => self.noted(kernel(), wish),
            _ => kernel(),
        }
    }

    fn delete(&self, inner: &mut Inner, kernel: impl Fn() -> c_int) -> c_int {
        let slot = self.common.find(self.name);
        let is_absent = |slot: &Slot| slot.wish().kind == Kind::Absent;
        let result = match slot.is_some_and(is_absent) {
            true => 0,
            false => kernel(),
        };
        if result == 0 {
            if let Some(slot) = slot {
                slot.set_kind(Kind::None);
            }
            if let Some((key, _)) = inner.find(self.end) {
                sharing::drop_reg(self.set, inner, key);
            }
        }
        result
    }

    /// A connection of which something stays in memory: each process looks there.
    fn keep(&self, inner: &mut Inner, operation: c_int, (events, data): (u32, u64)) -> c_int {
        if let Err(errno) = change(self.set, operation, self.end.fd, STUCK) {
            return c::fail(errno);
        }
        let kind = Kind::Tagged;
        self.common.add(self.name, Wish { kind, events, data });
        tell_of_stuck(self.set, self.common, inner, self.end);
        0
    }

    /// Note what has succeeded with the kernel.
    fn noted(&self, result: c_int, wish: (u32, u64)) -> c_int {
        if result == 0 {
            self.common.add(self.name, kernels_own(wish));
        }
        result
    }
}

/// What the kernel has of a connection that each process looks at.
const STUCK: (u32, u64) = (EDGE, set::tagged(NO_KEY));

fn kernels_own((events, data): (u32, u64)) -> Wish {
    let kind = Kind::Kernels;
    Wish { kind, events, data }
}

fn change(
    set: &Set,
    operation: c_int,
    number: c_int,
    (events, data): (u32, u64),
) -> Result<(), Errno> {
    let event = epoll_event { events, u64: data };
    kernel::epoll_ctl(set.fd(), operation, number, event)
}

/// Whoever uses the set is to look at it, by turns.
fn tell_of_stuck(set: &Set, common: &Common, inner: &mut Inner, end: &End) {
    common.note_stuck();
    refresh(set, common, inner);
    if let Some((key, reg)) = inner.find(end) {
        reg.fresh = true;
        control::tell_sleepers(set, inner, key);
    }
}

/// The program has changed something in a set, which may have come to be shared meanwhile: the kernel is to have it then.
#[cold]
pub fn repeat(set: &Set, (operation, wish): (c_int, Option<epoll_event>), end: &End) {
    // Another thread may have forked meanwhile.
    set.use_here();
    let Some(common) = set.sharing.common().filter(|common| common.is_shared()) else {
        return;
    };
    let Some(name) = Name::of(end.fd) else { return };
    let saved = Errno::last();
    let wish = wish.map(|wish| (wish.events, wish.u64));
    let wish = wish.filter(|_| operation != libc::EPOLL_CTL_DEL);
    if wish.is_some() {
        go_to_tcp(&[*end]);
    }
    if let Ok(mut inner) = set.inner.lock() {
        let _held = common.hold();
        let this = Change {
            set,
            common,
            name,
            end,
        };
        match wish {
            Some(wish) if end.phase() == EndPhase::Granted => {
                this.keep(&mut inner, libc::EPOLL_CTL_ADD, wish);
                this.keep(&mut inner, libc::EPOLL_CTL_MOD, wish);
            }
            Some(wish) => {
                let _ = change(set, libc::EPOLL_CTL_ADD, end.fd, wish);
                let _ = change(set, libc::EPOLL_CTL_MOD, end.fd, wish);
                common.add(name, kernels_own(wish));
            }
            None => {
                let _ = change(set, libc::EPOLL_CTL_DEL, end.fd, (0, 0));
                // Which may have happened before.
                this.delete(&mut inner, || 0);
            }
        }
    }
    saved.set();
}

/// Bring the set's connections to TCP, and give the kernel the program's registrations, as far as this process has them. Returns
/// whether no other thread has begun to.
fn settle(set: &Set, common: &Common) -> bool {
    IS_ANY_SHARED.store(true, Ordering::SeqCst);
    let ends = {
        let Ok(mut inner) = set.inner.lock() else {
            return false;
        };
        let (was_settled, was_parents) = set.sharing.settle();
        if was_settled {
            return false;
        }
        // Others may be asleep whenever one looks.
        set.sleepers.fetch_add(1, Ordering::SeqCst);
        if was_parents {
            sharing::count_all(&mut inner);
        }
        let untold = inner.all().filter(|reg| sharing::is_untold(common, reg));
        let slots = common.slots().filter(|slot| slot.wish().kind != Kind::None);
        let ends = slots.filter_map(Slot::end);
        ends.chain(untold.map(|reg| reg.end)).collect::<Vec<_>>()
    };
    go_to_tcp(&ends);
    let informed = common.inform() + 1;
    let is_left = set.inner.lock().is_ok_and(|mut inner| {
        let _held = common.hold();
        refresh(set, common, &mut inner)
    });
    if is_left {
        // Whoever sleeps in the set is to do what this process cannot, since it lacks a connection.
        ring_all(set, || common.informed() > informed);
    }
    true
}

/// Leave connections to the kernel for good, as far as their peers allow it in time.
fn go_to_tcp(ends: &[End]) {
    let deadline = Instant::now() + PATIENCE;
    // Whoever has not answered a first freeze is not waited for again.
    let stays = |end: &&End| end.is_pinned() && !end.has_flags(end_flags::RESTING);
    let (old, new): (Vec<&End>, Vec<&End>) = ends.iter().partition(stays);
    for end in &new {
        closing::make_plain(end, Reason::EpollShared, Duration::ZERO);
    }
    for end in new {
        while end.phase() == EndPhase::Granted {
            let is_overdue = Instant::now() > deadline;
            // What stood in memory is to be there when the kernel is asked.
            let may_leave = is_overdue || closing::is_there(end);
            if may_leave && progress::hand_back_now(end) {
                break;
            }
            if is_overdue {
                // All who have it go by what stands in memory.
                rest::unfreeze(end);
                break;
            }
            closing::attend_peer_here(end);
            std::thread::yield_now();
        }
    }
    for end in old {
        progress::hand_back_now(end);
    }
}

/// Give the kernel what can be given by now, and keep the rest. The caller holds the record, and the common memory. Returns whether
/// something is left of which this process has nothing.
fn refresh(set: &Set, common: &Common, inner: &mut Inner) -> bool {
    let (mut is_left, mut kept) = (false, Vec::new());
    for slot in common.slots() {
        if slot.wish().kind == Kind::Kernels {
            take(set, common, slot);
        }
        let wish = slot.wish();
        if !wish.kind.is_tagged() {
            continue;
        }
        let Some(end) = slot.end() else {
            is_left = true;
            continue;
        };
        let is_stuck = wish.kind == Kind::Tagged && end.phase() == EndPhase::Granted;
        if !is_stuck {
            give(set, slot, end.fd, wish);
            continue;
        }
        let key = match inner.find(&end) {
            Some((key, _)) => key,
            None => control::keep(set, inner, &end, (wish.events, wish.data)),
        };
        kept.push(key);
        if let Some(reg) = inner.reg(key) {
            let kernel_events = reg.kernel_events;
            sharing::adjust(set, reg, wish);
            reg.kernel_events = kernel_events;
        }
        inner.heat(key);
    }
    for key in inner.keys() {
        if kept.contains(&key) {
            continue;
        }
        let is_untold = |reg: &mut Reg| reg.ringed && sharing::is_untold(common, reg);
        match inner.reg(key).is_some_and(is_untold) {
            true => {
                leave(set, inner, key);
                // What stays is looked at by turns.
                inner.heat(key);
            }
            false => sharing::drop_reg(set, inner, key),
        }
    }
    is_left
}

/// The kernel has the program's registration of a connection of which something stays in memory, as it has come into rings
/// unknown to the set. What EPOLLONESHOT may have switched off waits for the program.
fn take(set: &Set, common: &Common, slot: &Slot) {
    let events = slot.wish().events;
    let Some(end) = slot.granted_end().filter(|_| events & ONCE == 0) else {
        return;
    };
    if replace(set, end.fd, events, STUCK).is_ok() {
        slot.set_kind(Kind::Tagged);
        common.note_stuck();
    }
}

/// As [`give`], of what is known from the records only, once it is on TCP.
fn leave(set: &Set, inner: &mut Inner, key: u32) {
    let is_free = |reg: &&mut Reg| !reg.nameless && reg.end.phase() != EndPhase::Granted;
    let Some(reg) = inner.reg(key).filter(is_free) else {
        return;
    };
    let (operation, events) = match reg.deleted || reg.spent {
        true => (libc::EPOLL_CTL_DEL, 0),
        false => (libc::EPOLL_CTL_MOD, reg.events & !EXCLUSIVE),
    };
    let _ = change(set, operation, reg.number, (events, reg.data));
    sharing::drop_reg(set, inner, key);
}

/// The kernel has the library's registration, and gets the program's.
fn give(set: &Set, slot: &Slot, number: c_int, wish: Wish) {
    // Somebody may be telling of it just now, and then is the one who does.
    let kind = match wish.kind {
        Kind::Tagged if slot.leave() => Kind::Kernels,
        Kind::Deleted => Kind::None,
        _ => Kind::Absent,
    };
    slot.set_kind(kind);
    let program = (wish.events, wish.data);
    let _ = match kind {
        Kind::Kernels => replace(set, number, wish.events, program),
        _ => change(set, libc::EPOLL_CTL_DEL, number, program),
    };
}

/// The kernel gets `other` in the place of what it has: by a change, unless the program's `events` are exclusive, which can be neither
/// changed nor had by a change.
fn replace(set: &Set, number: c_int, events: u32, other: (u32, u64)) -> Result<(), Errno> {
    if events & EXCLUSIVE == 0 {
        return change(set, libc::EPOLL_CTL_MOD, number, other);
    }
    let _ = change(set, libc::EPOLL_CTL_DEL, number, other);
    change(set, libc::EPOLL_CTL_ADD, number, other)
}

/// Wake all who sleep in the set, one after another, until it is enough or they have had time.
fn ring_all(set: &Set, is_enough: impl Fn() -> bool) {
    let Ok(bell) = kernel::event_descriptor() else {
        return;
    };
    let event = epoll_event {
        events: OUT,
        u64: set::tagged(NO_KEY),
    };
    let deadline = Instant::now() + NOTICE;
    if kernel::epoll_ctl(set.fd(), libc::EPOLL_CTL_ADD, bell, event).is_ok() {
        while !is_enough() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        // Forked processes may hold it, too.
        let _ = kernel::epoll_ctl(set.fd(), libc::EPOLL_CTL_DEL, bell, event);
    }
    kernel::close(bell);
}

/// Whether any set is shared.
pub fn is_any() -> bool {
    IS_ANY_SHARED.load(Ordering::SeqCst)
}

/// A socket that was in shared sets before has begun a connection, which is to stay on TCP.
pub fn connected(end: &End) {
    if !IS_ANY_SHARED.load(Ordering::SeqCst) {
        return;
    }
    let Some(name) = Name::of(end.fd) else { return };
    let is_in = |set: &Set| {
        let common = set.sharing.common().filter(|common| common.is_shared());
        let wish = common.and_then(|common| common.wish(name));
        wish.is_some_and(|wish| wish.kind != Kind::None)
    };
    if set::every().iter().any(|set| is_in(set)) {
        go_to_tcp(&[*end]);
    }
}
