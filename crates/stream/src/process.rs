//! The tables of this process: which descriptor names which end, the slab, and its free entries.

use core::num::NonZeroU64;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::io;
use std::os::fd::{IntoRawFd, RawFd};
use std::sync::OnceLock;

use crosslane_ctl::counter::Counter;
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndEntry, EndPhase, FOREIGN_SLABS, SLAB_ENTRIES, end_flags};
use crosslane_ring::moment;
use crosslane_sys::busy::{Mutex, MutexGuard};
use crosslane_sys::memory::Mapping;
use crosslane_sys::{kernel, process as system};
use crosslane_window::slab::SlabMap;

use crate::adopt;
use crate::config;
use crate::control::OwnFd;
use crate::due::Habit;
use crate::end::{End, Local};
use crate::holders::Holders;
use crate::table::{Home, Identity, Table};
use crate::young::nursery::{self, Nursery};

pub use crate::holders::Member;

/// The members as which a forked child holds ends, one for each slab of its parent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Children([Option<Member>; 1 + GUESTS]);

/// Descriptors from this number on are not accelerated.
pub const MAX_FDS: u32 = 1 << 20;

/// Entries that a sweep looks at.
const SWEEP: u32 = 64;

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(core::ptr::null_mut());
/// The program has restricted its system calls, so that the library makes none any more.
static LEFT: AtomicBool = AtomicBool::new(false);
static STARTING: Mutex<()> = Mutex::new(());
/// Refusals of io_uring that no slab has counted yet.
static REFUSED_EARLY: AtomicU64 = AtomicU64::new(0);

/// Families besides the process's own in whose slabs it may have ends.
pub const GUESTS: usize = FOREIGN_SLABS;

/// Everything this process keeps. Made at its first TCP socket, never freed.
pub struct Process {
    pid: AtomicU32,
    /// The slab of its family.
    own: Table,
    /// Slabs of others, for ends that they have lent.
    guests: [OnceLock<Table>; GUESTS],
    /// Where the next sweep begins.
    swept: AtomicU32,
    fds: Mapping,
    calls: Mapping,
    /// The connections that are no ends yet.
    pub(crate) young: Nursery,
    locals: Mapping,
    /// Entries that were given back. Only hints: entries are claimed in the slab itself.
    returned: Mutex<Vec<u32>>,
    pub(crate) highest_fd: AtomicU32,
    habit: Habit,
}

/// The tables, if the process has opened a TCP socket.
#[inline]
pub fn get() -> Option<&'static Process> {
    let process = PROCESS.load(Ordering::Acquire); // SYNC: process
    // SAFETY: either null or a leaked box.
    unsafe { process.as_ref() }
}

/// The tables, made if needed.
///
/// # Errors
/// What there was too little of, memory or descriptors. The next call tries again.
pub fn start() -> Result<&'static Process, Reason> {
    if let Some(process) = get() {
        return Ok(process);
    }
    if has_left() {
        return Err(Reason::Sandbox);
    }
    let _starting = STARTING.lock().map_err(|_| Reason::NoMemory)?;
    if let Some(process) = get() {
        return Ok(process);
    }
    let process = Box::leak(Box::new(Process::create().map_err(|error| lack(&error))?));
    PROCESS.store(process, Ordering::Release); // SYNC: process
    process.count_refused_early();
    Ok(process)
}

/// Held while the process forks: nobody makes the tables meanwhile.
pub fn hold_start() -> Option<MutexGuard<'static, ()>> {
    STARTING.lock().ok()
}

/// Leave the process alone from now on. Its connections, which have to be back on TCP by now, look
/// to the library as if it had never seen them; their entries stay for others to see.
pub fn leave() {
    LEFT.store(true, Ordering::Release);
    PROCESS.store(core::ptr::null_mut(), Ordering::Release);
}

/// Whether the library leaves the process alone.
pub fn has_left() -> bool {
    LEFT.load(Ordering::Acquire)
}

fn lack(error: &io::Error) -> Reason {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => Reason::NoDescriptors,
        _ => Reason::NoMemory,
    }
}

/// The program has been told that there is no io_uring, so that it falls back to calls that the
/// library sees. Most programs ask before they open their first socket.
pub fn note_io_uring_refused() {
    REFUSED_EARLY.fetch_add(1, Ordering::Relaxed);
    if let Some(process) = get() {
        process.count_refused_early();
    }
}

impl Process {
    fn create() -> io::Result<Self> {
        #[cfg(feature = "trace")]
        crosslane_ring::trace::begin();
        let pid = system::pid();
        let (slab, slab_fd) = SlabMap::create(pid)?;
        let (identity, slab_fd) =
            adopt::identity_of(slab_fd).ok_or_else(io::Error::last_os_error)?;
        let run = config::get().run.map_or(0, NonZeroU64::get);
        slab.header().run.store(run, Ordering::Relaxed);
        slab.header()
            .pid_namespace
            .store(system::pid_namespace(), Ordering::Relaxed);
        let fds = Mapping::private(MAX_FDS as usize * size_of::<AtomicU32>())?;
        let calls = Mapping::private(MAX_FDS as usize * size_of::<AtomicU32>())?;
        let young = Nursery::create()?;
        let locals = Mapping::private(SLAB_ENTRIES as usize * size_of::<Local>())?;
        Ok(Self {
            pid: AtomicU32::new(pid),
            own: Table::join(slab, OwnFd::new(slab_fd.into_raw_fd()), identity),
            guests: [const { OnceLock::new() }; GUESTS],
            swept: AtomicU32::new(0),
            fds,
            calls,
            young,
            locals,
            returned: Mutex::new(Vec::new()),
            highest_fd: AtomicU32::new(0),
            habit: Habit::default(),
        })
    }

    /// The process, as it was when the tables were made or after the last fork. Differs from the
    /// kernel's answer in a child of vfork, which must not touch the tables.
    #[inline]
    pub fn pid(&self) -> u32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// How long its connections have lately been.
    pub(crate) fn habit(&self) -> &Habit {
        &self.habit
    }

    /// Whether the caller runs in the process that owns the tables.
    pub fn is_current(&self) -> bool {
        self.pid() == system::pid()
    }

    /// Forget what belongs to the parent; called in a forked child, which is these members.
    pub fn adopt(&'static self, child: Children) {
        self.pid.store(system::pid(), Ordering::Relaxed);
        system::forget_thread();
        self.forget_sleepers();
        for (table, member) in self.tables().zip(child.0) {
            if let Some(member) = member {
                table.become_member(member);
            }
        }
    }

    /// The calls that slept in the parent are not in the child, nor what is kept for them alone.
    fn forget_sleepers(&'static self) {
        for end in self.kept_ends() {
            kernel::close(end.fd);
            end.local.kept.store(0, Ordering::Relaxed);
            end.forget_lanes();
        }
        let used = self.own.header().entries_used.load(Ordering::Relaxed);
        for index in 0..used.min(SLAB_ENTRIES) {
            let local = self.local(index);
            local.shares.forget();
            if local.calls.load(Ordering::Relaxed) != 0 {
                let sleeps = &local.place.sleeps;
                for word in [&local.calls, &local.polls, &local.stirred, sleeps] {
                    word.store(0, Ordering::Relaxed);
                }
            }
        }
        let highest = self.highest_fd.load(Ordering::Relaxed).cast_signed();
        let by_number = (0..=highest).filter_map(|fd| self.calls_by(fd));
        for calls in by_number.filter(|calls| calls.load(Ordering::Relaxed) != 0) {
            calls.store(0, Ordering::Relaxed);
        }
    }

    /// The own slab, and those of others, in order.
    fn tables(&self) -> impl Iterator<Item = &Table> {
        let guests = self.guests.iter().map_while(OnceLock::get);
        core::iter::once(&self.own).chain(guests)
    }

    /// How often something to be sent again had to wait for room, for connections of the process and of others.
    #[inline]
    pub(crate) fn times_put_off(&self) -> u32 {
        let times = |table: &Table| table.header().put_off.load(Ordering::SeqCst);
        self.tables().map(times).fold(0, u32::wrapping_add)
    }

    /// A slab by its number in [`Home`].
    pub(crate) fn table(&self, number: usize) -> Option<&Table> {
        self.tables().nth(number)
    }

    /// The number of the slab that is this memory object, if it is known.
    pub(crate) fn table_of(&self, identity: Identity) -> Option<usize> {
        self.tables().position(|table| table.is(identity))
    }

    /// Whether another family's slab can be kept.
    pub(crate) fn has_room(&self) -> bool {
        self.guests.iter().any(|guest| guest.get().is_none())
    }

    /// Keep the slab of another family. Returns its number, or `None` where there is no place.
    pub(crate) fn welcome(&self, table: Table) -> Option<usize> {
        let free = self.guests.iter().position(|guest| guest.get().is_none())?;
        self.guests[free].set(table).ok()?;
        Some(free + 1)
    }

    /// The slab descriptor, for the monitor.
    pub fn slab_fd(&self) -> RawFd {
        self.own.fd()
    }

    /// Where the shared state of the end at `index` is.
    #[inline]
    pub(crate) fn home(&self, index: u32) -> (&Table, u32) {
        self.home_of(self.local(index), index)
    }

    /// As [`Process::home`], of an index whose local part is known.
    #[inline]
    fn home_of(&self, local: &Local, index: u32) -> (&Table, u32) {
        match Home::from_word(local.home.load(Ordering::Acquire)) {
            None => (&self.own, index),
            Some(home) => self.abroad(home),
        }
    }

    /// As [`Process::home`], with the entry there.
    #[inline]
    pub(crate) fn state_of(&self, local: &Local, index: u32) -> (&Table, &EndEntry) {
        match Home::from_word(local.home.load(Ordering::Acquire)) {
            None => (&self.own, self.own.entry(index)),
            Some(home) => self.state_abroad(home),
        }
    }

    #[cold]
    fn state_abroad(&self, home: Home) -> (&Table, &EndEntry) {
        let (table, at) = self.abroad(home);
        (table, table.entry(at))
    }

    #[cold]
    fn abroad(&self, home: Home) -> (&Table, u32) {
        let table = self
            .table(home.table)
            .expect("ends are made in slabs we keep");
        (table, home.index)
    }

    pub(crate) fn cell(&self, fd: RawFd) -> Option<&AtomicU32> {
        Self::cell_of(&self.fds, fd)
    }

    /// Calls that are inside the kernel by a number; see [`crate::raw`].
    pub(crate) fn calls_by(&self, fd: RawFd) -> Option<&AtomicU32> {
        Self::cell_of(&self.calls, fd)
    }

    #[inline]
    fn cell_of(table: &Mapping, fd: RawFd) -> Option<&AtomicU32> {
        let fd = u32::try_from(fd).ok().filter(|fd| *fd < MAX_FDS)?;
        Some(Self::cell_at(table, fd))
    }

    #[inline]
    fn cell_at(table: &Mapping, fd: u32) -> &AtomicU32 {
        assert!(fd < MAX_FDS);
        let cells = table.start().cast::<AtomicU32>();
        // SAFETY: the mapping has MAX_FDS cells.
        let cell = unsafe { cells.add(fd as usize) };
        // SAFETY: inside the mapping, which is never unmapped; zeroed memory is a valid atomic.
        unsafe { cell.as_ref() }
    }

    /// Index of the end that `fd` names.
    #[inline]
    pub fn index_of(&self, fd: RawFd) -> Option<u32> {
        // A negative number is a great one here.
        let fd = fd.cast_unsigned();
        if fd >= MAX_FDS {
            return None;
        }
        let cell = Self::cell_at(&self.fds, fd);
        // 0, which names nothing, wraps to what is no index.
        let index = cell.load(Ordering::Acquire).wrapping_sub(1); // SYNC: fd
        (index < SLAB_ENTRIES).then_some(index)
    }

    /// Make `fd` name the end at `index`, or nothing. Returns the end that it named before.
    pub(crate) fn name(&self, fd: RawFd, index: Option<u32>) -> Option<u32> {
        self.put(fd, index.map_or(0, |index| index + 1))
    }

    /// Make `fd` name a young connection.
    pub(crate) fn name_young(&self, fd: RawFd) {
        self.young.count(1);
        self.put(fd, nursery::MARK);
    }

    fn put(&self, fd: RawFd, value: u32) -> Option<u32> {
        let cell = self.cell(fd)?;
        if value != 0 {
            self.highest_fd
                .fetch_max(fd.cast_unsigned(), Ordering::Relaxed);
        }
        let before = cell.swap(value, Ordering::AcqRel); // SYNC: fd
        if before == nursery::MARK {
            self.young.count(-1);
            return None;
        }
        before.checked_sub(1)
    }

    /// All descriptors that name an end.
    pub fn ends(&'static self) -> impl Iterator<Item = End> {
        let highest = self.highest_fd.load(Ordering::Relaxed).cast_signed();
        (0..=highest).filter_map(move |fd| self.index_of(fd).map(|index| End::at(self, index, fd)))
    }

    /// An end has got rings. With several of these, records tell when they were written.
    pub(crate) fn note_granted(&'static self) {
        let mut granted = self.ends().filter(|end| end.phase() == EndPhase::Granted);
        moment::tell(granted.nth(1).is_some());
    }

    /// Ends without a descriptor of the program's, kept for calls that sleep on them.
    pub(crate) fn kept_ends(&'static self) -> impl Iterator<Item = End> {
        (0..self.entries_used()).filter_map(move |index| {
            let local = self.local(index);
            let kept = local.kept_number()?;
            (local.names() == 0).then(|| End::at(self, index, kept))
        })
    }

    /// So many indices have ever been used at a time, by this process and those that it was forked from.
    pub(crate) fn entries_used(&self) -> u32 {
        let used = self.own.header().entries_used.load(Ordering::Relaxed);
        used.min(SLAB_ENTRIES)
    }

    /// An entry of the slab.
    #[inline]
    pub fn entry(&self, index: u32) -> &EndEntry {
        let (table, at) = self.home(index);
        table.entry(at)
    }

    /// What the monitor sees under an index of this process, wherever the end's state is.
    pub(crate) fn own_entry(&self, index: u32) -> &EndEntry {
        self.own.entry(index)
    }

    /// Counts the uses of an index of this process.
    pub(crate) fn generation(&self, index: u32) -> u32 {
        let id = &self.own.entry(index).id;
        id.generation.load(Ordering::Relaxed)
    }

    /// The process's part of an end.
    #[inline]
    pub fn local(&self, index: u32) -> &Local {
        assert!(index < SLAB_ENTRIES);
        // SAFETY: the mapping has SLAB_ENTRIES elements.
        let local = unsafe { self.locals.start().cast::<Local>().add(index as usize) };
        // SAFETY: inside the mapping, which is never unmapped; zeroed memory is a valid `Local`.
        unsafe { local.as_ref() }
    }

    /// The addresses of all lanes that are in use by this process.
    pub(crate) fn lanes(&'static self) -> Vec<usize> {
        let used = self.own.header().entries_used.load(Ordering::Relaxed);
        (0..used.min(SLAB_ENTRIES))
            .map(|index| End::at(self, index, -1))
            .flat_map(|end| [end.tx_lane(), end.rx_lane()])
            .flatten()
            .map(|lane| lane.into_raw().0.addr())
            .collect()
    }

    /// Take a free entry. Forked children take from the same slab, so entries are claimed there.
    pub(crate) fn allocate(&'static self) -> Option<u32> {
        if let Some(index) = self.take_returned() {
            return Some(index);
        }
        self.sweep(SWEEP);
        if let Some(index) = self.take_returned() {
            return Some(index);
        }
        let used = &self.own.header().entries_used;
        if used.load(Ordering::Relaxed) < SLAB_ENTRIES {
            let index = used.fetch_add(1, Ordering::Relaxed);
            if index < SLAB_ENTRIES && self.claim(index) {
                return Some(index);
            }
        }
        (0..SLAB_ENTRIES).find(|index| self.claim(*index))
    }

    fn take_returned(&self) -> Option<u32> {
        while let Some(index) = self.returned.lock().ok()?.pop() {
            if self.claim(index) {
                return Some(index);
            }
        }
        None
    }

    /// Held while the process forks, so that the child finds the list whole.
    pub(crate) fn hold_returned(&self) -> Option<MutexGuard<'_, Vec<u32>>> {
        self.returned.lock().ok()
    }

    fn claim(&self, index: u32) -> bool {
        let nobody = Holders::NOBODY;
        self.own
            .replace_holders(index, nobody, nobody.with(self.own.member()))
    }

    /// Free some of the entries that are held by nobody alive: forked children that were killed, have
    /// become other programs, or have left without closing anything.
    pub(crate) fn sweep(&'static self, entries: u32) {
        let used = self.own.header().entries_used.load(Ordering::Relaxed);
        let used = used.min(SLAB_ENTRIES);
        for _ in 0..entries.min(used) {
            let index = self.swept.fetch_add(1, Ordering::Relaxed) % used;
            if self.own.inherit(index) {
                crate::close::count_totals(&End::at(self, index, -1));
                self.let_go(index, true);
            }
        }
    }

    /// Whether this process holds the entry.
    pub(crate) fn holds(&self, index: u32) -> bool {
        let (table, at) = self.home(index);
        table.is_mine(at)
    }

    /// Whether another living process holds the end at `index`, too.
    pub fn is_shared(&self, index: u32) -> bool {
        let (table, at) = self.home(index);
        table.is_shared(at)
    }

    /// Whether another process that has the end at `index` goes on with it, as far as is known.
    pub(crate) fn is_kept_by_others(&self, index: u32) -> bool {
        let (table, at) = self.home(index);
        table.is_kept_by_others(at)
    }

    /// Whether another process that has the end at `index` is known and goes on with it, not only expected.
    pub(crate) fn is_read_by_others(&self, index: u32) -> bool {
        let (table, at) = self.home(index);
        table.is_read_by_others(at)
    }

    /// This process is about to end: others leave the close of no end to it.
    pub(crate) fn note_leaving(&self) {
        self.tables().for_each(Table::note_leaving);
    }

    /// Let go of an entry; it is free when every process that inherited it has let go or ended. One that it has
    /// registered (`is_ours`) others may register again.
    pub(crate) fn let_go(&self, index: u32, is_ours: bool) {
        if self.cease_to_hold(index, is_ours) {
            self.give_back(index);
        }
    }

    /// As [`Process::let_go`], for a caller that holds directions of the end, behind which the list of free entries must not be
    /// waited for: a fork holds it. Returns whether the entry is to be given back when they are held no more.
    pub(crate) fn cease_to_hold(&self, index: u32, is_ours: bool) -> bool {
        let (table, at) = self.home(index);
        let is_abroad = !core::ptr::eq(table, &raw const self.own) || at != index;
        let mut is_free = table.let_go(at, is_ours);
        if is_abroad {
            self.local(index).home.store(0, Ordering::Release);
            is_free = self.own.let_go(index, is_ours);
        }
        is_free
    }

    /// The entry is free.
    pub(crate) fn give_back(&self, index: u32) {
        if let Ok(mut returned) = self.returned.lock() {
            returned.push(index);
        }
    }

    /// Make the child that is about to be forked a holder of every end.
    pub fn lend_to_child(&'static self) -> Children {
        self.sweep(SWEEP);
        let mut child = Children::default();
        for (table, member) in self.tables().zip(&mut child.0) {
            *member = Some(table.expect());
        }
        let mut seen = std::collections::BTreeSet::new();
        for end in self.ends() {
            if seen.insert(end.index) {
                self.lend(end.index, &child);
                end.add_flags(end_flags::FORKED);
                end.forget_waiting();
            }
        }
        child
    }

    fn lend(&self, index: u32, child: &Children) {
        for (table, member) in self.tables().zip(child.0) {
            let Some(member) = member else { continue };
            if core::ptr::eq(table, &raw const self.own) {
                table.lend(index, member);
            }
            let (home, at) = self.home(index);
            if core::ptr::eq(table, home) {
                home.lend(at, member);
            }
        }
    }

    /// What became of the fork: the child's process, or `None` if it has failed.
    pub fn note_child(&self, child: Children, pid: Option<u32>) {
        for (table, member) in self.tables().zip(child.0) {
            let Some(member) = member else { continue };
            match pid {
                Some(pid) => table.family().name(member, pid),
                None => table.family().forget(member),
            }
        }
    }

    /// Count something.
    #[inline]
    pub fn count(&self, counter: Counter, by: u64) {
        self.own.header().counters[counter as usize].fetch_add(by, Ordering::Relaxed);
    }

    fn count_refused_early(&self) {
        let refused = REFUSED_EARLY.swap(0, Ordering::Relaxed);
        self.count(Counter::IoUringRefused, refused);
    }

    /// Count a connection that ended on TCP or was brought back to it.
    pub fn count_reason(&self, reason: Reason) {
        self.own.header().reasons[reason as usize].fetch_add(1, Ordering::Relaxed);
    }
}
