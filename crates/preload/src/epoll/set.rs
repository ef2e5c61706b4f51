//! What was registered in which epoll set.

use core::ffi::c_int;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::sync::OnceLock;

use crosslane_stream::End;
use crosslane_stream::process::MAX_FDS;
use crosslane_stream::young::grow_all;
use crosslane_sys::busy::{Busy, Mutex, MutexGuard};
use crosslane_sys::memory::Mapping;

use super::asleep;
use super::beacon::Beacon;
use super::early::Early;
use super::kept;
use super::order::Order;
use super::reg::Reg;
use super::sharing::{self, Sharing};

/// Kernel data of registrations that carry our tag: the tag in the upper half, a key in the lower.
const TAG: u64 = 0xC055_1A9E_0000_0000;
const TAG_MASK: u64 = 0xffff_ffff_0000_0000;

/// Sets by descriptor. A set that has been made stays for the next epoll descriptor of its number.
static SETS: OnceLock<Option<Mapping>> = OnceLock::new();
static HIGHEST: AtomicU32 = AtomicU32::new(0);

/// One epoll set of the program.
pub struct Set {
    /// The descriptor by which the library reaches it.
    epoll: AtomicI32,
    /// A [`State`].
    state: AtomicU32,
    /// Descriptors that name it.
    names: AtomicU32,
    pub inner: Mutex<Inner>,
    /// Registrations with rings; 0 lets a wait go straight to the kernel.
    pub ringed: AtomicU32,
    /// Threads asleep in the kernel on this set.
    pub sleepers: AtomicU32,
    /// Calls that wait in it and have slept; see [`super::kept`].
    pub waits: AtomicU32,
    /// The library's own descriptor of a set that was closed under a wait, or 0.
    pub kept: AtomicI32,
    /// It is polled, or in another set: its connections stay on TCP.
    pub is_nested: AtomicBool,
    /// What is known of other processes that have it.
    pub sharing: Sharing,
}

/// What is known of the descriptors that lead to a record.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum State {
    /// Closed; the record is for the next set of that number.
    Closed = 0,
    /// An epoll set of which the kernel alone knows what is in it.
    Kernels = 1,
    /// A set with connections in it, or waited for in a process with connections.
    Used = 2,
}

impl Set {
    fn new(epoll: c_int) -> Self {
        Self {
            epoll: AtomicI32::new(epoll),
            state: AtomicU32::new(State::Kernels as u32),
            names: AtomicU32::new(1),
            inner: Mutex::new(Inner::default()),
            ringed: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            waits: AtomicU32::new(0),
            kept: AtomicI32::new(0),
            is_nested: AtomicBool::new(false),
            sharing: Sharing::default(),
        }
    }

    /// A descriptor of the set.
    pub fn fd(&self) -> c_int {
        self.epoll.load(Ordering::Relaxed)
    }

    /// This process uses it, and has to do with others that do. Nobody holds `inner`.
    #[inline]
    pub fn use_here(&self) {
        if self.sharing.is_due() {
            sharing::attend(self);
        }
    }

    /// The record, for connections, unless it has been closed.
    pub fn use_now(&self) -> Option<&'static Self> {
        known(self.fd()).filter(|set| core::ptr::eq(*set, self))?;
        get_or_make(self.fd())
    }

    /// It has a connection. It has not been closed.
    pub fn note_used(&self) {
        self.enter(State::Used);
    }

    /// Whether it is left to a parent.
    pub fn is_parents(&self) -> bool {
        self.sharing.is_parents()
    }

    /// Whether it has not been closed.
    pub fn is_open(&self) -> bool {
        self.is(State::Used)
    }

    fn is(&self, state: State) -> bool {
        self.state.load(Ordering::Relaxed) == state as u32
    }

    fn enter(&self, state: State) {
        self.state.store(state as u32, Ordering::Relaxed);
    }
}

/// The registrations of a set that concern connections.
#[derive(Default)]
pub struct Inner {
    regs: Vec<Option<Reg>>,
    free: Vec<u32>,
    /// Of sockets that are no connections yet.
    pub early: Vec<Early>,
    /// Keys of connections to look at before asking the kernel.
    pub hot: Vec<u32>,
    /// Where the next scan of `hot` begins.
    pub turn: usize,
    /// Counts the scans, so that each looks at a connection once.
    pub scan: u32,
    /// When the kernel was last asked although rings may have had news, in ticks.
    pub kernel_looked: u64,
    /// With little room for events, rings and the kernel take turns.
    pub kernel_turn: bool,
    /// What the kernel told has taken the room in which connections in `hot` would have been told of.
    pub rings_turn: bool,
    /// Room for what a spin watches, kept so that a wait allocates nothing.
    pub watched: Vec<(End, i16)>,
    /// In which order a scan has found what it tells.
    pub order: Order,
    /// Lost windows of the process that the set's connections have been looked at for.
    pub losses: u32,
    /// The same of what the process has to send again.
    pub replays: u32,
    /// Lit while the kernel must show the set as ready for what stands in rings.
    pub beacon: Option<Beacon>,
}

impl Inner {
    /// Keep a registration; returns its key.
    pub fn add(&mut self, reg: Reg) -> u32 {
        reg.end.local.registrations.fetch_add(1, Ordering::Relaxed);
        if let Some(key) = self.free.pop() {
            self.regs[key as usize] = Some(reg);
            return key;
        }
        self.regs.push(Some(reg));
        u32::try_from(self.regs.len() - 1).expect("fewer registrations than descriptors")
    }

    /// Where in `hot` a scan begins.
    pub fn first_hot(&self) -> usize {
        self.turn.checked_rem(self.hot.len()).unwrap_or(0)
    }

    /// The hot connection so many behind that at `start`, where the first follows the last.
    #[inline]
    pub fn hot_behind(&self, start: usize, step: usize) -> u32 {
        let (place, count) = (start + step, self.hot.len());
        self.hot[if place < count { place } else { place - count }]
    }

    /// The registration with this key.
    #[inline]
    pub fn reg(&mut self, key: u32) -> Option<&mut Reg> {
        self.regs.get_mut(key as usize)?.as_mut()
    }

    /// The key of the registration of `end` by this descriptor, and itself; deleted ones included.
    pub fn find(&mut self, end: &End) -> Option<(u32, &mut Reg)> {
        let key = self.keys_of(end).find(|key| {
            let reg = self.regs[*key as usize].as_ref();
            reg.is_some_and(|reg| reg.end.fd == end.fd && !reg.nameless)
        })?;
        self.reg(key).map(|reg| (key, reg))
    }

    /// The keys of all registrations of the connection in this set.
    pub fn keys_of(&self, end: &End) -> impl Iterator<Item = u32> + use<> {
        let is_of = |key: &u32| {
            let reg = self.regs.get(*key as usize).and_then(Option::as_ref);
            reg.is_some_and(|reg| reg.is_of(end))
        };
        let known = end.local.epoll_key.load(Ordering::Relaxed);
        let (one, mut all) = (Some(known).filter(is_of), Vec::new());
        if end.local.plural.load(Ordering::Relaxed) != 0 {
            let count = u32::try_from(self.regs.len()).unwrap_or(u32::MAX);
            all.extend((0..count).filter(is_of).filter(|key| Some(*key) != one));
        }
        one.into_iter().chain(all)
    }

    /// Forget a registration.
    pub fn remove(&mut self, key: u32) -> Option<Reg> {
        let reg = self.regs.get_mut(key as usize)?.take()?;
        reg.forget();
        self.hot.retain(|hot| *hot != key);
        self.free.push(key);
        Some(reg)
    }

    /// All registrations, to be changed.
    pub fn regs_mut(&mut self) -> impl Iterator<Item = &mut Reg> {
        self.regs.iter_mut().flatten()
    }

    /// All registrations.
    pub fn all(&self) -> impl Iterator<Item = &Reg> {
        self.regs.iter().flatten()
    }

    /// The keys of all registrations.
    pub fn keys(&self) -> impl Iterator<Item = u32> + use<> {
        0..u32::try_from(self.regs.len()).unwrap_or(u32::MAX)
    }

    /// The keys of what the program has deleted and the kernel still has.
    pub fn deleted(&self) -> Vec<u32> {
        let is_deleted = |reg: &Option<Reg>| reg.as_ref().is_some_and(|reg| reg.deleted);
        let regs = (0..).zip(&self.regs);
        regs.filter(|(_, reg)| is_deleted(reg))
            .map(|(key, _)| key)
            .collect()
    }

    /// Look at this connection before sleeping from now on.
    pub fn heat(&mut self, key: u32) {
        if let Some(reg) = self.reg(key) {
            reg.quiet_waits = 0;
            if !reg.hot {
                reg.hot = true;
                self.hot.push(key);
            }
        }
    }
}

/// The data of a kernel registration that stands for `key`.
pub const fn tagged(key: u32) -> u64 {
    TAG | key as u64
}

/// The key in the data of a kernel event, if it is ours.
pub fn key_of(data: u64) -> Option<u32> {
    (data & TAG_MASK == TAG).then(|| u32::try_from(data & !TAG_MASK).unwrap_or(0))
}

fn table() -> Option<&'static Mapping> {
    let bytes = MAX_FDS as usize * size_of::<AtomicPtr<Set>>();
    // A handler that came under the first look would wait for it.
    let make = || {
        let _busy = Busy::begin();
        SETS.get_or_init(|| Mapping::private(bytes).ok())
    };
    SETS.get().unwrap_or_else(make).as_ref()
}

fn cell(epoll: c_int) -> Option<&'static AtomicPtr<Set>> {
    let place = u32::try_from(epoll).ok().filter(|fd| *fd < MAX_FDS)?;
    // SAFETY: the mapping has MAX_FDS cells.
    let cell = unsafe {
        table()?
            .start()
            .cast::<AtomicPtr<Set>>()
            .add(place as usize)
    };
    // SAFETY: inside the mapping, which is never unmapped; zeroes are a null pointer.
    Some(unsafe { cell.as_ref() })
}

/// The record that a descriptor leads to, whatever it says.
fn record(fd: c_int) -> Option<&'static Set> {
    SETS.get()?;
    let set = cell(fd)?.load(Ordering::Acquire); // SYNC: set
    // SAFETY: null, or a leaked box.
    unsafe { set.as_ref() }
}

/// A new epoll descriptor: what the number named before is gone.
pub fn created(epoll: c_int) {
    if epoll >= 0 {
        forget_set(epoll);
        crosslane_stream::register::forget(epoll);
        make(epoll, State::Kernels);
    }
}

/// `new` is a copy of `fd`, which may be an epoll descriptor.
pub fn copied(fd: c_int, new: c_int) {
    forget_set(new);
    if let Some(set) = known(fd)
        && let Some(cell) = cell(new)
    {
        grow_all();
        set.names.fetch_add(1, Ordering::Relaxed);
        cell.store(core::ptr::from_ref(set).cast_mut(), Ordering::Release); // SYNC: set
        HIGHEST.fetch_max(new.cast_unsigned(), Ordering::Relaxed);
    }
}

/// The record of a descriptor that is known to be an epoll set.
pub fn known(fd: c_int) -> Option<&'static Set> {
    record(fd).filter(|set| !set.is(State::Closed))
}

/// The record of a set, if a connection has been registered in it.
#[inline]
pub fn get(epoll: c_int) -> Option<&'static Set> {
    record(epoll).filter(|set| set.is(State::Used))
}

/// The record of a set that is about to be waited for, in a process with connections.
pub fn for_wait(epoll: c_int) -> Option<&'static Set> {
    crosslane_stream::process::get()?;
    get(epoll).or_else(|| get_or_make(epoll))
}

/// The record of a set whose wait began when the process had no connection yet, and the set perhaps no record. It may have
/// another number by now.
pub fn made_since(known_before: Option<&'static Set>, epoll: c_int) -> Option<&'static Set> {
    match known_before {
        Some(known) => known.use_now(),
        None => known(epoll).and_then(|_| get_or_make(epoll)),
    }
}

/// The record of a set, made if needed.
pub fn get_or_make(epoll: c_int) -> Option<&'static Set> {
    make(epoll, State::Used)
}

fn make(epoll: c_int, state: State) -> Option<&'static Set> {
    let cell = cell(epoll)?;
    let known = cell.load(Ordering::Acquire); // SYNC: set
    // SAFETY: null, or a leaked box.
    if let Some(set) = unsafe { known.as_ref() } {
        if set.is(State::Closed) {
            set.epoll.store(epoll, Ordering::Relaxed);
            set.names.store(1, Ordering::Relaxed);
            set.is_nested.store(false, Ordering::Relaxed);
            if set.sharing.begin_anew() {
                set.sleepers.fetch_sub(1, Ordering::SeqCst);
            }
        }
        set.enter(state);
        return Some(set);
    }
    let fresh = Box::into_raw(Box::new(Set::new(epoll)));
    HIGHEST.fetch_max(epoll.cast_unsigned(), Ordering::Relaxed);
    // SYNC: set
    let set = match cell.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: just leaked, and now owned by the table.
        Ok(_) => unsafe { &*fresh },
        Err(other) => {
            // SAFETY: nobody else has seen the box.
            drop(unsafe { Box::from_raw(fresh) });
            // SAFETY: the table holds leaked boxes only, and this one is not null.
            unsafe { &*other }
        }
    };
    set.enter(state);
    Some(set)
}

/// Whether a descriptor is known to be an epoll set.
pub fn is_known(fd: c_int) -> bool {
    known(fd).is_some()
}

/// Descriptors that may lead to a record.
fn cells() -> impl Iterator<Item = c_int> {
    let count = HIGHEST.load(Ordering::Relaxed).cast_signed() + 1;
    0..if SETS.get().is_some() { count } else { 0 }
}

/// Whether there is any epoll set.
pub fn has_sets() -> bool {
    cells().any(is_known)
}

/// Descriptors of epoll sets.
pub fn sets() -> Vec<c_int> {
    cells().filter(|fd| is_known(*fd)).collect()
}

/// All sets with connections in them, each once.
pub fn all() -> Vec<&'static Set> {
    let mut sets = every();
    sets.retain(|set| set.is(State::Used));
    sets
}

/// All sets, each once.
pub fn every() -> Vec<&'static Set> {
    let is_first = |(fd, set): &(c_int, &Set)| set.fd() == *fd;
    let named = sets().into_iter().filter_map(|fd| Some((fd, known(fd)?)));
    named.filter(is_first).map(|(_, set)| set).collect()
}

/// The sets that may hold registrations of `end`.
pub fn sets_of(end: &End) -> impl Iterator<Item = &'static Set> {
    let stored = end.local.epoll_set.load(Ordering::Relaxed);
    let last = stored.checked_sub(1).map(u32::cast_signed).and_then(get);
    let others = if end.local.plural.load(Ordering::Relaxed) != 0 {
        all()
    } else {
        Vec::new()
    };
    let is_last = move |set: &&Set| last.is_some_and(|last| core::ptr::eq(last, *set));
    let others = others.into_iter().filter(move |set| !is_last(set));
    last.into_iter().chain(others)
}

/// The epoll descriptor is closed.
pub fn forget_set(fd: c_int) {
    let Some(set) = known(fd) else {
        return;
    };
    grow_all();
    if set.names.load(Ordering::SeqCst) == 1 {
        kept::keep(set, fd);
    }
    let_go(set, fd);
    // The wait may have ended before it could see that.
    kept::finish(set);
}

/// A descriptor names the set no more. With the last one it is closed.
fn let_go(set: &'static Set, fd: c_int) {
    let Ok(mut inner) = set.inner.lock() else {
        return;
    };
    if set.names.fetch_sub(1, Ordering::Relaxed) > 1 {
        forget_name(set, &inner, fd);
        return;
    }
    set.enter(State::Closed);
    sharing::close(set);
    for reg in inner.regs.iter_mut().flatten() {
        reg.uncount();
        reg.forget();
    }
    *inner = Inner::default();
    set.ringed.store(0, Ordering::Relaxed);
}

/// A descriptor of a set is closed that has others.
fn forget_name(set: &'static Set, inner: &Inner, fd: c_int) {
    if let Some(cell) = cell(fd) {
        cell.store(core::ptr::null_mut(), Ordering::Release); // SYNC: set
    }
    if set.fd() != fd {
        return;
    }
    let is_name = |fd: &c_int| record(*fd).is_some_and(|other| core::ptr::eq(other, set));
    if let Some(other) = cells().find(is_name) {
        set.epoll.store(other, Ordering::Relaxed);
    }
    // They remember the old name.
    for reg in inner.regs.iter().flatten() {
        reg.end.local.plural.store(1, Ordering::Relaxed);
    }
}

/// Held while the process forks, so that no record is half written in the child.
pub struct Fork(Vec<(&'static Set, MutexGuard<'static, Inner>)>);

/// Take every lock of this module.
pub fn before_fork() -> Fork {
    // The child would wait in vain for another thread that makes it just now.
    table();
    let mut records: Vec<&'static Set> = cells().filter_map(record).collect();
    records.sort_unstable_by_key(|set| core::ptr::from_ref(*set).addr());
    records.dedup_by(|one, other| core::ptr::eq(*one, *other));
    let lock = |set: &'static Set| {
        let mut inner = set.inner.lock().ok()?;
        if !set.is(State::Closed) {
            sharing::before_fork(set, &mut inner);
        }
        Some((set, inner))
    };
    Fork(records.into_iter().filter_map(lock).collect())
}

impl Fork {
    /// Go on in the child, where nobody sleeps, and where the parent counts what is inherited.
    ///
    /// Without memory from the heap, whose locks a thread of the parent may have: a child of clone(2) does not know.
    pub fn child(self) {
        asleep::forget();
        let mut this = ManuallyDrop::new(self);
        for (set, inner) in &mut this.0 {
            set.sleepers
                .store(set.sharing.sleepers(), Ordering::Relaxed);
            set.waits.store(0, Ordering::Relaxed);
            sharing::begin_child(set);
            for reg in inner.regs.iter_mut().flatten() {
                reg.leave_count();
            }
        }
        let at = |set: &Set| core::ptr::from_ref(set).addr();
        let is_ours = |set: &Set| {
            let held = this.0.binary_search_by_key(&at(set), |(held, _)| at(held));
            held.is_ok()
        };
        for fd in cells() {
            // Made since the locks were taken; one that a thread of the parent was in stays locked.
            if record(fd).is_some_and(|set| !is_ours(set) && set.inner.try_lock().is_err())
                && let Some(cell) = cell(fd)
            {
                cell.store(core::ptr::null_mut(), Ordering::Release); // SYNC: set
            }
        }
        while let Some((set, held)) = this.0.pop() {
            drop(held);
            // Who waited in it is in the parent.
            kept::finish(set);
        }
    }
}
