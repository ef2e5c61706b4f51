//! What clients say.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use crosslane_ctl::message::{ClientMessage, MessageError, MonitorMessage};
use crosslane_sys::socket::PeerCredentials;
use crosslane_window::slab::{SlabError, SlabMap};
use rustix::event::epoll::EventFlags;
use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;
use thiserror::Error;

use super::{MESSAGES_PER_TURN, Monitor, Source};
use crate::closer::Account;
use crate::connection::{Deferred, Member, Purpose};
use crate::endpoint::{Endpoint, EndpointError};
use crate::registry::{ClientId, LeaseId, Violation};
use crate::report::Process;
use crate::wire::{Received, receive};

/// Why a client was disconnected. All of these are its fault, but for a lack of our own.
#[derive(Debug, Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error(transparent)]
    Slab(#[from] SlabError),
    #[error(
        "a descriptor of its message was lost, as this monitor has none left; raise its limit \
         (LimitNOFILE, ulimit -n)"
    )]
    OwnDescriptors,
    #[error("a message came with {0} descriptors")]
    Descriptors(usize),
    #[error("a message came without its descriptor")]
    NoDescriptor,
    #[error("a message came before Hello")]
    NotIntroduced,
    #[error("a program that root has not run with `crosslane run` wants to be served")]
    Stranger,
    #[error("Hello came twice")]
    IntroducedTwice,
    #[error("the descriptor of a lease is not an AF_UNIX socket")]
    LeaseKind,
    #[error("the descriptor of a lease cannot be watched: {0}")]
    LeaseWatch(std::io::Error),
}

impl Monitor {
    /// Take some messages of a client.
    pub(super) fn listen_to(&mut self, id: u64) {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(connection) = self.connection(id) else {
                return;
            };
            if connection.is_paused() {
                return;
            }
            let (bytes, fds, fds_lost) = match receive(connection.as_fd()) {
                Received::Nothing => return,
                Received::Closed => return self.drop_connection(id),
                Received::Datagram {
                    bytes,
                    fds,
                    fds_lost,
                } => (bytes, fds, fds_lost),
            };
            if let Err(fault) = self.understand(id, &bytes, fds, fds_lost) {
                self.expel(id, &fault);
            }
            self.deliver();
        }
    }

    fn expel(&mut self, id: u64, fault: &Fault) {
        if self.connection(id).is_some_and(|known| known.is_expelled()) {
            return;
        }
        let pid = self
            .connection(id)
            .map_or(0, |connection| connection.peer.pid);
        self.complaints
            .say(format_args!("disconnecting process {pid}: {fault}"));
        match fault {
            Fault::OwnDescriptors => self.counts.turned_away += 1,
            _ => self.counts.protocol_errors += 1,
        }
        if let Fault::Message(MessageError::Version { .. }) = fault
            && let Some(connection) = self.connection(id)
        {
            // From the version of these last words it learns why; whether it reads them is its own
            // business.
            let _ = connection.say(MonitorMessage::Welcome.encode(), None);
        }
        self.turn_out(id);
    }

    /// See what a datagram means, and close what came with it and is not kept.
    fn understand(
        &mut self,
        id: u64,
        bytes: &[u8],
        mut fds: Vec<OwnedFd>,
        fds_lost: bool,
    ) -> Result<(), Fault> {
        let outcome = match (ClientMessage::decode(bytes), fds.len()) {
            (Err(error), _) => Err(error.into()),
            (Ok(_), 2..) => Err(Fault::Descriptors(fds.len())),
            (Ok(message), _) => {
                self.obey(id, message, &mut fds, fds_lost)
                    .map_err(|fault| match fault {
                        Fault::NoDescriptor if fds_lost => Fault::OwnDescriptors,
                        fault => fault,
                    })
            }
        };
        for fd in fds {
            self.discard(id, fd);
        }
        outcome
    }

    /// Do what a message says; a descriptor that is kept is taken out of `fds`.
    fn obey(
        &mut self,
        id: u64,
        message: ClientMessage,
        fds: &mut Vec<OwnedFd>,
        fds_lost: bool,
    ) -> Result<(), Fault> {
        let Some(connection) = self.connection(id) else {
            return Ok(());
        };
        let member = connection.member;
        if connection.is_stranger && !matches!(message, ClientMessage::Secret { .. }) {
            return Err(Fault::Stranger);
        }
        if connection.is_expelled() && !counts_at_last(&message) {
            return Ok(());
        }
        match message {
            ClientMessage::Secret { secret } => self.admit_stranger(id, secret),
            ClientMessage::Hello => self.hello(id, fds),
            ClientMessage::Query(query) => {
                let uid = connection.peer.uid;
                self.begin_answer(id, uid, query);
                Ok(())
            }
            ClientMessage::Watch { run } => {
                let uid = connection.peer.uid;
                self.families.runs.watch(run, uid, id);
                Ok(())
            }
            ClientMessage::Register { token } => {
                self.inspect(id, token, Purpose::Register, fds.pop(), fds_lost)
            }
            ClientMessage::Adopt { token } => {
                self.inspect(id, token, Purpose::Adopt, fds.pop(), fds_lost)
            }
            ClientMessage::TakeBack {
                token,
                member: lent,
            } => {
                let client = known(member)?;
                self.registry.take_back(client, token, lent);
                Ok(())
            }
            ClientMessage::Lend {
                token,
                member: new,
                has_rings,
            } => {
                let client = known(member)?;
                self.lend(client, token, (new, has_rings), fds)
            }
            ClientMessage::Release { token, pair } => {
                let client = known(member)?;
                self.registry.release(client, token, pair);
                Ok(())
            }
            ClientMessage::Position(_)
            | ClientMessage::Remainder(_)
            | ClientMessage::Doubt { .. } => {
                let member = member.ok_or(Fault::NotIntroduced)?;
                self.hear_of_window(member, message, fds.pop())
            }
            ClientMessage::Lease => {
                let (client, uid) = (known(member)?, connection.peer.uid);
                self.lease((client, uid), fds)
            }
        }
    }

    /// What an end in a window between hosts says of it.
    fn hear_of_window(
        &mut self,
        member: Member,
        message: ClientMessage,
        fd: Option<OwnedFd>,
    ) -> Result<(), Fault> {
        match message {
            ClientMessage::Position(position) => {
                // We may have had no room for its socket. It is told again.
                if let Some(socket) = fd {
                    self.told_position(member.client, position, socket);
                }
                Ok(())
            }
            ClientMessage::Remainder(remainder) => {
                self.told_remainder(member.client, remainder, fd)
            }
            ClientMessage::Doubt { token, pair } => {
                self.doubted(member, (token, pair));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Who needs no secret may show one all the same.
    fn admit_stranger(&mut self, id: u64, shown: u64) -> Result<(), Fault> {
        let secret = self.secret;
        let Some(connection) = self.connection(id) else {
            return Ok(());
        };
        if !connection.is_stranger {
            return Ok(());
        }
        if secret != Some(shown) {
            return Err(Fault::Stranger);
        }
        connection.is_stranger = false;
        let peer = connection.peer;
        self.welcome_guest(peer);
        Ok(())
    }

    /// Read a socket, close it, and only then say so.
    fn inspect(
        &mut self,
        id: u64,
        token: u64,
        purpose: Purpose,
        fd: Option<OwnedFd>,
        fds_lost: bool,
    ) -> Result<(), Fault> {
        let endpoint = match &fd {
            Some(fd) if purpose == Purpose::Adopt => Endpoint::read_adopted(fd.as_fd()),
            Some(fd) => Endpoint::read(fd.as_fd()),
            // We may have had no room for the descriptor: nobody's fault.
            None if fds_lost => Err(EndpointError::Lost),
            None => return Err(Fault::NoDescriptor),
        };
        let closed = fd.is_none_or(|fd| self.discard(id, fd));
        let connection = self.connection(id);
        let Some((connection, member)) = connection.and_then(|c| c.member.map(|m| (c, m))) else {
            return Err(Fault::NotIntroduced);
        };
        if !closed {
            connection.deferred = Some(Deferred {
                purpose,
                token,
                endpoint,
            });
            return Ok(());
        }
        Ok(self.enter(member.client, purpose, token, endpoint)?)
    }

    fn enter(
        &mut self,
        client: ClientId,
        purpose: Purpose,
        token: u64,
        endpoint: Result<Endpoint, EndpointError>,
    ) -> Result<(), Violation> {
        match purpose {
            Purpose::Adopt => self.registry.adopt(client, token, endpoint),
            Purpose::Register => self.registry.register(client, token, endpoint),
        }
    }

    /// Go on with registrations whose sockets have been closed.
    pub(super) fn resume_closed(&mut self) {
        for account in self.closer.take_closed() {
            let id = match account {
                Account::Client(id) => id,
                Account::User(uid) => {
                    super::count_down(&mut self.closing_of, uid);
                    continue;
                }
            };
            let Some(connection) = self.connection(id) else {
                continue;
            };
            connection.closing = connection.closing.saturating_sub(1);
            if connection.closing > 0 {
                continue;
            }
            let (deferred, member) = (connection.deferred.take(), connection.member);
            if let (Some(waited), Some(member)) = (deferred, member)
                && let Err(violation) =
                    self.enter(member.client, waited.purpose, waited.token, waited.endpoint)
            {
                self.expel(id, &violation.into());
            }
            self.deliver();
            self.update_interest(id);
        }
    }

    fn hello(&mut self, id: u64, fds: &mut Vec<OwnedFd>) -> Result<(), Fault> {
        let map = SlabMap::open(fds.last().ok_or(Fault::NoDescriptor)?.as_fd())?;
        // Known to be a memory object by now, so it answers and closes at once.
        let slab = fds.pop().ok_or(Fault::NoDescriptor)?;
        let identity = rustix::fs::fstat(&slab)
            .map(|found| (found.st_dev, found.st_ino))
            .map_err(|_| Fault::NoDescriptor)?;
        drop(slab);
        let client = ClientId(id);
        let Some(connection) = self.connection(id) else {
            return Ok(());
        };
        if connection.member.is_some() {
            return Err(Fault::IntroducedTwice);
        }
        let peer = connection.peer;
        let family = self.families.join(client, process_of(peer), identity, map);
        if let Some(connection) = self.connection(id) {
            connection.member = Some(Member { client, family });
        }
        self.clients.insert(client, id);
        self.registry.hello(client, family, peer.uid);
        self.welcome_strays();
        Ok(())
    }

    fn lease(
        &mut self,
        (client, uid): (ClientId, u32),
        fds: &mut Vec<OwnedFd>,
    ) -> Result<(), Fault> {
        // Anything else may never hang up, or act when it is watched.
        let is_unix = |fd: &mut OwnedFd| socket_domain(fd) == Ok(AddressFamily::UNIX);
        if fds.is_empty() {
            return Err(Fault::NoDescriptor);
        }
        let fd = fds.pop_if(is_unix).ok_or(Fault::LeaseKind)?;
        // Of this user's leases, those too that have ended.
        let asked = match self.are_too_many_closing(uid) {
            true => Err(Violation::Leases(self.connections_per_user)),
            false => self.registry.lease(client),
        };
        let (lease, outcome) = match asked {
            Ok(lease) => (lease, Ok(())),
            // The child lives all the same.
            Err(violation) => (
                self.registry.lease_at_last(client),
                Err(Fault::from(violation)),
            ),
        };
        match lease {
            Some(lease) => self.watch_lease(lease, uid, fd)?,
            None => fds.push(fd),
        }
        outcome
    }

    fn watch_lease(&mut self, lease: LeaseId, uid: u32, fd: OwnedFd) -> Result<(), Fault> {
        let id = self.next_source;
        // Hanging up is always reported; what is written to it is nobody's business.
        if let Err(error) = super::watch(&self.epoll, &fd, id, EventFlags::ONESHOT) {
            self.registry.lease_ended(lease);
            self.close_aside(fd, uid);
            return Err(Fault::LeaseWatch(error));
        }
        self.next_source += 1;
        self.sources.insert(id, Source::Lease(lease, uid, fd));
        Ok(())
    }
}

/// Whether what a client says that has been expelled still counts: what it has let go, what its children use, and what is for
/// others.
fn counts_at_last(message: &ClientMessage) -> bool {
    matches!(
        message,
        ClientMessage::Release { .. }
            | ClientMessage::TakeBack { .. }
            | ClientMessage::Lease
            | ClientMessage::Position(_)
            | ClientMessage::Remainder(_)
            | ClientMessage::Doubt { .. }
    )
}

fn known(member: Option<Member>) -> Result<ClientId, Fault> {
    Ok(member.ok_or(Fault::NotIntroduced)?.client)
}

/// Whom a client's connection comes from.
pub(super) fn process_of(peer: PeerCredentials) -> Process {
    Process {
        pid: peer.pid,
        uid: peer.uid,
        program: program_of(peer.pid),
    }
}

/// Name of a process's program, or nothing if we may not see it.
fn program_of(pid: u32) -> String {
    let mut name = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{pid}/comm")) {
        // An unreadable name is an empty one.
        let _ = file.take(64).read_to_end(&mut name);
    }
    String::from_utf8_lossy(&name).trim_end().to_owned()
}
