//! Layout of the memory that the two ends of a connection share.
//!
//! An arena is one shared memory object between two processes; it is cut into slots of one size.
//! A slot holds the two lanes of a connection: lane 0 carries bytes from the end with role 0 to
//! the end with role 1, lane 1 the other way. A lane is four control lines and a ring of lines.
//! (DESIGN 4.1, NIQ's cache line and NTSocks' remote write.)

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::layout::Layout;

/// One cache line, the unit of a lane.
pub const LINE_BYTES: usize = 64;

/// Control lines at the head of a lane.
pub const LANE_CONTROL_BYTES: usize = 4 * LINE_BYTES;

/// Slots and lanes start on a page boundary, so that a slot can be given back to the kernel.
pub const PAGE_BYTES: usize = 4096;

/// The largest pages that a window between hosts may have.
pub const MAX_PAGE_BYTES: u64 = 1 << 30;

/// Fewest lines in a ring: a record of the greatest length must fit several times.
pub const MIN_RING_LINES: u32 = 1 << 9;

/// Most lines in a ring (16 MiB).
pub const MAX_RING_LINES: u32 = 1 << 18;

/// Lines per ring when nothing else is configured (4 MiB per direction).
pub const DEFAULT_RING_LINES: u32 = 1 << 16;

/// Lines of a longer ring that are used while the receiver keeps up (64 KiB): few enough to stay in a
/// processor's cache with those of other connections, and all that an idle connection costs.
pub const SMALL_RING_LINES: u32 = 1 << 10;

/// Lines per ring in a window between hosts, where it is large enough (256 KiB).
pub const WINDOW_RING_LINES: u32 = 1 << 12;

/// Most slots in one arena.
pub const MAX_ARENA_SLOTS: u32 = 1 << 12;

/// Slots per arena when nothing else is configured.
pub const DEFAULT_ARENA_SLOTS: u32 = 8;

/// The control lines of a lane. Each line has one writer, so that neither side's stores disturb
/// the line that the other one polls.
#[repr(C)]
pub struct LaneControl {
    /// Line 0, written by the sender.
    pub sender: SenderLine,
    /// Line 1, flags of the receiver; the sender takes `ARMED` away and sets `ANSWERED` and
    /// `ENTERED`, and the monitor sets `DIED`.
    pub receiver: ReceiverLine,
    /// Line 2, written by the receiver after every read.
    pub credit: CreditLine,
    /// Line 3, written by the receiver when it changes processors.
    pub place: PlaceLine,
}

/// The answer to a freeze that comes too late: bytes have followed a STOP on TCP already, so what
/// is in the ring before that STOP must be read from there.
pub const NO_REPLAY: u64 = u64::MAX;

/// In [`SenderLine::tcp_total`]: the sender is deciding whether to send a doorbell.
pub const RINGING: u64 = 1;

/// What the sender tells the receiver besides records.
#[repr(C, align(64))]
pub struct SenderLine {
    /// 1 while the sender sleeps until a good share of the ring is free; the receiver exchanges
    /// it to 0 before it rings.
    pub space_wanted: AtomicU32,
    /// Changes with each answer to [`receiver_flags::FROZEN`]; `replay_at` is the answer.
    pub replay_seq: AtomicU32,
    /// Bytes that the sender had put on TCP in all before the replayed bytes, or [`NO_REPLAY`];
    /// valid once `replay_seq` has changed.
    pub replay_at: AtomicU64,
    /// Line behind the last record that an answer to a freeze is about; valid as `replay_at`.
    pub replay_end: AtomicU64,
    /// Twice the bytes that the sender has put on TCP in all, doorbells included, plus
    /// [`RINGING`]. Means something while the direction is in the ring.
    pub tcp_total: AtomicU64,
    /// For AF_UNIX, whose kernel does not count bytes: [`counted`] while the direction has not been
    /// in the ring yet; 0 before that is known.
    pub counted: AtomicU64,
    /// 1 once lines beyond [`SMALL_RING_LINES`] have been used, until they have been given back.
    pub grown: AtomicU32,
    /// `replay_seq` of the last answer of which all records are on TCP.
    pub replayed: AtomicU32,
    /// Between hosts, once the sender has ended its stream: 1 more than the line behind its last record. 0 before.
    pub ended: AtomicU64,
    /// Where each host has a slot of its own: number of the last [`ReceiverLine::posted`] that the sender has merged.
    pub echo: AtomicU64,
}

/// How many bytes a sender has given to the kernel, and how many calls are doing so now.
pub mod counted {
    /// One call that has begun.
    pub const CALL: u64 = 1;
    /// One byte that the kernel has taken.
    pub const BYTE: u64 = 1 << 16;

    /// After so many bytes, with no call inside the kernel.
    pub const fn at_rest(bytes: u64) -> u64 {
        (bytes + 1) * BYTE
    }

    /// The bytes that [`at_rest`] made the word of; `None` if there are calls inside the kernel, or
    /// nothing is known.
    pub const fn bytes_at_rest(word: u64) -> Option<u64> {
        if word.is_multiple_of(BYTE) {
            (word / BYTE).checked_sub(1)
        } else {
            None
        }
    }
}

/// What the receiver asks of the sender.
#[repr(C, align(64))]
pub struct ReceiverLine {
    /// A set of [`receiver_flags`].
    pub flags: AtomicU32,
    /// Where each host has a slot of its own: the flags as the receiver has posted them last, as [`posted_flags`] has it.
    /// The same word is posted into the sender's memory, who merges it into the flags there.
    pub posted: AtomicU64,
}

/// [`ReceiverLine::posted`]: flags in the lower half, and above them a number that is another one for each word.
pub mod posted_flags {
    /// The number of the word, from 1 on, and the flags in it.
    pub const fn of(word: u64) -> (u32, u32) {
        let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
        (
            u32::from_le_bytes([e, f, g, h]),
            u32::from_le_bytes([a, b, c, d]),
        )
    }

    /// The word with these flags after this one.
    pub const fn next(word: u64, flags: u32) -> u64 {
        let number = match of(word).0.wrapping_add(1) {
            0 => 1,
            number => number,
        };
        (number as u64) << 32 | flags as u64
    }

    /// Whether a number is that of a later word, of two that are seen at about the same time.
    pub const fn is_later(number: u32, than: u32) -> bool {
        let ahead = number.wrapping_sub(than);
        ahead != 0 && ahead < 1 << 31
    }
}

/// How far the receiver has read.
#[repr(C, align(64))]
pub struct CreditLine {
    /// The [`Place`](crate::place::Place) of the next unread byte.
    pub consumed: AtomicU64,
    /// Bytes that the receiver has taken from TCP in all, as of its last look there.
    pub tcp_taken: AtomicU64,
    /// Bytes that TCP will have brought in all when it has brought what is sent again. For the receiver alone.
    pub replay_until: AtomicU64,
    /// Between hosts: the line behind the last START that the receiver has found.
    pub found: AtomicU64,
    /// There, for the sender alone: the line behind its last START. Nothing is put on TCP until that has been found.
    pub started: AtomicU64,
}

/// Where the receiver runs.
#[repr(C, align(64))]
pub struct PlaceLine {
    /// Processor on which the receiver last waited, plus 1; 0 if it never has. A hint only. Between hosts,
    /// the upper half tells its kernel from others.
    pub receiver_cpu: AtomicU32,
    /// 1 if it waits for other connections, too. A hint only.
    pub waits_for_many: AtomicU32,
}

/// Bits of [`ReceiverLine::flags`].
pub mod receiver_flags {
    /// The receiver has mapped the ring and will look at it: the sender may switch to it.
    pub const READY: u32 = 1;
    /// The receiver is about to sleep: ring the doorbell after the next record.
    pub const ARMED: u32 = 2;
    /// The receiver would like this direction back on TCP at the sender's next call.
    pub const STOP_WANTED: u32 = 4;
    /// The receiver will read no more records: what it has not consumed must come by TCP.
    pub const FROZEN: u32 = 8;
    /// The receiver is closing: send it no doorbell that it has not asked for.
    pub const CLOSED: u32 = 16;
    /// Set by the sender, only while FROZEN is: it answers the freeze, which cannot be taken back
    /// any more.
    pub const ANSWERED: u32 = 32;
    /// Set by the sender, only while READY is, until it says STOP or answers a freeze: a START is in
    /// the lane or about to be, and READY cannot be taken back.
    pub const ENTERED: u32 = 64;
    /// The receiver has shut down this direction, which on AF_UNIX makes every send fail: ask the
    /// kernel before each.
    pub const SHUT: u32 = 128;
    /// On AF_UNIX, before READY: the receiver cannot hold [`super::counted`] against the kernel's queue
    /// while calls are inside the kernel. Begin none for a moment. The sender takes it back when the
    /// moment is over.
    pub const STAND_BY: u32 = 256;
    /// Between hosts: nobody looks for a START just now. The next bytes on TCP wake who does.
    pub const DROWSY: u32 = 512;
    /// The receiver has shut down its own sending: the end that the kernel tells of was not made by its death.
    pub const ENDED: u32 = 1024;
    /// Set by the monitor, on one host: the receiver's process has ended. A hint, as others may have the connection, too: the
    /// sender asks the kernel, and takes it away when that knows of the end, or has not for a while.
    pub const DIED: u32 = 2048;
    /// What a sender heeds before it puts anything into the lane.
    pub const HEEDED: u32 = CLOSED | STOP_WANTED | DIED;
}

/// How an arena is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Lines in each ring, a power of two.
    pub ring_lines: u32,
    /// Slots in the arena.
    pub slots: u32,
}

impl Default for Geometry {
    fn default() -> Self {
        Self {
            ring_lines: DEFAULT_RING_LINES,
            slots: DEFAULT_ARENA_SLOTS,
        }
    }
}

impl Geometry {
    /// Whether these numbers, which another process may have sent, describe an arena.
    pub const fn is_valid(&self) -> bool {
        self.ring_lines.is_power_of_two()
            && self.ring_lines >= MIN_RING_LINES
            && self.ring_lines <= MAX_RING_LINES
            && self.slots >= 1
            && self.slots <= MAX_ARENA_SLOTS
    }

    /// Bytes of one lane: control lines, ring, and padding to a page.
    pub const fn lane_bytes(&self) -> usize {
        let bytes = LANE_CONTROL_BYTES + self.ring_lines as usize * LINE_BYTES;
        bytes.next_multiple_of(PAGE_BYTES)
    }

    /// Bytes of one slot whose lanes lie in one piece each, as with all here: [`Layout::Whole`].
    pub const fn slot_bytes(&self) -> usize {
        2 * self.lane_bytes()
    }

    /// Bytes of the whole arena.
    pub const fn arena_bytes(&self) -> usize {
        self.slots as usize * self.slot_bytes()
    }

    /// Offset in the arena of the lane in which the end with role `sender_role` sends, or `None`
    /// if there is no such slot or role.
    pub const fn lane_offset(&self, slot: u32, sender_role: u32) -> Option<usize> {
        if slot >= self.slots || sender_role > 1 {
            return None;
        }
        Some(slot as usize * self.slot_bytes() + sender_role as usize * self.lane_bytes())
    }
}

/// The pages of a memory: what is mapped of it begins on one, and consists of whole ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pages {
    shift: u8,
}

impl Pages {
    /// Of most memory.
    pub const SMALL: Self = Self { shift: 12 };

    /// Pages of so many bytes, which another process or host may have said; `None` if no memory has such.
    pub const fn of(bytes: u64) -> Option<Self> {
        if !bytes.is_power_of_two() || bytes < PAGE_BYTES as u64 || bytes > MAX_PAGE_BYTES {
            return None;
        }
        let shift = bytes.trailing_zeros().to_le_bytes()[0];
        Some(Self { shift })
    }

    /// Bytes of each.
    pub const fn bytes(self) -> u64 {
        1 << self.shift
    }

    /// Whether one may begin here.
    pub const fn begin_at(self, offset: u64) -> bool {
        offset.is_multiple_of(self.bytes())
    }

    /// What is mapped of an arena of so many bytes: all of it, in whole pages.
    pub const fn mapped_bytes(self, arena_bytes: usize) -> usize {
        arena_bytes.next_multiple_of(1 << self.shift)
    }
}

/// Where an arena lies behind the descriptor that comes with a grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Location {
    /// A sealed memory object of its own.
    #[default]
    Sealed,
    /// A part of a file that other hosts map, too. Nobody can seal it: whoever may write the file
    /// can cut it short, which ends those who use it.
    File {
        /// Where the arena begins, a multiple of a page.
        offset: u64,
        /// The file's pages.
        pages: Pages,
    },
    /// Two memories, behind a descriptor each: this host's, which the other one writes, and the other's, which is
    /// only written here.
    Apart {
        /// Where the arena begins in this host's, a multiple of a page.
        offset: u64,
        /// Where it begins in the other's, a multiple of a page.
        beyond: u64,
        /// How to write there.
        posting: Posting,
        /// Pages of both: where they differ, the larger ones.
        pages: Pages,
    },
}

impl Location {
    /// Of which pages what is mapped of the arena consists.
    pub const fn pages(&self) -> Pages {
        match self {
            Self::Sealed => Pages::SMALL,
            Self::File { pages, .. } | Self::Apart { pages, .. } => *pages,
        }
    }

    /// How its lanes lie there.
    pub const fn layout(&self) -> Layout {
        match self {
            Self::Sealed => Layout::Parted,
            Self::File { .. } | Self::Apart { .. } => Layout::Whole,
        }
    }
}

/// How writes into another host's memory leave the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posting {
    /// As into any memory.
    Memory,
    /// Uncached: each store is a transaction of its own.
    Uncached,
    /// Through write-combining buffers.
    Combined,
}

const _: () = {
    assert!(Pages::SMALL.bytes() == PAGE_BYTES as u64);
    assert!(size_of::<LaneControl>() == LANE_CONTROL_BYTES);
    assert!(core::mem::offset_of!(LaneControl, sender) == 0);
    assert!(core::mem::offset_of!(LaneControl, receiver) == LINE_BYTES);
    assert!(core::mem::offset_of!(LaneControl, credit) == 2 * LINE_BYTES);
    assert!(
        Geometry {
            ring_lines: DEFAULT_RING_LINES,
            slots: DEFAULT_ARENA_SLOTS
        }
        .is_valid()
    );
    assert!(
        Geometry {
            ring_lines: MAX_RING_LINES,
            slots: MAX_ARENA_SLOTS
        }
        .arena_bytes()
            < 1 << 40
    );
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_do_not_overlap_and_fill_the_arena() {
        let geometry = Geometry {
            ring_lines: MIN_RING_LINES,
            slots: 3,
        };
        let mut end = 0;
        for slot in 0..3 {
            for role in 0..2 {
                assert_eq!(geometry.lane_offset(slot, role), Some(end));
                end += geometry.lane_bytes();
            }
        }
        assert_eq!(end, geometry.arena_bytes());
        assert_eq!(geometry.lane_offset(3, 0), None);
        assert_eq!(geometry.lane_offset(0, 2), None);
    }

    #[test]
    fn arenas_are_mapped_in_whole_pages() {
        let of = |bytes: u64| Pages::of(bytes).unwrap();
        assert_eq!(of(4096), Pages::SMALL);
        assert_eq!(of(MAX_PAGE_BYTES).bytes(), MAX_PAGE_BYTES);
        for wrong in [0, 1, 2048, 4097, 6144, MAX_PAGE_BYTES * 2, u64::MAX] {
            assert_eq!(Pages::of(wrong), None, "{wrong}");
        }
        let geometry = |slots| Geometry {
            ring_lines: MIN_RING_LINES,
            slots,
        };
        let bytes = |slots| geometry(slots).arena_bytes();
        assert_eq!(bytes(8), 589_824);
        assert_eq!(Pages::SMALL.mapped_bytes(bytes(8)), 589_824);
        assert_eq!(of(2 << 20).mapped_bytes(bytes(8)), 2 << 20);
        assert_eq!(of(2 << 20).mapped_bytes(bytes(29)), 4 << 20);
        assert!(of(2 << 20).begin_at(4 << 20) && !of(2 << 20).begin_at(4096));
    }

    #[test]
    fn posted_flags_are_numbered_from_1_on() {
        let word = posted_flags::next(0, 7);
        assert_eq!(posted_flags::of(word), (1, 7));
        let last = u64::from(u32::MAX) << 32;
        assert_eq!(posted_flags::of(posted_flags::next(last, 3)), (1, 3));
        assert!(posted_flags::is_later(1, u32::MAX));
        assert!(!posted_flags::is_later(u32::MAX, 1));
        assert!(!posted_flags::is_later(5, 5));
    }

    #[test]
    fn a_lying_geometry_is_refused() {
        for ring_lines in [0, 1, 100, MIN_RING_LINES + 1, MAX_RING_LINES * 2, u32::MAX] {
            assert!(
                !Geometry {
                    ring_lines,
                    slots: 1
                }
                .is_valid(),
                "{ring_lines}"
            );
        }
        for slots in [0, MAX_ARENA_SLOTS + 1, u32::MAX] {
            assert!(
                !Geometry {
                    ring_lines: MIN_RING_LINES,
                    slots
                }
                .is_valid(),
                "{slots}"
            );
        }
    }
}
