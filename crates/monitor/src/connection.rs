//! One control connection: who is at the other end, and what still has to be said.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crosslane_sys::socket::PeerCredentials;
use rustix::event::epoll::EventFlags;
use rustix::net::{Shutdown, shutdown};

use crate::endpoint::{Endpoint, EndpointError};
use crate::registry::{ClientId, FamilyId};
use crate::report::Answer;
use crate::wire::{Sent, send};

/// Messages that may wait for one client; who lets more pile up is disconnected.
const BACKLOG_MESSAGES: usize = 4096;

/// A control connection.
pub struct Connection {
    socket: OwnedFd,
    /// Who connected.
    pub peer: PeerCredentials,
    /// It has yet to prove that it belongs to us.
    pub is_stranger: bool,
    /// What it has introduced itself as.
    pub member: Option<Member>,
    /// Families in whose slabs it has adopted ends.
    pub guest_of: Vec<FamilyId>,
    /// The query that is being answered.
    pub answer: Option<Answer>,
    /// The registration whose socket is still being closed.
    pub deferred: Option<Deferred>,
    /// Descriptors that it has passed and that are still being closed.
    pub closing: usize,
    backlog: VecDeque<Outgoing>,
    /// It has been told that it is told nothing any more, nor asked.
    is_expelled: bool,
    /// Nobody waits for an answer any more.
    is_gone: bool,
    /// What epoll has been asked for.
    pub interest: EventFlags,
}

/// What a client passes a socket for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To find its other end.
    Register,
    /// To learn whether its end is lent.
    Adopt,
}

/// A registration or adoption that must wait.
#[derive(Clone, Copy, Debug)]
pub struct Deferred {
    /// What it is.
    pub purpose: Purpose,
    /// The end's token.
    pub token: u64,
    /// What its socket is.
    pub endpoint: Result<Endpoint, EndpointError>,
}

/// A connection that has said Hello.
#[derive(Clone, Copy)]
pub struct Member {
    /// As the registry knows it.
    pub client: ClientId,
    /// Whose slab it has shown.
    pub family: FamilyId,
}

struct Outgoing {
    bytes: Vec<u8>,
    memory: Option<Arc<OwnedFd>>,
}

/// What became of an attempt to say something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Sent or waiting.
    Fine,
    /// The client reads too slowly to be told.
    Lost,
}

impl Connection {
    /// A new connection.
    pub fn new(socket: OwnedFd, peer: PeerCredentials, is_stranger: bool) -> Self {
        Self {
            socket,
            peer,
            is_stranger,
            member: None,
            guest_of: Vec::new(),
            answer: None,
            deferred: None,
            closing: 0,
            backlog: VecDeque::new(),
            is_expelled: false,
            is_gone: false,
            interest: EventFlags::IN,
        }
    }

    /// Nothing is read while a query is answered, so that a client cannot pile up queries, nor
    /// while what it has passed is being closed, so that it cannot pile that up and a registration that waits for it keeps its
    /// place.
    pub fn is_paused(&self) -> bool {
        self.answer.is_some() || self.closing > 0
    }

    /// What has to be waited for.
    pub fn wanted(&self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, !self.is_paused());
        flags.set(
            EventFlags::OUT,
            self.answer.is_some() || !self.backlog.is_empty(),
        );
        flags
    }

    /// Whether everything has been sent.
    pub fn is_drained(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Say something now or as soon as the client reads.
    pub fn say(&mut self, bytes: Vec<u8>, memory: Option<Arc<OwnedFd>>) -> Said {
        if self.is_expelled {
            return Said::Fine;
        }
        self.backlog.push_back(Outgoing { bytes, memory });
        self.flush();
        match self.backlog.len() <= BACKLOG_MESSAGES {
            true => Said::Fine,
            false => Said::Lost,
        }
    }

    /// Whether something waits that the client has not read.
    pub fn is_behind(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Whether nobody waits for an answer any more.
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Whether it has been expelled.
    pub fn is_expelled(&self) -> bool {
        self.is_expelled
    }

    /// Have no more to do with the client, but to learn when it has ended: until then it uses what it was granted.
    pub fn expel(&mut self) {
        (self.answer, self.deferred) = (None, None);
        self.backlog.clear();
        self.is_expelled = true;
        // One that has ended meanwhile needs no telling.
        let _ = shutdown(&self.socket, Shutdown::Write);
    }

    /// Send what waits, as far as the client reads. One that is gone is told nothing any more; what it has said last is
    /// still to be read.
    pub fn flush(&mut self) {
        while let Some(next) = self.backlog.front() {
            let memory = next.memory.as_ref().map(|memory| memory.as_fd());
            match send(self.socket.as_fd(), &next.bytes, memory) {
                Sent::Yes => drop(self.backlog.pop_front()),
                Sent::Full => return,
                Sent::Closed => self.backlog.clear(),
            }
        }
    }

    /// The client is gone: nobody waits for an answer, and what it has said last is read to the end.
    pub fn note_gone(&mut self) {
        self.is_gone = true;
        (self.answer, self.deferred, self.closing) = (None, None, 0);
        self.backlog.clear();
    }

    /// What is to be closed when it is forgotten. Messages may stand in it with descriptors beside them.
    pub fn into_socket(self) -> OwnedFd {
        self.socket
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
