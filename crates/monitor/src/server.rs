//! The event loop: one thread, one epoll set. Messages go into the [`Registry`], what it has to
//! say goes out; nothing here waits for a client.
//!
//! - `accept`: new connections, who may have them, and running out of descriptors;
//! - `message`: what clients say;
//! - `loans`: slabs of ends that go to other processes;
//! - `answer`: queries of the command, a piece at a time;
//! - `rack`: other hosts.

mod accept;
mod answer;
mod complaints;
mod loans;
mod message;
mod rack;

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use crosslane_ctl::message::MonitorMessage;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use thiserror::Error;

use self::complaints::Complaints;
use self::rack::Rack;
pub use self::rack::RackError;
use self::rack::reload::Reloads;
use crate::backing::{Memories, Memory, SealedMemory};
use crate::closer::{Account, Closer};
use crate::config::{Config, Service};
use crate::connection::{Connection, Said};
use crate::directory::{DirectoryError, Door, open_directory, private_mode};
use crate::registry::{Action, Beside, ClientId, FamilyId, LeaseId, Registry};
use crate::report::{Families, MonitorReport};
use crate::secret;

/// Events taken from the kernel at a time.
const EVENTS: usize = 256;

/// Messages taken from one client before others have their turn.
const MESSAGES_PER_TURN: usize = 32;

/// Why a monitor could not be started.
#[derive(Debug, Error)]
pub enum StartError {
    /// Its directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// It cannot be part of its rack.
    #[error(transparent)]
    Rack(#[from] RackError),
    /// The kernel refused something.
    #[error("cannot start the monitor: {0}")]
    Kernel(#[from] io::Error),
}

/// A running monitor.
pub struct Monitor {
    service: Service,
    /// What other users must know, if anything.
    secret: Option<u64>,
    connections_per_user: usize,
    epoll: OwnedFd,
    door: Door,
    closer: Closer,
    /// Kept open, as epoll forgets what is closed.
    _stop: OwnedFd,
    /// Closed when no descriptor is left, to have one for turning a connection away.
    spare: Option<OwnedFd>,
    sources: HashMap<u64, Source>,
    clients: HashMap<ClientId, u64>,
    connections_of: HashMap<u32, usize>,
    /// Sockets of users that are still being closed.
    closing_of: HashMap<u32, usize>,
    guests: HashMap<u32, u64>,
    families: Families,
    /// Slabs in which lent ends live.
    lent_slabs: HashMap<FamilyId, Arc<OwnedFd>>,
    /// When loans are looked at again.
    loans_due: Option<Instant>,
    registry: Registry<Memories>,
    rack: Option<Box<Rack>>,
    reloads: Reloads,
    next_source: u64,
    /// Connections whose answers go on without waiting for an event.
    busy: Vec<u64>,
    /// What finished processes leave has not been counted to the end.
    counting: bool,
    started: Instant,
    idle_since: Option<Instant>,
    /// No connection is accepted before then, for lack of memory or descriptors.
    door_shut_until: Option<Instant>,
    complaints: Complaints,
    counts: MonitorReport,
}

/// What an epoll event is about.
enum Source {
    Connection(Box<Connection>),
    /// Ends when nobody holds the other side. Of this user.
    Lease(LeaseId, u32, OwnedFd),
    /// A program that keeps a private monitor alive, by its pidfd.
    Guest(
        u32,
        #[expect(dead_code, reason = "held open for epoll")] OwnedFd,
    ),
}

const DOOR: u64 = 0;
const STOP: u64 = 1;
const CLOSER: u64 = 2;
const RACK_DOOR: u64 = 3;
const RELOAD: u64 = 4;
const FIRST_SOURCE: u64 = 5;

impl Monitor {
    /// Begin to listen. The monitor ends when `stop` becomes readable.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(config: &Config, stop: OwnedFd) -> Result<Self, StartError> {
        let is_root = rustix::process::geteuid().is_root();
        let is_private = config.service != Service::System;
        let mode = match is_root && !is_private {
            true => 0o755,
            false => private_mode(),
        };
        open_directory(&config.directory, mode)?;
        // There before anybody can connect.
        let secret = match is_root && is_private {
            true => Some(secret::keep_in(&config.directory)?),
            false => None,
        };
        let door = Door::open(&config.directory, mode, is_root)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        watch(&epoll, door.socket(), DOOR, EventFlags::IN)?;
        watch(&epoll, &stop, STOP, EventFlags::IN)?;
        let closer = Closer::new()?;
        watch(&epoll, closer.bell(), CLOSER, EventFlags::IN)?;
        let backing = Memories::new(SealedMemory::new(config.memory_floor_bytes));
        let mut registry = Registry::new(backing, config.geometry, config.quotas);
        let rack = config.rack.clone().map(Rack::start).transpose()?;
        if let Some(rack) = &rack {
            rack.watch(&epoll, RACK_DOOR)?;
            registry.join_rack();
        }
        Ok(Self {
            service: config.service,
            secret,
            connections_per_user: config.quotas.connections_per_user,
            epoll,
            door,
            closer,
            _stop: stop,
            spare: spare_descriptor(),
            sources: HashMap::new(),
            clients: HashMap::new(),
            connections_of: HashMap::new(),
            closing_of: HashMap::new(),
            guests: HashMap::new(),
            families: Families::default(),
            lent_slabs: HashMap::new(),
            loans_due: None,
            registry,
            rack: rack.map(Box::new),
            reloads: Reloads::default(),
            next_source: FIRST_SOURCE,
            busy: Vec::new(),
            counting: false,
            started: Instant::now(),
            idle_since: Some(Instant::now()),
            door_shut_until: None,
            complaints: Complaints::default(),
            counts: MonitorReport::default(),
        })
    }

    /// Serve until told to stop, or until a private monitor has lingered for long enough.
    ///
    /// # Errors
    /// When the kernel refuses to wait for events.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            let timeout = self.timeout();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                if event.data.u64() == STOP {
                    return Ok(());
                }
                self.handle(event);
            }
            self.go_on_answering();
            self.counting = self.families.go_on();
            self.reopen_door();
            self.look_at_loans();
            self.tend_rack();
            if self.has_lingered() {
                return Ok(());
            }
        }
    }

    /// How long to wait for events; `None` for ever.
    fn timeout(&self) -> Option<Timespec> {
        if !self.busy.is_empty() || self.counting {
            return Some(Timespec::default());
        }
        let now = Instant::now();
        let end_of_linger = match (self.service, self.idle_since) {
            (Service::Private { linger }, Some(since)) => since.checked_add(linger),
            _ => None,
        };
        let rack_due = self.rack.as_ref().and_then(|rack| rack.due());
        let next = [
            end_of_linger,
            self.door_shut_until,
            self.loans_due,
            rack_due,
        ];
        let left = next.into_iter().flatten().min()?.duration_since(now);
        Some(Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        })
    }

    fn has_lingered(&mut self) -> bool {
        let Service::Private { linger } = self.service else {
            return false;
        };
        if !self.sources.is_empty() {
            self.idle_since = None;
            return false;
        }
        let since = *self.idle_since.get_or_insert_with(Instant::now);
        since.elapsed() >= linger
    }

    fn handle(&mut self, event: Event) {
        let id = event.data.u64();
        let flags = event.flags;
        match self.sources.get(&id) {
            None if id == DOOR => self.accept(),
            None if id == CLOSER => self.resume_closed(),
            None if id == RACK_DOOR => self.accept_hosts(),
            None if id == RELOAD => self.reload(),
            None if self.rack.as_ref().is_some_and(|rack| rack.owns(id)) => self.serve_host(id),
            None => {}
            Some(Source::Lease(lease, ..)) => {
                let lease = *lease;
                if let Some(Source::Lease(_, uid, socket)) = self.sources.remove(&id) {
                    self.close_aside(socket, uid);
                }
                self.registry.lease_ended(lease);
                self.families.forget(|family| self.registry.knows(family));
            }
            Some(Source::Guest(pid, _)) => {
                self.guests.remove(pid);
                self.sources.remove(&id);
            }
            Some(Source::Connection(_)) => self.serve(id, flags),
        }
        self.deliver();
    }

    fn serve(&mut self, id: u64, flags: EventFlags) {
        if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            if let Some(connection) = self.connection(id) {
                connection.note_gone();
            }
        } else if flags.contains(EventFlags::OUT) {
            if let Some(connection) = self.connection(id) {
                connection.flush();
            }
            self.answer_more(id);
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.listen_to(id);
        }
        self.update_interest(id);
    }

    fn connection(&mut self, id: u64) -> Option<&mut Connection> {
        match self.sources.get_mut(&id) {
            Some(Source::Connection(connection)) => Some(connection),
            _ => None,
        }
    }

    fn update_interest(&mut self, id: u64) {
        let Some(Source::Connection(connection)) = self.sources.get_mut(&id) else {
            return;
        };
        let wanted = connection.wanted();
        if wanted == connection.interest {
            return;
        }
        connection.interest = wanted;
        let data = EventData::new_u64(id);
        if epoll::modify(&self.epoll, &**connection, data, wanted).is_err() {
            self.drop_connection(id);
        }
    }

    /// Say to clients what the registry wants to be said.
    fn deliver(&mut self) {
        loop {
            let actions = self.registry.take_actions();
            let is_quiet = actions.is_empty();
            for action in actions {
                match action.message {
                    MonitorMessage::WindowLost { .. } => {
                        self.tell_kin(action.client, &action.message);
                    }
                    _ => self.say(&action),
                }
            }
            if !self.relay() && is_quiet {
                return;
            }
        }
    }

    fn say(&mut self, action: &Action) {
        let Some(id) = self.clients.get(&action.client).copied() else {
            return;
        };
        let memory = action.beside.and_then(|beside| match beside {
            Beside::Arena(arena) => self.registry.memory(arena).map(Memory::descriptor),
            Beside::Beyond(arena) => self.registry.memory(arena).and_then(Memory::beyond),
            Beside::Slab(family) => self.lent_slabs.get(&family).map(Arc::clone),
        });
        let bytes = action.message.encode();
        let said = self
            .connection(id)
            .map(|connection| connection.say(bytes, memory));
        match said {
            Some(Said::Lost) => self.give_up(id),
            _ => self.update_interest(id),
        }
        if let Some(Beside::Slab(family)) = action.beside {
            self.welcome_adopter(id, family);
        }
    }

    /// A client does not read what it is told.
    fn give_up(&mut self, id: u64) {
        self.counts.too_slow += 1;
        self.turn_out(id);
    }

    /// Have no more to do with a client that has misbehaved or is too slow. What it was granted stays its own until it
    /// has ended: it may be using that.
    fn turn_out(&mut self, id: u64) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        if connection.member.is_none() {
            return self.drop_connection(id);
        }
        connection.expel();
        self.families.runs.unwatch(id);
        self.update_interest(id);
    }

    /// Forget a connection: the process is gone, or has never been known.
    fn drop_connection(&mut self, id: u64) {
        let Some(Source::Connection(mut connection)) = self.sources.remove(&id) else {
            return;
        };
        self.families.runs.unwatch(id);
        let uid = connection.peer.uid;
        count_down(&mut self.connections_of, uid);
        if let Some(member) = connection.member {
            self.clients.remove(&member.client);
            let adopted = std::mem::take(&mut connection.guest_of);
            for family in adopted.into_iter().chain([member.family]) {
                self.families.part(member.client, family);
            }
            self.registry.gone(member.client);
            self.families.forget(|family| self.registry.knows(family));
        }
        self.close_aside(connection.into_socket(), uid);
    }

    /// Close a socket that clients could send descriptors to.
    fn close_aside(&mut self, socket: OwnedFd, uid: u32) {
        // It tells of nothing any more, however long its close takes.
        let _ = epoll::delete(&self.epoll, &socket);
        if !self.closer.close_aside(socket, Account::User(uid), uid) {
            *self.closing_of.entry(uid).or_default() += 1;
        }
    }

    /// Close what a client has passed. False if it is paused until that is done.
    fn discard(&mut self, id: u64, fd: OwnedFd) -> bool {
        let Some(connection) = self.connection(id) else {
            return true;
        };
        let uid = connection.peer.uid;
        if connection.is_gone() {
            // It waits for nothing any more, and its user is answerable.
            if !self.closer.close(fd, Account::User(uid), uid) {
                *self.closing_of.entry(uid).or_default() += 1;
            }
            return true;
        }
        let is_done = self.closer.close(fd, Account::Client(id), uid);
        if let Some(connection) = self.connection(id).filter(|_| !is_done) {
            connection.closing += 1;
        }
        is_done
    }
}

fn watch(epoll: &OwnedFd, fd: &OwnedFd, id: u64, flags: EventFlags) -> io::Result<()> {
    Ok(epoll::add(epoll, fd, EventData::new_u64(id), flags)?)
}

/// One less of this user's.
fn count_down(counts: &mut HashMap<u32, usize>, uid: u32) {
    if let Some(count) = counts.get_mut(&uid) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&uid);
        }
    }
}

fn spare_descriptor() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
}
