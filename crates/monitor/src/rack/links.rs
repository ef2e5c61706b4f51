//! Sessions with the other hosts: who connects to whom, who has proved to be which host, and what
//! happens when one is silent or gone.
//!
//! The host whose name sorts first connects, so that there is one session for each pair of hosts;
//! a newer one takes the place of an older, whose host has started anew. A stranger gets as far as
//! the handshake: few may be in it at a time, and not for long.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crosslane_ctl::ABI_VERSION;
use rustix::event::epoll::{self, EventData};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use thiserror::Error;

use super::config::{HostConfig, RackConfig};
use super::identity::Fingerprint;
use super::matching::{HostId, Lie};
use super::message::{HostMessage, RACK_VERSION};
use super::session::{Session, SessionError, Tls};

/// Sessions that have not been proved yet.
const MOST_UNPROVED: usize = 16;
/// How long one may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// After so much silence, a ping is sent.
const PING_AFTER: Duration = Duration::from_secs(5);
/// After so much silence, the other host is taken for dead.
const DEAD_AFTER: Duration = Duration::from_secs(16);
/// A session that has lasted so long was a good one.
const STEADY: Duration = Duration::from_secs(10);
/// Between attempts to connect; doubles up to the latter, until a session is a good one.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// What has happened.
#[derive(Debug)]
pub enum Event {
    /// A session with this host is there.
    Up(HostId),
    /// The host says something.
    Said(HostId, HostMessage),
    /// The session has ended.
    Down(HostId),
}

/// Why a session was ended.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The connection or its encryption.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A broken rule.
    #[error(transparent)]
    Lie(#[from] Lie),
    /// Another version.
    #[error(
        "the other host speaks version {rack} of the rack's messages and {abi} of the lanes, this one {RACK_VERSION} and {ABI_VERSION}; install one version on both"
    )]
    Version {
        /// Its version.
        rack: u16,
        /// Its version of what programs share.
        abi: u16,
    },
    /// Another name.
    #[error(
        "the host with this key calls itself {found:?}, not {wanted:?}; correct one of the rack.toml"
    )]
    Name {
        /// What it says.
        found: String,
        /// What we expect.
        wanted: String,
    },
    /// It is on us to connect.
    #[error("{0:?} has connected to us, but it is on us to connect")]
    Turned(String),
    /// Nothing for too long.
    #[error("the other host is silent")]
    Silent,
    /// Nothing from the beginning, as where a firewall drops what is for the port.
    #[error(
        "no monitor answers at {0}: does it run there, is that the port of its `listen`, and does every firewall let it through?"
    )]
    Unanswered(SocketAddr),
    /// A newer session.
    #[error("the other host has connected anew")]
    Replaced,
    /// `rack.toml` has been read again.
    #[error("rack.toml says something else of it by now")]
    Renewed,
    /// Too many strangers.
    #[error("too many connections that prove nothing")]
    Crowd,
}

/// All sessions.
pub struct Links {
    config: Arc<RackConfig>,
    tls: Tls,
    listener: TcpListener,
    hosts: Vec<Link>,
    sessions: HashMap<u64, Open>,
    events: Vec<Event>,
}

/// What is known about the way to one host.
#[derive(Debug, Default)]
pub struct Link {
    session: Option<u64>,
    /// Since when it has been up.
    pub up_since: Option<Instant>,
    /// Why it is not.
    pub trouble: Option<String>,
    next_try: Option<Instant>,
    wait: Duration,
}

impl Link {
    fn new(own: &RackConfig, other: &HostConfig) -> Self {
        let is_ours = own.name < other.name && !other.is_gone;
        Self {
            next_try: is_ours.then(Instant::now),
            wait: FIRST_WAIT,
            ..Self::default()
        }
    }
}

/// By what hosts prove themselves that are in the rack.
pub fn pins(config: &RackConfig) -> Vec<Fingerprint> {
    let hosts = config.hosts.iter().filter(|host| !host.is_gone);
    hosts.map(|host| host.fingerprint).collect()
}

struct Open {
    session: Session,
    /// Known from the beginning if we have connected.
    host: Option<HostId>,
    /// Has said who it is.
    is_up: bool,
    heard: Instant,
    said: Instant,
}

impl Links {
    /// Begin to listen.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(config: Arc<RackConfig>, tls: Tls) -> io::Result<Self> {
        let listener = TcpListener::bind(config.listen)?;
        listener.set_nonblocking(true)?;
        let link = |host| Link::new(&config, host);
        Ok(Self {
            hosts: config.hosts.iter().map(link).collect(),
            sessions: HashMap::new(),
            events: Vec::new(),
            listener,
            tls,
            config,
        })
    }

    /// Go on with what `rack.toml` says by now: sessions with the hosts of `changed` end, and those that are gone
    /// get no other.
    ///
    /// # Errors
    /// Those of rustls.
    pub fn renew(
        &mut self,
        config: Arc<RackConfig>,
        changed: &[usize],
    ) -> Result<(), rustls::Error> {
        self.tls.renew(pins(&config))?;
        self.config = config;
        let config = &self.config;
        let new = config.hosts.iter().skip(self.hosts.len());
        self.hosts.extend(new.map(|host| Link::new(config, host)));
        for host in changed {
            if let Some(session) = self.hosts[*host].session {
                self.end(session, &LinkError::Renewed);
            }
            self.hosts[*host] = Link::new(&self.config, &self.config.hosts[*host]);
        }
        Ok(())
    }

    /// Where others connect.
    pub fn listener(&self) -> &TcpListener {
        &self.listener
    }

    /// The way to a host.
    pub fn link(&self, host: HostId) -> Option<&Link> {
        self.hosts.get(host.0)
    }

    /// Whether a session with this host is there.
    pub fn is_up(&self, host: HostId) -> bool {
        self.link(host).is_some_and(|link| link.up_since.is_some())
    }

    /// Whether an event of epoll is ours.
    pub fn owns(&self, id: u64) -> bool {
        self.sessions.contains_key(&id)
    }

    /// What has happened since the last call, in order.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Take new connections; `next_id` names them in `epoll`.
    ///
    /// # Errors
    /// The kernel's, where those that wait cannot be taken now: the listener stays readable.
    pub fn accept(&mut self, epoll: &OwnedFd, next_id: &mut u64) -> io::Result<()> {
        loop {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if is_passing(&error) => continue,
                Err(error) => return Err(error),
            };
            let unproved = self.sessions.iter().filter(|(_, open)| open.host.is_none());
            let oldest = unproved.clone().min_by_key(|(_, open)| open.heard);
            if unproved.clone().count() >= MOST_UNPROVED
                && let Some((oldest, _)) = oldest
            {
                self.end(*oldest, &LinkError::Crowd);
            }
            // Words are short, and waited for.
            let session = socket
                .set_nonblocking(true)
                .and_then(|()| socket.set_nodelay(true))
                .ok()
                .and_then(|()| self.tls.accept(socket).ok());
            if let Some(session) = session {
                self.begin(session, None, epoll, next_id);
            }
        }
    }

    /// Do what is due: connect, ping, give up.
    pub fn tick(&mut self, epoll: &OwnedFd, next_id: &mut u64, now: Instant) {
        for index in 0..self.hosts.len() {
            let link = &mut self.hosts[index];
            if link.session.is_none() && link.next_try.is_some_and(|due| due <= now) {
                link.next_try = None;
                self.connect(HostId(index), epoll, next_id);
            }
        }
        let mut late = Vec::new();
        let mut quiet = Vec::new();
        for (id, open) in &self.sessions {
            let patience = if open.is_up { DEAD_AFTER } else { HANDSHAKE };
            if now >= open.heard + patience {
                late.push(*id);
            } else if open.is_up && now >= open.said + PING_AFTER {
                quiet.push(*id);
            }
        }
        for id in late {
            self.end(id, &self.why_late(id));
        }
        for id in quiet {
            self.say_in(id, &HostMessage::Ping, epoll);
        }
    }

    /// Why nothing has been heard in a session for too long.
    fn why_late(&self, id: u64) -> LinkError {
        let open = self.sessions.get(&id).filter(|open| !open.is_up);
        match open.and_then(|open| open.host) {
            Some(host) => LinkError::Unanswered(self.config.hosts[host.0].address),
            None => LinkError::Silent,
        }
    }

    /// When [`Self::tick`] has something to do.
    pub fn due(&self) -> Option<Instant> {
        let tries = self.hosts.iter().filter(|link| link.session.is_none());
        let tries = tries.filter_map(|link| link.next_try);
        let pings = self.sessions.values().map(|open| match open.is_up {
            true => (open.said + PING_AFTER).min(open.heard + DEAD_AFTER),
            false => open.heard + HANDSHAKE,
        });
        tries.chain(pings).min()
    }

    fn connect(&mut self, host: HostId, epoll: &OwnedFd, next_id: &mut u64) {
        let other = &self.config.hosts[host.0];
        let session = dial(other.address)
            .map_err(|error| error.to_string())
            .and_then(|socket| {
                let session = self.tls.connect(socket, other.fingerprint);
                session.map_err(|error| error.to_string())
            });
        match session {
            Ok(session) => self.begin(session, Some(host), epoll, next_id),
            Err(trouble) => self.retry(host, trouble),
        }
    }

    fn retry(&mut self, host: HostId, trouble: String) {
        let link = &mut self.hosts[host.0];
        if self.config.name < self.config.hosts[host.0].name {
            link.next_try = Some(Instant::now() + link.wait);
            link.wait = (link.wait * 2).min(LONGEST_WAIT);
        }
        if link.trouble.as_ref() != Some(&trouble) {
            let name = &self.config.hosts[host.0].name;
            tracing::warn!(host = %name, address = %self.config.hosts[host.0].address, "{trouble}");
        }
        link.trouble = Some(trouble);
    }

    fn begin(
        &mut self,
        mut session: Session,
        host: Option<HostId>,
        epoll: &OwnedFd,
        next_id: &mut u64,
    ) {
        let id = *next_id;
        *next_id += 1;
        let hello = HostMessage::Hello {
            version: RACK_VERSION,
            abi: ABI_VERSION,
            name: self.config.name.clone(),
        };
        // What is wrong with the connection shows when it is read.
        let _ = session.say(&hello);
        session.interest = session.wanted();
        if let Err(error) = epoll::add(epoll, &session, EventData::new_u64(id), session.interest) {
            // Who has connected to us tries again.
            if let Some(host) = host {
                self.retry(host, format!("cannot wait for its answer: {error}"));
            }
            return;
        }
        let now = Instant::now();
        if let Some(host) = host {
            self.hosts[host.0].session = Some(id);
        }
        let open = Open {
            session,
            host,
            is_up: false,
            heard: now,
            said: now,
        };
        self.sessions.insert(id, open);
    }

    /// Something has happened to a session.
    pub fn serve(&mut self, id: u64, epoll: &OwnedFd) {
        let Some(open) = self.sessions.get_mut(&id) else {
            return;
        };
        let received = open.session.receive();
        let messages = match received {
            Ok(messages) => messages,
            Err(error) => return self.end(id, &error.into()),
        };
        if !messages.is_empty() {
            open.heard = Instant::now();
        }
        for message in messages {
            if let Err(error) = self.hear(id, message) {
                return self.end(id, &error);
            }
        }
        self.update_interest(id, epoll);
    }

    fn hear(&mut self, id: u64, message: HostMessage) -> Result<(), LinkError> {
        let Some(open) = self.sessions.get(&id) else {
            return Ok(());
        };
        match (open.host, message) {
            (Some(_), HostMessage::Ping) if open.is_up => {}
            (_, HostMessage::Hello { version, abi, name }) if !open.is_up => {
                self.greet(id, version, abi, name)?;
            }
            (_, HostMessage::Hello { .. }) => return Err(Lie("says Hello twice").into()),
            (Some(host), message) if open.is_up => self.events.push(Event::Said(host, message)),
            _ => return Err(Lie("does not say Hello first").into()),
        }
        Ok(())
    }

    /// A host says who it is; its key decides.
    fn greet(&mut self, id: u64, rack: u16, abi: u16, name: String) -> Result<(), LinkError> {
        let fingerprint = self
            .sessions
            .get(&id)
            .and_then(|open| open.session.fingerprint());
        let is_it = |host: &HostConfig| Some(host.fingerprint) == fingerprint && !host.is_gone;
        let found = self.config.hosts.iter().position(is_it);
        let host = HostId(found.ok_or(Lie("is not known by its key"))?);
        let wanted = &self.config.hosts[host.0].name;
        if (rack, abi) != (RACK_VERSION, ABI_VERSION) {
            return Err(LinkError::Version { rack, abi });
        }
        if name != *wanted {
            let wanted = wanted.clone();
            return Err(LinkError::Name {
                found: name,
                wanted,
            });
        }
        let is_accepted = self
            .sessions
            .get(&id)
            .is_some_and(|open| open.host.is_none());
        if is_accepted && self.config.name < *wanted {
            return Err(LinkError::Turned(name));
        }
        if let Some(older) = self.hosts[host.0].session.filter(|older| *older != id) {
            self.end(older, &LinkError::Replaced);
        }
        if let Some(open) = self.sessions.get_mut(&id) {
            (open.host, open.is_up) = (Some(host), true);
        }
        tracing::info!(host = %name, "connected");
        self.hosts[host.0] = Link {
            session: Some(id),
            up_since: Some(Instant::now()),
            trouble: None,
            next_try: None,
            wait: self.hosts[host.0].wait,
        };
        self.events.push(Event::Up(host));
        Ok(())
    }

    /// Say something to a host that is connected.
    pub fn say(&mut self, host: HostId, message: &HostMessage, epoll: &OwnedFd) {
        let link = self
            .hosts
            .get(host.0)
            .filter(|link| link.up_since.is_some());
        if let Some(id) = link.and_then(|link| link.session) {
            self.say_in(id, message, epoll);
        }
    }

    fn say_in(&mut self, id: u64, message: &HostMessage, epoll: &OwnedFd) {
        let Some(open) = self.sessions.get_mut(&id) else {
            return;
        };
        open.said = Instant::now();
        match open.session.say(message) {
            Ok(()) => self.update_interest(id, epoll),
            Err(error) => self.end(id, &error.into()),
        }
    }

    /// Whether a session with this host is there, and all that was said in it has been sent.
    pub fn has_room(&self, host: HostId) -> bool {
        let session = self.link(host).and_then(|link| link.session);
        let open = session.and_then(|id| self.sessions.get(&id));
        open.is_some_and(|open| open.is_up && open.session.is_drained())
    }

    /// A host has broken a rule.
    pub fn expel(&mut self, host: HostId, lie: Lie) {
        if let Some(id) = self.hosts.get(host.0).and_then(|link| link.session) {
            self.end(id, &lie.into());
        }
    }

    fn end(&mut self, id: u64, error: &LinkError) {
        let Some(open) = self.sessions.remove(&id) else {
            return;
        };
        let Some(host) = open.host else {
            tracing::debug!("a connection from elsewhere has ended: {error}");
            return;
        };
        let link = &mut self.hosts[host.0];
        if link.session == Some(id) {
            link.session = None;
            let was_good = |since: Instant| since.elapsed() >= STEADY;
            if link.up_since.take().is_some_and(was_good) {
                link.wait = FIRST_WAIT;
            }
        }
        if open.is_up {
            self.events.push(Event::Down(host));
        }
        self.retry(host, error.to_string());
    }

    fn update_interest(&mut self, id: u64, epoll: &OwnedFd) {
        let Some(open) = self.sessions.get_mut(&id) else {
            return;
        };
        let wanted = open.session.wanted();
        if wanted != open.session.interest {
            open.session.interest = wanted;
            // Fails for a descriptor that is not in the set only, and this one is.
            let data = EventData::new_u64(id);
            let _ = epoll::modify(epoll, &open.session, data, wanted);
        }
    }
}

/// Of one that has waited, and not of those behind it.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
    )
}

/// Begin to connect.
fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests;
