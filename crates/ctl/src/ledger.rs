//! What a process remembers about its connections beyond their end, for `crosslane run --explain`:
//! one record for each, behind the entries of its slab. Only processes with a run's number write
//! any.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// Records in a slab. Connections past these are only counted.
pub const LEDGER_RECORDS: u32 = 1 << 13;

/// One end of one connection, open or closed.
#[repr(C, align(64))]
pub struct EndRecord {
    /// A [`RecordState`]; stored last.
    pub state: AtomicU32,
    /// Index of its entry in the slab.
    pub entry: AtomicU32,
    /// Generation of that entry: while it has this one, the entry says more than the record.
    pub generation: AtomicU32,
    /// The first descriptor.
    pub fd: AtomicI32,
    /// The process that opened or accepted it.
    pub pid: AtomicU32,
    /// The [`crate::slab::EndPhase`] at its end.
    pub phase: AtomicU32,
    /// Directions that were in rings at its end.
    pub rings: AtomicU32,
    /// The [`crate::reason::Reason`] at its end.
    pub reason: AtomicU32,
    /// Bytes sent and received through rings.
    pub ring_bytes: [AtomicU64; 2],
    /// Bytes sent and received through TCP.
    pub tcp_bytes: [AtomicU64; 2],
    /// The addresses, IPv4 within IPv6, in the order of the network: the socket's and its peer's. [`UNIX`] and its inode, for one
    /// of AF_UNIX.
    pub addresses: [[AtomicU64; 2]; 2],
    /// Their ports; 0 where a name was not to be had.
    pub ports: [AtomicU32; 2],
    /// Bytes that were lost in the ring, see [`crate::slab::end_flags::STRANDED`].
    pub stranded: AtomicU64,
}

/// The first half of the own address of an AF_UNIX end, which no IP address has.
pub const UNIX: u64 = u64::MAX;

/// How far a record has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RecordState {
    /// Not used yet.
    Blank = 0,
    /// The end is open: its bytes are in its entry.
    Open = 1,
    /// The record says all.
    Closed = 2,
}

impl RecordState {
    /// The state with this code, which another process may have written.
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            0 => Some(Self::Blank),
            1 => Some(Self::Open),
            2 => Some(Self::Closed),
            _ => None,
        }
    }
}

const _: () = assert!(size_of::<EndRecord>() == 128);
