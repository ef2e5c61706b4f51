//! Ends whose sockets go to other processes, by SCM_RIGHTS or exec, while bytes are still in their
//! rings: the process that gives one away lends it, whoever gets it adopts it.

use std::collections::{BTreeSet, HashMap};

use crosslane_ctl::message::{Loan, MonitorMessage};
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::FOREIGN_SLABS;

use super::{Action, Beside, ClientId, End, FamilyId, Granted, Parked, Registry, Violation};
use crate::arenas::{Backing, Side};
use crate::endpoint::{Endpoint, EndpointError};
use crate::matcher::EndId;

/// Loans of one end that may wait to be adopted.
const LOANS_PER_END: usize = 16;

/// Ends that one user's processes may have lent at a time.
const MOST_LENT: usize = 256;

/// Looks that a loan outlives its lender by.
const PATIENCE: u8 = 2;

/// Where the cursors of an end are: in this family's slab, under this token.
pub(super) type Origin = (FamilyId, u64);

/// A lent end whose lender has closed it, ended, or become another program.
pub(super) struct Orphan {
    origin: Origin,
    uid: u32,
    /// What its loans come with.
    side: Option<Side>,
    loans: Vec<Loaned>,
    age: u8,
}

/// What an adopter takes over.
struct Found {
    origin: Origin,
    member: u16,
    side: Option<Side>,
}

/// A loan of an end that waits to be adopted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loaned {
    member: u16,
    has_rings: bool,
}

/// By the cookie of the socket.
pub(super) type Orphans = HashMap<u64, Orphan>;

/// Ends that are lent, after the cookies of their sockets.
pub(super) type Lenders = BTreeSet<(u64, EndId)>;

impl<B: Backing> Registry<B> {
    /// A client gives a socket away, with the rings of its end, or as one that may yet have some.
    /// `false` if the end cannot be lent.
    pub fn lend(&mut self, client: ClientId, token: u64, member: u16, has_rings: bool) -> bool {
        let loan = Loaned { member, has_rings };
        let lent = self.try_lend(client, token, loan).is_some();
        if lent {
            self.say(client, MonitorMessage::Lendable { token });
        } else {
            self.refuse_loan(client, token);
        }
        lent
    }

    /// The end cannot be lent.
    pub fn refuse_loan(&mut self, client: ClientId, token: u64) {
        let reason = Reason::Passed as u32;
        self.say(client, MonitorMessage::Refused { token, reason });
    }

    fn try_lend(&mut self, client: ClientId, token: u64, loan: Loaned) -> Option<()> {
        let (family, uid) = self.clients.get(&client).map(|c| (c.family, c.uid))?;
        if self.lent_by(uid) >= MOST_LENT {
            return None;
        }
        let Some(id) = self.by_token.get(&(family, token)).copied() else {
            return self.lend_parked(family, token, loan);
        };
        let end = self.ends.get_mut(&id)?;
        if loan.has_rings && end.grants.is_empty() || end.lent.len() >= LOANS_PER_END {
            return None;
        }
        end.lent.push(loan);
        self.lenders.insert((end.cookie, id));
        Some(())
    }

    fn lent_by(&self, uid: u32) -> usize {
        let is_theirs = |id: &EndId| {
            let client = self.ends.get(id).map(|end| end.client);
            client
                .and_then(|client| self.clients.get(&client))
                .is_some_and(|c| c.uid == uid)
        };
        let lenders = self.lenders.iter().filter(|(_, id)| is_theirs(id)).count();
        lenders
            + self
                .orphans
                .values()
                .filter(|orphan| orphan.uid == uid)
                .count()
    }

    /// A client gives a socket away no more.
    pub fn take_back(&mut self, client: ClientId, token: u64, member: u16) {
        let Some(family) = self.clients.get(&client).map(|client| client.family) else {
            return;
        };
        if let Some(id) = self.by_token.get(&(family, token)).copied()
            && let Some(end) = self.ends.get_mut(&id)
        {
            end.lent.retain(|lent| lent.member != member);
            if end.lent.is_empty() {
                self.lenders.remove(&(end.cookie, id));
            }
            return;
        }
        let cookie = self.find_parked(family, token).map(|found| found.1.cookie);
        if let Some(cookie) = cookie
            && let Some(orphan) = self.orphans.get_mut(&cookie)
        {
            orphan.loans.retain(|lent| lent.member != member);
            if orphan.loans.is_empty() {
                self.bury(cookie);
            }
        }
    }

    /// The process that has registered the end has closed it, and forked children have not.
    fn lend_parked(&mut self, family: FamilyId, token: u64, loan: Loaned) -> Option<()> {
        let (uid, parked) = self.find_parked(family, token).filter(|_| loan.has_rings)?;
        let (cookie, origin, side) = (parked.cookie, parked.origin, parked.side);
        if let Some(orphan) = self.orphans.get_mut(&cookie) {
            let has_room = orphan.loans.len() < LOANS_PER_END;
            return has_room.then(|| orphan.loans.push(loan));
        }
        self.arenas.share(side);
        let orphan = Orphan {
            origin,
            uid,
            side: Some(side),
            loans: vec![loan],
            age: 0,
        };
        self.orphans.insert(cookie, orphan);
        Some(())
    }

    /// The newest side that a closed end has left for forked children.
    pub(super) fn find_parked(&self, family: FamilyId, token: u64) -> Option<(u32, &Parked)> {
        let members = self.families.get(&family)?.iter();
        let clients = members.filter_map(|client| self.clients.get(client));
        let all = clients.flat_map(|client| client.parked.iter().map(|entry| (client.uid, entry)));
        let (uid, (_, parked)) = all
            .filter(|(_, (_, parked))| parked.token == token)
            .max_by_key(|(_, (seq, _))| **seq)?;
        Some((uid, parked))
    }

    /// A client has got a socket from elsewhere.
    ///
    /// # Errors
    /// When its token names another end already.
    pub fn adopt(
        &mut self,
        client: ClientId,
        token: u64,
        endpoint: Result<Endpoint, EndpointError>,
    ) -> Result<(), Violation> {
        let Some((family, uid)) = self.clients.get(&client).map(|c| (c.family, c.uid)) else {
            return Ok(());
        };
        if self.by_token.contains_key(&(family, token)) {
            return Err(Violation::TokenInUse(token));
        }
        let endpoint = endpoint.ok().filter(|_| !self.over_quota(client));
        let found =
            endpoint.and_then(|endpoint| Some((endpoint, self.take_loan(client, &endpoint, uid)?)));
        match found {
            Some((endpoint, found)) => self.hand_over(client, family, token, &endpoint, found),
            None => self.refuse(client, token, Reason::Passed),
        }
        Ok(())
    }

    /// Only the same user gets an end: its slab comes along, if the adopter has room for it.
    fn take_loan(&mut self, client: ClientId, endpoint: &Endpoint, uid: u32) -> Option<Found> {
        let orphan = self.orphans.get(&endpoint.cookie);
        let has_room = orphan.is_none_or(|orphan| self.has_room_for(client, orphan.origin.0));
        if let Some(orphan) = self.orphans.get_mut(&endpoint.cookie) {
            if orphan.uid != uid || !has_room {
                return None;
            }
            let (origin, loan) = (orphan.origin, orphan.loans.pop()?);
            let side = orphan.side.filter(|_| loan.has_rings);
            side.iter().for_each(|side| self.arenas.share(*side));
            if orphan.loans.is_empty() {
                self.bury(endpoint.cookie);
            }
            return Some(Found {
                origin,
                member: loan.member,
                side,
            });
        }
        let any = (endpoint.cookie, EndId(0))..=(endpoint.cookie, EndId(u64::MAX));
        let (cookie, id) = *self.lenders.range(any).next()?;
        let end = self.ends.get(&id)?;
        let is_theirs = self.clients.get(&end.client)?.uid == uid;
        if !is_theirs || !self.has_room_for(client, end.origin.0) {
            return None;
        }
        let end = self.ends.get_mut(&id)?;
        let loan = end.lent.pop()?;
        let newest = end.grants.last().map(|granted| granted.side);
        let side = newest.filter(|_| loan.has_rings);
        if end.lent.is_empty() {
            self.lenders.remove(&(cookie, id));
        }
        side.iter().for_each(|side| self.arenas.share(*side));
        Some(Found {
            origin: end.origin,
            member: loan.member,
            side,
        })
    }

    /// Whether a process may have ends in the slab of this family.
    fn has_room_for(&self, client: ClientId, owner: FamilyId) -> bool {
        self.clients.get(&client).is_some_and(|state| {
            state.family == owner
                || state.slabs.contains(&owner)
                || state.slabs.len() < FOREIGN_SLABS
        })
    }

    fn hand_over(
        &mut self,
        client: ClientId,
        family: FamilyId,
        token: u64,
        endpoint: &Endpoint,
        found: Found,
    ) {
        let id = self.add(client, family, token, endpoint);
        if let Some(end) = self.ends.get_mut(&id) {
            end.origin = found.origin;
        }
        self.say_lent(client, family, token, &found);
        let Some(side) = found.side else {
            self.say(client, MonitorMessage::Registered { token });
            return;
        };
        let seq = self.next_seq();
        self.arenas.admit(side.arena, family);
        if let Some(end) = self.ends.get_mut(&id) {
            let to = client;
            end.grants.push(Granted::new(seq, side, to));
        }
        self.send_grant(id, side);
    }

    fn say_lent(&mut self, client: ClientId, family: FamilyId, token: u64, found: &Found) {
        let (owner, original) = found.origin;
        let is_own = owner == family;
        let first = !is_own
            && self
                .clients
                .get_mut(&client)
                .is_some_and(|state| state.slabs.insert(owner));
        let loan = Loan {
            token,
            original,
            family: if is_own { 0 } else { owner.number() },
            member: found.member,
        };
        self.actions.push(Action {
            client,
            message: MonitorMessage::Lent(loan),
            beside: first.then_some(Beside::Slab(owner)),
        });
    }

    /// The side of a lent end that is released stays for those who may still adopt it.
    pub(super) fn orphan(&mut self, id: EndId, end: &mut End) {
        if !self.lenders.remove(&(end.cookie, id)) {
            return;
        }
        let uid = self.clients.get(&end.client).map(|client| client.uid);
        let Some(uid) = uid else { return };
        let loans = std::mem::take(&mut end.lent);
        let has_rings = loans.iter().any(|loan| loan.has_rings);
        let newest = end.grants.last().map(|granted| granted.side);
        let side = newest.filter(|_| has_rings);
        match self.orphans.get_mut(&end.cookie) {
            Some(orphan) if orphan.side == side => orphan.loans.extend(loans),
            _ => {
                self.bury(end.cookie);
                // Held beside the grant that is about to be given back.
                side.iter().for_each(|side| self.arenas.share(*side));
                let orphan = Orphan {
                    origin: end.origin,
                    uid,
                    side,
                    loans,
                    age: 0,
                };
                self.orphans.insert(end.cookie, orphan);
            }
        }
    }

    fn bury(&mut self, cookie: u64) {
        if let Some(side) = self.orphans.remove(&cookie).and_then(|orphan| orphan.side) {
            self.arenas.leave(side);
        }
    }

    /// Some time has passed: what nobody has adopted for long is given up.
    pub fn age_loans(&mut self) {
        let mut old = Vec::new();
        for (cookie, orphan) in &mut self.orphans {
            orphan.age += 1;
            if orphan.age > PATIENCE {
                old.push(*cookie);
            }
        }
        for cookie in old {
            self.bury(cookie);
        }
        self.retire_dropped();
    }

    /// Whether ends of this family's slab are lent or adopted.
    pub fn is_lender(&self, family: FamilyId) -> bool {
        let is_out =
            |end: &End| end.origin.0 == family && (end.family != family || !end.lent.is_empty());
        self.ends.values().any(is_out)
            || self
                .orphans
                .values()
                .any(|orphan| orphan.origin.0 == family)
    }

    /// Where the cursors of an end are that a client has registered or adopted.
    pub fn origin_of(&self, client: ClientId, token: u64) -> Option<FamilyId> {
        let family = self.clients.get(&client)?.family;
        match self.by_token.get(&(family, token)) {
            Some(id) => self.ends.get(id).map(|end| end.origin.0),
            None => self
                .find_parked(family, token)
                .map(|found| found.1.origin.0),
        }
    }
}
