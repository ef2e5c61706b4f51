//! Who is connected to whom: the monitor's whole state about ends, without a descriptor or a
//! system call in it. Messages come in as method calls; what has to be said to clients goes out
//! through [`Registry::take_actions`].
//!
//! - `register`: a new end, its partner, the grant for both;
//! - `release`: how ends and processes go, and leases that outlive both;
//! - `lend`: ends whose sockets go to other processes;
//! - `rack`: ends whose other end is on another host.

mod lend;
pub mod rack;
mod register;
mod release;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crosslane_ctl::lane::Geometry;
use crosslane_ctl::message::MonitorMessage;
use thiserror::Error;

use crate::arenas::{ArenaId, Arenas, Backing, Side};
use crate::config::Quotas;
use crate::endpoint::EndKey;
use crate::matcher::{EndId, Matcher};

/// A process that has said Hello, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// Processes that share a slab: a program and its forked children. They share all of their
/// connections, so for the monitor they are one party.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FamilyId(pub u64);

impl FamilyId {
    /// As adopters are told; not 0.
    fn number(self) -> u32 {
        u32::try_from(self.0 % u64::from(u32::MAX)).unwrap_or(0) + 1
    }

    /// A family on another host; the server numbers its own from below.
    pub fn stranger(number: u64) -> Self {
        Self(Self::FIRST_STRANGER | number)
    }

    fn is_stranger(self) -> bool {
        self.0 >= Self::FIRST_STRANGER
    }

    const FIRST_STRANGER: u64 = 1 << 63;
}

/// A lease, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(pub u64);

/// What the registry wants to be said.
#[derive(Debug)]
pub struct Action {
    /// To whom.
    pub client: ClientId,
    /// What.
    pub message: MonitorMessage,
    /// What goes beside it.
    pub beside: Option<Beside>,
}

/// A memory object whose descriptor is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// That of an arena.
    Arena(ArenaId),
    /// The other host's, of an arena of which each host has its own.
    Beyond(ArenaId),
    /// The slab of a family that lends.
    Slab(FamilyId),
}

/// Lanes that one end may be granted before it is closed: more than once only while dead sockets of its peer's names are
/// known, or where a peer registers again and again.
pub const GRANTS_PER_END: usize = 16;

/// How a client broke the protocol; it is disconnected for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// The token names another socket already.
    #[error("token {0:#x} is in use for another socket")]
    TokenInUse(u64),
    /// More leases than allowed.
    #[error("more than {0} leases")]
    Leases(usize),
}

struct End {
    client: ClientId,
    family: FamilyId,
    token: u64,
    key: EndKey,
    cookie: u64,
    device: u32,
    /// Sides that this end may use; the newest is last.
    grants: Vec<Granted>,
    /// Where its cursors are.
    origin: lend::Origin,
    /// The members as which it may be adopted.
    lent: Vec<lend::Loaned>,
}

/// A side of a slot, and to which process it was granted when.
#[derive(Clone, Copy)]
struct Granted {
    seq: GrantSeq,
    side: Side,
    to: ClientId,
    /// The other host has been told that nobody is there: nobody may come there any more.
    is_void: bool,
    /// Who has been told that the window is lost: once, as there may be more ends than words that wait for a program.
    told_of_loss: Option<ClientId>,
}

impl Granted {
    fn new(seq: GrantSeq, side: Side, to: ClientId) -> Self {
        Self {
            seq,
            side,
            to,
            is_void: false,
            told_of_loss: None,
        }
    }
}

/// Counts grants and leases together, to know which came first.
type GrantSeq = u64;

struct Client {
    family: FamilyId,
    uid: u32,
    /// The control connection is still there.
    connected: bool,
    ends: HashSet<EndId>,
    /// Arenas whose descriptor this process has been sent.
    sent: HashSet<ArenaId>,
    /// Families whose slab it has been sent.
    slabs: HashSet<FamilyId>,
    leases: BTreeSet<GrantSeq>,
    /// How many of those there have been that were too many.
    last_leases: usize,
    /// Sides that were released while a lease was younger than their grant.
    parked: BTreeMap<GrantSeq, Parked>,
}

/// A side without its end, which forked children may be using.
struct Parked {
    side: Side,
    token: u64,
    cookie: u64,
    origin: lend::Origin,
}

/// What one user makes the monitor keep.
#[derive(Default, PartialEq, Eq)]
struct User {
    ends: usize,
    parked: usize,
    leases: usize,
}

/// Numbers for `crosslane stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Registrations that were accepted.
    pub registered: u64,
    /// Pairs that were given rings.
    pub paired: u64,
    /// Registrations that were refused.
    pub refused: u64,
}

/// See the module's description.
pub struct Registry<B: Backing> {
    quotas: Quotas,
    matcher: Matcher,
    arenas: Arenas<B>,
    ends: HashMap<EndId, End>,
    by_token: HashMap<(FamilyId, u64), EndId>,
    clients: HashMap<ClientId, Client>,
    families: HashMap<FamilyId, HashSet<ClientId>>,
    leases: HashMap<LeaseId, (ClientId, GrantSeq)>,
    users: HashMap<u32, User>,
    orphans: lend::Orphans,
    lenders: lend::Lenders,
    next_end: u64,
    next_lease: u64,
    next_seq: GrantSeq,
    totals: Totals,
    actions: Vec<Action>,
    /// For the rack; `None` where there is none.
    notices: Option<Vec<rack::Notice>>,
}

impl<B: Backing> Registry<B> {
    /// An empty registry.
    pub fn new(backing: B, geometry: Geometry, quotas: Quotas) -> Self {
        Self {
            quotas,
            matcher: Matcher::default(),
            arenas: Arenas::new(backing, geometry),
            ends: HashMap::new(),
            by_token: HashMap::new(),
            clients: HashMap::new(),
            families: HashMap::new(),
            leases: HashMap::new(),
            users: HashMap::new(),
            orphans: HashMap::new(),
            lenders: BTreeSet::new(),
            next_end: 0,
            next_lease: 0,
            next_seq: 0,
            totals: Totals::default(),
            actions: Vec::new(),
            notices: None,
        }
    }

    /// A process has said Hello.
    pub fn hello(&mut self, client: ClientId, family: FamilyId, uid: u32) {
        self.families.entry(family).or_default().insert(client);
        let state = Client {
            family,
            uid,
            connected: true,
            ends: HashSet::new(),
            sent: HashSet::new(),
            slabs: HashSet::new(),
            leases: BTreeSet::new(),
            last_leases: 0,
            parked: BTreeMap::new(),
        };
        self.clients.insert(client, state);
        self.say(client, MonitorMessage::Welcome);
    }

    /// Whether the family has processes, or forked children that may use what it was granted.
    pub fn knows(&self, family: FamilyId) -> bool {
        self.families.contains_key(&family)
    }

    /// What has to be said since the last call, in order.
    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// The memory of an arena.
    pub fn memory(&self, id: ArenaId) -> Option<&B::Memory> {
        self.arenas.memory(id)
    }

    /// The connection of a registered end.
    pub fn key_of(&self, family: FamilyId, token: u64) -> Option<&EndKey> {
        let id = self.by_token.get(&(family, token))?;
        self.ends.get(id).map(|end| &end.key)
    }

    /// What has happened so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Ends that are registered.
    pub fn ends(&self) -> usize {
        self.ends.len()
    }

    /// Leases that are held.
    pub fn leases(&self) -> usize {
        self.leases.len()
    }

    /// Whether nobody is known and nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
            && self.families.is_empty()
            && self.users.is_empty()
            && self.ends.is_empty()
            && self.by_token.is_empty()
            && self.matcher.is_empty()
            && self.leases.is_empty()
            && self.orphans.is_empty()
            && self.lenders.is_empty()
            && self.arenas.is_empty()
    }

    /// The arenas.
    pub fn arenas(&self) -> &Arenas<B> {
        &self.arenas
    }

    fn say(&mut self, client: ClientId, message: MonitorMessage) {
        self.actions.push(Action {
            client,
            message,
            beside: None,
        });
    }

    /// Tell the survivors of pairs which arenas will not be named again.
    fn retire_dropped(&mut self) {
        for dropped in self.arenas.take_dropped() {
            for (family, arena) in dropped.parties {
                if family.is_stranger() {
                    self.notice(rack::Notice::Retired(dropped.id));
                    continue;
                }
                let members = self.families.get(&family).cloned().unwrap_or_default();
                for client in members {
                    let Some(state) = self.clients.get_mut(&client) else {
                        continue;
                    };
                    if state.sent.remove(&dropped.id) && state.connected {
                        self.say(client, MonitorMessage::Retire { arena });
                    }
                }
            }
        }
    }

    /// Count something for or against the user of a process.
    fn charge(&mut self, client: ClientId, count: impl FnOnce(&mut User)) {
        let Some(uid) = self.clients.get(&client).map(|client| client.uid) else {
            return;
        };
        let user = self.users.entry(uid).or_default();
        count(user);
        if *user == User::default() {
            self.users.remove(&uid);
        }
    }

    /// Whether an end has been granted as many lanes as it may.
    pub fn is_sated(&self, id: EndId) -> bool {
        let grants = self.ends.get(&id).map(|end| &end.grants);
        grants.is_some_and(|grants| {
            // Several processes of a family may have been granted the same.
            let sides: HashSet<Side> = grants.iter().map(|granted| granted.side).collect();
            sides.len() >= GRANTS_PER_END
        })
    }

    fn next_seq(&mut self) -> GrantSeq {
        self.next_seq += 1;
        self.next_seq
    }
}
