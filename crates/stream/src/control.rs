//! The program's side of the control socket: introduce the process, register ends, take grants.
//!
//! Everything here happens on the program's own calls, never waits, and never holds up the data
//! path: without a monitor, connections stay on TCP and the next attempt comes a second later.
//!
//! A monitor that ends takes nothing along: ends that have rings go on in them, ends that were
//! still looking for a peer register again with the next monitor, and [`tend`] introduces the
//! process to it, so that `crosslane ss` shows them.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crosslane_ctl::counter::Counter;
use crosslane_ctl::lane::Location;
use crosslane_ctl::message::{
    ANY_LANES, ClientMessage, Grant, HEADER_BYTES, MESSAGE_BYTES, MessageError, MonitorMessage,
};
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::EndPhase;
use crosslane_sys::busy::{Mutex, MutexGuard};
use crosslane_sys::{Errno, cancel, cpu, kernel};
use crosslane_window::arena::Arena;

use crate::packet::{receive_packet, send_packet};
use crate::process::{self, Process};
use crate::{End, config, doubt, lost, register, relief, shares, strict, watcher};

mod expelled;
mod fork;
mod loans;
mod mapped;
mod owed;
mod own;

pub use fork::{Fork, before_fork};
pub(crate) use loans::{adopt, lend, take_back};
pub(crate) use own::is_handed_over;
pub use own::{OwnFd, descriptors, owns};

use loans::Asked;

/// What the monitor says, and what came with it.
type Told = (MonitorMessage, Option<OwnedFd>);

/// So much is read ahead.
const MOST_UNREAD: usize = 1024;

/// What the kernel says for a while only.
const LATER: [Errno; 4] = [
    Errno::AGAIN,
    Errno::NOMEM,
    Errno(libc::ENOBUFS),
    Errno(libc::ETOOMANYREFS),
];

/// Our descriptors live from here on, out of the way of programs that count on low numbers.
pub(crate) const LOWEST_FD: RawFd = 500_000;
pub(crate) const LOWEST_FD_FALLBACK: RawFd = 512;
const RETRY: Duration = Duration::from_secs(1);
/// How often [`tend`] looks.
const TEND_US: u64 = 1_000_000;

static CONTROL: Mutex<Control> = Mutex::new(Control::new());

/// When [`tend`] looks again, in ticks.
static NEXT_TEND: AtomicU64 = AtomicU64::new(0);

/// The connection to the monitor, and the arenas it has passed.
pub struct Control {
    socket: Option<OwnFd>,
    /// The monitor there has been told who we are.
    is_introduced: bool,
    expelled: [Option<OwnFd>; expelled::MOST],
    /// Held by forked children for as long as they live; see `lease`.
    inherited: Vec<OwnFd>,
    failed: Option<(Instant, Reason)>,
    /// Counts the monitors met, because each numbers its arenas by itself.
    monitor: u32,
    arenas: Option<BTreeMap<(u32, u32), &'static Arena>>,
    /// Arenas for whose memory there was no room.
    unmapped: Vec<(u32, u32)>,
    retired: Vec<&'static Arena>,
    /// Whether an earlier monitor may have granted arenas that are still mapped.
    has_orphans: bool,
    /// Ends that this process has registered with this monitor and that have no answer yet.
    waiting: Option<BTreeSet<u64>>,
    /// Ends that are gone, and their lanes, of which the monitor has yet to be told.
    owed: VecDeque<(u64, u64)>,
    /// Slabs of others, as this process numbers them, by monitor and family.
    guests: Option<BTreeMap<(u32, u32), usize>>,
    /// Loans and adoptions that somebody waits for.
    asked: Option<BTreeMap<u64, Asked>>,
    /// What the monitor has said and has been read ahead.
    unread: VecDeque<Told>,
    /// The other host's memory of the arena that is granted next.
    beyond: Option<OwnedFd>,
}

/// A number of the library's is the program's from now on.
pub fn hand_over(fd: RawFd) {
    // Nobody is in the middle of a call on it then.
    if let Ok(mut control) = CONTROL.lock()
        && control
            .socket
            .as_ref()
            .is_some_and(|socket| socket.number() == fd)
    {
        core::mem::forget(control.socket.take());
        control.owed.clear();
    }
    own::mark_handed_over(fd);
}

/// Introduce the process to the monitor, so that its connections are shown from the first on.
pub fn introduce(process: &'static Process) {
    if let Ok(mut control) = CONTROL.try_lock() {
        let _ = control.connect(process);
    }
}

/// Take grants and refusals that have arrived. Cheap when there are none, and skipped when
/// another thread is at it.
pub fn poll(process: &'static Process) {
    let mut has_orphans = false;
    if let Ok(mut control) = CONTROL.try_lock() {
        control.receive(process);
        has_orphans = control.has_orphans;
    }
    // A process whose connections wait for room may not sleep in any other call.
    if has_orphans {
        tend();
    }
}

/// Ask the monitor for the other end of `end`, unless another thread talks to it just then or has had the end registered.
/// What keeps it on TCP meanwhile becomes the end's reason.
///
/// # Errors
/// The reason for which it stays on TCP for good.
pub fn register(end: &End) -> Result<(), Reason> {
    // Another thread talks to the monitor, perhaps about this end.
    let Ok(mut control) = CONTROL.try_lock() else {
        return Ok(());
    };
    match control.register(end) {
        Err(Reason::Option) => Err(Reason::Option),
        Err(reason) if end.phase() == EndPhase::Plain => {
            // Nobody has it registered before the lock is given back.
            end.set_reason(reason);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether this process has asked for rings for an end, and has no answer yet.
pub(crate) fn awaits(token: u64) -> bool {
    let control = CONTROL.lock();
    control.is_ok_and(|control| {
        control
            .waiting
            .as_ref()
            .is_some_and(|all| all.contains(&token))
    })
}

/// Keep everybody else from talking to the monitor, if nobody does so just now.
pub(crate) fn try_hold() -> Option<MutexGuard<'static, Control>> {
    CONTROL.try_lock().ok()
}

/// Tell the monitor that an end is gone.
pub fn release(token: u64, pair: u64) {
    if let Ok(mut control) = CONTROL.lock() {
        control.release(token, pair);
    }
}

/// What the monitor says comes by this number; -1 if there is none.
pub(crate) fn number() -> RawFd {
    let control = CONTROL.lock().ok();
    let socket = control.and_then(|control| control.socket.as_ref().map(OwnFd::number));
    socket.unwrap_or(-1)
}

/// Say something to the monitor, if there is one and nobody else talks to it just now. Returns whether
/// it has been said.
pub(crate) fn tell(process: &'static Process, message: &ClientMessage, fd: Option<RawFd>) -> bool {
    let Ok(mut control) = CONTROL.try_lock() else {
        return false;
    };
    control.connect(process).is_ok() && control.send(message, fd).is_ok()
}

/// See to it, once a second at most, that the process is known to a monitor: one that has all of
/// its connections in rings has no other reason to notice that a new monitor serves the host.
/// Called where a call sleeps, so that its cost does not count.
pub fn tend() {
    let now = cpu::ticks();
    if now < NEXT_TEND.load(Ordering::Relaxed) {
        return;
    }
    let Some(process) = process::get().filter(|process| process.is_current()) else {
        return;
    };
    if let Ok(mut control) = CONTROL.try_lock() {
        NEXT_TEND.store(now + TEND_US * cpu::ticks_per_us(), Ordering::Relaxed);
        control.receive(process);
        if control.connect(process).is_ok() {
            control.retire_orphans(process);
        }
        drop(control);
        relief::look(process);
        shares::look(process);
    }
}

/// Wait, at most for `patience`, until `done`, taking what the monitor says meanwhile.
pub fn wait_until(process: &'static Process, patience: Duration, done: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    while !done() {
        let Some(left) = deadline.checked_duration_since(Instant::now()) else {
            return false;
        };
        let Ok(mut control) = CONTROL.lock() else {
            return false;
        };
        let Some(socket) = control.socket.as_ref().map(OwnFd::number) else {
            drop(control);
            // Who has just talked to it may have found that it is gone.
            return done();
        };
        control.receive(process);
        drop(control);
        if !done() {
            let mut one = [libc::pollfd {
                fd: socket,
                events: libc::POLLIN,
                revents: 0,
            }];
            let millis = i64::try_from(left.as_millis().min(20)).unwrap_or(20) + 1;
            let slice = libc::timespec {
                tv_sec: 0,
                tv_nsec: millis * 1_000_000,
            };
            let _ = kernel::poll(&mut one, Some(slice));
        }
    }
    true
}

impl Control {
    const fn new() -> Self {
        Self {
            socket: None,
            is_introduced: false,
            expelled: [const { None }; expelled::MOST],
            inherited: Vec::new(),
            failed: None,
            monitor: 0,
            arenas: None,
            unmapped: Vec::new(),
            retired: Vec::new(),
            has_orphans: false,
            waiting: None,
            owed: VecDeque::new(),
            guests: None,
            asked: None,
            unread: VecDeque::new(),
            beyond: None,
        }
    }

    fn register(&mut self, end: &End) -> Result<(), Reason> {
        let is_fresh = self.socket.is_none() && !self.has_just_failed();
        self.connect(end.process()).inspect_err(|reason| {
            if is_fresh && !end.family().is_kernels(end.fd) {
                strict::fell_back(end.fd, *reason);
            }
        })?;
        // The last to be asked: it takes a dozen system calls.
        if end.family().is_kernels(end.fd) {
            return Err(Reason::Option);
        }
        self.expect_releases(end.process());
        if !register::begin(end) {
            return Ok(());
        }
        let token = end.token();
        let sent = self.send(&ClientMessage::Register { token }, Some(end.fd));
        sent.inspect_err(|reason| {
            register::unregister(end);
            if self.socket.is_some() {
                // It is there, but has stopped reading.
                strict::fell_back(end.fd, *reason);
            }
        })?;
        register::registered(end);
        self.waiting.get_or_insert_with(BTreeSet::new).insert(token);
        Ok(())
    }

    fn connect(&mut self, process: &'static Process) -> Result<(), Reason> {
        if self.socket.is_some() {
            return Ok(());
        }
        if let Some((_, reason)) = self.failed
            && self.has_just_failed()
        {
            return Err(reason);
        }
        self.introduce(process).map_err(|reason| self.fail(reason))
    }

    fn has_just_failed(&self) -> bool {
        self.failed.is_some_and(|(when, _)| when.elapsed() < RETRY)
    }

    fn introduce(&mut self, process: &'static Process) -> Result<(), Reason> {
        if crate::process::has_left() || !self.may_be_expelled() {
            return Err(Reason::NoMonitor);
        }
        let socket =
            kernel::connect_unix(&config::get().socket).map_err(|errno| match errno.0 {
                libc::EMFILE | libc::ENFILE => Reason::NoDescriptors,
                _ => Reason::NoMonitor,
            })?;
        self.socket = Some(OwnFd::new(socket));
        self.is_introduced = false;
        self.monitor += 1;
        if let Some(secret) = config::get().secret {
            self.send(&ClientMessage::Secret { secret }, None)?;
        }
        self.send(&ClientMessage::Hello, Some(process.slab_fd()))?;
        self.is_introduced = true;
        Ok(())
    }

    /// The monitor is gone, or of no use. What it was to find is looked for by the next one.
    fn fail(&mut self, reason: Reason) -> Reason {
        self.hang_up();
        self.owed.clear();
        self.has_orphans = true;
        self.failed = Some((Instant::now(), reason));
        if let (Some(waiting), Some(process)) = (self.waiting.take(), process::get()) {
            for token in waiting {
                register::abandoned(process, token, reason);
            }
        }
        for asked in self.asked.iter_mut().flat_map(BTreeMap::values_mut) {
            asked.fail();
        }
        reason
    }

    fn answered(&mut self, token: u64) {
        if let Some(waiting) = &mut self.waiting {
            waiting.remove(&token);
        }
    }

    fn send(&mut self, message: &ClientMessage, fd: Option<RawFd>) -> Result<(), Reason> {
        self.settle()?;
        self.transmit(message, fd)
    }

    fn transmit(&mut self, message: &ClientMessage, fd: Option<RawFd>) -> Result<(), Reason> {
        let Some(socket) = &self.socket else {
            return Err(Reason::NoMonitor);
        };
        match send_packet(socket.number(), message.encode().as_bytes(), fd) {
            Ok(()) => Ok(()),
            // The monitor is slow, or the kernel has no memory: the connection stays on TCP, others may do better later.
            Err(errno) if LATER.contains(&errno) => Err(Reason::NoMonitor),
            // The program has just closed it.
            Err(Errno::BADF) if fd.is_some_and(|fd| kernel::status_flags(fd).is_err()) => {
                Err(Reason::NoMonitor)
            }
            Err(_) => Err(self.fail(Reason::NoMonitor)),
        }
    }

    fn receive(&mut self, process: &'static Process) {
        // What cannot be said now is said later.
        let _ = self.settle();
        while let Some((message, fd)) = self.next_message(process) {
            cancel::never(|| self.handle(process, message, fd));
        }
    }

    fn next_message(&mut self, process: &'static Process) -> Option<Told> {
        let told = self.unread.pop_front();
        told.or_else(|| self.read_message(process))
    }

    fn read_message(&mut self, process: &'static Process) -> Option<Told> {
        let mut may_be_reset = true;
        while let Some(socket) = &self.socket {
            let mut bytes = [0; HEADER_BYTES + MESSAGE_BYTES];
            let (length, fd) = match receive_packet(socket.number(), &mut bytes) {
                Ok((0, _)) => {
                    self.fail(Reason::NoMonitor);
                    return None;
                }
                Ok(received) => received,
                Err(Errno::AGAIN | Errno::INTR) => return None,
                // A monitor that was killed with unread messages: the kernel says so first, but
                // what it had granted before can still be read, and the peers may be using it.
                Err(Errno::CONNRESET) if may_be_reset => {
                    may_be_reset = false;
                    continue;
                }
                Err(_) => {
                    self.fail(Reason::NoMonitor);
                    return None;
                }
            };
            match MonitorMessage::decode(&bytes[..length]) {
                Ok(message) => return Some((message, fd)),
                Err(error) => {
                    process.count(Counter::ControlErrors, 1);
                    let reason = match error {
                        MessageError::Version { .. } => Reason::Version,
                        _ => Reason::NoMonitor,
                    };
                    self.fail(reason);
                    return None;
                }
            }
        }
        None
    }

    /// Whether the monitor has said behind this grant of lanes between hosts that they are lost: it may have
    /// told the other host that nobody is there. Where too much has been said, it may be so.
    fn is_taken_back(&mut self, process: &'static Process, grant: &Grant) -> bool {
        register::announce(process, grant.token, grant.pair);
        while self.unread.len() < MOST_UNREAD {
            let Some(told) = self.read_message(process) else {
                let is_loss = |(message, _): &Told| {
                    let (token, pair) = (grant.token, grant.pair);
                    *message == MonitorMessage::WindowLost { token, pair }
                };
                return self.unread.iter().any(is_loss);
            };
            self.unread.push_back(told);
        }
        true
    }

    fn handle(&mut self, process: &'static Process, message: MonitorMessage, fd: Option<OwnedFd>) {
        match message {
            MonitorMessage::Lendable { token } => self.conclude(token, true),
            MonitorMessage::Lent(loan) => self.note_loan(process, loan, fd),
            // No answer yet: another monitor would have to be asked again.
            MonitorMessage::Refused { token, reason }
                if reason_of(reason) == Reason::WindowFull =>
            {
                register::waits_for_room(process, token);
            }
            MonitorMessage::Refused { token, reason } if self.has_asked(token) => {
                // Or its registration has been, which went before.
                register::refused_in_flight(process, token, reason_of(reason));
                self.conclude(token, false);
            }
            MonitorMessage::Grant(grant) if self.loan(grant.token).is_some() => {
                let adopted = self.complete_adoption(process, &grant, fd);
                if !adopted {
                    self.release(grant.token, ANY_LANES);
                }
                self.conclude(grant.token, adopted);
            }
            MonitorMessage::Registered { token } if self.loan(token).is_some() => {
                let adopted = self.complete_without_rings(process, token);
                if !adopted {
                    self.release(token, ANY_LANES);
                }
                self.conclude(token, adopted);
            }
            MonitorMessage::Registered { token } => register::acknowledged(process, token),
            MonitorMessage::Grant(grant) => self.take_grant(process, &grant, fd),
            MonitorMessage::Beyond { .. } => self.beyond = fd,
            MonitorMessage::Refused { token, reason } => {
                self.answered(token);
                register::refused(process, token, reason_of(reason));
            }
            MonitorMessage::Position(position) => lost::hear_position(process, &position),
            MonitorMessage::Remainder(remainder) => lost::hear_remainder(process, &remainder, fd),
            MonitorMessage::Alone { token, pair } => lost::hear_alone(process, token, pair),
            MonitorMessage::Left { token, pair } => lost::hear_left(process, token, pair),
            MonitorMessage::WindowLost { token, pair } => lost::hear_lost(process, token, pair),
            MonitorMessage::Carried { token, pair } => doubt::hear_carried(process, token, pair),
            MonitorMessage::LookedInto { token, pair } => doubt::hear_asked(process, token, pair),
            MonitorMessage::Retire { arena } => self.retire(arena),
            MonitorMessage::Welcome | MonitorMessage::Text(_) => {}
        }
    }

    fn take_grant(&mut self, process: &'static Process, grant: &Grant, fd: Option<OwnedFd>) {
        // In any case: its memory is passed once.
        let arena = self.arena(grant, fd);
        if register::is_outdated(process, grant) {
            return;
        }
        self.answered(grant.token);
        match arena {
            // The partner keeps its half until both ask again.
            Ok(_) if register::is_shared(process, grant.token) => {
                self.release(grant.token, 0);
            }
            Ok(arena) if arena.lost().is_none() => register::granted(process, grant, arena),
            Ok(arena) => {
                let is_lost = self.is_taken_back(process, grant);
                if !is_lost {
                    register::granted(process, grant, arena);
                    watcher::start(process);
                }
                register::announce(process, grant.token, 0);
                if is_lost {
                    self.miss(process, grant);
                }
            }
            Err(_) if grant.location != Location::Sealed => self.miss(process, grant),
            Err(reason) => register::refused(process, grant.token, reason),
        }
    }

    /// The window was lost before we came to it.
    fn miss(&mut self, process: &'static Process, grant: &Grant) {
        if register::missed(process, grant.token) {
            self.release(grant.token, 0);
        }
    }
}

/// What the monitor gives as a reason. Only one of another version has further ones.
fn reason_of(code: u32) -> Reason {
    Reason::from_code(code).unwrap_or(Reason::Version)
}
