//! A new end, its partner, and the grant for both.

use crosslane_ctl::lane::Location;
use crosslane_ctl::message::{ANY_LANES, Grant, MonitorMessage};
use crosslane_ctl::reason::Reason;

use super::rack::Notice;
use super::{Action, Beside, ClientId, End, FamilyId, Granted, Registry, Violation};
use crate::arenas::{Backing, Side};
use crate::endpoint::{Endpoint, EndpointError};
use crate::matcher::EndId;

impl<B: Backing> Registry<B> {
    /// A client has passed a socket. The first thing said is the answer to the message itself.
    ///
    /// # Errors
    /// When the client broke the protocol.
    pub fn register(
        &mut self,
        client: ClientId,
        token: u64,
        endpoint: Result<Endpoint, EndpointError>,
    ) -> Result<(), Violation> {
        let Some(family) = self.clients.get(&client).map(|client| client.family) else {
            return Ok(());
        };
        let known = self.by_token.get(&(family, token)).copied();
        if let (Some(known), Ok(endpoint)) = (known, &endpoint) {
            return self.register_again(client, known, endpoint);
        }
        match self.accept(client, family, endpoint) {
            Ok(endpoint) => self.enter(client, family, token, &endpoint),
            Err(reason) => self.refuse(client, token, reason),
        }
        Ok(())
    }

    /// Whether a new end may have rings at all.
    fn accept(
        &self,
        client: ClientId,
        family: FamilyId,
        endpoint: Result<Endpoint, EndpointError>,
    ) -> Result<Endpoint, Reason> {
        let endpoint = endpoint.map_err(EndpointError::reason)?;
        if endpoint.key == endpoint.key.mirrored() {
            // A socket connected to itself has no other end.
            return Err(Reason::NoPeer);
        }
        if self.is_foreign(family, &endpoint) {
            return Err(Reason::Foreign);
        }
        if self.over_quota(client) {
            return Err(Reason::Quota);
        }
        Ok(endpoint)
    }

    fn enter(&mut self, client: ClientId, family: FamilyId, token: u64, endpoint: &Endpoint) {
        self.say(client, MonitorMessage::Registered { token });
        let id = self.add(client, family, token, endpoint);
        self.seek(id, endpoint);
    }

    /// Look for the other end.
    fn seek(&mut self, id: EndId, endpoint: &Endpoint) {
        self.totals.registered += 1;
        let entered = self.matcher.enter(endpoint.key, id);
        // The kernel tells connections of the same names apart by their devices.
        let is_of_device = |other: &EndId| {
            let other = self.ends.get(other);
            other.is_some_and(|other| other.device == endpoint.device)
        };
        match entered.partner.filter(is_of_device) {
            Some(partner) => self.pair(partner, id),
            None => self.notice(Notice::Seeking(id)),
        }
    }

    /// Whether an end that is known has no rings and is not looked for: it was adopted, or its
    /// socket was with another process for a while.
    fn is_idle(&self, id: EndId, end: &End) -> bool {
        let is_of_same_socket =
            |other: &End| other.cookie == end.cookie && other.origin == end.origin;
        end.grants.is_empty()
            && match self.matcher.find(&end.key) {
                None => true,
                Some(newest) if newest == id => false,
                Some(newest) => self.ends.get(&newest).is_some_and(is_of_same_socket),
            }
    }

    /// A member of the family registers what is registered already: after a fork, from then on
    /// its process is the one that is told.
    fn register_again(
        &mut self,
        client: ClientId,
        known: EndId,
        endpoint: &Endpoint,
    ) -> Result<(), Violation> {
        let Some(end) = self.ends.get(&known) else {
            return Ok(());
        };
        let (token, family) = (end.token, end.family);
        if end.cookie != endpoint.cookie || end.key != endpoint.key {
            return Err(Violation::TokenInUse(token));
        }
        let newest = end.grants.last().copied();
        if newest.is_some_and(|granted| granted.is_void || self.arenas.is_lost(granted.side)) {
            self.release_end(known, ANY_LANES);
            self.retire_dropped();
            self.enter(client, family, token, endpoint);
            return Ok(());
        }
        let before = end.client;
        self.say(client, MonitorMessage::Registered { token });
        if before != client {
            self.move_end(known, before, client);
        }
        let is_idle = self
            .ends
            .get(&known)
            .is_some_and(|end| self.is_idle(known, end));
        match newest {
            Some(granted) if before != client => {
                self.grant_again(known, granted.side);
                self.send_grant(known, granted.side);
            }
            None if is_idle => self.seek(known, endpoint),
            _ => {}
        }
        Ok(())
    }

    /// Another process is about to use what the end was granted: children that it forks keep it, and so do those of the
    /// process before.
    fn grant_again(&mut self, id: EndId, side: Side) {
        let seq = self.next_seq();
        let Some(end) = self.ends.get_mut(&id) else {
            return;
        };
        let to = end.client;
        let is_same = |known: &Granted| known.side == side && known.to == to;
        if !end.grants.iter().any(is_same) {
            end.grants.push(Granted::new(seq, side, to));
            self.arenas.share(side);
        }
    }

    fn move_end(&mut self, id: EndId, from: ClientId, to: ClientId) {
        if let Some(end) = self.ends.get_mut(&id) {
            end.client = to;
        }
        self.charge(from, |user| user.ends -= 1);
        self.charge(to, |user| user.ends += 1);
        if let Some(from) = self.clients.get_mut(&from) {
            from.ends.remove(&id);
        }
        if let Some(to) = self.clients.get_mut(&to) {
            to.ends.insert(id);
        }
    }

    /// Whether another program holds the same socket: its cursors are not ours.
    fn is_foreign(&self, family: FamilyId, endpoint: &Endpoint) -> bool {
        self.matcher
            .find(&endpoint.key)
            .and_then(|id| self.ends.get(&id))
            .is_some_and(|end| end.cookie == endpoint.cookie && end.family != family)
    }

    pub(super) fn over_quota(&self, client: ClientId) -> bool {
        let Some(state) = self.clients.get(&client) else {
            return true;
        };
        let user = self
            .users
            .get(&state.uid)
            .map_or(0, |user| user.ends + user.parked);
        state.ends.len() + state.parked.len() >= self.quotas.ends_per_process
            || user >= self.quotas.ends_per_user
    }

    pub(super) fn refuse(&mut self, client: ClientId, token: u64, reason: Reason) {
        self.totals.refused += 1;
        self.say(
            client,
            MonitorMessage::Refused {
                token,
                reason: reason as u32,
            },
        );
    }

    pub(super) fn add(
        &mut self,
        client: ClientId,
        family: FamilyId,
        token: u64,
        endpoint: &Endpoint,
    ) -> EndId {
        let id = EndId(self.next_end);
        self.next_end += 1;
        let end = End {
            client,
            family,
            token,
            key: endpoint.key,
            cookie: endpoint.cookie,
            device: endpoint.device,
            grants: Vec::new(),
            origin: (family, token),
            lent: Vec::new(),
        };
        self.ends.insert(id, end);
        self.by_token.insert((family, token), id);
        if let Some(client) = self.clients.get_mut(&client) {
            client.ends.insert(id);
        }
        self.charge(client, |user| user.ends += 1);
        id
    }

    /// Give both ends rings. Whatever they were granted before is with a dead socket: it stays
    /// theirs until they are released, but the newest grant counts.
    fn pair(&mut self, older: EndId, newer: EndId) {
        let family_of = |id| self.ends.get(id).map(|end: &End| end.family);
        let (Some(a), Some(b)) = (family_of(&older), family_of(&newer)) else {
            return;
        };
        if self.is_sated(older) || self.is_sated(newer) {
            // The older one goes on in what it has.
            return self.refuse_end(newer, Reason::TooOften);
        }
        let Some(sides) = self.arenas.take(a, b, self.quotas.arenas_per_process) else {
            self.refuse_end(older, Reason::NoMemory);
            self.refuse_end(newer, Reason::NoMemory);
            return;
        };
        self.totals.paired += 1;
        for (id, side) in [older, newer].into_iter().zip(sides) {
            self.give(id, side);
        }
    }

    /// An end that is looked for stays on TCP.
    pub(super) fn refuse_end(&mut self, id: EndId, reason: Reason) {
        let Some(end) = self.ends.get(&id) else {
            return;
        };
        let (client, token, key) = (end.client, end.token, end.key);
        self.matcher.leave(&key, id);
        self.refuse(client, token, reason);
    }

    /// An end is granted a side, and told so.
    pub(super) fn give(&mut self, id: EndId, side: Side) {
        let seq = self.next_seq();
        if let Some(end) = self.ends.get_mut(&id) {
            let to = end.client;
            end.grants.push(Granted::new(seq, side, to));
        }
        self.send_grant(id, side);
    }

    pub(super) fn send_grant(&mut self, id: EndId, side: Side) {
        let Some(end) = self.ends.get(&id) else {
            return;
        };
        let (client, token) = (end.client, end.token);
        let Some(arena) = self.arenas.number(side.arena, end.family) else {
            return;
        };
        let Some((geometry, location)) = self.arenas.shape(side.arena) else {
            return;
        };
        let grant = Grant {
            token,
            arena,
            slot: side.slot,
            role: side.role,
            geometry,
            location,
            pair: self.arenas.pair_name(side),
        };
        let Some(state) = self.clients.get_mut(&client) else {
            return;
        };
        let first = state.sent.insert(side.arena);
        if first && matches!(location, Location::Apart { .. }) {
            self.actions.push(Action {
                client,
                message: MonitorMessage::Beyond { token },
                beside: Some(Beside::Beyond(side.arena)),
            });
        }
        self.actions.push(Action {
            client,
            message: MonitorMessage::Grant(grant),
            beside: first.then_some(Beside::Arena(side.arena)),
        });
    }
}
