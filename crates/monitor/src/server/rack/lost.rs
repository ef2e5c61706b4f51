//! Windows that are found missing, and what ends of connections over them tell each other.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_ctl::message::{MonitorMessage, Position, Remainder};
use crosslane_sys::memory::{create_sealed, is_sealed};
use rustix::io::{pread, pwrite};

use super::{Phase, Rack, window_id};
use crate::backing::Memories;
use crate::connection::Said;
use crate::endpoint::{EndKey, Endpoint};
use crate::rack::lost::{Absence, Owner, Place, Speaker, Word, absence_in};
use crate::rack::matching::{HostId, Lie};
use crate::rack::message::{HostMessage, Tuple};
use crate::registry::{ClientId, Registry};
use crate::server::message::Fault;
use crate::server::{Monitor, Source};

/// How often open windows are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// After so long a lost window is opened anew, if it is there.
const SETTLE: Duration = Duration::from_millis(50);

/// A window that could not be opened is tried again after so long.
const RETRY: Duration = Duration::from_secs(5);

/// Pieces of remainders that are handed over to a session before others have their turn.
const PIECES_PER_TURN: usize = 256;

/// What a look for a program's end in its lanes finds.
enum Found {
    There,
    Absent(Absence),
    /// The process is gone, or has closed the end; a child of its may have it.
    Nobody,
}

impl Rack {
    /// When [`Self::tend_windows`] or [`Self::send_pieces`] has something to do.
    pub(super) fn windows_due(&self) -> Option<Instant> {
        let has_pieces = |host| self.lost.has_pieces(host) && self.links.has_room(host);
        let mut hosts = (0..self.config.hosts.len()).map(HostId);
        let pieces_due = hosts.any(has_pieces).then(Instant::now);
        self.windows
            .iter()
            .flat_map(|window| [window.due, window.beats.due()])
            .flatten()
            .chain(self.lost.due())
            .chain(pieces_due)
            .min()
    }

    /// Hand over what our ends send to theirs, as far as the sessions have room.
    pub(super) fn send_pieces(&mut self, epoll: &OwnedFd, now: Instant) {
        for host in (0..self.config.hosts.len()).map(HostId) {
            let mut left = PIECES_PER_TURN;
            while left > 0
                && self.links.has_room(host)
                && let Some(piece) = self.lost.take_piece(host, now)
            {
                self.links.say(host, &piece, epoll);
                left -= 1;
            }
        }
    }

    /// See whether windows are still there, and try to get those that are not.
    pub(super) fn tend_windows(
        &mut self,
        registry: &mut Registry<Memories>,
        epoll: &OwnedFd,
        now: Instant,
    ) {
        self.lost.expire(now);
        for index in 0..self.windows.len() {
            let state = &mut self.windows[index];
            let is_due = state.due.is_some_and(|due| due <= now);
            let host = state.host;
            match (state.phase, is_due) {
                (Phase::Open, true) => {
                    state.due = Some(now + LOOK);
                    self.look_at_window(index, registry, epoll);
                    if self.windows[index].phase == Phase::Open {
                        self.beat(index, registry, epoll);
                    }
                }
                (Phase::Open, false) if state.due.is_none() => state.due = Some(now + LOOK),
                (Phase::Lost | Phase::Closed, true) => {
                    (state.phase, state.due) = (Phase::Closed, None);
                    self.offer_windows(host, registry, epoll);
                }
                (Phase::Offered | Phase::Probing, true) => state.due = None,
                _ => {}
            }
            self.look_for_beat(index, registry, epoll, now);
        }
    }

    /// An end says that its window is lost: no other connection is to get there.
    fn look_at_windows_to(
        &mut self,
        host: HostId,
        registry: &mut Registry<Memories>,
        epoll: &OwnedFd,
    ) {
        for index in 0..self.windows.len() {
            let state = &self.windows[index];
            if state.host == host && state.phase == Phase::Open {
                self.look_at_window(index, registry, epoll);
            }
        }
    }

    fn look_at_window(&mut self, index: usize, registry: &mut Registry<Memories>, epoll: &OwnedFd) {
        let open = registry.backing().open(window_id(index));
        if open.is_some_and(|open| open.window.is_there()) {
            return;
        }
        let trouble = "the memory is gone; connections go back to TCP";
        self.lose_window(index, trouble, registry, epoll);
    }

    /// As [`Self::window_is_lost`], where we have found that out.
    pub(super) fn lose_window(
        &mut self,
        index: usize,
        trouble: &str,
        registry: &mut Registry<Memories>,
        epoll: &OwnedFd,
    ) {
        self.window_is_lost(index, trouble, registry);
        let state = &self.windows[index];
        if !self.matching.is_owner(state.host) {
            let epoch = state.epoch;
            let message = HostMessage::WindowLost { epoch };
            self.links.say(state.host, &message, epoll);
        }
    }

    /// Nothing is dealt out of it any more. Its owner opens it anew.
    pub(super) fn window_is_lost(
        &mut self,
        index: usize,
        trouble: &str,
        registry: &mut Registry<Memories>,
    ) {
        let open = registry.backing().window(window_id(index));
        if let Some(extents) = open.and_then(|open| open.extents.as_mut()) {
            extents.doubt();
        }
        let state = &mut self.windows[index];
        state.phase = Phase::Lost;
        // Nothing of this is to be done before it is offered again.
        state.probes.stop();
        state.beats.forget_missing();
        let is_owner = self.matching.is_owner(state.host);
        state.due = is_owner.then(|| Instant::now() + SETTLE);
        let host = state.host;
        self.tell_of_loss(index, registry);
        self.matching.window_lost(registry, host, window_id(index));
        self.complain(index, trouble.to_owned());
    }

    /// A window that is not there is tried again, if that is on us.
    pub(super) fn plan_retry(&mut self, index: usize) {
        let state = &mut self.windows[index];
        if self.matching.is_owner(state.host) {
            state.due = Some(Instant::now() + RETRY);
        }
    }

    /// What another host says of an end; `None` if it is about something else.
    pub(super) fn hear_of_lost(
        &mut self,
        host: HostId,
        message: &HostMessage,
        registry: &Registry<Memories>,
    ) -> Option<Result<(), Lie>> {
        let now = Instant::now();
        let of = |theirs: &Tuple, pair| Place {
            host,
            tuple: theirs.mirrored(),
            pair,
        };
        match message {
            HostMessage::Position { tuple, position } => {
                self.heard_position(of(tuple, position.pair), *position, registry);
                Some(Ok(()))
            }
            HostMessage::Remainder {
                tuple,
                remainder,
                at,
                lines,
            } => {
                let place = of(tuple, remainder.pair);
                let most = registry.lines_of(remainder.pair).filter(|_| *at == 0);
                if most.is_some_and(|most| remainder.bytes() > most as usize * LINE_BYTES) {
                    return Some(Err(Lie("sends more of lost lanes than they have")));
                }
                let piece = (*at, lines.as_slice());
                Some(self.lost.heard_remainder(place, *remainder, piece, now))
            }
            HostMessage::Alone { tuple, pair } => {
                let message = |token| MonitorMessage::Alone { token, pair: *pair };
                self.lost.heard_absence(of(tuple, *pair), message);
                Some(Ok(()))
            }
            HostMessage::Left { tuple, pair } => {
                let message = |token| MonitorMessage::Left { token, pair: *pair };
                self.lost.heard_absence(of(tuple, *pair), message);
                Some(Ok(()))
            }
            HostMessage::Arrived { tuple, pair } => {
                let place = Place {
                    host,
                    tuple: *tuple,
                    pair: *pair,
                };
                self.lost.heard_arrived(place);
                Some(Ok(()))
            }
            _ => None,
        }
    }

    /// The other end of one of ours has read so far. One that is not the host's own may be another host's; or `rack.toml`
    /// has given the host its address before, and the connection is in a window since.
    fn heard_position(&mut self, place: Place, position: Position, registry: &Registry<Memories>) {
        let owner = self.owner_of(place, registry);
        let address = place.tuple.remote.ip();
        if owner.is_some()
            || self.matching.is_address_of(place.host, address)
            || self.lost.is_spoken_for(place)
        {
            let now = Instant::now();
            self.lost.heard_position(place, position, owner, now);
        }
    }

    /// Who has been granted these lanes, if it was by this monitor. The addresses alone may be those of another
    /// connection by now.
    fn owner_of(&self, place: Place, registry: &Registry<Memories>) -> Option<Owner> {
        let id = self.matching.end_of(place.host, &place.tuple)?;
        registry.holder_of(id, place.pair)
    }

    /// As what the other host knows an end that a program speaks for. A connection that has ended has no addresses any
    /// more, and `rack.toml` may not know those of another; then what it had is known from before.
    fn place_of(
        &self,
        (key, pair): (Option<EndKey>, u64),
        kin: &[Owner],
        registry: &Registry<Memories>,
    ) -> Option<Place> {
        let named = |(host, tuple)| Place { host, tuple, pair };
        if let Some(at) = key.and_then(|key| self.matching.host_of(&key)) {
            return Some(named(at));
        }
        let known = self.lost.place_of(kin.iter().copied(), pair);
        known.or_else(|| {
            let mut ends = kin.iter().filter_map(|owner| registry.end_in(*owner, pair));
            ends.find_map(|end| self.matching.partner_of(end).map(named))
        })
    }

    /// Whether an end was in these lanes: somebody speaks for it, or this monitor has dealt them out. An end that nobody has
    /// dealt lanes to would take the place of others, here and on the other host.
    fn knows_lanes(&self, place: Place, kin: &[Owner], registry: &Registry<Memories>) -> bool {
        let is_dealt = |owner: &Owner| registry.end_in(*owner, place.pair).is_some();
        self.lost.is_spoken_for(place) || kin.iter().any(is_dealt)
    }
}

impl Monitor {
    /// A program's end has left a lost window.
    pub(in crate::server) fn told_position(
        &mut self,
        client: ClientId,
        position: Position,
        socket: OwnedFd,
    ) {
        let key = Endpoint::read(socket.as_fd()).map(|endpoint| endpoint.key);
        self.discard_of(client, socket);
        let kin = self.kin_of(client).into_iter();
        let kin: Vec<Owner> = kin.map(|client| (client, position.token)).collect();
        let named = (key.ok(), position.pair);
        let by = self.speaker(client);
        let owner = (client, position.token);
        let is_shown = self.shows_lanes(owner, position.pair);
        if let (Some(rack), Some(by)) = (&mut self.rack, by)
            && let Some(place) = rack.place_of(named, &kin, &self.registry)
            && (is_shown || rack.knows_lanes(place, &kin, &self.registry))
        {
            let now = Instant::now();
            rack.lost.told_position(by, position, place, now);
            rack.look_at_windows_to(place.host, &mut self.registry, &self.epoll);
        }
    }

    /// A program sends what its peer had not read.
    pub(in crate::server) fn told_remainder(
        &mut self,
        client: ClientId,
        remainder: Remainder,
        memory: Option<OwnedFd>,
    ) -> Result<(), Fault> {
        // Anything but a memory object might not answer, nor be closed at once.
        let is_memory = |memory: &mut OwnedFd| is_sealed(memory.as_fd(), remainder.bytes());
        let mut passed = memory;
        let memory = passed.take_if(is_memory);
        if let Some(other) = passed {
            self.discard_of(client, other);
        }
        let by = self.speaker(client);
        let (Some(rack), Some(by)) = (&mut self.rack, by) else {
            return Ok(());
        };
        // Before anything is read: what nobody waits for takes no memory.
        if !rack.lost.takes_remainder(by, &remainder) {
            return Ok(());
        }
        let mut lines = vec![0; remainder.bytes()];
        if !lines.is_empty() {
            let memory = memory.ok_or(Fault::NoDescriptor)?;
            if pread(&memory, &mut lines, 0) != Ok(lines.len()) {
                return Err(Fault::NoDescriptor);
            }
        }
        rack.lost.told_remainder(by, (remainder, lines));
        Ok(())
    }

    fn discard_of(&mut self, client: ClientId, fd: OwnedFd) {
        if let Some(id) = self.clients.get(&client).copied() {
            self.discard(id, fd);
        }
    }

    /// A program, and whose it is.
    fn speaker(&mut self, client: ClientId) -> Option<Speaker> {
        let id = self.clients.get(&client).copied()?;
        let uid = self.connection(id)?.peer.uid;
        Some(Speaker { client, uid })
    }

    /// Connections that went over a window when this monitor was started are not known to it: the slabs say
    /// whose they are.
    pub(super) fn search_for_owners(&mut self, now: Instant) {
        let sought = self.rack.as_mut().map(|rack| rack.lost.take_sought(now));
        let sought = sought.unwrap_or_default();
        if sought.is_empty() {
            return;
        }
        let mut found = HashSet::new();
        for (client, token, pair) in self.families.in_lanes(|pair, _| sought.contains_key(&pair)) {
            let position = Position {
                token,
                ..sought[&pair]
            };
            found.insert(pair);
            self.remind(client, &MonitorMessage::Position(position));
        }
        if let Some(rack) = &mut self.rack {
            rack.lost.searched(&found, now);
        }
    }

    /// Say what ends are to be told. True if there was something.
    pub(super) fn speak_of_lost(&mut self) -> bool {
        let words = self.rack.as_mut().map(|rack| rack.lost.take_words());
        let words = words.unwrap_or_default();
        let is_busy = !words.is_empty();
        for word in words {
            match word {
                Word::ToHost(host, message) => {
                    if let Some(rack) = &mut self.rack {
                        rack.links.say(host, &message, &self.epoll);
                    }
                }
                Word::ToProgram(client, message @ MonitorMessage::Position(_)) => {
                    self.remind_kin(client, &message);
                }
                Word::ToProgram(client, message) => self.remind(client, &message),
                Word::Pass {
                    place,
                    client,
                    remainder,
                    lines,
                } => self.pass_on(place, client, (remainder, &lines)),
                Word::Look { place, owner } => self.look_and_tell(place, owner),
            }
        }
        is_busy
    }

    /// Tell the other host if our end does not use the lanes.
    fn look_and_tell(&mut self, place: Place, owner: Owner) {
        let found = self.look_for_absence(owner, place.pair);
        let Some(rack) = &mut self.rack else {
            return;
        };
        match found {
            Found::There => {}
            Found::Absent(absence) => {
                self.registry.void(owner, place.pair);
                let message = absence.message(place.tuple, place.pair);
                rack.links.say(place.host, &message, &self.epoll);
            }
            Found::Nobody => rack.lost.disown(place, Instant::now()),
        }
    }

    /// Whether a program's end uses these lanes, see [`absence_in`]. One that has yet to take them is told first
    /// that they are lost, so that it does not take them afterwards.
    fn look_for_absence(&mut self, (client, token): Owner, pair: u64) -> Found {
        self.remind_kin(client, &MonitorMessage::WindowLost { token, pair });
        match self.may_have_unread(client) {
            true => Found::There,
            false => self.absence_of((client, token), pair),
        }
    }

    /// Whether a program or one that shares its slab may yet come upon something in an earlier message that it would not do if
    /// it had heard the last. Who has been expelled reads to the end before it connects anew.
    fn may_have_unread(&self, client: ClientId) -> bool {
        let kin = self.kin_of(client);
        let connections = || {
            let ids = kin.iter().filter_map(|kin| self.clients.get(kin));
            ids.filter_map(|id| match self.sources.get(id) {
                Some(Source::Connection(connection)) => Some(connection),
                _ => None,
            })
        };
        let is_back = |pid: u32| {
            let mut heard = connections().filter(|connection| !connection.is_expelled());
            // Processes of other pid namespaces have no number.
            pid != 0 && heard.any(|connection| connection.peer.pid == pid)
        };
        connections().any(|connection| match connection.is_expelled() {
            true => !is_back(connection.peer.pid),
            false => connection.is_behind(),
        })
    }

    /// Whether a program's table says that this end is in these lanes, or has sent what stood there.
    fn shows_lanes(&self, owner: Owner, pair: u64) -> bool {
        let found = self.absence_of(owner, pair);
        matches!(found, Found::There | Found::Absent(Absence::Left))
    }

    fn absence_of(&self, (client, token): Owner, pair: u64) -> Found {
        let Some(Source::Connection(connection)) = self
            .clients
            .get(&client)
            .and_then(|id| self.sources.get(id))
        else {
            return Found::Nobody;
        };
        let family = connection.member.map(|member| member.family);
        let Some(family) = family.and_then(|id| self.families.find(id)) else {
            return Found::Nobody;
        };
        let index = u32::try_from(token & 0xffff_ffff).unwrap_or(u32::MAX);
        let Some(entry) = family.slab.entry(index) else {
            return Found::Nobody;
        };
        let absence = absence_in(&entry.rx.coming, &entry.wait, pair);
        let is_closed = !entry.is_held();
        // Afterwards: the entry may have become another end's meanwhile.
        let is_same = u64::from(entry.id.generation.load(SeqCst)) == token >> 32;
        match absence.or(is_closed.then_some(Absence::Left)) {
            _ if !is_same => Found::Nobody,
            Some(absence) => Found::Absent(absence),
            None => Found::There,
        }
    }

    /// Tell a program and those that share its slab.
    pub(in crate::server) fn tell_kin(&mut self, client: ClientId, message: &MonitorMessage) {
        for client in self.kin_of(client) {
            self.tell(client, message, &[]);
        }
    }

    /// As [`Self::tell_kin`] what is told again and again.
    fn remind_kin(&mut self, client: ClientId, message: &MonitorMessage) {
        for client in self.kin_of(client) {
            self.remind(client, message);
        }
    }

    /// Tell a program what another host can have it told as often as it likes: who has yet to read something is passed over.
    pub(super) fn remind(&mut self, client: ClientId, message: &MonitorMessage) {
        if !self.is_behind(client) {
            self.tell(client, message, &[]);
        }
    }

    /// Pass on what an end had not read. A program that has yet to read something is not sent more; it asks again, and the
    /// other host keeps it until then.
    fn pass_on(&mut self, place: Place, client: ClientId, (remainder, lines): (Remainder, &[u8])) {
        if self.is_behind(client) {
            return;
        }
        self.tell(client, &MonitorMessage::Remainder(remainder), lines);
        if let Some(rack) = &mut self.rack {
            rack.lost.passed_on(place);
        }
    }

    pub(super) fn is_behind(&mut self, client: ClientId) -> bool {
        let id = self.clients.get(&client).copied();
        let connection = id.and_then(|id| self.connection(id));
        connection.is_some_and(|connection| connection.is_behind())
    }

    /// A program and those that share its slab: a connection of its may be with a child by now.
    fn kin_of(&self, client: ClientId) -> Vec<ClientId> {
        let family = self
            .clients
            .get(&client)
            .and_then(|id| match self.sources.get(id) {
                Some(Source::Connection(connection)) => connection.member,
                _ => None,
            });
        let family = family.and_then(|member| self.families.find(member.family));
        family.map_or_else(Vec::new, |family| family.clients().collect())
    }

    fn tell(&mut self, client: ClientId, message: &MonitorMessage, lines: &[u8]) {
        let Some(id) = self.clients.get(&client).copied() else {
            return;
        };
        let memory = (!lines.is_empty()).then(|| object_of(lines));
        if memory.as_ref().is_some_and(Option::is_none) {
            // Without it the connection is reset.
            tracing::warn!("no memory for what stood in a lost window");
        }
        let said = self
            .connection(id)
            .map(|connection| connection.say(message.encode(), memory.flatten()));
        match said {
            Some(Said::Lost) => self.give_up(id),
            _ => self.update_interest(id),
        }
    }
}

fn object_of(lines: &[u8]) -> Option<Arc<OwnedFd>> {
    let memory = create_sealed(c"crosslane-remainder", lines.len()).ok()?;
    (pwrite(&memory, lines, 0) == Ok(lines.len())).then(|| Arc::new(memory))
}

#[cfg(test)]
pub(super) mod tests;
