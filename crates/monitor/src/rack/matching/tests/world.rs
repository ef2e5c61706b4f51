//! Two monitors without sockets, whose messages arrive whenever the test lets them, and programs
//! that do as they are told by them.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

use super::super::*;
use crate::config::Quotas;
use crate::endpoint::Endpoint;
use crate::rack::extents::Extents;
use crate::registry::{Action, Beside, ClientId, LeaseId};
use crosslane_ctl::lane::{Geometry, MIN_RING_LINES};
use crosslane_ctl::message::{ANY_LANES, MonitorMessage};

const GEOMETRY: Geometry = Geometry {
    ring_lines: MIN_RING_LINES,
    slots: 2,
};
pub const PARTS: usize = 3;
const NETNS: u64 = 9;
pub const WINDOW: OpenWindow = OpenWindow {
    id: WindowId(0),
    epoch: 5,
};

/// What a monitor holds of the window.
#[derive(Default)]
pub struct Held {
    /// The owner's book.
    pub extents: Option<Extents>,
    /// The guest's descriptors.
    pub open: BTreeMap<u32, usize>,
    /// Parts and slots that the owner has zeroed.
    punched: Vec<(u32, u32)>,
}

#[derive(Clone, Default)]
pub struct Fake(pub Rc<RefCell<Held>>);

impl Backing for Fake {
    type Memory = Option<u32>;

    fn has_room(&mut self) -> bool {
        true
    }

    fn create(&mut self, _bytes: usize) -> Option<Self::Memory> {
        Some(None)
    }

    fn punch(&mut self, memory: &Self::Memory, offset: usize, bytes: usize) -> bool {
        if let Some(part) = memory {
            let slot = u32::try_from(offset / bytes).unwrap();
            self.0.borrow_mut().punched.push((*part, slot));
        }
        true
    }

    fn create_in(&mut self, _window: WindowId) -> Option<(Self::Memory, Geometry)> {
        let part = self.0.borrow_mut().extents.as_mut()?.take()?;
        Some((Some(u32::try_from(part).unwrap()), GEOMETRY))
    }

    fn has_free_part(&self, _window: WindowId) -> bool {
        let held = self.0.borrow();
        held.extents.as_ref().is_some_and(Extents::has_free)
    }

    fn gone(&mut self, memory: Self::Memory) {
        let mut held = self.0.borrow_mut();
        let Some(part) = memory else { return };
        match &mut held.extents {
            Some(extents) => extents.put_back(usize::try_from(part).unwrap()),
            None => *held.open.get_mut(&part).unwrap() -= 1,
        }
    }

    fn place(&self, memory: &Self::Memory) -> Option<(WindowId, u32)> {
        memory.map(|part| (WINDOW.id, part))
    }

    fn import(&mut self, _window: WindowId, part: u32) -> Option<(Self::Memory, Geometry)> {
        *self.0.borrow_mut().open.entry(part).or_default() += 1;
        Some((Some(part), GEOMETRY))
    }
}

/// A side of a connection that a program has registered.
#[derive(Clone)]
pub struct ProgramEnd {
    pub connection: u16,
    /// Part, slot and role of all that it has been granted, and may be using.
    lanes: Vec<(u32, u32, u32)>,
    /// So many of them were there when children were forked, who may be using them, too.
    shared: usize,
}

pub struct Monitor {
    at: usize,
    pub registry: Registry<Fake>,
    pub held: Fake,
    pub matching: Matching,
    next_client: u64,
    next_cookie: u64,
    /// By process and token.
    pub ends: BTreeMap<(u64, u64), ProgramEnd>,
    /// Which part each process maps under which number.
    maps: HashMap<(u64, u32), u32>,
    pub denied: Vec<(u64, Reason)>,
    /// Ends whose lanes were taken back.
    pub taken_back: Vec<u64>,
    /// Forked children, and what they use of what their parents have closed.
    children: Vec<(u64, LeaseId)>,
    inherited: Vec<ProgramEnd>,
    inherited_maps: Vec<u32>,
    inbox: VecDeque<HostMessage>,
}

fn config(at: usize, quota: usize) -> RackConfig {
    let (own, other) = [("alpha", "beta"), ("beta", "alpha")][at];
    let print = "0".repeat(64);
    let text = format!(
        "name = \"{own}\"\nconnections_per_user = {quota}\n[[host]]\nname = \"{other}\"\n\
         address = \"10.0.0.{}\"\nfingerprint = \"sha256:{print}\"\n[[allow]]\nusers = [1]\n",
        2 - at
    );
    RackConfig::parse(Path::new("/rack.toml"), &text).unwrap()
}

impl Monitor {
    /// `rack.toml` is read again, and is what `change` makes of it.
    pub fn reload(&mut self, change: impl FnOnce(&mut RackConfig)) {
        let mut new = config(self.at, 9);
        change(&mut new);
        let mut renewed = (*self.matching.config).clone();
        renewed.renew(new);
        let program = |_| "program".to_owned();
        let config = Arc::new(renewed);
        self.matching.renew(&mut self.registry, config, program);
    }

    pub fn new(at: usize, quota: usize) -> Self {
        let held = Fake::default();
        held.0.borrow_mut().extents = (at == 0).then(|| Extents::unknown(PARTS));
        let geometry = Geometry::default();
        let mut registry = Registry::new(held.clone(), geometry, Quotas::default());
        registry.join_rack();
        Self {
            at,
            registry,
            held,
            matching: Matching::new(Arc::new(config(at, quota)), NETNS),
            next_client: 0,
            next_cookie: 0,
            ends: BTreeMap::new(),
            maps: HashMap::new(),
            denied: Vec::new(),
            taken_back: Vec::new(),
            children: Vec::new(),
            inherited: Vec::new(),
            inherited_maps: Vec::new(),
            inbox: VecDeque::new(),
        }
    }

    pub fn hello(&mut self, uid: u32) -> u64 {
        self.next_client += 1;
        let number = self.next_client;
        self.registry.hello(ClientId(number), FamilyId(number), uid);
        number
    }

    /// A process registers its side of a connection.
    pub fn register(&mut self, client: u64, connection: u16) -> u64 {
        self.next_cookie += 1;
        let token = self.next_cookie;
        let endpoint = self.endpoint(connection, token);
        let end = ProgramEnd {
            connection,
            lanes: Vec::new(),
            shared: 0,
        };
        self.ends.insert((client, token), end);
        let id = ClientId(client);
        self.registry.register(id, token, Ok(endpoint)).unwrap();
        token
    }

    fn endpoint(&self, connection: u16, cookie: u64) -> Endpoint {
        let name = |at: usize, port: u16| -> SocketAddr {
            format!("10.0.0.{}:{port}", at + 1).parse().unwrap()
        };
        let ports = [7000, 40_000 + connection];
        let local = name(self.at, ports[self.at]);
        let remote = name(1 - self.at, ports[1 - self.at]);
        Endpoint {
            key: EndKey::new(NETNS, local, remote),
            cookie,
            device: 0,
        }
    }

    /// A forked child of a process registers what that has registered. Returns the lanes that it is granted at once.
    pub fn register_in_child(&mut self, parent: u64, token: u64, connection: u16) -> Option<u64> {
        self.next_client += 1;
        let child = ClientId(self.next_client);
        self.registry.hello(child, FamilyId(parent), 1);
        let endpoint = self.endpoint(connection, token);
        self.registry.register(child, token, Ok(endpoint)).unwrap();
        let granted = |action: &Action| match action.message {
            MonitorMessage::Grant(grant) if action.client == child => Some(grant.pair),
            _ => None,
        };
        self.registry.take_actions().iter().find_map(granted)
    }

    pub fn fork(&mut self, client: u64) {
        if let Ok(Some(lease)) = self.registry.lease(ClientId(client)) {
            self.children.push((client, lease));
            let ends = &mut self.ends;
            for end in ends.iter_mut().filter(|(of, _)| of.0 == client) {
                end.1.shared = end.1.lanes.len();
            }
            let maps = self.maps.iter().filter(|(of, _)| of.0 == client);
            self.inherited_maps.extend(maps.map(|(_, part)| *part));
        }
    }

    pub fn end_children(&mut self) {
        self.inherited.clear();
        self.inherited_maps.clear();
        self.ends.values_mut().for_each(|end| end.shared = 0);
        for (_, lease) in std::mem::take(&mut self.children) {
            self.registry.lease_ended(lease);
        }
    }

    /// The parent is done with an end; children may not be.
    fn bequeath(&mut self, mut end: ProgramEnd) {
        end.lanes.truncate(end.shared);
        self.inherited.push(end);
    }

    pub fn release(&mut self, client: u64, token: u64) {
        if let Some(end) = self.ends.remove(&(client, token)) {
            self.bequeath(end);
        }
        self.registry.release(ClientId(client), token, ANY_LANES);
    }

    pub fn kill(&mut self, client: u64) {
        let theirs = |of: &(u64, u64)| of.0 == client;
        let gone: Vec<_> = self.ends.keys().copied().filter(theirs).collect();
        for key in gone {
            if let Some(end) = self.ends.remove(&key) {
                self.bequeath(end);
            }
        }
        self.maps.retain(|(of, _), _| *of != client);
        self.registry.gone(ClientId(client));
    }

    /// Ends that some process uses.
    fn living(&self) -> impl Iterator<Item = &ProgramEnd> {
        self.ends.values().chain(&self.inherited)
    }

    /// Whether processes of this host map a part or its monitor holds it.
    fn uses(&self, part: usize) -> bool {
        let part = u32::try_from(part).unwrap();
        let is_open = self.held.0.borrow().open.get(&part).is_some_and(|n| *n > 0);
        let mut mapped = self.maps.values().chain(&self.inherited_maps);
        is_open || mapped.any(|mapped| *mapped == part)
    }

    /// Do what the registry and the matching want done. Returns what is for the other host.
    pub fn settle(&mut self) -> Vec<HostMessage> {
        let mut messages = Vec::new();
        loop {
            let notices = self.registry.take_notices();
            let actions = self.registry.take_actions();
            if notices.is_empty() && actions.is_empty() {
                break;
            }
            for notice in notices {
                let program = |_| "program".to_owned();
                self.matching.notice(&mut self.registry, notice, program);
            }
            for action in actions {
                self.act(action.client.0, &action.message, action.beside);
            }
            self.matching.meet_short(&mut self.registry);
        }
        messages.extend(self.matching.take_messages().into_iter().map(|m| m.1));
        messages
    }

    fn act(&mut self, client: u64, message: &MonitorMessage, beside: Option<Beside>) {
        match message {
            MonitorMessage::Grant(grant) => {
                if let Some(Beside::Arena(arena)) = beside
                    && let Some((_, part)) = self.registry.arenas().place(arena)
                {
                    self.maps.insert((client, grant.arena), part);
                }
                let part = self.maps.get(&(client, grant.arena));
                let end = self.ends.get_mut(&(client, grant.token));
                if let (Some(part), Some(end)) = (part, end) {
                    end.lanes.push((*part, grant.slot, grant.role));
                }
            }
            MonitorMessage::Retire { arena } => {
                self.maps.remove(&(client, *arena));
            }
            MonitorMessage::Refused { token, reason } => {
                self.denied
                    .push((*token, Reason::from_code(*reason).unwrap()));
            }
            MonitorMessage::WindowLost { token, .. } => self.taken_back.push(*token),
            _ => {}
        }
    }
}

/// Both hosts and what is under way between them.
pub struct World {
    pub hosts: [Monitor; 2],
    pub is_up: bool,
}

impl World {
    pub fn new(quota: usize) -> Self {
        Self::with_quotas([quota; 2])
    }

    pub fn with_quotas(quotas: [usize; 2]) -> Self {
        Self {
            hosts: [0, 1].map(|at| Monitor::new(at, quotas[at])),
            is_up: false,
        }
    }

    pub fn connect(&mut self) {
        if std::mem::replace(&mut self.is_up, true) {
            return;
        }
        self.probe();
        for at in [1, 0] {
            let host = &mut self.hosts[at];
            let other = HostId(0);
            host.matching
                .window_opened(&mut host.registry, other, WINDOW);
            self.settle(at);
        }
    }

    pub fn disconnect(&mut self) {
        if !std::mem::replace(&mut self.is_up, false) {
            return;
        }
        for at in 0..2 {
            let host = &mut self.hosts[at];
            host.inbox.clear();
            host.matching.session_lost(&mut host.registry, HostId(0));
        }
        for at in 0..2 {
            self.settle(at);
            self.hosts[at].inbox.clear();
        }
    }

    /// What the owner does while parts are in quarantine.
    pub fn probe(&mut self) {
        let [owner, guest] = &mut self.hosts;
        let mut extents = owner.held.0.borrow_mut().extents.take().unwrap();
        extents.ask(|_| true);
        extents.answer(|part| guest.uses(part), |part| owner.uses(part), |_| true);
        owner.held.0.borrow_mut().extents = Some(extents);
        owner.matching.room_has_come();
        owner.matching.meet_short(&mut owner.registry);
    }

    pub fn settle(&mut self, at: usize) {
        let messages = self.hosts[at].settle();
        // What the guest will be granted in their place is under way yet.
        let punched = std::mem::take(&mut self.hosts[0].held.0.borrow_mut().punched);
        for (part, slot, _) in self.hosts[1].living().flat_map(|end| &end.lanes) {
            let is_zeroed = punched.contains(&(*part, *slot));
            assert!(
                !is_zeroed,
                "{part} {slot} is zeroed while the guest uses it"
            );
        }
        if self.is_up {
            self.hosts[1 - at].inbox.extend(messages);
        }
        self.check();
    }

    /// Let one message arrive.
    pub fn deliver(&mut self, at: usize) -> bool {
        let host = &mut self.hosts[at];
        let Some(message) = host.inbox.pop_front() else {
            return false;
        };
        let heard = host.matching.hear(&mut host.registry, HostId(0), &message);
        assert_eq!(heard, Ok(()), "{message:?}");
        self.settle(at);
        true
    }

    pub fn deliver_all(&mut self) {
        while self.deliver(0) || self.deliver(1) {}
    }

    /// No two ends that live have the same lanes, but the two of one connection.
    fn check(&self) {
        let mut holders = HashMap::new();
        for (at, host) in self.hosts.iter().enumerate() {
            for end in host.living() {
                for (part, slot, role) in end.lanes.iter().copied() {
                    assert_eq!(usize::try_from(role), Ok(at), "the owner's role is 0");
                    let before = holders.insert((part, slot, role), end.connection);
                    assert_eq!(before, None, "{part} {slot} {role} is held twice");
                    let other = holders.get(&(part, slot, 1 - role));
                    let is_mate = other.is_none_or(|other| *other == end.connection);
                    assert!(is_mate, "{part} {slot} is shared by strangers");
                }
            }
        }
    }

    pub fn paired(&self, connection: u16) -> bool {
        let lanes = |host: &Monitor| {
            let mut ends = host.ends.values();
            let end = ends.find(|end| end.connection == connection)?;
            end.lanes.last().map(|(part, slot, _)| (*part, *slot))
        };
        let [owner, guest] = &self.hosts;
        lanes(owner).is_some() && lanes(owner) == lanes(guest)
    }
}
