//! The table in which a process keeps its connections: one memory object per process, shared with
//! its forked children, and shown to the monitor, which reads it for `crosslane ss` and
//! `crosslane stats` and believes nothing in it.
//!
//! The fast path of a connection touches the first line of one direction and nothing else here.

use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

use crate::counter::Counter;
use crate::ledger::{EndRecord, LEDGER_RECORDS};

/// First eight bytes of a slab.
pub const SLAB_MAGIC: u64 = u64::from_le_bytes(*b"XLANSLAB");

/// Entries in a slab.
pub const SLAB_ENTRIES: u32 = 1 << 16;

/// Slabs of others in which a process may have ends.
pub const FOREIGN_SLABS: usize = 7;

/// Counters that the header has room for.
pub const COUNTER_SLOTS: usize = 64;

/// Reasons that the header has room for.
pub const REASON_SLOTS: usize = 64;

/// Forked children that may be on their way at a time.
pub const PENDING_SLOTS: usize = 256;

/// Where the records of [`crate::ledger`] begin.
pub const LEDGER_OFFSET: usize =
    size_of::<SlabHeader>() + SLAB_ENTRIES as usize * size_of::<EndEntry>();

/// Bytes of a slab.
pub const SLAB_BYTES: usize = LEDGER_OFFSET + LEDGER_RECORDS as usize * size_of::<EndRecord>();

/// The first page of a slab.
#[repr(C, align(4096))]
pub struct SlabHeader {
    /// [`SLAB_MAGIC`].
    pub magic: AtomicU64,
    /// [`crate::ABI_VERSION`].
    pub version: AtomicU32,
    /// Process that made the slab.
    pub pid: AtomicU32,
    /// Entries below this index have been used at some time. May run past the last entry.
    pub entries_used: AtomicU32,
    /// Processes that have been given a number so far, see the stream crate's `holders`.
    pub members: AtomicU32,
    /// Indexed by [`Counter`].
    pub counters: [AtomicU64; COUNTER_SLOTS],
    /// Connections that were closed on TCP, and those brought back to it, by
    /// [`crate::reason::Reason`].
    pub reasons: [AtomicU64; REASON_SLOTS],
    /// Forked children that have not taken their locks yet, each at its number modulo
    /// [`PENDING_SLOTS`]: the number, plus 2^16 times its pid once that is known; 0 where there is
    /// none. With the highest bit set, 2^16 times the second of uptime until which it is expected.
    pub pending: [AtomicU64; PENDING_SLOTS],
    /// Inode of the pid namespace in which the pids in this slab mean something; 0 if not known.
    pub pid_namespace: AtomicU64,
    /// Number of the run of `crosslane run --explain` that the process belongs to; 0 for none.
    pub run: AtomicU64,
    /// Records that have been taken. May run past the last one.
    pub recorded: AtomicU32,
    /// Times that what was to be sent again for one of the entries had to wait for room. Whoever holds that entry, too, may
    /// have to send it.
    pub put_off: AtomicU32,
}

/// One end of one connection.
#[repr(C, align(64))]
pub struct EndEntry {
    /// Which connection this is, and how far its upgrade has come.
    pub id: EndId,
    /// Bytes that this end sends.
    pub tx: TxState,
    /// Bytes that this end receives.
    pub rx: RxState,
    /// Waiters and errors.
    pub wait: WaitState,
}

impl EndEntry {
    /// Whether somebody has an end here, or is about to, or about to let it go. One that was adopted has its state in the
    /// lender's slab, and only holders here.
    pub fn is_held(&self) -> bool {
        self.id.phase.load(SeqCst) != EndPhase::Free as u32 || self.id.holders.load(SeqCst) != 0
    }
}

/// Identity and progress of one end.
#[repr(C, align(64))]
pub struct EndId {
    /// An [`EndPhase`].
    pub phase: AtomicU32,
    /// A [`crate::reason::Reason`], while a direction is on TCP.
    pub reason: AtomicU32,
    /// Counts the uses of this entry.
    pub generation: AtomicU32,
    /// The first descriptor that named this connection.
    pub fd: AtomicI32,
    /// The process that opened it.
    pub pid: AtomicU32,
    /// 0 or 1 once rings are granted.
    pub role: AtomicU32,
    /// Arena of the rings, numbered by the monitor.
    pub arena: AtomicU32,
    /// Slot in the arena.
    pub slot: AtomicU32,
    /// SO_COOKIE of the socket, once registered.
    pub cookie: AtomicU64,
    /// A set of [`end_flags`].
    pub flags: AtomicU32,
    /// Calls that moved data, until the end is registered.
    pub calls: AtomicU32,
    /// TCP_NODELAY and TCP_CORK as the program set them, a bit each.
    pub nodelay: AtomicU32,
    /// Number of its record in the ledger plus 1, or 0.
    pub record: AtomicU32,
    /// Processes that hold the entry, see the stream crate's `holders`; it is free for reuse at 0.
    pub holders: AtomicU64,
}

/// Bits of [`EndId::flags`].
pub mod end_flags {
    /// The connection was accepted, not connected.
    pub const PASSIVE: u32 = 1;
    /// Its port was named with `--eager`.
    pub const EAGER: u32 = 2;
    /// It must stay on TCP, or go back there.
    pub const PINNED: u32 = 4;
    /// The process forked while it was open.
    pub const FORKED: u32 = 8;
    /// This end has shut down its sending direction.
    pub const SHUT_WRITE: u32 = 16;
    /// This end has shut down its receiving direction.
    pub const SHUT_READ: u32 = 32;
    /// This end reads no more records; what it has not consumed comes by TCP.
    pub const FROZEN: u32 = 64;
    /// Pinned for a while: because the socket was given away, or the other end's was.
    pub const RESTING: u32 = 128;
    /// Back from a rest: the sending direction may enter the lane before the other one has.
    pub const RESUMED: u32 = 256;
    /// A monitor may know the end.
    pub const KNOWN: u32 = 512;
    /// The kernel's stream under it is AF_UNIX, not TCP.
    pub const UNIX: u32 = 1024;
    /// Bytes sent by the kernel are counted in [`crate::lane::SenderLine::counted`].
    pub const COUNTED: u32 = 2048;
    /// The other end is on another host.
    pub const FAR: u32 = 4096;
    /// The window is lost: the lanes are memory of this host, see the stream crate's `lost`.
    pub const LOST: u32 = 8192;
    /// While LOST: the other end's position is known.
    pub const HEARD: u32 = 16384;
    /// While LOST: the other end has been sent what it had not read.
    pub const SHIPPED: u32 = 32768;
    /// While LOST: what we had not read has come.
    pub const REFILLED: u32 = 65536;
    /// The program has been told of the end of the stream, behind all data.
    pub const READ_OUT: u32 = 1 << 17;
    /// While LOST: the other end has what it had not read.
    pub const CONFIRMED: u32 = 1 << 18;
    /// The stream of another host's end is known to have ended where the lane is empty.
    pub const SURE: u32 = 1 << 19;
    /// The peer of an AF_UNIX stream has closed, and what it had not read has been looked at.
    pub const JUDGED: u32 = 1 << 20;
    /// The receiver on another host may not have found our last START yet, see the stream crate's `entering`.
    pub const AWAITED: u32 = 1 << 21;
    /// Somebody may read the socket past the library, uncounted.
    pub const OTHERS_READ: u32 = 1 << 22;
    /// [`super::WaitState::ending`] says how.
    pub const ENDED: u32 = 1 << 23;
    /// The chaos knob is about to act.
    pub const CHAOS: u32 = 1 << 24;
    /// Between hosts: the other end has been told that it may enter the lane.
    pub const INVITED: u32 = 1 << 25;
    /// The peer's stream has ended, whether or not a reset has followed.
    pub const EOF: u32 = 1 << 26;
    /// What stands in the ring has been counted as lost: nobody is known who reads it, and its sender's stream has ended.
    pub const STRANDED: u32 = 1 << 27;
}

/// How far the upgrade of an end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EndPhase {
    /// The entry is not in use.
    Free = 0,
    /// On TCP, not registered with the monitor.
    Plain = 1,
    /// Registered; the monitor looks for the other end.
    Registered = 2,
    /// Rings are mapped; each direction has its own mode.
    Granted = 3,
}

impl EndPhase {
    /// The phase with this code, which another process may have written.
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            0 => Some(Self::Free),
            1 => Some(Self::Plain),
            2 => Some(Self::Registered),
            3 => Some(Self::Granted),
            _ => None,
        }
    }
}

/// Where the bytes of one direction travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Mode {
    /// On TCP.
    Tcp = 0,
    /// In the ring; TCP carries doorbells only.
    Ring = 1,
    /// Sender: ring bytes that the receiver did not take are being sent again by TCP.
    /// Receiver: frozen, waiting to learn where on TCP the replay begins.
    Replay = 2,
    /// Receiver: the ring is done; the doorbells still on TCP must be discarded before data.
    Drain = 3,
}

impl Mode {
    /// The mode with this code, which another process may have written.
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            0 => Some(Self::Tcp),
            1 => Some(Self::Ring),
            2 => Some(Self::Replay),
            3 => Some(Self::Drain),
            _ => None,
        }
    }
}

/// The sending half of an end. All but `lock`, `raw_calls` and `refusals` change under `lock` only.
#[repr(C, align(64))]
pub struct TxState {
    /// The member that holds the direction, see the stream crate's `lock` and `holders`.
    pub lock: AtomicU32,
    /// A [`Mode`].
    pub mode: AtomicU32,
    /// Line at which the next record goes, never wrapped.
    pub tail: AtomicU64,
    /// The receiver's `consumed`, as last seen and checked.
    pub credit: AtomicU64,
    /// Bytes put on TCP so far: data and doorbells.
    pub tcp_bytes: AtomicU64,
    /// Bytes put into the ring so far.
    pub ring_bytes: AtomicU64,
    /// Data bytes put on TCP so far.
    pub tcp_data: AtomicU64,
    /// Calls inside the kernel's own send on this socket.
    pub raw_calls: AtomicU32,
    /// Lines written since the peer's end was last looked at.
    pub unchecked_lines: AtomicU32,
    /// Doorbells that found TCP full and must be sent before anything else on it.
    pub bells_owed: AtomicU32,
    /// Times that a process has found no room. Not under the lock, and only good to be compared.
    pub refusals: AtomicU32,
}

/// The receiving half of an end. All but `lock` and `raw_calls` change under `lock` only.
#[repr(C, align(64))]
pub struct RxState {
    /// The member that holds the direction.
    pub lock: AtomicU32,
    /// A [`Mode`].
    pub mode: AtomicU32,
    /// Line of the next record, never wrapped.
    pub head: AtomicU64,
    /// Bytes already taken from the record at `head`.
    pub taken: AtomicU32,
    /// Calls inside the kernel's own receive on this socket.
    pub raw_calls: AtomicU32,
    /// Bytes taken from TCP so far: data and doorbells.
    pub tcp_bytes: AtomicU64,
    /// Bytes taken from the ring so far.
    pub ring_bytes: AtomicU64,
    /// Data bytes taken from TCP so far.
    pub tcp_data: AtomicU64,
    /// In mode Tcp: the count of TCP bytes at which the stream enters the ring. In mode Drain: the
    /// count up to which TCP carries doorbells. `u64::MAX` when not known.
    pub tcp_limit: AtomicU64,
    /// As [`crate::message::Grant::pair`] of lanes that the end is about to take; 0 if there are none. Not under
    /// the lock.
    pub coming: AtomicU64,
}

/// Waiters and errors of an end.
#[derive(Default)]
#[repr(C, align(64))]
pub struct WaitState {
    /// Threads asleep in the kernel on this socket, outside of epoll.
    pub sleepers: AtomicU32,
    /// Epoll sets that hold the socket.
    pub epolls: AtomicU32,
    /// An errno that the kernel has reported to the library and the program has not seen.
    pub error: AtomicI32,
    /// Reads in a row that found nothing.
    pub empty_reads: AtomicU32,
    /// An [`Ending`].
    pub ending: AtomicU32,
    /// 1 from arming the receiving lane until the request is taken back.
    pub armed: AtomicU32,
    /// Copies of the socket that have been given away and not been adopted: whoever has them may
    /// know nothing of rings.
    pub away: AtomicU32,
    /// Times that the end has rested; each makes the next return later.
    pub rests: AtomicU32,
    /// `replay_seq` of the peer when this end froze its receiving lane.
    pub replay_seen: AtomicU32,
    /// Times that a process has shut down a direction. Only good to be compared.
    pub shutdowns: AtomicU32,
    /// As [`crate::message::Grant::pair`] of its lanes; 0 if it has none between hosts. Who has adopted the end shows this,
    /// `shipped` and [`RxState::coming`] in its own slab, too.
    pub pair: AtomicU64,
    /// The last such lanes of which this end has sent its peer what stood unread in a lost window.
    pub shipped: AtomicU64,
    /// In the sending mode Replay: bytes taken from the record that is being sent again. In mode
    /// Tcp after a STOP: its count plus 1. Otherwise 0.
    pub replayed: AtomicU64,
}

/// What the kernel has said about the end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Ending {
    /// Nothing.
    Open = 0,
    /// The peer will send no more.
    Eof = 1,
    /// The connection is broken in both directions.
    Reset = 2,
}

const _: () = {
    assert!(size_of::<SlabHeader>() == 4096);
    assert!(size_of::<EndEntry>() == 256);
    assert!(core::mem::offset_of!(EndEntry, tx) == 64);
    assert!(core::mem::offset_of!(EndEntry, rx) == 128);
    assert!(core::mem::offset_of!(EndEntry, wait) == 192);
    assert!(Counter::ALL.len() <= COUNTER_SLOTS);
    assert!(crate::reason::Reason::ALL.len() <= REASON_SLOTS);
};
