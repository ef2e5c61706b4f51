//! A registry with memory that is none, and the model that it is compared with.

pub mod event;
pub mod model;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crosslane_ctl::lane::{Geometry, MIN_RING_LINES};
use crosslane_ctl::layout::{Layout, Range};
use crosslane_ctl::message::{Grant, MonitorMessage};
use crosslane_monitor::arenas::{Backing, WindowId};
use crosslane_monitor::config::Quotas;
use crosslane_monitor::endpoint::{EndKey, Endpoint};
use crosslane_monitor::registry::{ClientId, FamilyId, Registry};

pub const GEOMETRY: Geometry = Geometry {
    ring_lines: MIN_RING_LINES,
    slots: 2,
};

/// Memory that only remembers which slots are as new, and in which window it is.
#[derive(Clone, Debug, Default)]
pub struct Slots(pub Rc<RefCell<Vec<bool>>>, Option<WindowId>);

/// Memory without memory; `left` says how many more arenas there may be.
pub struct Fake {
    left: usize,
    punching_works: Rc<Cell<bool>>,
    flags_set: FlagsSet,
}

/// Flags that were set, with where.
pub type FlagsSet = Rc<RefCell<Vec<(usize, u32)>>>;

impl Backing for Fake {
    type Memory = Slots;

    fn has_room(&mut self) -> bool {
        true
    }

    fn create(&mut self, bytes: usize) -> Option<Slots> {
        assert_eq!(bytes, Layout::Parted.arena_bytes(&GEOMETRY));
        self.left = self.left.checked_sub(1)?;
        Some(Slots(Rc::new(RefCell::new(vec![true; 2])), None))
    }

    fn punch(&mut self, memory: &Slots, offset: usize, bytes: usize) -> bool {
        let slot = [0, 1].into_iter().find(|slot| {
            let [own, beyond] = Layout::Parted.slot(&GEOMETRY, *slot);
            assert_eq!(beyond.bytes, 0, "rings as short as this have nothing there");
            own == Range { offset, bytes }
        });
        let slot = slot.expect("what is given back is a slot");
        memory.0.borrow_mut()[slot as usize] = true;
        self.punching_works.get()
    }

    fn set_flags(&mut self, _memory: &Slots, offset: usize, flags: u32) {
        self.flags_set.borrow_mut().push((offset, flags));
    }

    fn create_in(&mut self, window: WindowId) -> Option<(Slots, Geometry)> {
        let slots = Rc::new(RefCell::new(vec![true; 2]));
        Some((Slots(slots, Some(window)), GEOMETRY))
    }

    fn place(&self, memory: &Slots) -> Option<(WindowId, u32)> {
        Some((memory.1?, 0))
    }
}

/// A registry and short words for talking to it.
pub struct Bench {
    pub registry: Registry<Fake>,
    pub punching_works: Rc<Cell<bool>>,
    pub flags_set: FlagsSet,
    clients: u64,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(Quotas::default(), usize::MAX)
    }

    pub fn with(quotas: Quotas, arenas: usize) -> Self {
        let punching_works = Rc::new(Cell::new(true));
        let flags_set = FlagsSet::default();
        let fake = Fake {
            left: arenas,
            punching_works: Rc::clone(&punching_works),
            flags_set: Rc::clone(&flags_set),
        };
        Self {
            registry: Registry::new(fake, GEOMETRY, quotas),
            punching_works,
            flags_set,
            clients: 0,
        }
    }

    /// A new process with a slab of its own.
    pub fn process(&mut self) -> ClientId {
        self.member(FamilyId(1000 + self.clients))
    }

    /// A new process with this slab.
    pub fn member(&mut self, family: FamilyId) -> ClientId {
        let client = ClientId(self.clients);
        self.clients += 1;
        self.registry.hello(client, family, 1);
        assert_eq!(self.said(), [(client, MonitorMessage::Welcome)]);
        client
    }

    pub fn register(&mut self, client: ClientId, token: u64, socket: Endpoint) {
        self.registry.register(client, token, Ok(socket)).unwrap();
    }

    pub fn said(&mut self) -> Vec<(ClientId, MonitorMessage)> {
        let actions = self.registry.take_actions();
        actions
            .into_iter()
            .map(|action| (action.client, action.message))
            .collect()
    }

    /// Grants said since the last look.
    pub fn grants(&mut self) -> Vec<(ClientId, Grant)> {
        self.said()
            .into_iter()
            .filter_map(|(client, message)| match message {
                MonitorMessage::Grant(grant) => Some((client, grant)),
                _ => None,
            })
            .collect()
    }
}

/// One side of connection `number`, as the socket with this cookie.
pub fn socket(number: u16, side: u8, cookie: u64) -> Endpoint {
    let here = ([127, 0, 0, 1], 10_000 + number).into();
    let there = ([127, 0, 0, 1], 80).into();
    let key = match side {
        0 => EndKey::new(1, here, there),
        _ => EndKey::new(1, there, here),
    };
    Endpoint {
        key,
        cookie,
        device: 0,
    }
}
