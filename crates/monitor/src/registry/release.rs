//! How ends and processes go, and leases that outlive both.

use crosslane_ctl::message::ANY_LANES;

use super::rack::Notice;
use super::{Client, ClientId, End, Granted, LeaseId, Parked, Registry, Violation};
use crate::arenas::Backing;
use crate::matcher::EndId;

/// What a child was forked for is among the last that its parent was granted before.
const MOST_OF_CHILD: usize = 16;

/// Leases beyond what is allowed that a client has on its way before it learns that it is listened to no more.
const LAST_LEASES: usize = 4;

impl<B: Backing> Registry<B> {
    /// An end is closed that was in the lanes `pair`, see [`ClientMessage::Release`]. Another member of the family
    /// than the one that has registered it last speaks of its own copy, and an unknown token is one that was
    /// registered with an earlier monitor: both are none of our business.
    ///
    /// [`ClientMessage::Release`]: crosslane_ctl::message::ClientMessage::Release
    pub fn release(&mut self, client: ClientId, token: u64, pair: u64) {
        let family = self.clients.get(&client).map(|client| client.family);
        let id = family.and_then(|family| self.by_token.get(&(family, token)).copied());
        let is_theirs = |id: &EndId| self.ends.get(id).is_some_and(|end| end.client == client);
        let Some(id) = id.filter(is_theirs) else {
            return;
        };
        let before = self.arenas.left().len();
        self.release_end(id, pair);
        for left in &mut self.arenas.left()[before..] {
            left.was_used = pair == ANY_LANES || left.pair == pair;
            left.is_told = true;
        }
        self.retire_dropped();
    }

    /// An end goes that was in the lanes `pair`.
    pub(super) fn release_end(&mut self, id: EndId, pair: u64) {
        let Some(mut end) = self.ends.remove(&id) else {
            return;
        };
        self.orphan(id, &mut end);
        self.by_token.remove(&(end.family, end.token));
        self.matcher.leave(&end.key, id);
        self.notice(Notice::Settled(id));
        self.charge(end.client, |user| user.ends -= 1);
        if let Some(owner) = self.clients.get_mut(&end.client) {
            owner.ends.remove(&id);
        }
        for granted in std::mem::take(&mut end.grants) {
            self.leave(&end, granted, pair);
        }
    }

    /// A side is not used by its process any more; a younger lease keeps it for the children. Nobody's child is in
    /// lanes between hosts that the end itself has declined.
    fn leave(&mut self, end: &End, granted: Granted, pair: u64) {
        let Granted { seq, side, to, .. } = granted;
        let name = self.arenas.pair_name(side);
        let is_declined = name != 0 && pair != ANY_LANES && pair != name;
        let parked = Parked {
            side,
            token: end.token,
            cookie: end.cookie,
            origin: end.origin,
        };
        match self.clients.get_mut(&to) {
            Some(holder) if !is_declined && holder.youngest_lease() > seq => {
                holder.parked.insert(seq, parked);
                self.charge(to, |user| user.parked += 1);
            }
            _ => self.arenas.leave(side),
        }
    }

    /// Forked children may be using what this process has been granted so far.
    ///
    /// # Errors
    /// When the client holds too many leases.
    pub fn lease(&mut self, client: ClientId) -> Result<Option<LeaseId>, Violation> {
        let (most, most_of_user) = (self.quotas.leases_per_process, self.quotas.leases_per_user);
        let Some(state) = self.clients.get(&client) else {
            return Ok(None);
        };
        let of_user = self.users.get(&state.uid).map_or(0, |user| user.leases);
        if state.leases.len() >= most || of_user >= most_of_user {
            return Err(Violation::Leases(most));
        }
        Ok(self.enter_lease(client))
    }

    /// The same for a client that holds too many, and is listened to no more.
    pub fn lease_at_last(&mut self, client: ClientId) -> Option<LeaseId> {
        let state = self.clients.get_mut(&client)?;
        if state.last_leases >= LAST_LEASES {
            return None;
        }
        state.last_leases += 1;
        self.enter_lease(client)
    }

    fn enter_lease(&mut self, client: ClientId) -> Option<LeaseId> {
        let seq = self.next_seq();
        self.clients.get_mut(&client)?.leases.insert(seq);
        self.charge(client, |user| user.leases += 1);
        let id = LeaseId(self.next_lease);
        self.next_lease += 1;
        self.leases.insert(id, (client, seq));
        Some(id)
    }

    /// No forked child of that time is left.
    pub fn lease_ended(&mut self, lease: LeaseId) {
        let Some((client, seq)) = self.leases.remove(&lease) else {
            return;
        };
        let Some(state) = self.clients.get_mut(&client) else {
            return;
        };
        state.leases.remove(&seq);
        // What is older than a remaining lease stays.
        let youngest = state.youngest_lease();
        let freed = state.parked.split_off(&youngest);
        let of_child = state.parked.range(..seq).rev().take(MOST_OF_CHILD);
        for (_, parked) in of_child {
            self.arenas.note_death(parked.side);
        }
        self.charge(client, |user| {
            user.leases -= 1;
            user.parked -= freed.len();
        });
        for parked in freed.into_values() {
            self.arenas.note_death(parked.side);
            self.arenas.leave(parked.side);
        }
        self.forget_if_done(client);
        self.retire_dropped();
    }

    /// The control connection is closed: the process has died or become another program.
    pub fn gone(&mut self, client: ClientId) {
        let Some(state) = self.clients.get_mut(&client) else {
            return;
        };
        state.connected = false;
        let mut ends: Vec<EndId> = state.ends.iter().copied().collect();
        ends.sort_unstable();
        for id in ends {
            self.note_death(id);
            self.release_end(id, ANY_LANES);
        }
        self.forget_if_done(client);
        self.retire_dropped();
    }

    fn note_death(&mut self, id: EndId) {
        for granted in self.ends.get(&id).iter().flat_map(|end| &end.grants) {
            self.arenas.note_death(granted.side);
        }
    }

    fn forget_if_done(&mut self, client: ClientId) {
        let done = self
            .clients
            .get(&client)
            .is_some_and(|state| !state.connected && state.leases.is_empty());
        if !done {
            return;
        }
        let Some(state) = self.clients.remove(&client) else {
            return;
        };
        let Some(members) = self.families.get_mut(&state.family) else {
            return;
        };
        members.remove(&client);
        if members.is_empty() {
            self.families.remove(&state.family);
            self.arenas.family_gone(state.family);
            self.notice(Notice::Gone(state.family));
        }
    }
}

impl Client {
    /// Number of the youngest lease; 0, older than every grant, if there is none.
    fn youngest_lease(&self) -> u64 {
        self.leases.last().copied().unwrap_or(0)
    }
}
