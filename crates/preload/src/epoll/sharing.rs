//! Epoll sets that several processes have: who uses one, and what becomes of it when two do.
//!
//! One process may keep a set in its records: it **owns** the set. Who forks, and its child, are each to say so before they go on
//! ([`attend`]): the first takes the set over if no living process owns it. The second makes it **shared**: its connections
//! go to TCP for good, and the kernel gets the program's own registrations, of which it tells every process as it would without
//! the library. What that takes is known from [`Common`] memory. What cannot go to TCP, since its peer makes no call, stays
//! in the records of all, with the library's registration, until it can. That is done in [`super::shared`].

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crosslane_ctl::slab::EndPhase;
use crosslane_stream::family::Family;
use crosslane_stream::{End, process};

use super::common::{Common, Hold, Kind, Name, Slot, Wish};
use super::early::Early;
use super::reg::Reg;
use super::set::{self, Inner, Set};
use super::{kernels, shared};
use crate::process::{is_own, own};

/// A parent has made the set, and this process has not used it.
const PARENTS: u32 = 1;
/// There is common memory.
const COMMON: u32 = 2;

/// What a record knows of other processes that have its set.
#[derive(Default)]
pub struct Sharing {
    /// Any of [`PARENTS`] and [`COMMON`].
    ways: AtomicU32,
    /// A leaked [`Common`], or null.
    common: AtomicPtr<Common>,
    /// This process has said that it uses the set.
    is_claimed: AtomicBool,
    /// This process has brought what it could to TCP, as the set is shared.
    is_settled: AtomicBool,
    /// What is in the records: the state of the common memory as of this version, and this many stuck connections.
    version: AtomicU64,
    stuck: AtomicU32,
}

impl Sharing {
    /// Whether there is something to [`attend`] to.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.ways.load(Ordering::Relaxed) != 0
    }

    /// Whether the set is left to a parent.
    pub fn is_parents(&self) -> bool {
        self.ways.load(Ordering::Relaxed) & PARENTS != 0
    }

    /// Whether this process knows that it is shared.
    pub fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Relaxed)
    }

    /// What it has in common with others, if anything.
    #[inline]
    pub fn common(&self) -> Option<&'static Common> {
        if self.ways.load(Ordering::Acquire) & COMMON == 0 {
            return None;
        }
        // SAFETY: null, or a leaked box.
        unsafe { self.common.load(Ordering::Acquire).as_ref() }
    }

    /// The record is of another set from now on. Returns whether a thread has settled the one before while it was closed, and counts as
    /// asleep there.
    pub fn begin_anew(&self) -> bool {
        self.ways.store(0, Ordering::Relaxed);
        self.is_claimed.store(false, Ordering::Relaxed);
        self.stuck.store(0, Ordering::Relaxed);
        self.is_settled.swap(false, Ordering::Relaxed)
    }

    /// This process is about to do what a shared set takes. Returns whether it has been before, and whether the set was left to
    /// its parent.
    pub fn settle(&self) -> (bool, bool) {
        let was_parents = self.ways.fetch_and(!PARENTS, Ordering::Relaxed) & PARENTS != 0;
        (self.is_settled.swap(true, Ordering::SeqCst), was_parents)
    }

    /// Threads that count as asleep in it, as another process may be.
    pub fn sleepers(&self) -> u32 {
        self.is_settled().into()
    }

    /// It knows of as many stuck connections. Returns whether it did before.
    pub fn know_stuck(&self, stuck: u32) -> bool {
        self.stuck.swap(stuck, Ordering::Relaxed) == stuck
    }

    fn know(&self, version: u64) {
        self.version.store(version, Ordering::Relaxed);
    }

    fn knows(&self, common: &Common) -> bool {
        self.version.load(Ordering::Relaxed) == common.version()
    }

    /// This process has changed something. What others have changed before is yet to be learned.
    fn change(&self, common: &Common) {
        let knows = self.knows(common);
        let version = common.change();
        if knows {
            self.know(version);
        }
    }
}

/// A process is about to fork: its child is to find what is in the set. The caller holds the record.
pub fn before_fork(set: &Set, inner: &mut Inner) {
    if process::has_left() {
        return;
    }
    let sharing = &set.sharing;
    // Also of a process without connections: both may come to have some.
    if sharing.common().is_none() && !sharing.is_parents() {
        make(set, inner);
    }
    let Some(common) = sharing.common() else {
        return;
    };
    let me = own();
    let _held = common.hold();
    if common.is_shared() || common.owner() != me {
        return;
    }
    let is_waited_for = [&set.sleepers, &set.waits].map(|count| count.load(Ordering::SeqCst) > 0);
    // Whoever watches it by another set is asleep elsewhere.
    let is_used = is_waited_for.contains(&true) || set.is_nested.load(Ordering::Relaxed);
    sharing.is_claimed.store(is_used, Ordering::Relaxed);
    common.give_to(if is_used { me } else { 0 });
}

/// In the child, which uses no memory from the heap.
pub fn begin_child(set: &Set) {
    set.sharing.ways.fetch_or(PARENTS, Ordering::Relaxed);
    set.sharing.is_claimed.store(false, Ordering::Relaxed);
}

/// Make the common memory of a set that this process uses.
#[cold]
fn make(set: &Set, inner: &mut Inner) -> Option<&'static Common> {
    let sharing = &set.sharing;
    let known = sharing.common.load(Ordering::Acquire);
    // SAFETY: null, or a leaked box.
    let common = match unsafe { known.as_ref() } {
        Some(common) => {
            common.renew().ok()?;
            common
        }
        None => {
            let made = Box::into_raw(Box::new(Common::new().ok()?));
            sharing.common.store(made, Ordering::Release);
            // SAFETY: just leaked.
            unsafe { &*made }
        }
    };
    // The kernel has forgotten a socket that was closed.
    inner.early.retain(Early::is_open);
    for early in &inner.early {
        let kind = if early.is_absent() {
            Kind::Absent
        } else {
            Kind::Kernels
        };
        let (events, data) = early.wish();
        common.add(early.name(), Wish { kind, events, data });
    }
    for reg in inner.all().filter(|reg| reg.is_live() && !reg.nameless) {
        if let Some(name) = reg.name() {
            common.add(name, wish_of(reg));
        }
    }
    common.claim(own());
    sharing.know(common.version());
    sharing.is_claimed.store(true, Ordering::Relaxed);
    sharing.is_settled.store(false, Ordering::Relaxed);
    sharing.ways.fetch_or(COMMON, Ordering::Release);
    Some(common)
}

fn wish_of(reg: &Reg) -> Wish {
    let kind = match reg {
        reg if reg.deleted => Kind::Deleted,
        reg if reg.absent => Kind::Absent,
        reg if reg.ringed && reg.spent => Kind::Spent,
        reg if reg.ringed => Kind::Tagged,
        _ => Kind::Kernels,
    };
    Wish {
        kind,
        events: reg.events,
        data: reg.data,
    }
}

/// This process uses the set now. Nobody holds `inner`.
#[inline]
pub fn attend(set: &Set) {
    let is_quiet =
        |common: &Common| !common.is_shared() && set.sharing.is_claimed.load(Ordering::Relaxed);
    if !set.sharing.common().is_some_and(is_quiet) {
        attend_now(set);
    }
}

#[cold]
fn attend_now(set: &Set) {
    if process::has_left() {
        // Its filter may know none of the calls that this takes, and the kernel has all of its sets.
        return;
    }
    let sharing = &set.sharing;
    let Some(common) = sharing.common() else {
        if sharing.ways.fetch_and(!PARENTS, Ordering::Relaxed) & PARENTS != 0
            && let Ok(mut inner) = set.inner.lock()
        {
            count_all(&mut inner);
        }
        return;
    };
    if common.is_shared() {
        shared::live_with_it(set, common);
    } else if !sharing.is_claimed.load(Ordering::Relaxed) {
        claim(set, common);
    }
}

/// It waits for what its parent has put there, which may have ended.
pub fn count_all(inner: &mut Inner) {
    inner
        .regs_mut()
        .filter(|reg| reg.is_live() && !reg.deleted)
        .for_each(Reg::count);
}

fn claim(set: &Set, common: &'static Common) {
    let Ok(mut inner) = set.inner.lock() else {
        return;
    };
    let sharing = &set.sharing;
    let me = own();
    let held = common.hold();
    if common.is_shared() || common.is_used_beside(me) {
        common.share();
        drop(held);
        drop(inner);
        return shared::live_with_it(set, common);
    }
    let is_kernels_ours = common.claim(me);
    sharing.is_claimed.store(true, Ordering::Relaxed);
    let was_parents = sharing.ways.fetch_and(!PARENTS, Ordering::Relaxed) & PARENTS != 0;
    if !sharing.knows(common) {
        learn(set, common, &mut inner);
    }
    drop(held);
    if was_parents {
        count_all(&mut inner);
    }
    for key in inner.keys() {
        let Some(reg) = inner.reg(key).filter(|reg| reg.is_live()) else {
            continue;
        };
        let end = reg.end;
        if !is_kernels_ours {
            reg.kernel_events = 0;
        }
        if reg.ringed && reg.kernel_events == 0 {
            kernels::sync(set, key, reg);
        } else if !reg.ringed && end.phase() == EndPhase::Granted && is_adopted(&end) {
            // By this process, while the set was its parent's.
            super::control::take_over(set, &mut inner, key, false);
        }
    }
}

fn is_adopted(end: &End) -> bool {
    end.local.adopted.load(Ordering::Acquire) != 0
}

/// The records are to be what another process has made of the set.
fn learn(set: &Set, common: &Common, inner: &mut Inner) {
    inner.early.retain(|early| !is_deleted(set, early.name()));
    let mut known = Vec::new();
    for slot in common.slots() {
        let wish = slot.wish();
        if wish.kind == Kind::None {
            continue;
        }
        let Some(end) = slot.end() else { continue };
        let key = match inner.find(&end) {
            Some((key, _)) => key,
            None => super::control::keep(set, inner, &end, (wish.events, wish.data)),
        };
        known.push(key);
        let Some(reg) = inner.reg(key) else { continue };
        adjust(set, reg, wish);
        inner.heat(key);
    }
    for key in inner.keys() {
        if !known.contains(&key) && inner.reg(key).is_some_and(|reg| !is_untold(common, reg)) {
            drop_reg(set, inner, key);
        }
    }
    set.sharing.know(common.version());
}

/// Whether what was registered has been deleted, by whichever process.
pub fn is_deleted(set: &Set, name: Name) -> bool {
    let wish = set.sharing.common().and_then(|common| common.wish(name));
    wish.is_some_and(|wish| wish.kind == Kind::None)
}

/// Whether a registration is known from the records only: of a connection that lacks its number, or for which there was no room.
pub fn is_untold(common: &Common, reg: &Reg) -> bool {
    reg.nameless || reg.is_live() && slot_of(common, reg).is_none()
}

pub fn slot_of<'a>(common: &'a Common, reg: &Reg) -> Option<&'a Slot> {
    common.find(reg.name()?)
}

/// A registration is what stands in the common memory. The kernel's tag may be another process's.
pub fn adjust(set: &Set, reg: &mut Reg, wish: Wish) {
    reg.fresh |= (reg.events, reg.data) != (wish.events, wish.data);
    (reg.events, reg.data) = (wish.events, wish.data);
    reg.deleted = wish.kind == Kind::Deleted;
    reg.absent = wish.kind == Kind::Absent;
    reg.spent = matches!(wish.kind, Kind::Spent | Kind::Absent);
    reg.kernel_events = 0;
    match (
        core::mem::replace(&mut reg.ringed, wish.kind.is_tagged()),
        reg.ringed,
    ) {
        (false, true) => {
            set.ringed.fetch_add(1, Ordering::SeqCst);
            reg.reported_line = 0;
        }
        (true, false) => {
            set.ringed.fetch_sub(1, Ordering::SeqCst);
        }
        _ => {}
    }
}

pub fn drop_reg(set: &Set, inner: &mut Inner, key: u32) {
    if let Some(mut reg) = inner.remove(key) {
        reg.uncount();
        if reg.ringed {
            set.ringed.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Whether this process may change what the kernel has of a registration by which it tells the library. Nobody else does, as long
/// as the answer is kept. The caller holds the record.
#[inline]
pub fn may_change(set: &Set, reg: &Reg) -> Option<Option<Hold<'static>>> {
    match set.sharing.common() {
        None => Some(None),
        Some(common) => may_change_common(set, common, reg),
    }
}

#[cold]
fn may_change_common(
    set: &Set,
    common: &'static Common,
    reg: &Reg,
) -> Option<Option<Hold<'static>>> {
    let sharing = &set.sharing;
    let held = common.hold();
    let may = match common.is_shared() {
        true => slot_of(common, reg).is_none_or(|slot| slot.wish().kind.is_tagged()),
        // A parent goes on with what it has, until its child says that it uses the set.
        false if common.owner() == 0 => !sharing.is_parents(),
        false => sharing.is_claimed.load(Ordering::Relaxed),
    };
    may.then_some(Some(held))
}

/// As [`may_change`], of what the program has deleted, unless a relative has added it again.
pub fn may_delete(set: &Set, reg: &Reg) -> Option<Option<Hold<'static>>> {
    let is_deleted = |common: &Common| {
        let slot = slot_of(common, reg);
        slot.is_none_or(|slot| slot.wish().kind == Kind::Deleted)
    };
    let may = set.sharing.common().is_none_or(is_deleted);
    may.then(|| may_change(set, reg)).flatten()
}

/// A registration is new, or has changed. The caller holds the record.
#[inline]
pub fn note(set: &Set, inner: &mut Inner, key: u32) {
    if let Some(common) = set.sharing.common() {
        note_common(set, common, inner, key, |reg, name| {
            common.add(name, wish_of(reg));
        });
    }
}

/// The kernel has none any more.
pub fn note_gone(set: &Set, inner: &mut Inner, key: u32) {
    if let Some(common) = set.sharing.common() {
        note_common(set, common, inner, key, |_, name| {
            if let Some(slot) = common.find(name) {
                slot.set_kind(Kind::None);
            }
        });
    }
}

#[cold]
fn note_common(
    set: &Set,
    common: &Common,
    inner: &mut Inner,
    key: u32,
    change: impl FnOnce(&Reg, Name),
) {
    let Some(reg) = inner.reg(key).filter(|reg| !reg.nameless) else {
        return;
    };
    let Some(name) = reg.name() else { return };
    let sharing = &set.sharing;
    let is_ours = sharing.is_claimed.load(Ordering::Relaxed) || !sharing.is_parents();
    let _held = common.hold();
    // Others have done so meanwhile, and go by the kernel.
    if is_ours && !common.is_shared() {
        change(reg, name);
        sharing.change(common);
    }
}

/// The program wishes something of what is no connection yet, and perhaps never will be; or no more.
pub fn note_other(set: &Set, (operation, number): (c_int, c_int), wish: Option<(u32, u64)>) {
    let Some(common) = set.sharing.common().filter(|_| !process::has_left()) else {
        return;
    };
    if operation != libc::EPOLL_CTL_ADD && !common.has_any() {
        return;
    }
    let Some(name) = Name::of(number) else { return };
    let is_known = || common.find(name).is_some();
    let may_connect = || operation == libc::EPOLL_CTL_ADD && Family::of(number).is_some();
    if !is_known() && !may_connect() {
        return;
    }
    let Ok(_inner) = set.inner.lock() else {
        return;
    };
    let _held = common.hold();
    match (wish, common.find(name)) {
        (Some((events, data)), _) => {
            let kind = Kind::Kernels;
            common.add(name, Wish { kind, events, data });
        }
        (None, Some(slot)) => slot.set_kind(Kind::None),
        (None, None) => {}
    }
    if !common.is_shared() {
        set.sharing.change(common);
    }
}

/// Whether the library may take a registration over from the kernel.
pub fn may_take_over(set: &Set) -> bool {
    let sharing = &set.sharing;
    let is_ours = |common: &Common| {
        let is_left = || common.owner() == 0 && !sharing.is_parents();
        !common.is_shared() && (sharing.is_claimed.load(Ordering::Relaxed) || is_left())
    };
    sharing.common().is_none_or(is_ours)
}

/// A registration is about to tell for the only time. Returns whether it may.
#[cold]
pub fn spend(set: &Set, reg: &Reg) -> bool {
    match set.sharing.common() {
        Some(common) if !reg.nameless => {
            let may = reg.name().is_none_or(|name| common.spend(name));
            set.sharing.change(common);
            may
        }
        _ => true,
    }
}

/// Programs of which nothing is known get a set: it is shared from now on.
pub fn share_with_all(set: &Set) {
    if process::has_left() {
        return;
    }
    let common = {
        let Ok(mut inner) = set.inner.lock() else {
            return;
        };
        set.sharing.common().or_else(|| make(set, &mut inner))
    };
    let Some(common) = common else { return };
    common.share();
    shared::live_with_it(set, common);
}

/// The set is closed here. The caller holds the record.
pub fn close(set: &Set) {
    let sharing = &set.sharing;
    let Some(common) = sharing.common() else {
        sharing.ways.store(0, Ordering::Relaxed);
        return;
    };
    common.is_given_up_by(own());
    sharing.ways.store(0, Ordering::Release);
    sharing.is_claimed.store(false, Ordering::Relaxed);
    if sharing.is_settled.swap(false, Ordering::Relaxed) {
        set.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
    if !process::has_left() {
        common.drop_memory();
    }
}

/// The process may have to use its sets without the library from now on, and without telling others of it.
pub fn use_all() {
    if is_own() {
        set::every().into_iter().for_each(Set::use_here);
    }
}

/// The process is about to become another program, which knows nothing of its sets. The caller may be a handler that has
/// interrupted whoever holds a record.
pub fn before_exec() {
    if !is_own() && !process::has_left() {
        // A child of vfork, and the sets are its parent's.
        return;
    }
    for set in set::every() {
        if let Some(common) = set.sharing.common()
            && common.is_given_up_by(own())
        {
            // It goes on if there is no such program.
            set.sharing.is_claimed.store(false, Ordering::Relaxed);
        }
    }
}
