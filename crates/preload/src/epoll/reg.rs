//! One registration of a connection in an epoll set.

use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::Ordering;

use crosslane_stream::ready::SeenByTcp;
use crosslane_stream::{End, gone, lost};

use super::common::Name;
use super::news::BROKEN;

const RDHUP: u32 = libc::EPOLLRDHUP.cast_unsigned();
/// Other names of what is ready with EPOLLIN and EPOLLOUT.
const OTHER_NAMES: [(u32, i16); 2] = [
    (libc::EPOLLRDNORM.cast_unsigned(), libc::POLLIN),
    (libc::EPOLLWRNORM.cast_unsigned(), libc::POLLOUT),
];

/// One registration of a connection.
pub struct Reg {
    pub end: End,
    /// The end's token, which tells whether its entry still means the same connection.
    token: u64,
    /// What the program registered.
    pub events: u32,
    pub data: u64,
    /// The kernel's registration carries our tag.
    pub ringed: bool,
    /// It has since it was last looked at: of what came before the kernel may have told, in the same wait.
    pub is_taken: bool,
    /// What the kernel has been told to look for, while `ringed`.
    pub kernel_events: u32,
    /// The program has deleted it; the kernel has not been told.
    pub deleted: bool,
    /// Switched off by EPOLLONESHOT.
    pub spent: bool,
    /// The kernel has no such registration: it was spent when the connection left its rings.
    pub absent: bool,
    /// Not looked at since it was added or modified: edges are due for what is ready.
    pub fresh: bool,
    /// The kernel saw something while the program was to be told nothing: ask it again.
    pub missed: bool,
    /// The kernel's next news may be its answer to a new wish of ours.
    pub echoes: bool,
    /// Edge-triggered: up to which line arrivals have been reported.
    pub reported_line: u64,
    /// Edge-triggered: what TCP had brought when that was last reported.
    pub reported_tcp: SeenByTcp,
    /// The same before the last look at TCP, until that is reported.
    pub seen_tcp: Option<SeenByTcp>,
    /// The [`stage`](crosslane_stream::lost::stage) of lost windows at which edges have been due again.
    pub stage: u32,
    /// What had been shut down when edges were last looked for.
    pub shutdowns: u32,
    /// The end's refusals up to which the program has been told of room, and those before the last look.
    pub refusals: u32,
    pub seen_refusals: u32,
    /// Which end of the stream has been reported.
    pub reported_ending: u32,
    /// Which of POLLERR and POLLHUP have been reported.
    pub reported_broken: u32,
    /// Whoever sleeps has a time limit for it, as it waits for room.
    pub timed: bool,
    /// Waits in a row without news, for leaving the hot list.
    pub quiet_waits: u32,
    /// The scan that has looked at it last.
    pub scan: u32,
    /// The scan that has told of it last.
    pub told_by: u32,
    pub hot: bool,
    /// The descriptor it was made by: the kernel's key to it, together with the open file.
    pub number: c_int,
    /// That descriptor is closed while another names the connection. The kernel keeps it, and it can be
    /// changed only while the number names the connection again; `end` goes by a name that lives.
    pub nameless: bool,
    /// This process has counted it in the end's `epolls`. A forked child inherits registrations
    /// that its parent has counted.
    counted: bool,
    /// SO_COOKIE of the connection, once asked for; or 0.
    cookie: Cell<u64>,
}

impl Reg {
    /// A registration as the program has just made it with the kernel.
    pub fn new(end: &End, events: u32, data: u64) -> Self {
        Self {
            end: *end,
            token: end.token(),
            events,
            data,
            ringed: false,
            is_taken: false,
            kernel_events: 0,
            deleted: false,
            spent: false,
            absent: false,
            fresh: true,
            missed: false,
            echoes: false,
            reported_line: 0,
            reported_tcp: SeenByTcp::default(),
            seen_tcp: None,
            timed: false,
            stage: lost::stage(end),
            shutdowns: gone::shutdowns(end),
            refusals: end.refusals(),
            seen_refusals: end.refusals(),
            reported_ending: 0,
            reported_broken: 0,
            quiet_waits: 0,
            scan: 0,
            told_by: 0,
            hot: false,
            number: end.fd,
            nameless: false,
            counted: false,
            cookie: Cell::new(0),
        }
    }

    /// What relatives know it by.
    pub fn name(&self) -> Option<Name> {
        if self.cookie.get() == 0 && !self.nameless {
            let name = Name::of(self.number)?;
            self.cookie.set(name.cookie());
        }
        let cookie = Some(self.cookie.get()).filter(|cookie| *cookie != 0)?;
        Some(Name::known(self.number, cookie))
    }

    /// Count the set as a waiter for the connection.
    pub fn count(&mut self) {
        if !core::mem::replace(&mut self.counted, true) {
            self.end.begin_set();
        }
    }

    /// A forked child has not counted it.
    pub fn leave_count(&mut self) {
        self.counted = false;
    }

    /// Whether this process waits for the connection by it.
    pub fn is_counted(&self) -> bool {
        self.counted
    }

    /// The record goes away.
    pub fn forget(&self) {
        let local = self.end.local;
        if self.is_live() && local.registrations.fetch_sub(1, Ordering::Relaxed) == 1 {
            local.plural.store(0, Ordering::Relaxed);
            local.epoll_set.store(0, Ordering::Relaxed);
        }
    }

    /// The set waits for the connection no more.
    pub fn uncount(&mut self) {
        if core::mem::replace(&mut self.counted, false) && self.is_live() {
            self.end.end_set();
        }
    }

    /// Take a new wish of the program's.
    pub fn renew(&mut self, events: u32, data: u64) {
        (self.events, self.data) = (events, data);
        (self.deleted, self.spent, self.fresh) = (false, false, true);
        // The kernel was not to tell of the peer's end meanwhile.
        self.missed |= events & !self.kernel_events & RDHUP != 0;
    }

    /// Whether it is of this connection.
    pub fn is_of(&self, end: &End) -> bool {
        self.end.index == end.index && self.token == end.token()
    }

    /// Whether its connection still exists.
    #[inline]
    pub fn is_live(&self) -> bool {
        self.token == self.end.token()
    }

    /// Whether the program wants edges.
    pub fn is_edge(&self) -> bool {
        self.events & libc::EPOLLET.cast_unsigned() != 0
    }

    /// Whether the program wants to be told once.
    #[inline]
    pub fn is_once(&self) -> bool {
        self.events & libc::EPOLLONESHOT.cast_unsigned() != 0
    }

    /// Whether the program is to be told nothing.
    pub fn is_silent(&self) -> bool {
        self.spent || self.deleted
    }

    /// Whether room was missed of which the program has not been told: as in the kernel, by whoever has the socket.
    pub fn lacks_room(&self) -> bool {
        self.end.is_blocked() || self.refusals != self.end.refusals()
    }

    /// The events that a sleep is to be ended by. To ask a peer for room of which nothing would be told has it ring for
    /// nothing.
    pub fn awaited(&self) -> i16 {
        let is_due = !self.is_edge() || self.fresh || self.lacks_room();
        let room = if is_due { 0 } else { libc::POLLOUT };
        self.wanted() & !room
    }

    /// The events wanted, as poll(2) names them: the bits that both know have the same values.
    #[inline]
    pub fn wanted(&self) -> i16 {
        if self.is_silent() {
            return 0;
        }
        let wanted = i16::try_from(self.events & 0x7fff).unwrap_or(0);
        let has_name = |(name, _): &&(u32, i16)| self.events & name != 0;
        OTHER_NAMES
            .iter()
            .filter(has_name)
            .fold(wanted, |sum, (_, event)| sum | event)
    }

    /// The line from which on arrivals are news.
    pub fn news_since(&self) -> u64 {
        if self.is_edge() {
            self.reported_line
        } else {
            0
        }
    }

    /// What of all that is found the program is told.
    #[inline]
    pub fn told(&self) -> u32 {
        self.events | BROKEN
    }
}
