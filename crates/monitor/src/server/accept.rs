//! New connections, who may have them, and running out of descriptors.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use crosslane_sys::socket::{PeerCredentials, peer_credentials};
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{Monitor, Source, spare_descriptor};
use crate::config::Service;
use crate::connection::Connection;

/// How long connections are left waiting when none can be accepted.
const SHUT_DOOR: Duration = Duration::from_millis(100);

/// Connections accepted before others have their turn.
const ACCEPTS_PER_TURN: usize = 64;

impl Monitor {
    pub(super) fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(self.door.socket(), flags) {
                Ok(socket) => self.admit(socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::MFILE | Errno::NFILE) if self.spare.is_some() => self.turn_away(),
                Err(error) => return self.shut_door(error),
            }
        }
    }

    /// Without descriptors the waiting connection would keep us busy for ever: take it in place
    /// of the spare one and close it.
    fn turn_away(&mut self) {
        self.spare = None;
        drop(accept_with(self.door.socket(), SocketFlags::CLOEXEC));
        self.spare = spare_descriptor();
        self.counts.turned_away += 1;
    }

    /// What waits at the door cannot be helped now; look again in a while.
    fn shut_door(&mut self, error: Errno) {
        self.complaints.say(format_args!(
            "cannot accept connections for a while: {error}"
        ));
        self.watch_door(EventFlags::empty());
        self.door_shut_until = Some(Instant::now() + SHUT_DOOR);
    }

    pub(super) fn reopen_door(&mut self) {
        if self
            .door_shut_until
            .is_some_and(|end| end <= Instant::now())
        {
            self.door_shut_until = None;
            self.spare = self.spare.take().or_else(spare_descriptor);
            self.watch_door(EventFlags::IN);
        }
    }

    fn watch_door(&self, flags: EventFlags) {
        let data = epoll::EventData::new_u64(super::DOOR);
        // Fails for a descriptor that is not in the set only, and this one always is.
        let _ = epoll::modify(&self.epoll, self.door.socket(), data, flags);
    }

    fn admit(&mut self, socket: OwnedFd) {
        let Ok(peer) = peer_credentials(socket.as_fd()) else {
            self.counts.turned_away += 1;
            return;
        };
        if !self.may_connect(peer) {
            self.counts.turned_away += 1;
            // It may have been sent descriptors already.
            return self.close_aside(socket, peer.uid);
        }
        let is_stranger = self.secret.is_some() && peer.uid != own_uid();
        if !is_stranger {
            self.welcome_guest(peer);
        }
        let id = self.next_source;
        if super::watch(&self.epoll, &socket, id, EventFlags::IN).is_err() {
            self.counts.turned_away += 1;
            return;
        }
        self.next_source += 1;
        *self.connections_of.entry(peer.uid).or_default() += 1;
        let connection = Box::new(Connection::new(socket, peer, is_stranger));
        self.sources.insert(id, Source::Connection(connection));
    }

    fn may_connect(&self, peer: PeerCredentials) -> bool {
        let own = own_uid();
        let known = own == 0 || peer.uid == own || peer.uid == 0;
        let connections = self.connections_of.get(&peer.uid).copied().unwrap_or(0);
        known && connections < self.connections_per_user && !self.are_too_many_closing(peer.uid)
    }

    /// Whether a user's sockets whose close takes its time are as many as he may have open.
    pub(super) fn are_too_many_closing(&self, uid: u32) -> bool {
        let closing = self.closing_of.get(&uid).copied().unwrap_or(0);
        closing >= self.connections_per_user
    }

    /// A private monitor stays as long as the programs that have used it live: `crosslane run`
    /// asks for it, becomes the program, and that may open its first socket much later.
    pub(super) fn welcome_guest(&mut self, peer: PeerCredentials) {
        let is_private = matches!(self.service, Service::Private { .. });
        if !is_private || self.guests.contains_key(&peer.pid) {
            return;
        }
        let Some(pid) = i32::try_from(peer.pid).ok().and_then(Pid::from_raw) else {
            return;
        };
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else {
            return;
        };
        let id = self.next_source;
        if super::watch(&self.epoll, &pidfd, id, EventFlags::IN).is_ok() {
            self.next_source += 1;
            self.sources.insert(id, Source::Guest(peer.pid, pidfd));
            self.guests.insert(peer.pid, id);
        }
    }
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}
