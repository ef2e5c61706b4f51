//! The memory of rings: which arenas there are, who may map them, which slots are taken.
//!
//! A slot is free, or held by one or both of its sides. It is given back to the kernel, and so
//! zeroed, when the second side leaves, and only then used again.

mod source;

use std::collections::{HashMap, HashSet};
use std::mem::offset_of;

use crosslane_ctl::lane::receiver_flags::DIED;
use crosslane_ctl::lane::{Geometry, LaneControl, Location};
use crosslane_ctl::layout::{Layout, Range};

use crate::registry::FamilyId;

pub use source::Backing;

/// An arena in the monitor, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ArenaId(pub u64);

/// A window to another host, as the monitor numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WindowId(pub u32);

/// One side of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Side {
    /// The arena.
    pub arena: ArenaId,
    /// The slot in it.
    pub slot: u32,
    /// 0 or 1.
    pub role: u32,
}

/// A side in a window that nobody here uses any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Which.
    pub side: Side,
    /// What was there, as [`Arenas::pair_name`] has it.
    pub pair: u64,
    /// Whether the end that it was given to may have used it.
    pub was_used: bool,
    /// Whether its program has said so, which may go on otherwise, without us.
    pub is_told: bool,
}

#[derive(Debug)]
struct Arena<M> {
    memory: M,
    geometry: Geometry,
    origin: Origin,
    pair: Pair,
    numbers: [u32; 2],
    /// Families that have adopted an end in it, with their numbers for it.
    guests: Vec<(FamilyId, u32)>,
    free: Vec<u32>,
    /// Sides that are held, one bit per role.
    held: Vec<u8>,
    slots_in_use: u32,
    /// How both hosts name what is in each slot, where the arena is in a window.
    pairs: Vec<u64>,
    /// One of the parties is gone: no slot is handed out any more.
    retired: bool,
}

/// Who else has a say in an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// Both parties are on this host.
    Host,
    /// It is in a window; the other party is on the other host, which asks us for slots.
    Shared,
    /// It is in a window, and the other host's monitor deals out its slots.
    Imported,
}

/// The two parties in a fixed order; both may be the same.
type Pair = [FamilyId; 2];

fn pair_of(a: FamilyId, b: FamilyId) -> Pair {
    if a <= b { [a, b] } else { [b, a] }
}

/// All arenas of the monitor.
#[derive(Debug)]
pub struct Arenas<B: Backing> {
    backing: B,
    geometry: Geometry,
    arenas: HashMap<ArenaId, Arena<B::Memory>>,
    /// Arenas of a pair that have a free slot.
    open: HashMap<Pair, Vec<ArenaId>>,
    of_family: HashMap<FamilyId, Numbering>,
    /// How many hold a side beside its first holder, where any do.
    shared: HashMap<Side, u32>,
    dropped: Vec<Dropped>,
    left: Vec<Left>,
    next: u64,
    slots_in_use: u64,
}

/// An arena that is no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Its name here.
    pub id: ArenaId,
    /// Who could map it, and the number by which each knows it.
    pub parties: Vec<(FamilyId, u32)>,
}

#[derive(Debug, Default)]
struct Numbering {
    arenas: HashSet<ArenaId>,
    next: u32,
}

impl<B: Backing> Arenas<B> {
    /// No arena yet; all will be cut by `geometry`.
    pub fn new(backing: B, geometry: Geometry) -> Self {
        Self {
            backing,
            geometry,
            arenas: HashMap::new(),
            open: HashMap::new(),
            of_family: HashMap::new(),
            shared: HashMap::new(),
            dropped: Vec::new(),
            left: Vec::new(),
            next: 0,
            slots_in_use: 0,
        }
    }

    /// How an arena is cut, and where it lies behind its descriptor.
    pub fn shape(&self, id: ArenaId) -> Option<(Geometry, Location)> {
        let arena = self.arenas.get(&id)?;
        Some((arena.geometry, self.backing.location(&arena.memory)))
    }

    /// Both hosts call what is in the slot by this name.
    pub fn name_pair(&mut self, side: Side, pair: u64) {
        let pairs = self
            .arenas
            .get_mut(&side.arena)
            .map(|arena| &mut arena.pairs);
        if let Some(name) = pairs.and_then(|pairs| pairs.get_mut(side.slot as usize)) {
            *name = pair;
        }
    }

    /// How both hosts call what is in the slot; 0 within one host.
    pub fn pair_name(&self, side: Side) -> u64 {
        let pairs = self.arenas.get(&side.arena).map(|arena| &arena.pairs);
        pairs
            .and_then(|pairs| pairs.get(side.slot as usize))
            .copied()
            .unwrap_or(0)
    }

    /// The arena with the lanes of this name, until they are another connection's.
    pub fn arena_of_pair(&self, pair: u64) -> Option<ArenaId> {
        let mut arenas = self.arenas.iter().filter(|_| pair != 0);
        let found = arenas.find(|(_, arena)| arena.pairs.contains(&pair));
        found.map(|(id, _)| *id)
    }

    /// The lanes that both hosts have a name for, and their windows.
    pub fn named(&self) -> impl Iterator<Item = (u64, WindowId)> {
        self.arenas.iter().flat_map(|(id, arena)| {
            let window = self.place(*id).map(|place| place.0);
            let named = arena.pairs.iter().filter(|pair| **pair != 0);
            named.filter_map(move |pair| Some((*pair, window?)))
        })
    }

    /// Whether a side is in a window that was lost.
    pub fn is_lost(&self, side: Side) -> bool {
        let arena = self.arenas.get(&side.arena);
        arena.is_some_and(|arena| arena.origin != Origin::Host && arena.retired)
    }

    /// The window in which an arena is and which part of it, if it is in one.
    pub fn place(&self, id: ArenaId) -> Option<(WindowId, u32)> {
        self.backing.place(&self.arenas.get(&id)?.memory)
    }

    /// Where memory comes from.
    pub fn memories(&self) -> &B {
        &self.backing
    }

    /// The same, to be changed.
    pub fn backing(&mut self) -> &mut B {
        &mut self.backing
    }

    /// Arenas there are.
    pub fn len(&self) -> usize {
        self.arenas.len()
    }

    /// Whether there is no arena.
    pub fn is_empty(&self) -> bool {
        self.arenas.is_empty()
    }

    /// Slots of which at least one side is held.
    pub fn slots_in_use(&self) -> u64 {
        self.slots_in_use
    }

    /// Arenas that a family may map.
    fn of_family(&self, family: FamilyId) -> usize {
        self.of_family
            .get(&family)
            .map_or(0, |own| own.arenas.len())
    }

    /// The memory of an arena.
    pub fn memory(&self, id: ArenaId) -> Option<&B::Memory> {
        self.arenas.get(&id).map(|arena| &arena.memory)
    }

    /// The number by which a family knows an arena.
    pub fn number(&self, id: ArenaId, family: FamilyId) -> Option<u32> {
        let arena = self.arenas.get(&id)?;
        match arena.pair.iter().position(|party| *party == family) {
            Some(party) => arena.numbers.get(party).copied(),
            None => {
                let guest = arena.guests.iter().find(|guest| guest.0 == family)?;
                Some(guest.1)
            }
        }
    }

    /// Take a slot between two families, both sides held, in an arena that exists or a new one;
    /// `None` where memory is short, or where one of them may map `most` arenas already.
    pub fn take(&mut self, a: FamilyId, b: FamilyId, most: usize) -> Option<[Side; 2]> {
        if !self.backing.has_room() {
            return None;
        }
        let pair = pair_of(a, b);
        let id = match self.open.get(&pair).and_then(|open| open.last()) {
            Some(id) => *id,
            None if pair.iter().any(|party| self.of_family(*party) >= most) => return None,
            None => self.create(pair)?,
        };
        self.take_slot(pair, id)
    }

    /// Whether two families have a free slot, or could have a piece of one of these windows.
    pub fn may_take_in(
        &self,
        mut windows: impl Iterator<Item = WindowId>,
        (own, stranger): (FamilyId, FamilyId),
    ) -> bool {
        self.open.contains_key(&pair_of(own, stranger))
            || windows.any(|window| self.backing.has_free_part(window))
    }

    /// The same in a window, where `stranger` is a family on the other host.
    pub fn take_in(
        &mut self,
        window: WindowId,
        own: FamilyId,
        stranger: FamilyId,
        most: usize,
    ) -> Option<[Side; 2]> {
        let pair = pair_of(own, stranger);
        let of_window = |id: &&ArenaId| self.place(**id).is_some_and(|place| place.0 == window);
        let open = self.open.get(&pair);
        let id = match open.and_then(|open| open.iter().rev().find(of_window)) {
            Some(id) => *id,
            None if self.of_family(own) >= most => return None,
            None => {
                let (memory, geometry) = self.backing.create_in(window)?;
                self.enter(pair, memory, geometry, Origin::Shared)
            }
        };
        self.take_slot(pair, id)
    }

    fn take_slot(&mut self, pair: Pair, id: ArenaId) -> Option<[Side; 2]> {
        let arena = self.arenas.get_mut(&id)?;
        let slot = arena.free.pop()?;
        *arena.held.get_mut(slot as usize)? = 0b11;
        arena.slots_in_use += 1;
        self.slots_in_use += 1;
        if arena.free.is_empty() {
            self.close(pair, id);
        }
        Some([0, 1].map(|role| Side {
            arena: id,
            slot,
            role,
        }))
    }

    fn create(&mut self, pair: Pair) -> Option<ArenaId> {
        let geometry = self.geometry;
        let memory = self.backing.create(Layout::Parted.arena_bytes(&geometry))?;
        Some(self.enter(pair, memory, geometry, Origin::Host))
    }

    fn enter(
        &mut self,
        pair: Pair,
        memory: B::Memory,
        geometry: Geometry,
        origin: Origin,
    ) -> ArenaId {
        let id = ArenaId(self.next);
        self.next += 1;
        let first = self.number_for(pair[0], id);
        let second = match pair[0] == pair[1] {
            true => first,
            false => self.number_for(pair[1], id),
        };
        let is_ours = origin != Origin::Imported;
        let arena = Arena {
            memory,
            geometry,
            origin,
            pair,
            numbers: [first, second],
            guests: Vec::new(),
            free: (0..geometry.slots).rev().filter(|_| is_ours).collect(),
            held: vec![0; geometry.slots as usize],
            slots_in_use: 0,
            pairs: vec![0; geometry.slots as usize],
            retired: false,
        };
        self.arenas.insert(id, arena);
        if is_ours {
            self.open.entry(pair).or_default().push(id);
        }
        id
    }

    /// Enter an arena of a window whose slots the other host deals out.
    pub fn import(&mut self, family: FamilyId, memory: B::Memory, geometry: Geometry) -> ArenaId {
        self.enter([family; 2], memory, geometry, Origin::Imported)
    }

    /// Hold a side of an imported arena for `family`. False if that cannot be: the other host has
    /// dealt it out before, or to somebody else, or there is no such side.
    pub fn hold(&mut self, side: Side, family: FamilyId) -> bool {
        let Some(arena) = self.arenas.get_mut(&side.arena) else {
            return false;
        };
        let is_fit = arena.origin == Origin::Imported
            && arena.pair.contains(&family)
            && !arena.retired
            && side.role < 2;
        match arena.held.get_mut(side.slot as usize) {
            Some(held) if is_fit && *held == 0 => *held = 1 << side.role,
            _ => return false,
        }
        arena.slots_in_use += 1;
        self.slots_in_use += 1;
        true
    }

    /// No slot of an imported arena is dealt out any more: it goes with its last side.
    pub fn retire(&mut self, id: ArenaId) {
        if let Some(arena) = self.arenas.get_mut(&id) {
            arena.retired = true;
            self.drop_if_done(id);
        }
    }

    /// No slot of any arena in this window is dealt out any more.
    pub fn retire_window(&mut self, window: WindowId) {
        let ids: Vec<ArenaId> = self.arenas.keys().copied().collect();
        for id in ids {
            if self.place(id).is_none_or(|place| place.0 != window) {
                continue;
            }
            if let Some(pair) = self.arenas.get(&id).map(|arena| arena.pair) {
                self.close(pair, id);
            }
            self.retire(id);
        }
    }

    fn number_for(&mut self, family: FamilyId, id: ArenaId) -> u32 {
        let own = self.of_family.entry(family).or_default();
        own.arenas.insert(id);
        own.next += 1;
        own.next - 1
    }

    fn close(&mut self, pair: Pair, id: ArenaId) {
        if let Some(open) = self.open.get_mut(&pair) {
            open.retain(|other| *other != id);
            if open.is_empty() {
                self.open.remove(&pair);
            }
        }
    }

    /// One more process holds a side.
    pub fn share(&mut self, side: Side) {
        *self.shared.entry(side).or_default() += 1;
    }

    /// A family that is no party may map an arena from now on.
    pub fn admit(&mut self, id: ArenaId, family: FamilyId) {
        if self.number(id, family).is_some() || !self.arenas.contains_key(&id) {
            return;
        }
        let number = self.number_for(family, id);
        if let Some(arena) = self.arenas.get_mut(&id) {
            arena.guests.push((family, number));
        }
    }

    /// Whether others hold the side beside the one that leaves.
    fn unshare(&mut self, side: Side) -> bool {
        let Some(others) = self.shared.get_mut(&side) else {
            return false;
        };
        *others -= 1;
        if *others == 0 {
            self.shared.remove(&side);
        }
        true
    }

    /// The process that holds a side has ended: who sends to it is to ask the kernel.
    pub fn note_death(&mut self, side: Side) {
        let Some(arena) = self.arenas.get(&side.arena) else {
            return;
        };
        let other = 1 - side.role;
        let is_held = arena.held.get(side.slot as usize);
        let is_held = is_held.is_some_and(|held| held & 1 << other != 0);
        let layout = self.backing.location(&arena.memory).layout();
        if let Some(lane) = layout.lane(&arena.geometry, side.slot, other)
            && is_held
            && arena.origin == Origin::Host
        {
            let flags = lane.control + offset_of!(LaneControl, receiver.flags);
            self.backing.set_flags(&arena.memory, flags, DIED);
        }
    }

    /// A side is out. When both are, the slot is punched and free again.
    pub fn leave(&mut self, side: Side) {
        if self.unshare(side) {
            return;
        }
        let Some(arena) = self.arenas.get_mut(&side.arena) else {
            return;
        };
        let Some(held) = arena.held.get_mut(side.slot as usize) else {
            return;
        };
        let before = *held;
        *held &= !(1 << side.role);
        if before != *held && arena.origin != Origin::Host {
            let pair = arena.pairs.get(side.slot as usize).copied();
            self.left.push(Left {
                side,
                pair: pair.unwrap_or(0),
                was_used: true,
                is_told: false,
            });
        }
        if before == 0 || *held != 0 {
            return;
        }
        arena.slots_in_use -= 1;
        self.slots_in_use -= 1;
        let layout = self.backing.location(&arena.memory).layout();
        let is_ours = !arena.retired && arena.origin != Origin::Imported;
        let may_return = is_ours && self.backing.may_reuse(&arena.memory);
        if is_ours && !may_return && arena.slots_in_use == 0 && arena.free.is_empty() {
            arena.retired = true;
        }
        // A slot that cannot be zeroed is lost: it must not show its past to another connection.
        let mut ranges = layout.slot(&arena.geometry, side.slot).into_iter();
        let mut punch = |Range { offset, bytes }| {
            bytes == 0 || self.backing.punch(&arena.memory, offset, bytes)
        };
        if may_return && ranges.all(&mut punch) {
            arena.free.push(side.slot);
            if arena.free.len() == 1 {
                self.open.entry(arena.pair).or_default().push(side.arena);
            }
        }
        self.drop_if_done(side.arena);
    }

    /// A family is gone for good: its arenas are used up and go with their last side.
    pub fn family_gone(&mut self, family: FamilyId) {
        let ids = self
            .of_family
            .remove(&family)
            .map_or_else(HashSet::new, |own| own.arenas);
        for id in ids {
            let Some(arena) = self.arenas.get_mut(&id) else {
                continue;
            };
            if !arena.pair.contains(&family) {
                arena.guests.retain(|guest| guest.0 != family);
                continue;
            }
            arena.retired = true;
            let pair = arena.pair;
            self.close(pair, id);
            self.drop_if_done(id);
        }
    }

    fn drop_if_done(&mut self, id: ArenaId) {
        let done = self
            .arenas
            .get(&id)
            .is_some_and(|arena| arena.retired && arena.slots_in_use == 0);
        if !done {
            return;
        }
        if let Some(arena) = self.arenas.remove(&id) {
            let mut parties = arena.guests;
            parties.extend(arena.pair.into_iter().zip(arena.numbers));
            for (party, _) in &parties {
                if let Some(own) = self.of_family.get_mut(party) {
                    own.arenas.remove(&id);
                }
            }
            self.dropped.push(Dropped { id, parties });
            self.backing.gone(arena.memory);
        }
    }

    /// Sides in windows that have been left since the last call.
    pub fn take_left(&mut self) -> Vec<Left> {
        std::mem::take(&mut self.left)
    }

    /// Sides of which [`Self::take_left`] has not told yet.
    pub fn left(&mut self) -> &mut [Left] {
        &mut self.left
    }

    /// Arenas that have gone since the last call.
    pub fn take_dropped(&mut self) -> Vec<Dropped> {
        std::mem::take(&mut self.dropped)
    }
}
