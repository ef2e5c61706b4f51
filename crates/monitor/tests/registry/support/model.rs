//! Random histories against a model that keeps everything in lists.

use std::collections::{HashMap, HashSet};

use crosslane_ctl::message::MonitorMessage;
use crosslane_ctl::reason::Reason;
use crosslane_monitor::arenas::ArenaId;
use crosslane_monitor::endpoint::{EndKey, Endpoint};
use crosslane_monitor::registry::{Action, Beside, ClientId, FamilyId, GRANTS_PER_END, LeaseId};

use super::event::{EVENT_BYTES, Event};
use super::{Bench, socket};

/// Let the history happen that these bytes describe, with a look at everything after each event.
///
/// # Panics
/// When the registry does anything else than the model.
pub fn replay(bytes: &[u8]) {
    let mut play = Play::new();
    for event in bytes.chunks_exact(EVENT_BYTES) {
        play.happen(Event::from_bytes([event[0], event[1], event[2], event[3]]));
    }
    play.end();
}

#[derive(Debug)]
struct ModelClient {
    id: ClientId,
    family: FamilyId,
    connected: bool,
}

#[derive(Debug)]
struct ModelEnd {
    client: ClientId,
    family: FamilyId,
    token: u64,
    endpoint: Endpoint,
    live: bool,
    /// The last one registered under its key.
    newest: bool,
    /// Its newest grant.
    granted: Option<(ArenaId, u32)>,
    /// How many it has had.
    grants: usize,
    /// Where its cursors are.
    origin: (FamilyId, u64),
    /// As whom it may be adopted, and whether with rings.
    lent: Vec<(u16, bool)>,
}

/// What is lent of an end that is gone.
#[derive(Debug)]
struct ModelOrphan {
    cookie: u64,
    slot: Option<(ArenaId, u32)>,
    origin: (FamilyId, u64),
    loans: Vec<(u16, bool)>,
    age: u32,
}

#[derive(Debug)]
struct ModelSide {
    slot: (ArenaId, u32),
    end: usize,
    client: ClientId,
    /// Leases of the client that are younger than the grant.
    leases: Vec<LeaseId>,
}

/// Slot, where the cursors are, and as whom.
type ModelLoan = (Option<(ArenaId, u32)>, (FamilyId, u64), u16);

/// The model and the registry under test.
struct Play {
    bench: Bench,
    clients: Vec<ModelClient>,
    ends: Vec<ModelEnd>,
    sides: Vec<ModelSide>,
    leases: Vec<(LeaseId, ClientId)>,
    orphans: Vec<ModelOrphan>,
    /// Who has been sent whose slab.
    slabs: HashSet<(ClientId, FamilyId)>,
    loans: u16,
    arenas: HashMap<(FamilyId, u32), ArenaId>,
    /// Who has the descriptor of which arena.
    sent: HashSet<(ClientId, ArenaId)>,
}

impl Play {
    fn new() -> Self {
        Self {
            bench: Bench::new(),
            clients: Vec::new(),
            ends: Vec::new(),
            sides: Vec::new(),
            leases: Vec::new(),
            orphans: Vec::new(),
            slabs: HashSet::new(),
            loans: 0,
            arenas: HashMap::new(),
            sent: HashSet::new(),
        }
    }

    fn connected(&self, nth: usize) -> Option<(ClientId, FamilyId)> {
        let mut connected = self.clients.iter().filter(|client| client.connected);
        connected.nth(nth).map(|client| (client.id, client.family))
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Hello { family } => self.hello(family),
            Event::Register {
                client,
                connection,
                side,
                cookie,
            } => self.register(client, connection, side, cookie),
            Event::Release { end } => self.release(end),
            Event::Lease { client } => {
                if let Some((client, _)) = self.connected(client) {
                    let lease = self.bench.registry.lease(client).unwrap().unwrap();
                    self.leases.push((lease, client));
                    let own = self.sides.iter_mut().filter(|side| side.client == client);
                    own.for_each(|side| side.leases.push(lease));
                }
            }
            Event::LeaseEnd { lease } => {
                if lease < self.leases.len() {
                    let (lease, _) = self.leases.remove(lease);
                    self.bench.registry.lease_ended(lease);
                    for side in &mut self.sides {
                        side.leases.retain(|other| *other != lease);
                    }
                }
            }
            Event::RegisterAgain { client, end } => self.register_again(client, end),
            Event::Lend {
                client,
                end,
                has_rings,
            } => self.lend(client, end, has_rings),
            Event::Adopt { client, end } => self.adopt(client, end),
            Event::Age => {
                self.bench.registry.age_loans();
                self.orphans.iter_mut().for_each(|orphan| orphan.age += 1);
                self.orphans.retain(|orphan| orphan.age <= 2);
            }
            Event::Gone { client } => self.gone(client),
        }
        self.forget_sides();
        self.check();
    }

    fn hello(&mut self, family: u64) {
        let id = self.bench.member(FamilyId(family));
        self.clients.push(ModelClient {
            id,
            family: FamilyId(family),
            connected: true,
        });
    }

    fn register(&mut self, client: usize, connection: u16, side: u8, cookie: u64) {
        let Some((client, family)) = self.connected(client) else {
            return;
        };
        // A cookie belongs to one socket, so to one key.
        let cookie = cookie << 32 | u64::from(connection) << 8 | u64::from(side);
        let endpoint = socket(connection, side, cookie);
        let token = self.ends.len() as u64;
        let rival = self.newest(&endpoint.key);
        let foreign = rival.is_some_and(|at| {
            self.ends[at].endpoint.cookie == cookie && self.ends[at].family != family
        });
        self.bench.register(client, token, endpoint);
        if foreign {
            let reason = Reason::Foreign as u32;
            let refused = MonitorMessage::Refused { token, reason };
            assert_eq!(self.bench.said(), [(client, refused)]);
            return;
        }
        for end in &mut self.ends {
            end.newest &= end.endpoint.key != endpoint.key;
        }
        let partner = self.newest(&endpoint.key.mirrored());
        self.ends.push(ModelEnd {
            client,
            family,
            token,
            endpoint,
            live: true,
            newest: true,
            granted: None,
            grants: 0,
            origin: (family, token),
            lent: Vec::new(),
        });
        self.expect_grants(self.ends.len() - 1, partner);
    }

    /// A member of the family registers an end that is known.
    fn register_again(&mut self, client: usize, at: usize) {
        let Some((client, family)) = self.connected(client) else {
            return;
        };
        let is_theirs = |end: &&mut ModelEnd| end.live && end.family == family;
        let Some(end) = self.ends.get_mut(at).filter(is_theirs) else {
            return;
        };
        let before = std::mem::replace(&mut end.client, client);
        let (token, endpoint, granted) = (end.token, end.endpoint, end.granted);
        let (cookie, origin) = (endpoint.cookie, end.origin);
        let is_idle = granted.is_none()
            && self.newest(&endpoint.key).is_none_or(|newest| {
                let other = &self.ends[newest];
                newest != at && other.endpoint.cookie == cookie && other.origin == origin
            });
        self.bench.register(client, token, endpoint);
        if is_idle {
            for end in &mut self.ends {
                end.newest &= end.endpoint.key != endpoint.key;
            }
            self.ends[at].newest = true;
            let partner = self.newest(&endpoint.key.mirrored());
            self.expect_grants(at, partner);
            return;
        }
        let actions = self.bench.registry.take_actions();
        assert_eq!(actions[0].message, MonitorMessage::Registered { token });
        let is_told = granted.is_some() && before != client;
        assert_eq!(actions.len(), 1 + usize::from(is_told));
        if is_told {
            let slot = self.expect_grant(&actions[1], at);
            assert_eq!(Some(slot), granted);
            let is_same =
                |side: &ModelSide| (side.slot, side.end, side.client) == (slot, at, client);
            if !self.sides.iter().any(is_same) {
                self.sides.push(ModelSide {
                    slot,
                    end: at,
                    client,
                    leases: Vec::new(),
                });
            }
        }
    }

    /// The live end that was registered last under a key.
    fn newest(&self, key: &EndKey) -> Option<usize> {
        let found = |end: &ModelEnd| end.live && end.newest && end.endpoint.key == *key;
        self.ends.iter().position(found)
    }

    /// The last registration was answered, and both ends have rings if there is a partner.
    fn expect_grants(&mut self, newcomer: usize, partner: Option<usize>) {
        let actions = self.bench.registry.take_actions();
        let own = &self.ends[newcomer];
        let token = own.token;
        assert_eq!(actions[0].client, own.client);
        assert_eq!(actions[0].message, MonitorMessage::Registered { token });
        let Some(partner) = partner else {
            assert_eq!(actions.len(), 1);
            return;
        };
        let is_sated = |end: usize| self.ends[end].grants >= GRANTS_PER_END;
        if is_sated(partner) || is_sated(newcomer) {
            let reason = Reason::TooOften as u32;
            assert_eq!(actions.len(), 2);
            assert_eq!(
                actions[1].message,
                MonitorMessage::Refused { token, reason }
            );
            self.ends[newcomer].newest = false;
            return;
        }
        let mut slots = Vec::new();
        for ((action, end), role) in actions[1..].iter().zip([partner, newcomer]).zip([0, 1]) {
            let MonitorMessage::Grant(grant) = action.message else {
                panic!("{action:?} is no grant");
            };
            assert_eq!(grant.role, role);
            slots.push(self.expect_grant(action, end));
        }
        assert_eq!(actions.len(), 3);
        assert_eq!(slots[0], slots[1], "both ends have the same rings");
        self.take(slots[0], [partner, newcomer]);
    }

    /// This is a grant for that end. Returns the slot.
    fn expect_grant(&mut self, action: &Action, end: usize) -> (ArenaId, u32) {
        let MonitorMessage::Grant(grant) = action.message else {
            panic!("{action:?} is no grant");
        };
        let known = &self.ends[end];
        assert_eq!((action.client, grant.token), (known.client, known.token));
        if let Some(Beside::Arena(arena)) = action.beside {
            self.arenas.insert((known.family, grant.arena), arena);
        }
        let arena = self.arenas[&(known.family, grant.arena)];
        let is_new = self.sent.insert((known.client, arena));
        assert_eq!(action.beside.is_some(), is_new, "it is sent once");
        (arena, grant.slot)
    }

    fn lend(&mut self, client: usize, end: usize, has_rings: bool) {
        let Some((client, family)) = self.connected(client) else {
            return;
        };
        let Some(known) = self.ends.get_mut(end).filter(|end| end.family == family) else {
            return;
        };
        let (token, cookie) = (known.token, known.endpoint.cookie);
        self.loans += 1;
        let member = self.loans;
        let parked = self.sides.iter().rfind(|side| side.end == end);
        let expected = match (known.live, parked) {
            (true, _) if (!has_rings || known.granted.is_some()) && known.lent.len() < 16 => {
                known.lent.push((member, has_rings));
                true
            }
            (false, Some(parked)) if has_rings => {
                let (slot, origin) = (Some(parked.slot), known.origin);
                match self
                    .orphans
                    .iter_mut()
                    .find(|orphan| orphan.cookie == cookie)
                {
                    Some(orphan) if orphan.loans.len() >= 16 => false,
                    Some(orphan) => {
                        orphan.loans.push((member, has_rings));
                        true
                    }
                    None => {
                        self.orphans.push(ModelOrphan {
                            cookie,
                            slot,
                            origin,
                            loans: vec![(member, has_rings)],
                            age: 0,
                        });
                        true
                    }
                }
            }
            _ => false,
        };
        let lent = self.bench.registry.lend(client, token, member, has_rings);
        assert_eq!(lent, expected);
        let answer = match expected {
            true => MonitorMessage::Lendable { token },
            false => MonitorMessage::Refused {
                token,
                reason: Reason::Passed as u32,
            },
        };
        assert_eq!(self.bench.said(), [(client, answer)]);
    }

    fn adopt(&mut self, client: usize, end: usize) {
        let Some((client, family)) = self.connected(client) else {
            return;
        };
        let Some(endpoint) = self.ends.get(end).map(|end| end.endpoint) else {
            return;
        };
        let token = self.ends.len() as u64;
        let found = self.take_loan(endpoint.cookie);
        self.bench
            .registry
            .adopt(client, token, Ok(endpoint))
            .unwrap();
        let actions = self.bench.registry.take_actions();
        let Some((slot, origin, member)) = found else {
            let reason = Reason::Passed as u32;
            let refused = MonitorMessage::Refused { token, reason };
            assert_eq!(actions.len(), 1);
            assert_eq!(actions[0].message, refused);
            return;
        };
        self.ends.push(ModelEnd {
            client,
            family,
            token,
            endpoint,
            live: true,
            newest: false,
            granted: slot,
            grants: usize::from(slot.is_some()),
            origin,
            lent: Vec::new(),
        });
        let MonitorMessage::Lent(loan) = actions[0].message else {
            panic!("{actions:?} do not begin with a loan");
        };
        assert_eq!(
            (loan.token, loan.original, loan.member),
            (token, origin.1, member)
        );
        assert_eq!(loan.family == 0, origin.0 == family);
        let is_new = origin.0 != family && self.slabs.insert((client, origin.0));
        assert_eq!(actions[0].beside, is_new.then_some(Beside::Slab(origin.0)));
        let end = self.ends.len() - 1;
        assert_eq!(actions.len(), 2);
        let Some(slot) = slot else {
            assert_eq!(actions[1].message, MonitorMessage::Registered { token });
            return;
        };
        assert_eq!(self.expect_grant(&actions[1], end), slot);
        self.sides.push(ModelSide {
            slot,
            end,
            client,
            leases: Vec::new(),
        });
    }

    /// What an adopter of the socket with this cookie gets.
    fn take_loan(&mut self, cookie: u64) -> Option<ModelLoan> {
        if let Some(at) = self
            .orphans
            .iter()
            .position(|orphan| orphan.cookie == cookie)
        {
            let orphan = &mut self.orphans[at];
            let (member, has_rings) = orphan.loans.pop()?;
            let slot = orphan.slot.filter(|_| has_rings);
            let found = (slot, orphan.origin, member);
            if orphan.loans.is_empty() {
                self.orphans.remove(at);
            }
            return Some(found);
        }
        let is_lender =
            |end: &&mut ModelEnd| end.live && end.endpoint.cookie == cookie && !end.lent.is_empty();
        let lender = self.ends.iter_mut().find(is_lender)?;
        let (member, has_rings) = lender.lent.pop()?;
        let slot = lender.granted.filter(|_| has_rings);
        Some((slot, lender.origin, member))
    }

    /// An end is let go; its loans stay.
    fn let_go(&mut self, end: usize) {
        let end = &mut self.ends[end];
        end.live = false;
        let (cookie, loans) = (end.endpoint.cookie, std::mem::take(&mut end.lent));
        if loans.is_empty() {
            return;
        }
        let has_rings = loans.iter().any(|loan| loan.1);
        let slot = end.granted.filter(|_| has_rings);
        if let Some(orphan) = self
            .orphans
            .iter_mut()
            .find(|orphan| orphan.cookie == cookie)
            && orphan.slot == slot
        {
            orphan.loans.extend(loans);
            return;
        }
        self.orphans.retain(|orphan| orphan.cookie != cookie);
        self.orphans.push(ModelOrphan {
            cookie,
            slot,
            origin: end.origin,
            loans,
            age: 0,
        });
    }

    fn take(&mut self, slot: (ArenaId, u32), ends: [usize; 2]) {
        let taken = self.sides.iter().find(|side| side.slot == slot);
        assert!(taken.is_none(), "{slot:?} is in use: {taken:?}");
        let memory = self.bench.registry.memory(slot.0).unwrap();
        let fresh = std::mem::replace(&mut memory.0.borrow_mut()[slot.1 as usize], false);
        assert!(fresh, "{slot:?} shows its past");
        for end in ends {
            self.ends[end].granted = Some(slot);
            self.ends[end].grants += 1;
            self.sides.push(ModelSide {
                slot,
                end,
                client: self.ends[end].client,
                leases: Vec::new(),
            });
        }
    }

    fn release(&mut self, at: usize) {
        let Some(end) = self.ends.get(at) else {
            return;
        };
        // A process that is gone says nothing.
        let says = self
            .clients
            .iter()
            .any(|c| c.id == end.client && c.connected);
        if says && end.live {
            self.bench.registry.release(end.client, end.token, 0);
            self.let_go(at);
        }
    }

    fn gone(&mut self, nth: usize) {
        let Some((id, _)) = self.connected(nth) else {
            return;
        };
        self.clients
            .iter_mut()
            .filter(|client| client.id == id)
            .for_each(|client| client.connected = false);
        for at in 0..self.ends.len() {
            if self.ends[at].client == id && self.ends[at].live {
                self.let_go(at);
            }
        }
        self.bench.registry.gone(id);
    }

    fn forget_sides(&mut self) {
        let ends = &self.ends;
        self.sides
            .retain(|side| ends[side.end].live || !side.leases.is_empty());
    }

    fn check(&mut self) {
        let lent = self.orphans.iter().filter_map(|orphan| orphan.slot);
        let slots: HashSet<_> = self
            .sides
            .iter()
            .map(|side| side.slot)
            .chain(lent)
            .collect();
        let registry = &self.bench.registry;
        assert_eq!(registry.arenas().slots_in_use(), slots.len() as u64);
        let live = self.ends.iter().filter(|end| end.live).count();
        assert_eq!(registry.ends(), live);
        assert_eq!(registry.leases(), self.leases.len());
        for slot in slots {
            assert!(
                registry.memory(slot.0).is_some(),
                "{slot:?} is in use and gone"
            );
        }
        self.check_pairs();
        let connected: Vec<_> = self
            .clients
            .iter()
            .filter(|client| client.connected)
            .map(|client| client.id)
            .collect();
        for (to, message) in self.bench.said() {
            assert!(matches!(message, MonitorMessage::Retire { .. }));
            assert!(connected.contains(&to), "{message:?} to nobody");
        }
    }

    /// Whoever has a partner shares its newest rings with it.
    fn check_pairs(&self) {
        for (at, end) in self.ends.iter().enumerate() {
            if self.newest(&end.endpoint.key) == Some(at)
                && let Some(partner) = self.newest(&end.endpoint.key.mirrored())
            {
                assert!(end.granted.is_some());
                assert_eq!(end.granted, self.ends[partner].granted);
            }
        }
    }

    /// When all are gone, nothing is left.
    fn end(mut self) {
        while self.connected(0).is_some() {
            self.happen(Event::Gone { client: 0 });
        }
        while !self.leases.is_empty() {
            self.happen(Event::LeaseEnd { lease: 0 });
        }
        for _ in 0..3 {
            self.happen(Event::Age);
        }
        assert!(self.bench.registry.is_empty());
    }
}
