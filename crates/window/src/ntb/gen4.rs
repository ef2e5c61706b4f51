//! Registers of Intel's bridge in Ice Lake processors, as far as the driver uses them. What they are and
//! do is known from Linux's driver (`drivers/ntb/hw/intel`, "gen4"); Intel's own description is not public.

use super::registers::Register;

/// Intel.
pub const VENDOR: u16 = 0x8086;
/// The bridge, back to back with another.
pub const DEVICE: u16 = 0x347e;
/// Revisions that are of this generation.
pub const REVISIONS: core::ops::RangeInclusive<u8> = 0x2..=0xf;

/// Bytes of region 0 that the registers take.
pub const REGISTER_BYTES: usize = 0x1_0000;

/// Words that both hosts reach, in each direction.
pub const SCRATCHPADS: usize = 16;
/// Doorbells in each direction.
pub const DOORBELLS: usize = 32;
/// Every doorbell.
pub const ALL_DOORBELLS: u64 = (1 << DOORBELLS) - 1;
/// Bit of [`INTERRUPT_STATUS`] beyond the doorbells: the link came or went.
pub const LINK_CHANGED: u64 = 1 << DOORBELLS;
/// Interrupts: one for each doorbell, one for the link.
pub const VECTORS: usize = DOORBELLS + 1;

/// What is done to transactions that pass: snooped, or not.
pub const CONTROL: Register = Register::new("NTBCNTL", 0x0, 32);
/// Caches are kept coherent with what comes and goes through both regions.
pub const CONTROL_SNOOPS: u64 = 1 << 2 | 1 << 4 | 1 << 6 | 1 << 8;

/// Registers of what comes in through one of the two regions.
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    /// Where it arrives. Must be a multiple of the region's size.
    pub base: Register,
    /// Where it ends, counted from where this host's own region begins on its bus.
    pub limit: Register,
    /// The logarithm of its size; only this generation wants it.
    pub index: Register,
}

/// Those of regions 2 and 4.
pub const INCOMING: [Incoming; 2] = [
    Incoming {
        base: Register::new("IM23XBASE", 0x10, 64),
        limit: Register::new("IM23XLMT", 0x18, 64),
        index: Register::new("IM23XBASEIDX", 0x74, 16),
    },
    Incoming {
        base: Register::new("IM45XBASE", 0x20, 64),
        limit: Register::new("IM45XLMT", 0x28, 64),
        index: Register::new("IM45XBASEIDX", 0x76, 16),
    },
];

/// Doorbells that have rung, and the link; a bit is cleared by writing it.
pub const INTERRUPT_STATUS: Register = Register::new("IM_INT_STATUS", 0x40, 64);
/// Bits that interrupt nobody.
pub const INTERRUPT_DISABLE: Register = Register::new("IM_INT_DISABLE", 0x48, 64);
/// Which interrupt a bit of the status makes, for the first bit.
pub const VECTOR: Register = Register::new("INTVEC", 0x50, 8);
/// The first word that the other host writes and this one reads.
pub const SCRATCHPAD: Register = Register::new("IM_SPAD", 0x80, 32);
/// The first word that this host writes and the other one reads.
pub const PEER_SCRATCHPAD: Register = Register::new("EM_SPAD", 0x8080, 32);
/// The other host's first doorbell: rings when 1 is written.
pub const PEER_DOORBELL: Register = Register::new("IM_DOORBELL", 0x100, 32);

/// The link's control.
pub const LINK_CONTROL: Register = Register::new("LINK_CTRL", 0xb050, 16);
/// The link is kept down.
pub const LINK_DISABLE: u64 = 1 << 4;
/// The link's state: generation, lanes, and whether it is up.
pub const LINK_STATUS: Register = Register::new("LINK_STATUS", 0xb052, 16);
/// The link is up.
pub const LINK_ACTIVE: u64 = 1 << 13;
/// The slot's state.
pub const SLOT_STATUS: Register = Register::new("SLOTSTS", 0xb05a, 16);
/// The link's state has changed; to be cleared before [`LINK_CHANGED`], or that stays.
pub const SLOT_LINK_CHANGED: u64 = 1 << 8;
/// The port's definition, with the start of the link's training.
pub const PORT: Register = Register::new("PPD0", 0xb0d4, 32);
/// The link trains, or has.
pub const PORT_TRAINS: u64 = 1 << 3;
/// The port's definition, with what it is connected to.
pub const TOPOLOGY: Register = Register::new("PPD1", 0xb4c0, 32);
/// Its bits that say so.
pub const TOPOLOGY_MASK: u64 = 0x1300;
/// Back to back with another bridge, on its upstream side.
pub const UPSTREAM: u64 = 0x0200;
/// Back to back with another bridge, on its downstream side.
pub const DOWNSTREAM: u64 = 0x1200;

const _: () = assert!(TOPOLOGY.at + 4 <= REGISTER_BYTES);
