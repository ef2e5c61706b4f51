//! The rack: moves messages between the registry, [`Matching`] and the other hosts, and windows
//! from being configured to being used.

mod beat;
mod lost;
mod probe;
pub(super) mod reload;
mod seen;
mod strays;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crosslane_sys::socket::netns_cookie;
use rustix::event::epoll::{self, EventData, EventFlags};
use thiserror::Error;

use self::beat::Beats;
use self::probe::Probes;
use self::reload::Reloads;
use self::seen::Seen;
use self::strays::Strays;
use super::complaints::Complaints;
use super::{Monitor, RACK_DOOR};
use crate::arenas::WindowId;
use crate::backing::Memories;
use crate::rack::config::{RackConfig, WindowConfig};
use crate::rack::identity::{Fingerprint, Identity, IdentityError};
use crate::rack::links::{Event, Links, pins};
use crate::rack::lost::{Absence, Lost};
use crate::rack::matching::{HostId, Lie, Matching, OpenWindow};
use crate::rack::message::{HostMessage, WindowOffer};
use crate::rack::session::Tls;
use crate::rack::window::Window;
use crate::registry::rack::Notice;
use crate::registry::{FamilyId, Registry};
use crate::secret;

/// How long connections are left waiting when none can be taken.
const SHUT_DOOR: Duration = Duration::from_millis(100);

/// The other host's log says more.
const GONE_THERE: &str =
    "the other host finds it gone, or nothing in it; connections go back to TCP";

/// Why a monitor cannot be part of a rack.
#[derive(Debug, Error)]
pub enum RackError {
    /// Its key.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Its key and its certificate.
    #[error(
        "the key {key} and the certificate do not belong together: {error}; remove both and run `crosslane rack init`"
    )]
    Mismatch {
        /// The key's file.
        key: String,
        /// What is wrong.
        error: rustls::Error,
    },
    /// Its address.
    #[error("cannot listen on {address}: {error}; correct `listen` in rack.toml")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The kernel's answer.
        error: io::Error,
    },
}

/// See the module's description.
pub(super) struct Rack {
    config: Arc<RackConfig>,
    fingerprint: Fingerprint,
    links: Links,
    matching: Matching,
    lost: Lost,
    strays: Strays,
    /// In the order of `rack.toml`; the index is the [`WindowId`].
    windows: Vec<State>,
    /// No host is let in before then, for lack of memory or descriptors.
    door_shut_until: Option<Instant>,
    /// About what other hosts say.
    complaints: Complaints,
}

/// How far a window is.
struct State {
    host: HostId,
    phase: Phase,
    epoch: u64,
    trouble: Option<String>,
    /// When the window is to be looked at, renewed, or tried again, as its phase says.
    due: Option<Instant>,
    probes: Probes,
    beats: Beats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No session, or trouble.
    Closed,
    /// The guest has been told.
    Offered,
    /// It has answered, and is asked what it uses.
    Probing,
    /// Connections can go over it.
    Open,
    /// It was open, and is missing.
    Lost,
}

impl State {
    fn new(host: HostId) -> Self {
        Self {
            host,
            phase: Phase::Closed,
            epoch: 0,
            trouble: None,
            due: None,
            probes: Probes::default(),
            beats: Beats::default(),
        }
    }

    /// Nothing is to be done about it before it is offered again.
    fn close(&mut self) {
        self.phase = Phase::Closed;
        self.beats.forget_missing();
    }
}

impl Rack {
    /// Begin to listen for other hosts.
    pub(super) fn start(config: RackConfig) -> Result<Self, RackError> {
        let config = Arc::new(config);
        let identity = Identity::read(&config.certificate, &config.key)?;
        let fingerprint = identity.fingerprint();
        let tls = Tls::new(identity, pins(&config)).map_err(|error| RackError::Mismatch {
            key: config.key.display().to_string(),
            error,
        })?;
        let failed = |error| RackError::Listen {
            address: config.listen,
            error,
        };
        let links = Links::new(Arc::clone(&config), tls).map_err(failed)?;
        let netns = netns_cookie(links.listener().as_fd()).map_err(|error| failed(error.into()))?;
        let state = |window: &WindowConfig| {
            let host = config.host_named(&window.host);
            State::new(HostId(host.unwrap_or(usize::MAX)))
        };
        Ok(Self {
            windows: config.windows.iter().map(state).collect(),
            matching: Matching::new(Arc::clone(&config), netns),
            lost: Lost::default(),
            strays: Strays::default(),
            door_shut_until: None,
            complaints: Complaints::default(),
            fingerprint,
            links,
            config,
        })
    }

    pub(super) fn watch(&self, epoll: &OwnedFd, id: u64) -> io::Result<()> {
        let data = EventData::new_u64(id);
        Ok(epoll::add(
            epoll,
            self.links.listener(),
            data,
            EventFlags::IN,
        )?)
    }

    pub(super) fn owns(&self, id: u64) -> bool {
        self.links.owns(id)
    }

    pub(super) fn due(&self) -> Option<Instant> {
        let probes = self.windows.iter().filter_map(|window| window.probes.due());
        let windows = self.windows_due();
        self.links
            .due()
            .into_iter()
            .chain(probes)
            .chain(windows)
            .chain(self.strays.due())
            .chain(self.door_shut_until)
            .min()
    }

    fn watch_door(&self, epoll: &OwnedFd, flags: EventFlags) {
        let data = EventData::new_u64(RACK_DOOR);
        // Fails for a descriptor that is not in the set only, and this one always is.
        let _ = epoll::modify(epoll, self.links.listener(), data, flags);
    }

    /// What answers to queries need of it.
    pub(super) fn seen<'a>(
        &'a self,
        registry: &'a Registry<Memories>,
        reloads: &'a Reloads,
    ) -> Seen<'a> {
        Seen {
            rack: self,
            registry,
            reloads,
        }
    }

    fn epoch_of(&self, epoch: u64, host: HostId) -> Option<usize> {
        self.windows
            .iter()
            .position(|w| w.epoch == epoch && w.host == host && w.phase.is_usable())
    }

    /// Do what other hosts and time bring. True if there was something.
    fn advance(&mut self, registry: &mut Registry<Memories>, epoll: &OwnedFd) -> bool {
        let events = self.links.take_events();
        let is_busy = !events.is_empty();
        for event in events {
            match event {
                Event::Up(host) => {
                    self.lost.host_up(host);
                    self.offer_windows(host, registry, epoll);
                }
                Event::Down(host) => self.host_down(host, registry),
                Event::Said(host, message) => {
                    // What was said before the session ended is not obeyed after it.
                    if self.links.is_up(host)
                        && let Err(lie) = self.obey(host, &message, registry, epoll)
                    {
                        self.links.expel(host, lie);
                    }
                }
            }
        }
        is_busy
    }

    /// Owner: offer the windows to this host that are not open.
    fn offer_windows(&mut self, host: HostId, registry: &mut Registry<Memories>, epoll: &OwnedFd) {
        if !self.matching.is_owner(host) || !self.links.is_up(host) {
            return;
        }
        for index in 0..self.windows.len() {
            let state = &self.windows[index];
            let is_gone = self.config.windows[index].is_gone;
            if state.host != host || state.phase != Phase::Closed || is_gone {
                continue;
            }
            match self.offer_window(index, registry) {
                Ok(offer) => self.say_offer(index, offer, epoll),
                Err(trouble) => {
                    self.plan_retry(index);
                    self.complain(index, trouble);
                }
            }
        }
    }

    /// What has been wrong with the window stays known until it is open: else it would be complained of at each attempt.
    fn say_offer(&mut self, index: usize, offer: WindowOffer, epoll: &OwnedFd) {
        let state = &mut self.windows[index];
        state.phase = Phase::Offered;
        let message = HostMessage::WindowOffer(offer);
        self.links.say(state.host, &message, epoll);
    }

    fn complain(&mut self, index: usize, trouble: String) {
        let name = &self.config.windows[index].name;
        let before = self.windows[index].trouble.replace(trouble.clone());
        if before.as_ref() != Some(&trouble) {
            tracing::warn!(window = %name, "{trouble}");
        }
    }

    fn offer_window(
        &mut self,
        index: usize,
        registry: &mut Registry<Memories>,
    ) -> Result<WindowOffer, String> {
        self.open_window(index, registry, true)?;
        let epoch = secret::random().map_err(|error| error.to_string())?;
        let open = registry.backing().window(window_id(index));
        let open = open.ok_or("the window is not open")?;
        if let Some(extents) = &mut open.extents {
            extents.forget_question();
        }
        self.windows[index].epoch = epoch;
        self.windows[index].beats = Beats::default();
        self.windows[index].probes.stop();
        open.window.offer(epoch).map_err(|error| error.to_string())
    }

    /// Open a window's file, if that is not done.
    fn open_window(
        &mut self,
        index: usize,
        registry: &mut Registry<Memories>,
        is_owner: bool,
    ) -> Result<(), String> {
        let id = window_id(index);
        let open = registry.backing().open(id);
        if !open.is_some_and(|open| open.window.is_there()) {
            self.tell_of_loss(index, registry);
            let window =
                Window::open(&self.config.windows[index]).map_err(|error| error.to_string())?;
            registry.backing().add_window(id, window, is_owner);
        }
        Ok(())
    }

    fn host_down(&mut self, host: HostId, registry: &mut Registry<Memories>) {
        self.matching.session_lost(registry, host);
        for window in self.windows.iter_mut().filter(|w| w.host == host) {
            window.close();
            window.due = None;
            window.probes.stop();
        }
    }

    fn obey(
        &mut self,
        host: HostId,
        message: &HostMessage,
        registry: &mut Registry<Memories>,
        epoll: &OwnedFd,
    ) -> Result<(), Lie> {
        let is_owner = self.matching.is_owner(host);
        if let Some(heard) = self.hear_of_lost(host, message, registry) {
            return heard;
        }
        if self.hear_of_beats(host, message, registry, epoll)
            || self.hear_of_parts(host, message, registry, epoll)
        {
            return Ok(());
        }
        match message {
            HostMessage::WindowOffer(offer) if !is_owner => {
                let works = self.accept_window(host, offer, registry);
                let epoch = offer.epoch;
                let answer = HostMessage::WindowAnswer { epoch, works };
                self.links.say(host, &answer, epoll);
                if works && let Some(index) = self.epoch_of(epoch, host) {
                    self.open(index, registry);
                }
                Ok(())
            }
            HostMessage::WindowLost { epoch } if is_owner => {
                // One that we have found missing ourselves has another number by now.
                let index = self.epoch_of(*epoch, host);
                if let Some(index) = index.filter(|at| self.windows[*at].phase != Phase::Lost) {
                    self.window_is_lost(index, GONE_THERE, registry);
                }
                Ok(())
            }
            HostMessage::WindowAnswer { epoch, works } if is_owner => {
                self.window_answered(host, *epoch, *works, registry, epoll)
            }
            message => self.matching.hear(registry, host, message),
        }
    }

    /// Guest: whether this window works.
    fn accept_window(
        &mut self,
        host: HostId,
        offer: &WindowOffer,
        registry: &mut Registry<Memories>,
    ) -> bool {
        let windows = &self.config.windows;
        let is_it = |window: &WindowConfig| window.name == offer.name && !window.is_gone;
        let found = windows.iter().position(is_it);
        let Some(index) = found.filter(|index| self.windows[*index].host == host) else {
            let (name, host) = (&offer.name, &self.config.hosts[host.0].name);
            self.complaints.say(format_args!(
                "host {host} offers the window {name}, and no such [[window]] is in rack.toml here"
            ));
            return false;
        };
        // A window that is offered again may be other memory; connections find that out, or are told.
        self.matching.window_lost(registry, host, window_id(index));
        self.windows[index].close();
        let accepted = self.open_window(index, registry, false).and_then(|()| {
            let open = registry.backing().window(window_id(index));
            let open = open.ok_or("the window is not open")?;
            open.window.accept(offer).map_err(|error| error.to_string())
        });
        match accepted {
            Ok(()) => {
                self.windows[index].epoch = offer.epoch;
                self.windows[index].beats = Beats::default();
                self.windows[index].phase = Phase::Offered;
                true
            }
            Err(trouble) => {
                self.tell_of_loss(index, registry);
                self.complain(index, trouble);
                false
            }
        }
    }

    fn open(&mut self, index: usize, registry: &mut Registry<Memories>) {
        let state = &mut self.windows[index];
        state.phase = Phase::Open;
        (state.due, state.trouble) = (None, None);
        let open = OpenWindow {
            id: window_id(index),
            epoch: state.epoch,
        };
        tracing::info!(window = %self.config.windows[index].name, "open");
        self.matching.window_opened(registry, state.host, open);
    }

    /// Owner: the guest has looked at a window.
    fn window_answered(
        &mut self,
        host: HostId,
        epoch: u64,
        works: bool,
        registry: &mut Registry<Memories>,
        epoll: &OwnedFd,
    ) -> Result<(), Lie> {
        // It may have been let go of meanwhile: rack.toml says something else of it.
        let Some(index) = self.epoch_of(epoch, host) else {
            return Ok(());
        };
        if self.windows[index].phase != Phase::Offered {
            return Err(Lie("answers twice"));
        }
        let confirmed = match works {
            false => Err(
                "the other host cannot use it; its log and `crosslane rack status` there \
                          say why"
                    .to_owned(),
            ),
            true => {
                let open = registry.backing().window(window_id(index));
                open.map_or(Ok(()), |open| open.window.confirm(epoch))
                    .map_err(|error| error.to_string())
            }
        };
        match confirmed {
            Ok(()) => {
                self.windows[index].phase = Phase::Probing;
                self.probe(index, registry, epoll);
            }
            Err(trouble) => {
                self.tell_of_loss(index, registry);
                self.windows[index].phase = Phase::Closed;
                self.plan_retry(index);
                self.complain(index, trouble);
            }
        }
        Ok(())
    }
}

impl Phase {
    /// Whether the hosts have come to terms about it, or are about to.
    fn is_usable(self) -> bool {
        self != Self::Closed
    }
}

fn window_id(index: usize) -> WindowId {
    WindowId(u32::try_from(index).unwrap_or(u32::MAX))
}

impl Monitor {
    /// Another host connects.
    pub(super) fn accept_hosts(&mut self) {
        let Some(rack) = &mut self.rack else {
            return;
        };
        if let Err(error) = rack.links.accept(&self.epoll, &mut self.next_source) {
            self.complaints.say(format_args!(
                "cannot let other hosts in for a while: {error}"
            ));
            rack.watch_door(&self.epoll, EventFlags::empty());
            rack.door_shut_until = Some(Instant::now() + SHUT_DOOR);
        }
    }

    /// Something has happened to a session with another host.
    pub(super) fn serve_host(&mut self, id: u64) {
        if let Some(rack) = &mut self.rack {
            rack.links.serve(id, &self.epoll);
        }
    }

    /// Do what is due.
    pub(super) fn tend_rack(&mut self) {
        let Some(rack) = &mut self.rack else {
            return;
        };
        let now = Instant::now();
        if rack.door_shut_until.take_if(|end| *end <= now).is_some() {
            rack.watch_door(&self.epoll, EventFlags::IN);
        }
        rack.links.tick(&self.epoll, &mut self.next_source, now);
        rack.plan_probes(&mut self.registry, &self.epoll, now);
        rack.tend_windows(&mut self.registry, &self.epoll, now);
        rack.send_pieces(&self.epoll, now);
        self.search_for_owners(now);
        self.tell_strays(now);
        self.deliver();
    }

    /// Move what is to be moved between the registry and other hosts. True if there was something.
    pub(super) fn relay(&mut self) -> bool {
        let speaks = self.speak_of_lost();
        let Some(rack) = &mut self.rack else {
            return false;
        };
        let mut is_busy = speaks | rack.advance(&mut self.registry, &self.epoll);
        let families = &self.families;
        let program = |family: FamilyId| families.program_of(family);
        for notice in self.registry.take_notices() {
            is_busy = true;
            // Who has lost its connection to us may be back in a moment, and in these lanes all the while.
            if let Notice::Left(left) = notice
                && left.is_told
                && rack.matching.is_ours(left.side)
            {
                let absence = match left.was_used {
                    true => Absence::Left,
                    false => Absence::Alone,
                };
                rack.lost.note_absence(left.pair, absence);
            }
            rack.matching.notice(&mut self.registry, notice, program);
        }
        rack.matching.meet_short(&mut self.registry);
        for pair in rack.matching.take_spurned() {
            rack.lost.note_absence(pair, Absence::Alone);
        }
        for (host, message) in rack.matching.take_messages() {
            is_busy = true;
            rack.links.say(host, &message, &self.epoll);
        }
        is_busy
    }
}

#[cfg(test)]
mod tests;
