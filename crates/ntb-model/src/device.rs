//! The two bridges and their link, as their registers show them.

use std::collections::HashSet;

/// What follows from a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A host is interrupted.
    Interrupt {
        /// Which host.
        side: usize,
        /// By which vector.
        vector: usize,
    },
    /// What the regions lead to may have changed.
    Routes,
}

const PAGE: u64 = 4096;

/// Bits of the control register that can be written: how each region is snooped.
const CONTROL_BITS: u64 = 0x3fc;
const LINK_BIT: u64 = 1 << 32;
const STATUS_BITS: u64 = LINK_BIT | 0xffff_ffff;
const LINK_DISABLE: u64 = 1 << 4;
const SLOT_LINK_CHANGED: u64 = 1 << 8;
const TRAINS: u64 = 1 << 3;
/// Another bit of the same register, which is cleared by writing it, as states are.
const PORT_STATE: u64 = 1;
/// Generation 4, sixteen lanes, and whether it is up.
const LINK_STATUS: u64 = 0x104;
const LINK_ACTIVE: u64 = 1 << 13;
/// Back to back, upstream and downstream; the bits around them mean something else.
const TOPOLOGY: [u64; 2] = [0x0200 | 0x0c, 0x1200 | 0x0c];

/// A register, and which of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Control,
    Base(usize),
    Limit(usize),
    Index(usize),
    Status,
    Disable,
    Vector(usize),
    Own(usize),
    Theirs(usize),
    Bell(usize),
    LinkControl,
    LinkStatus,
    SlotStatus,
    Port,
    Topology,
}

/// Which register is there, if that is how wide it is.
fn place(at: u64, bits: u32) -> Option<Place> {
    let at = usize::try_from(at).ok()?;
    let nth = |first: usize, bytes: usize| (at - first) / bytes;
    Some(match (at, bits) {
        (0x00, 32) => Place::Control,
        (0x10, 64) => Place::Base(0),
        (0x18, 64) => Place::Limit(0),
        (0x20, 64) => Place::Base(1),
        (0x28, 64) => Place::Limit(1),
        (0x40, 64) => Place::Status,
        (0x48, 64) => Place::Disable,
        (0x50..=0x70, 8) => Place::Vector(nth(0x50, 1)),
        (0x74, 16) => Place::Index(0),
        (0x76, 16) => Place::Index(1),
        (0x80..=0xbc, 32) if at.is_multiple_of(4) => Place::Own(nth(0x80, 4)),
        (0x100..=0x17c, 32) if at.is_multiple_of(4) => Place::Bell(nth(0x100, 4)),
        (0x8080..=0x80bc, 32) if at.is_multiple_of(4) => Place::Theirs(nth(0x8080, 4)),
        (0xb050, 16) => Place::LinkControl,
        (0xb052, 16) => Place::LinkStatus,
        (0xb05a, 16) => Place::SlotStatus,
        (0xb0d4, 32) => Place::Port,
        (0xb4c0, 32) => Place::Topology,
        _ => return None,
    })
}

/// One of the two.
#[derive(Debug)]
struct Half {
    is_here: bool,
    start: u64,
    bytes: u64,
    control: u64,
    base: [u64; 2],
    limit: [u64; 2],
    index: [u64; 2],
    status: u64,
    disable: u64,
    vectors: [usize; 33],
    scratchpads: [u64; 16],
    link_control: u64,
    slot_status: u64,
    port: u64,
    topology: u64,
}

impl Half {
    fn reset(side: usize, start: u64, bytes: u64) -> Self {
        Self {
            is_here: true,
            start,
            bytes,
            control: 0,
            base: [0; 2],
            limit: [start; 2],
            index: [0; 2],
            status: 0,
            disable: 0,
            // The link first: that is how the device is after a reset.
            vectors: core::array::from_fn(|bit| (bit + 1) % 33),
            scratchpads: [0; 16],
            link_control: 0,
            slot_status: 0,
            port: PORT_STATE,
            topology: TOPOLOGY[side],
        }
    }

    fn wants_link(&self) -> bool {
        self.is_here && self.link_control & LINK_DISABLE == 0 && self.port & TRAINS != 0
    }
}

/// Two bridges and a cable.
#[derive(Debug)]
pub struct Device {
    halves: [Half; 2],
    has_cable: bool,
    was_up: bool,
    stuck: HashSet<u64>,
    writes: [u64; 2],
    faults: Vec<String>,
}

impl Device {
    /// Two bridges after a reset, each with a region of so many bytes at a place of its own.
    pub fn new(bytes: u64) -> Self {
        Self {
            halves: [
                Half::reset(0, 0x20_0000_0000, bytes),
                Half::reset(1, 0x60_0000_0000, bytes),
            ],
            has_cable: true,
            was_up: false,
            stuck: HashSet::new(),
            writes: [0; 2],
            faults: Vec::new(),
        }
    }

    /// Where a host's region begins on its bus, and how large it is.
    pub fn region(&self, side: usize) -> (u64, u64) {
        (self.halves[side].start, self.halves[side].bytes)
    }

    /// What a driver did that no driver may do: accesses to what is no register, or of another width.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// How often a host's driver has written to its bridge.
    pub fn writes(&self, side: usize) -> u64 {
        self.writes[side]
    }

    /// Whether anything passes.
    pub fn is_up(&self) -> bool {
        self.has_cable && self.halves.iter().all(Half::wants_link)
    }

    /// Pull the cable, or plug it in.
    pub fn set_cable(&mut self, has_cable: bool) -> Vec<Effect> {
        self.has_cable = has_cable;
        self.settle()
    }

    /// Take a bridge out of its slot.
    pub fn remove(&mut self, side: usize) -> Vec<Effect> {
        self.halves[side].is_here = false;
        self.settle()
    }

    /// A host begins anew: its bridge is reset.
    pub fn reset(&mut self, side: usize) -> Vec<Effect> {
        let Half { start, bytes, .. } = self.halves[side];
        let scratchpads = self.halves[side].scratchpads;
        self.halves[side] = Half {
            // They outlive a driver, as long as the machine is not switched off.
            scratchpads,
            ..Half::reset(side, start, bytes)
        };
        self.settle()
    }

    /// A bridge's port is connected to something that is no bridge.
    pub fn unpair(&mut self, side: usize) {
        self.halves[side].topology = 0x000c;
    }

    /// The register at `at` takes no more writes.
    pub fn stick(&mut self, at: u64) {
        self.stuck.insert(at);
    }

    /// Which address of the *other* host's memory a byte of this host's region leads to, if any.
    pub fn route(&self, side: usize, offset: u64) -> Option<u64> {
        let (here, there) = (&self.halves[side], &self.halves[1 - side]);
        let window = there.limit[0].saturating_sub(there.start);
        let is_open = self.is_up() && window.is_power_of_two();
        // The index is what Linux's driver writes there.
        let is_told = is_open && there.index[0] == u64::from(window.ilog2());
        let passes = is_told && offset < window && offset < here.bytes && offset < there.bytes;
        passes.then(|| there.base[0] + offset)
    }

    /// Read a register.
    pub fn read(&mut self, side: usize, at: u64, bits: u32) -> u64 {
        let ones = u64::MAX >> (64 - bits.clamp(1, 64));
        if !self.halves[side].is_here {
            return ones;
        }
        let is_up = self.is_up();
        let half = &self.halves[side];
        match place(at, bits) {
            None => {
                self.faults
                    .push(format!("host {side} reads {bits} bits at {at:#x}"));
                ones
            }
            Some(Place::Control) => half.control,
            Some(Place::Base(n)) => half.base[n],
            Some(Place::Limit(n)) => half.limit[n],
            Some(Place::Index(n)) => half.index[n],
            Some(Place::Status) => half.status,
            Some(Place::Disable) => half.disable,
            Some(Place::Vector(n)) => half.vectors[n] as u64,
            Some(Place::Own(n)) => half.scratchpads[n],
            // A read that no other bridge completes.
            Some(Place::Theirs(_)) if !is_up => ones,
            Some(Place::Theirs(n)) => self.halves[1 - side].scratchpads[n],
            Some(Place::Bell(_)) => 0,
            Some(Place::LinkControl) => half.link_control,
            Some(Place::LinkStatus) if is_up => LINK_STATUS | LINK_ACTIVE,
            Some(Place::LinkStatus) => 0,
            Some(Place::SlotStatus) => half.slot_status,
            Some(Place::Port) => half.port,
            Some(Place::Topology) => half.topology,
        }
    }

    /// Write a register.
    pub fn write(&mut self, side: usize, at: u64, bits: u32, value: u64) -> Vec<Effect> {
        self.writes[side] += 1;
        if !self.halves[side].is_here || self.stuck.contains(&at) {
            return Vec::new();
        }
        let Some(place) = place(at, bits) else {
            self.faults
                .push(format!("host {side} writes {bits} bits at {at:#x}"));
            return Vec::new();
        };
        if bits < 64 && value >> bits != 0 {
            self.faults
                .push(format!("host {side} writes {value:#x} at {at:#x}"));
        }
        let is_up = self.is_up();
        let half = &mut self.halves[side];
        // What is below a page, or inside the region for the base, is reserved.
        let (pages, regions) = (!(PAGE - 1), !(half.bytes - 1));
        match place {
            Place::Control => half.control = value & CONTROL_BITS,
            Place::Base(n) => half.base[n] = value & regions,
            Place::Limit(n) => half.limit[n] = value & pages,
            Place::Index(n) => half.index[n] = value & 0x3f,
            Place::Status => half.clear(value),
            Place::Disable => half.disable = value & STATUS_BITS,
            Place::Vector(n) => half.vectors[n] = usize::try_from(value & 0x3f).unwrap_or(0),
            Place::Own(n) => half.scratchpads[n] = value,
            Place::Theirs(n) if is_up => self.halves[1 - side].scratchpads[n] = value,
            Place::Bell(n) if is_up && value & 1 != 0 => return self.raise(1 - side, 1 << n),
            Place::Theirs(_) | Place::Bell(_) => {}
            Place::LinkControl => half.link_control = value & LINK_DISABLE,
            Place::SlotStatus => half.slot_status &= !(value & SLOT_LINK_CHANGED),
            Place::Port => half.port = value & TRAINS | half.port & !value & PORT_STATE,
            Place::LinkStatus | Place::Topology => {
                self.faults
                    .push(format!("host {side} writes {place:?}, which is read only"));
            }
        }
        match place {
            Place::Own(_) | Place::Theirs(_) | Place::Status | Place::Disable => Vec::new(),
            _ => self.settle(),
        }
    }

    /// Set bits of a host's status, and interrupt it for those that are not disabled.
    fn raise(&mut self, side: usize, bits: u64) -> Vec<Effect> {
        let half = &mut self.halves[side];
        half.status |= bits;
        let loud = bits & !half.disable;
        let vectors = &half.vectors;
        (0..33)
            .filter(|bit| loud >> bit & 1 != 0)
            .map(|bit| Effect::Interrupt {
                side,
                vector: vectors[bit],
            })
            .collect()
    }

    /// What follows when something has changed.
    fn settle(&mut self) -> Vec<Effect> {
        let is_up = self.is_up();
        let mut effects = vec![Effect::Routes];
        if is_up != self.was_up {
            self.was_up = is_up;
            for side in [0, 1] {
                self.halves[side].slot_status |= SLOT_LINK_CHANGED;
                effects.extend(self.raise(side, LINK_BIT));
            }
        }
        effects
    }
}

impl Half {
    /// The link's bit stays as long as the slot's does.
    fn clear(&mut self, bits: u64) {
        let kept = match self.slot_status & SLOT_LINK_CHANGED {
            0 => 0,
            _ => LINK_BIT,
        };
        self.status &= !(bits & !kept);
    }
}

#[cfg(test)]
mod tests;
