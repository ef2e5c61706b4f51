//! Memory that a process and those that it forks have in common about one epoll set: who uses the set, and what the program
//! has registered in it. The kernel cannot say the latter, as it has the library's registrations.
//!
//! It is made when the process forks ([`super::sharing`]). Whoever reads it takes each word once: relatives may write to it at any time.

use core::ffi::c_int;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use core::time::Duration;
use std::time::Instant;

use crosslane_ctl::slab::EndPhase;
use crosslane_stream::End;
use crosslane_stream::process::MAX_FDS;
use crosslane_sys::memory::Mapping;
use crosslane_sys::{Errno, kernel, process as system};

use crate::process::own;

/// So long is a relative waited for that changes something and lives: it may have been stopped meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_micros(20);
/// Room for registrations by numbers that relatives have something else by.
const SPARE: u32 = 1024;
/// So many descriptors a process has room for that may allow them to itself.
const MANY_FDS: usize = 1 << 16;
/// Naps after which it is asked whether a relative lives.
const NAPS: u32 = 50;

#[repr(C)]
struct Header {
    /// The process that changes something, or 0.
    lock: AtomicU32,
    /// Whether more than one process uses the set, which is so for good.
    shared: AtomicU32,
    /// The one that uses it alone, or 0 where none has since the last fork; and its pid namespace.
    owner: AtomicU32,
    /// The one that has last, whose the kernel's registrations are.
    claimer: AtomicU32,
    /// No number above it has been registered.
    highest: AtomicU32,
    /// So many of the [`SPARE`] have been used.
    spares: AtomicU32,
    namespace: AtomicU64,
    /// Counts the changes of what is registered.
    version: AtomicU64,
    /// Processes that know that the set is shared.
    informed: AtomicU32,
    /// Connections of which a part stays in memory, as they have been added.
    stuck: AtomicU32,
}

/// What stands for one registration.
#[repr(C)]
pub struct Slot {
    /// The socket, as the kernel tells it from others.
    cookie: AtomicU64,
    data: AtomicU64,
    events: AtomicU32,
    kind: AtomicU32,
    number: AtomicU32,
    /// The process that has registered it.
    by: AtomicU32,
}

/// What the kernel has of a registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// There is none.
    None = 0,
    /// The program's own.
    Kernels = 1,
    /// The library's.
    Tagged = 2,
    /// The library's, of one that the program has deleted.
    Deleted = 3,
    /// The library's, of one that EPOLLONESHOT has switched off.
    Spent = 4,
    /// Nothing, of one that EPOLLONESHOT has switched off.
    Absent = 5,
}

impl Kind {
    fn of(word: u32) -> Self {
        match word {
            1 => Self::Kernels,
            2 => Self::Tagged,
            3 => Self::Deleted,
            4 => Self::Spent,
            5 => Self::Absent,
            _ => Self::None,
        }
    }

    /// Whether the kernel has the library's.
    pub fn is_tagged(self) -> bool {
        matches!(self, Self::Tagged | Self::Deleted | Self::Spent)
    }
}

impl Slot {
    fn kind(&self) -> Kind {
        Kind::of(self.kind.load(Ordering::Acquire))
    }

    fn number(&self) -> c_int {
        self.number.load(Ordering::Relaxed).cast_signed()
    }

    fn is_of(&self, name: Name) -> bool {
        self.cookie.load(Ordering::Relaxed) == name.cookie && self.number() == name.number
    }

    /// Whether nothing stands there that is still registered: of two sockets of one process by one number the first is closed.
    fn is_free_for(&self, name: Name) -> bool {
        let is_closed = || self.number() == name.number && self.by.load(Ordering::Relaxed) == own();
        self.kind() == Kind::None || is_closed()
    }

    fn name(&self, name: Name) {
        self.by.store(own(), Ordering::Relaxed);
        let number = name.number.cast_unsigned();
        self.number.store(number, Ordering::Relaxed);
        self.cookie.store(name.cookie, Ordering::Relaxed);
    }

    pub fn wish(&self) -> Wish {
        Wish {
            kind: self.kind(),
            events: self.events.load(Ordering::Relaxed),
            data: self.data.load(Ordering::Relaxed),
        }
    }

    /// The connection, if this process has it by that number.
    pub fn end(&self) -> Option<End> {
        let end = End::known(self.number())?;
        Name::of(end.fd)
            .is_some_and(|name| self.is_of(name))
            .then_some(end)
    }

    /// As [`Self::end`], of one that has rings.
    pub fn granted_end(&self) -> Option<End> {
        let is_granted = |end: &End| end.phase() == EndPhase::Granted;
        End::known(self.number()).filter(is_granted)?;
        self.end()
    }

    fn set(&self, wish: Wish) {
        self.events.store(wish.events, Ordering::Relaxed);
        self.data.store(wish.data, Ordering::Relaxed);
        self.set_kind(wish.kind);
    }

    /// The kernel has something else of it.
    pub fn set_kind(&self, kind: Kind) {
        self.kind.store(kind as u32, Ordering::Release);
    }

    /// The kernel is about to get the program's registration. Returns whether nobody is being told of it instead.
    pub fn leave(&self) -> bool {
        self.change(Kind::Tagged, Kind::Kernels)
    }

    /// Returns whether nobody else has spent it, or has left it to the kernel.
    fn spend(&self) -> bool {
        self.change(Kind::Tagged, Kind::Spent)
    }

    fn change(&self, from: Kind, to: Kind) -> bool {
        let (from, to) = (from as u32, to as u32);
        let changed = self
            .kind
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        changed.is_ok()
    }
}

/// A registration as the program has made it, read once.
#[derive(Clone, Copy)]
pub struct Wish {
    pub kind: Kind,
    pub events: u32,
    pub data: u64,
}

/// How a registration is told from others: a socket, and a number that the process has had it by. Another process may have another
/// socket by that number.
#[derive(Clone, Copy)]
pub struct Name {
    number: c_int,
    cookie: u64,
}

impl Name {
    /// What a number names in this process, if that is a socket.
    pub fn of(number: c_int) -> Option<Self> {
        let cookie = kernel::getsockopt(number, libc::SOL_SOCKET, libc::SO_COOKIE).ok()?;
        Some(Self { number, cookie })
    }

    /// Of a socket whose cookie is known.
    pub fn known(number: c_int, cookie: u64) -> Self {
        Self { number, cookie }
    }

    /// SO_COOKIE, which is not 0.
    pub fn cookie(self) -> u64 {
        self.cookie
    }
}

/// The common memory of one set after another. Its place in this process is never given up, as a thread may look at it.
pub struct Common {
    memory: Mapping,
    /// Numbers that there is room for.
    room: u32,
}

impl Common {
    /// Room for the descriptors that this process may come to have, but for so many that few do.
    pub fn new() -> Result<Self, Errno> {
        let most = system::most_descriptors().max(MANY_FDS);
        let most = most.min(system::most_descriptors_ever());
        let room = u32::try_from(most).map_or(MAX_FDS, |most| most.min(MAX_FDS));
        let bytes = size_of::<Header>() + (SPARE + room) as usize * size_of::<Slot>();
        let memory = Mapping::common(bytes)?;
        Ok(Self { memory, room })
    }

    /// Have fresh memory for another set.
    pub fn renew(&self) -> Result<(), Errno> {
        self.memory.replace_common()
    }

    /// The set is closed here; relatives keep theirs.
    pub fn drop_memory(&self) {
        // Where that fails they go on with each other's.
        let _ = self.memory.replace_private();
    }

    fn header(&self) -> &Header {
        let start: NonNull<Header> = self.memory.start().cast();
        // SAFETY: the mapping begins with one, of atomics only, and is never unmapped.
        unsafe { start.as_ref() }
    }

    /// The spare ones are the first, then there is one for each number.
    fn slot(&self, place: u32) -> Option<&Slot> {
        if place >= SPARE + self.room {
            return None;
        }
        // SAFETY: they follow the header, which is as aligned as they have to be.
        let first = unsafe { self.memory.start().cast::<Header>().add(1) }.cast::<Slot>();
        // SAFETY: there are as many.
        let slot = unsafe { first.add(place as usize) };
        // SAFETY: inside the mapping, of atomics only, and never unmapped.
        Some(unsafe { slot.as_ref() })
    }

    fn spares(&self) -> impl Iterator<Item = u32> {
        0..self.header().spares.load(Ordering::Acquire).min(SPARE)
    }

    fn own_place(number: c_int) -> Option<u32> {
        u32::try_from(number).ok()?.checked_add(SPARE)
    }

    /// The slot of a registration.
    pub fn find(&self, name: Name) -> Option<&Slot> {
        let own = Self::own_place(name.number)?;
        let slots = core::iter::once(own).chain(self.spares());
        slots
            .filter_map(|place| self.slot(place))
            .find(|slot| slot.is_of(name))
    }

    /// The slot for a new registration: where nothing else stands, unless there is no such.
    fn find_room(&self, name: Name) -> Option<&Slot> {
        let own = Self::own_place(name.number)?;
        let slots = core::iter::once(own).chain(self.spares());
        let mut slots = slots.filter_map(|place| self.slot(place));
        let free = slots.find(|slot| slot.is_free_for(name));
        let spares = &self.header().spares;
        let count = spares.load(Ordering::Relaxed);
        let next = || {
            let fresh = self.slot(count).filter(|_| count < SPARE)?;
            spares.store(count + 1, Ordering::Release);
            Some(fresh)
        };
        // In a set of several the kernel knows what processes that have ended have left.
        let is_left = |slot: &&Slot| {
            slot.kind() == Kind::Kernels && !system::is_alive(slot.by.load(Ordering::Relaxed))
        };
        let left = || {
            self.spares()
                .filter_map(|place| self.slot(place))
                .find(is_left)
        };
        free.or_else(next).or_else(left).or_else(|| self.slot(own))
    }

    /// Whether anything has been registered.
    pub fn has_any(&self) -> bool {
        self.header().highest.load(Ordering::Relaxed) > 0
    }

    /// Whether several processes use the set.
    pub fn is_shared(&self) -> bool {
        self.header().shared.load(Ordering::SeqCst) != 0
    }

    /// They do from now on.
    pub fn share(&self) {
        self.header().shared.store(1, Ordering::SeqCst);
    }

    /// Who uses the set alone, or 0.
    pub fn owner(&self) -> u32 {
        self.header().owner.load(Ordering::SeqCst)
    }

    /// Whether another process than `me` uses it, as far as is known.
    pub fn is_used_beside(&self, me: u32) -> bool {
        let owner = self.owner();
        let is_seen = || self.header().namespace.load(Ordering::Relaxed) == system::pid_namespace();
        owner != 0 && (!is_seen() || owner != me && system::is_alive(owner))
    }

    /// This process uses it, or nobody any more.
    pub fn give_to(&self, owner: u32) {
        let header = self.header();
        if owner != 0 {
            header
                .namespace
                .store(system::pid_namespace(), Ordering::Relaxed);
        }
        header.owner.store(owner, Ordering::SeqCst);
    }

    /// As [`Self::give_to`]. Returns whether what the kernel has is of this process.
    pub fn claim(&self, me: u32) -> bool {
        self.give_to(me);
        self.header().claimer.swap(me, Ordering::SeqCst) == me
    }

    /// This process, which has used it alone, does so no more. Returns whether it had.
    pub fn is_given_up_by(&self, me: u32) -> bool {
        let owner = &self.header().owner;
        owner
            .compare_exchange(me, 0, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    pub fn version(&self) -> u64 {
        self.header().version.load(Ordering::Relaxed)
    }

    /// Something is registered otherwise. Returns the new version.
    pub fn change(&self) -> u64 {
        self.header().version.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Count a process that knows of the others. Returns how many did before.
    pub fn inform(&self) -> u32 {
        self.header().informed.fetch_add(1, Ordering::SeqCst)
    }

    pub fn informed(&self) -> u32 {
        self.header().informed.load(Ordering::SeqCst)
    }

    pub fn stuck(&self) -> u32 {
        self.header().stuck.load(Ordering::SeqCst)
    }

    /// A connection has been added of which a part stays in memory.
    pub fn note_stuck(&self) -> u32 {
        self.header().stuck.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// What may be registered.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        let highest = self.header().highest.load(Ordering::Acquire);
        let own = SPARE..SPARE + self.room.min(highest.saturating_add(1));
        let places = self.spares().chain(own);
        places.filter_map(|place| self.slot(place))
    }

    /// What is registered by a name.
    pub fn wish(&self, name: Name) -> Option<Wish> {
        self.find(name).map(Slot::wish)
    }

    /// A socket has been registered.
    pub fn add(&self, name: Name, wish: Wish) {
        if let Some(slot) = self.find(name).or_else(|| self.find_room(name)) {
            slot.name(name);
            let highest = &self.header().highest;
            highest.fetch_max(name.number.cast_unsigned(), Ordering::Release);
            slot.set(wish);
        }
    }

    /// Somebody is about to be told by EPOLLONESHOT. Returns whether nobody else has been, or has left it to the kernel.
    pub fn spend(&self, name: Name) -> bool {
        self.find(name)
            .is_none_or(|slot| slot.spend() || !self.is_shared())
    }

    /// Change what the kernel has of the set, or who uses it, as the only process. The caller holds its own record, and so is
    /// the only thread. Who holds it already does so until the first of its holds ends.
    pub fn hold(&self) -> Hold<'_> {
        let me = own();
        let lock = &self.header().lock;
        let mut deadline = None;
        for nap in 1.. {
            let (holder, is_due) =
                match lock.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(_) => break,
                    Err(holder) => (holder, nap % NAPS == 0),
                };
            if holder == me {
                return Hold(None);
            }
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
            let is_left = is_due && (!system::is_alive(holder) || Instant::now() > deadline);
            let take = || lock.compare_exchange(holder, me, Ordering::SeqCst, Ordering::SeqCst);
            if is_left && take().is_ok() {
                break;
            }
            kernel::nap(NAP);
        }
        fence(Ordering::SeqCst);
        Hold(Some((self, me)))
    }
}

/// As long as it is there, no relative changes anything.
pub struct Hold<'a>(Option<(&'a Common, u32)>);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        if let Some((common, me)) = self.0 {
            let lock = &common.header().lock;
            // Unless somebody has taken it from a process that was stopped for long.
            let _ = lock.compare_exchange(me, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}
