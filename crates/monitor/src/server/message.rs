//! What clients say.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use crosslane_ctl::message::{ClientMessage, MessageError};
use crosslane_window::slab::{SlabError, SlabMap};
use rustix::event::epoll::EventFlags;
use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;
use thiserror::Error;

use super::{MESSAGES_PER_TURN, Monitor, Source};
use crate::connection::Member;
use crate::endpoint::{Endpoint, EndpointError};
use crate::registry::{ClientId, LeaseId, Violation};
use crate::report::{Answer, Process};
use crate::wire::{Received, receive};

/// Why a client was disconnected. All of these are its fault.
#[derive(Debug, Error)]
enum Fault {
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error(transparent)]
    Slab(#[from] SlabError),
    #[error("a message came with {0} descriptors")]
    Descriptors(usize),
    #[error("a message came without its descriptor")]
    NoDescriptor,
    #[error("a message came before Hello")]
    NotIntroduced,
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
            if connection.answer.is_some() {
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
        let pid = self
            .connection(id)
            .map_or(0, |connection| connection.peer.pid);
        self.complaints
            .say(format_args!("disconnecting process {pid}: {fault}"));
        self.counts.protocol_errors += 1;
        self.drop_connection(id);
    }

    fn understand(
        &mut self,
        id: u64,
        bytes: &[u8],
        mut fds: Vec<OwnedFd>,
        fds_lost: bool,
    ) -> Result<(), Fault> {
        let message = ClientMessage::decode(bytes)?;
        if fds.len() > 1 {
            return Err(Fault::Descriptors(fds.len()));
        }
        let fd = fds.pop();
        let Some(connection) = self.connection(id) else {
            return Ok(());
        };
        let member = connection.member;
        match message {
            ClientMessage::Hello => self.hello(id, fd.ok_or(Fault::NoDescriptor)?),
            ClientMessage::Query(query) => {
                let uid = connection.peer.uid;
                let answer = Answer::new(query, uid, &self.families);
                if let Some(connection) = self.connection(id) {
                    connection.answer = Some(answer);
                }
                self.answer_more(id);
                Ok(())
            }
            ClientMessage::Register { token } => {
                let client = member.ok_or(Fault::NotIntroduced)?.client;
                // We may have had no room for the descriptor: nobody's fault.
                let endpoint = match &fd {
                    Some(fd) => Endpoint::read(fd.as_fd()),
                    None if fds_lost => Err(EndpointError::NotTcp),
                    None => return Err(Fault::NoDescriptor),
                };
                drop(fd);
                Ok(self.registry.register(client, token, endpoint)?)
            }
            ClientMessage::Release { token } => {
                let client = member.ok_or(Fault::NotIntroduced)?.client;
                self.registry.release(client, token);
                Ok(())
            }
            ClientMessage::Lease => {
                let client = member.ok_or(Fault::NotIntroduced)?.client;
                self.lease(client, fd.ok_or(Fault::NoDescriptor)?)
            }
        }
    }

    fn hello(&mut self, id: u64, slab: OwnedFd) -> Result<(), Fault> {
        let map = SlabMap::open(slab.as_fd())?;
        // Known to be a memory object by now, so this answers at once.
        let identity = rustix::fs::fstat(&slab)
            .map(|found| (found.st_dev, found.st_ino))
            .map_err(|_| Fault::NoDescriptor)?;
        let client = ClientId(id);
        let Some(connection) = self.connection(id) else {
            return Ok(());
        };
        if connection.member.is_some() {
            return Err(Fault::IntroducedTwice);
        }
        let peer = connection.peer;
        let process = Process {
            pid: peer.pid,
            uid: peer.uid,
            program: program_of(peer.pid),
        };
        let family = self.families.join(client, process, identity, map);
        if let Some(connection) = self.connection(id) {
            connection.member = Some(Member { client, family });
        }
        self.clients.insert(client, id);
        self.registry.hello(client, family, peer.uid);
        Ok(())
    }

    fn lease(&mut self, client: ClientId, fd: OwnedFd) -> Result<(), Fault> {
        // Anything else may never hang up, or act when it is watched.
        if socket_domain(&fd) != Ok(AddressFamily::UNIX) {
            return Err(Fault::LeaseKind);
        }
        let Some(lease) = self.registry.lease(client)? else {
            return Ok(());
        };
        self.watch_lease(lease, fd)
    }

    fn watch_lease(&mut self, lease: LeaseId, fd: OwnedFd) -> Result<(), Fault> {
        let id = self.next_source;
        // Hanging up is always reported; what is written to it is nobody's business.
        if let Err(error) = super::watch(&self.epoll, &fd, id, EventFlags::ONESHOT) {
            self.registry.lease_ended(lease);
            return Err(Fault::LeaseWatch(error));
        }
        self.next_source += 1;
        self.sources.insert(id, Source::Lease(lease, fd));
        Ok(())
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
