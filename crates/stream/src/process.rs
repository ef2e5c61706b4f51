//! The tables of this process: which descriptor names which end, the slab, and its free entries.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::io;
use std::os::fd::{IntoRawFd, RawFd};
use std::sync::Mutex;

use crosslane_ctl::counter::Counter;
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndEntry, EndPhase, SLAB_ENTRIES, end_flags};
use crosslane_sys::memory::Mapping;
use crosslane_sys::process as system;
use crosslane_window::slab::SlabMap;

use crate::control::OwnFd;
use crate::end::{End, Local};

/// Descriptors from this number on are not accelerated.
pub const MAX_FDS: u32 = 1 << 20;

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(core::ptr::null_mut());
static STARTING: Mutex<()> = Mutex::new(());
/// Refusals of io_uring that no slab has counted yet.
static REFUSED_EARLY: AtomicU64 = AtomicU64::new(0);

/// Everything this process keeps. Made at its first TCP socket, never freed.
pub struct Process {
    pid: AtomicU32,
    slab: SlabMap,
    slab_fd: OwnFd,
    fds: Mapping,
    locals: Mapping,
    /// Entries that were given back. Only hints: entries are claimed in the slab itself.
    returned: Mutex<Vec<u32>>,
    highest_fd: AtomicU32,
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
    let _starting = STARTING.lock().map_err(|_| Reason::NoMemory)?;
    if let Some(process) = get() {
        return Ok(process);
    }
    let process = Box::leak(Box::new(Process::create().map_err(|error| lack(&error))?));
    PROCESS.store(process, Ordering::Release); // SYNC: process
    process.count_refused_early();
    Ok(process)
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
        let pid = system::pid();
        let (slab, slab_fd) = SlabMap::create(pid)?;
        let fds = Mapping::private(MAX_FDS as usize * size_of::<AtomicU32>())?;
        let locals = Mapping::private(SLAB_ENTRIES as usize * size_of::<Local>())?;
        Ok(Self {
            pid: AtomicU32::new(pid),
            slab,
            slab_fd: OwnFd::new(slab_fd.into_raw_fd()),
            fds,
            locals,
            returned: Mutex::new(Vec::new()),
            highest_fd: AtomicU32::new(0),
        })
    }

    /// The process, as it was when the tables were made or after the last fork. Differs from the
    /// kernel's answer in a child of vfork, which must not touch the tables.
    #[inline]
    pub fn pid(&self) -> u32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// Whether the caller runs in the process that owns the tables.
    pub fn is_current(&self) -> bool {
        self.pid() == system::pid()
    }

    /// Forget what belongs to the parent; called in a forked child.
    pub fn adopt(&self) {
        self.pid.store(system::pid(), Ordering::Relaxed);
        system::forget_thread();
    }

    /// The slab's descriptor, for the monitor.
    pub fn slab_fd(&self) -> RawFd {
        self.slab_fd.number()
    }

    fn cell(&self, fd: RawFd) -> Option<&AtomicU32> {
        let fd = u32::try_from(fd).ok().filter(|fd| *fd < MAX_FDS)?;
        let cells = self.fds.start().cast::<AtomicU32>();
        // SAFETY: the mapping has MAX_FDS cells.
        let cell = unsafe { cells.add(fd as usize) };
        // SAFETY: inside the mapping, which is never unmapped; zeroed memory is a valid atomic.
        Some(unsafe { cell.as_ref() })
    }

    /// Index of the end that `fd` names.
    #[inline]
    pub fn index_of(&self, fd: RawFd) -> Option<u32> {
        self.cell(fd)?.load(Ordering::Acquire).checked_sub(1) // SYNC: fd
    }

    /// Make `fd` name the end at `index`, or nothing. Returns what it named before.
    pub(crate) fn name(&self, fd: RawFd, index: Option<u32>) -> Option<u32> {
        let cell = self.cell(fd)?;
        if index.is_some() {
            self.highest_fd
                .fetch_max(fd.cast_unsigned(), Ordering::Relaxed);
        }
        let value = index.map_or(0, |index| index + 1);
        cell.swap(value, Ordering::AcqRel).checked_sub(1) // SYNC: fd
    }

    /// All descriptors that name an end.
    pub fn ends(&'static self) -> impl Iterator<Item = End> {
        let highest = self.highest_fd.load(Ordering::Relaxed).cast_signed();
        (0..=highest).filter_map(move |fd| self.index_of(fd).map(|index| End::at(self, index, fd)))
    }

    /// An entry of the slab.
    #[inline]
    pub fn entry(&self, index: u32) -> &EndEntry {
        self.slab
            .entry(index)
            .expect("indices come from `allocate`")
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
        let used = self.slab.header().entries_used.load(Ordering::Relaxed);
        (0..used.min(SLAB_ENTRIES))
            .map(|index| End::at(self, index, -1))
            .flat_map(|end| [end.tx_lane(), end.rx_lane()])
            .flatten()
            .map(|lane| lane.into_raw().0.addr())
            .collect()
    }

    /// Take a free entry. Forked children take from the same slab, so entries are claimed there.
    pub(crate) fn allocate(&self) -> Option<u32> {
        while let Some(index) = self.returned.lock().ok()?.pop() {
            if self.claim(index) {
                return Some(index);
            }
        }
        let used = &self.slab.header().entries_used;
        if used.load(Ordering::Relaxed) < SLAB_ENTRIES {
            let index = used.fetch_add(1, Ordering::Relaxed);
            if index < SLAB_ENTRIES && self.claim(index) {
                return Some(index);
            }
        }
        (0..SLAB_ENTRIES).find(|index| self.claim(*index))
    }

    fn claim(&self, index: u32) -> bool {
        let holders = &self.entry(index).id.holders;
        holders
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok() // SYNC: entry
    }

    /// Let go of an entry; it is free when every process that inherited it has let go. Returns
    /// whether this was the last one.
    pub(crate) fn let_go(&self, index: u32) -> bool {
        let entry = self.entry(index);
        if entry.id.holders.load(Ordering::Acquire) > 1
            && entry.id.holders.fetch_sub(1, Ordering::AcqRel) > 1
        {
            return false;
        }
        entry
            .id
            .phase
            .store(EndPhase::Free as u32, Ordering::Release);
        entry.id.holders.store(0, Ordering::Release); // SYNC: entry
        if let Ok(mut returned) = self.returned.lock() {
            returned.push(index);
        }
        true
    }

    /// Count the child that is about to be forked as a holder of every end.
    pub fn lend_to_child(&'static self) {
        let mut seen = std::collections::HashSet::new();
        for end in self.ends() {
            if seen.insert(end.index) {
                end.entry.id.holders.fetch_add(1, Ordering::Relaxed);
                end.add_flags(end_flags::FORKED);
            }
        }
    }

    /// Count something.
    #[inline]
    pub fn count(&self, counter: Counter, by: u64) {
        self.slab.header().counters[counter as usize].fetch_add(by, Ordering::Relaxed);
    }

    fn count_refused_early(&self) {
        let refused = REFUSED_EARLY.swap(0, Ordering::Relaxed);
        self.count(Counter::IoUringRefused, refused);
    }

    /// Count a connection that ended on TCP or was brought back to it.
    pub fn count_reason(&self, reason: Reason) {
        self.slab.header().reasons[reason as usize].fetch_add(1, Ordering::Relaxed);
    }
}
