//! What was registered in which epoll set.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard};

use crosslane_stream::End;

/// Kernel data of registrations that carry our tag: the tag in the upper half, a key in the lower.
const TAG: u64 = 0xC055_1A9E_0000_0000;
const TAG_MASK: u64 = 0xffff_ffff_0000_0000;

static SETS: RwLock<Option<HashMap<c_int, Arc<Set>>>> = RwLock::new(None);

/// One epoll set of the program.
pub struct Set {
    pub epoll: c_int,
    pub inner: Mutex<Inner>,
    /// Registrations with rings; 0 lets a wait go straight to the kernel.
    pub ringed: AtomicU32,
    /// Threads asleep in the kernel on this set.
    pub sleepers: AtomicU32,
}

/// The registrations of a set that concern connections.
#[derive(Default)]
pub struct Inner {
    pub by_fd: HashMap<c_int, u32>,
    pub regs: HashMap<u32, Reg>,
    /// Keys of connections to look at before asking the kernel, least recently active first.
    pub hot: Vec<u32>,
    /// Where the next scan of `hot` begins.
    pub turn: usize,
    /// Waits since the kernel was last asked although rings had news.
    pub skipped: u32,
    next_key: u32,
}

/// One registration of a connection.
pub struct Reg {
    pub fd: c_int,
    /// What the program registered.
    pub events: u32,
    pub data: u64,
    /// Which connection: index in the slab.
    pub index: u32,
    /// The kernel's registration carries our tag.
    pub ringed: bool,
    /// What the kernel has been told to look for, while `ringed`.
    pub kernel_events: u32,
    /// Switched off by EPOLLONESHOT.
    pub spent: bool,
    /// Not looked at since it was added or modified: edges are due for what is ready.
    pub fresh: bool,
    /// Edge-triggered: up to which line arrivals have been reported.
    pub reported_line: u64,
    /// Waits in a row without news, for leaving the hot list.
    pub quiet_waits: u32,
    pub hot: bool,
}

impl Reg {
    /// The connection, if the descriptor still names it.
    pub fn end(&self) -> Option<End> {
        End::of(self.fd).filter(|end| end.index == self.index)
    }

    pub fn is_edge(&self) -> bool {
        self.events & libc::EPOLLET as u32 != 0
    }

    /// The events wanted, as poll(2) names them; none while spent.
    pub fn wanted(&self) -> i16 {
        if self.spent {
            return 0;
        }
        // The bits of epoll that poll knows have the same values.
        i16::from_ne_bytes(
            (self.events & 0x7fff).to_ne_bytes()[..2]
                .try_into()
                .unwrap_or([0; 2]),
        ) | if self.events & libc::EPOLLRDHUP as u32 != 0 {
            libc::POLLRDHUP
        } else {
            0
        }
    }
}

impl Inner {
    pub fn add(&mut self, reg: Reg) -> u32 {
        loop {
            self.next_key = self.next_key.wrapping_add(1);
            if !self.regs.contains_key(&self.next_key) {
                break;
            }
        }
        self.by_fd.insert(reg.fd, self.next_key);
        self.regs.insert(self.next_key, reg);
        self.next_key
    }

    pub fn remove(&mut self, fd: c_int) -> Option<Reg> {
        let key = self.by_fd.remove(&fd)?;
        self.hot.retain(|hot| *hot != key);
        self.regs.remove(&key)
    }

    /// Look at this connection before sleeping from now on.
    pub fn heat(&mut self, key: u32) {
        if let Some(reg) = self.regs.get_mut(&key) {
            reg.quiet_waits = 0;
            if !reg.hot {
                reg.hot = true;
                self.hot.push(key);
            }
        }
    }
}

/// The data of a kernel registration that stands for `key`.
pub fn tagged(key: u32) -> u64 {
    TAG | u64::from(key)
}

/// The key in the data of a kernel event, if it is ours.
pub fn key_of(data: u64) -> Option<u32> {
    (data & TAG_MASK == TAG).then(|| u32::try_from(data & !TAG_MASK).unwrap_or(0))
}

/// A new epoll descriptor: what the number named before is gone.
pub fn created(epoll: c_int) {
    if epoll >= 0 {
        forget_set(epoll);
        crosslane_stream::register::forget(epoll);
    }
}

/// The record of a set, if one of its registrations is a connection.
pub fn get(epoll: c_int) -> Option<Arc<Set>> {
    SETS.read().ok()?.as_ref()?.get(&epoll).cloned()
}

/// The record of a set, made if needed.
pub fn get_or_make(epoll: c_int) -> Option<Arc<Set>> {
    if let Some(set) = get(epoll) {
        return Some(set);
    }
    let mut sets = SETS.write().ok()?;
    let fresh = || {
        Arc::new(Set {
            epoll,
            inner: Mutex::new(Inner::default()),
            ringed: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
        })
    };
    Some(
        sets.get_or_insert_with(HashMap::new)
            .entry(epoll)
            .or_insert_with(fresh)
            .clone(),
    )
}

/// Whether a descriptor is an epoll set with connections in it.
pub fn is_set(fd: c_int) -> bool {
    get(fd).is_some()
}

/// All sets with connections in them.
pub fn sets() -> Vec<c_int> {
    let Ok(sets) = SETS.read() else {
        return Vec::new();
    };
    sets.as_ref()
        .map(|sets| sets.keys().copied().collect())
        .unwrap_or_default()
}

/// The epoll descriptor is closed.
pub fn forget_set(fd: c_int) {
    if !is_set(fd) {
        return;
    }
    let gone = SETS
        .write()
        .ok()
        .and_then(|mut sets| sets.as_mut()?.remove(&fd));
    let Some(set) = gone else { return };
    let Ok(inner) = set.inner.lock() else { return };
    for reg in inner.regs.values() {
        if let Some(end) = reg.end() {
            end.entry.wait.epolls.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Held while the process forks, so that no record is half written in the child.
pub struct Fork {
    _sets: Option<RwLockReadGuard<'static, Option<HashMap<c_int, Arc<Set>>>>>,
    _inner: Vec<MutexGuard<'static, Inner>>,
    _kept: Vec<&'static Arc<Set>>,
}

/// Take every lock of this module.
pub fn before_fork() -> Fork {
    let sets = SETS.read().ok();
    let kept: Vec<&'static Arc<Set>> = sets
        .as_ref()
        .and_then(|sets| sets.as_ref())
        .map(|sets| {
            sets.values()
                .map(|set| &*Box::leak(Box::new(set.clone())))
                .collect()
        })
        .unwrap_or_default();
    let inner = kept
        .iter()
        .filter_map(|set| set.inner.lock().ok())
        .collect();
    Fork {
        _sets: sets,
        _inner: inner,
        _kept: kept,
    }
}
