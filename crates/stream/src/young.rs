//! Connections that are likely to be brief, as those before them were.
//!
//! From its beginning to its close an end costs thousands of instructions, which is much beside one request. So where connections have
//! lately been over before they could ask for rings, no end is made for a new one: by its number is kept what it has moved, and the epoll
//! set in which it is. Its calls go to the kernel. One that lasts becomes an end, as if it had been one from the
//! beginning, before it would ask for rings; so does one of which more is asked than a thread that is alone asks of a brief one.
//! [`End::of`] makes it one.

pub(crate) mod nursery;

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::RawFd;
use std::sync::OnceLock;

use crosslane_ctl::counter::Counter;
use crosslane_ctl::reason::Reason;
use crosslane_sys::busy::{Busy, Mutex, MutexGuard};
use crosslane_sys::{cancel, process as system};

use crate::family::Family;
use crate::process::{self, Process};
use crate::raw::ByNumber;
use crate::young::nursery::Record;
use crate::{End, config, due, register, replay, watcher};

/// A registration in an epoll set, as the program has made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The set.
    pub epoll: RawFd,
    /// What is waited for.
    pub events: u32,
    /// What the program is told.
    pub data: u64,
}

/// What an end has done as a young connection.
pub(crate) struct Past {
    pub is_passive: bool,
    pub calls: u32,
    pub sent: u64,
    pub received: u64,
    pub heard: u64,
}

/// A young connection, for a thread that is alone in its process.
#[derive(Clone, Copy)]
pub struct Young {
    process: &'static Process,
    record: &'static Record,
    fd: RawFd,
    generation: u32,
}

impl fmt::Debug for Young {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Young")
            .field("fd", &self.fd)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

/// One becomes an end at a time.
static GROWING: Mutex<()> = Mutex::new(());

static ON_REGISTERED: OnceLock<fn(&End, Registration)> = OnceLock::new();

/// Whether a TCP connection that this thread opens now is to be young. For the chaos knob all are.
pub fn is_usual() -> bool {
    let settings = config::get();
    let is_young = || match settings.chaos {
        Some(_) => register::started().is_ok(),
        None => process::get().is_some_and(|process| process.habit().is_young()),
    };
    let are_told_of = settings.run.is_some() && settings.chaos.is_none();
    let are_wanted = !settings.disabled && settings.eager_ports.is_empty() && !are_told_of;
    are_wanted && system::is_alone() && is_young()
}

/// Know a TCP connection that has just been opened (`is_passive`: accepted) as young. False if it has to be an end.
pub fn begin(fd: RawFd, is_passive: bool) -> bool {
    register::forget(fd);
    let _busy = Busy::begin();
    let Some(process) = process::get() else {
        return false;
    };
    let Some(record) = process.young.record(fd) else {
        return false;
    };
    record.reset(is_passive);
    process.name_young(fd);
    process.count(Counter::Connections, 1);
    true
}

impl Young {
    /// The young connection that `fd` names. None, too, where the caller is not alone.
    #[inline]
    pub fn of(fd: RawFd) -> Option<Self> {
        let process = process::get().filter(|_| system::is_alone())?;
        process
            .is_young(fd)
            .then(|| Self::at(process, fd))
            .flatten()
    }

    fn at(process: &'static Process, fd: RawFd) -> Option<Self> {
        let record = process.young.record(fd)?;
        Some(Self {
            process,
            record,
            fd,
            generation: record.generation.load(Ordering::Relaxed),
        })
    }

    /// Whether the number still names it, although a handler has been here.
    fn is_still(&self) -> bool {
        let now = self.record.generation.load(Ordering::Relaxed);
        self.process.is_young(self.fd) && now == self.generation
    }

    /// Let the kernel receive. None, and nothing is done, if it is to be an end.
    #[inline]
    pub fn receive(self, kernel: impl FnOnce() -> isize) -> Option<isize> {
        self.run(&self.record.received, kernel)
    }

    /// As [`Young::receive`], of a call that sends.
    #[inline]
    pub fn send(self, kernel: impl FnOnce() -> isize) -> Option<isize> {
        let record = self.record;
        let [sent, received, heard] = [&record.sent, &record.received, &record.heard]
            .map(|total| total.load(Ordering::Relaxed));
        if due::converses(self.process.habit(), [sent, received], heard) {
            return None;
        }
        record.heard.store(received, Ordering::Relaxed);
        self.run(&record.sent, kernel)
    }

    fn run(&self, total: &AtomicU64, kernel: impl FnOnce() -> isize) -> Option<isize> {
        let calls = self.record.calls.load(Ordering::Relaxed) + 1;
        if due::lasts(self.process.habit(), calls, self.moved()) {
            return None;
        }
        replay::push();
        watcher::tend();
        let by_number = ByNumber::of(self.process, self.fd);
        // From here on an end that a handler makes of it stays on TCP.
        if !self.is_still() {
            return None;
        }
        self.record.calls.store(calls, Ordering::Relaxed);
        let result = cancel::guarded(&by_number, kernel);
        let _busy = Busy::begin();
        if let Ok(bytes) = u64::try_from(result)
            && self.is_still()
        {
            total.fetch_add(bytes, Ordering::Relaxed);
        }
        drop(by_number);
        Some(result)
    }

    fn moved(&self) -> u64 {
        let (sent, received) = (&self.record.sent, &self.record.received);
        sent.load(Ordering::Relaxed) + received.load(Ordering::Relaxed)
    }

    /// Its registration in an epoll set.
    pub fn registration(&self) -> Option<Registration> {
        let epoll = self.record.set.load(Ordering::Relaxed).checked_sub(1)?;
        Some(Registration {
            epoll: epoll.cast_signed(),
            events: self.record.events.load(Ordering::Relaxed),
            data: self.record.data.load(Ordering::Relaxed),
        })
    }

    /// Keep another registration, or none, if the kernel makes that change. None, and nothing is done, if it is young no more.
    pub fn register(&self, to: Option<Registration>, kernel: impl FnOnce() -> i32) -> Option<i32> {
        // Who made an end of it in between would have the one or the other.
        let _growing = GROWING.lock().ok()?;
        if !self.is_still() {
            return None;
        }
        let result = kernel();
        if result == 0 {
            let epoll = to.map_or(0, |to| to.epoll.cast_unsigned() + 1);
            let (events, data) = to.map_or((0, 0), |to| (to.events, to.data));
            self.record.set.store(epoll, Ordering::Relaxed);
            self.record.events.store(events, Ordering::Relaxed);
            self.record.data.store(data, Ordering::Relaxed);
        }
        Some(result)
    }

    /// The program is closing it. Call this before the kernel's close. False, and nothing is done, if it is young no more, or has to
    /// be an end to be told of.
    pub fn leave(self) -> bool {
        let Ok(_growing) = GROWING.lock() else {
            return false;
        };
        if !self.is_still() || config::get().run.is_some() {
            return false;
        }
        self.process.name(self.fd, None);
        let totals = [
            (Counter::TcpBytesSent, &self.record.sent),
            (Counter::TcpBytesReceived, &self.record.received),
        ];
        for (counter, total) in totals {
            self.process.count(counter, total.load(Ordering::Relaxed));
        }
        self.process.count_reason(Reason::TooYoung);
        due::judge_young(self.process.habit(), self.moved());
        true
    }

    pub(crate) fn past(&self) -> Past {
        let record = self.record;
        Past {
            is_passive: record.is_passive.load(Ordering::Relaxed) != 0,
            calls: record.calls.load(Ordering::Relaxed),
            sent: record.sent.load(Ordering::Relaxed),
            received: record.received.load(Ordering::Relaxed),
            heard: record.heard.load(Ordering::Relaxed),
        }
    }

    /// Have its registration known to whoever keeps those of ends.
    pub(crate) fn hand_on(&self, end: &End) {
        if let (Some(registration), Some(keep)) = (self.registration(), ON_REGISTERED.get()) {
            keep(end, registration);
        }
    }
}

impl Process {
    /// Whether `fd` names a young connection.
    #[inline]
    fn is_young(&self, fd: RawFd) -> bool {
        let cell = self.cell(fd).filter(|_| self.young.is_used());
        cell.is_some_and(|cell| cell.load(Ordering::Acquire) == nursery::MARK) // SYNC: fd
    }

    /// The numbers that name young connections.
    fn young_numbers(&self) -> impl Iterator<Item = RawFd> {
        let highest = self.highest_fd.load(Ordering::Relaxed).cast_signed();
        (0..=highest).filter(|fd| self.is_young(*fd))
    }
}

impl End {
    /// The end that `fd` names, if it names a connection that the library knows. A young one becomes an end.
    #[inline]
    pub fn of(fd: RawFd) -> Option<Self> {
        Self::known(fd).or_else(|| grow(process::get()?, fd))
    }
}

/// Whether a number names a young connection.
pub fn is(fd: RawFd) -> bool {
    process::get().is_some_and(|process| process.is_young(fd))
}

/// Held while the process forks, for none to be young then.
pub fn before_fork() -> Option<MutexGuard<'static, ()>> {
    // No handler opens another one in between.
    let _busy = Busy::begin();
    grow_all();
    GROWING.lock().ok()
}

/// Each young connection becomes an end: the process is about to do something of which they know nothing.
#[inline]
pub fn grow_all() {
    grow_those(|_| true);
}

/// As [`grow_all`], of some.
pub fn grow_those(are: impl Fn(RawFd) -> bool) {
    if let Some(process) = process::get().filter(|process| process.young.is_used()) {
        let numbers = process.young_numbers().filter(|fd| are(*fd));
        numbers.for_each(|fd| _ = grow(process, fd));
    }
}

/// The process exits.
pub(crate) fn leave_all(process: &'static Process) {
    if process.young.is_used() {
        let leave =
            |fd| Young::at(process, fd).is_some_and(Young::leave) || grow(process, fd).is_some();
        process.young_numbers().for_each(|fd| _ = leave(fd));
    }
}

/// Have this called for an end that is in an epoll set from its beginning.
pub fn on_registered(hook: fn(&End, Registration)) {
    ON_REGISTERED.get_or_init(|| hook);
}

/// The end that a number has come to name. None if it names no connection.
#[cold]
#[inline(never)]
pub(crate) fn grow(process: &'static Process, fd: RawFd) -> Option<End> {
    // Another thread may have done it since it was looked.
    if !process.is_young(fd) {
        return End::known(fd);
    }
    cancel::never(|| {
        let _growing = GROWING.lock().ok()?;
        if !process.is_young(fd) {
            return End::known(fd);
        }
        let young = Young::at(process, fd)?;
        let end = Family::of(fd).and_then(|family| register::grow(process, fd, family, &young));
        // A child of vfork may have closed its copy.
        if end.is_none() && process.is_current() {
            process.name(fd, None);
        }
        end
    })
}

#[cfg(test)]
mod tests;
