//! One end of one connection, and where its state lives.
//!
//! What several threads and forked children must agree on is in the slab
//! ([`crosslane_ctl::slab::EndEntry`]); addresses of lanes are private to the process and live in
//! [`Local`]. An [`End`] is two references; making one from a descriptor costs three loads.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};
use std::os::fd::RawFd;

use crosslane_ctl::counter::Counter;
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndEntry, EndPhase, Ending, Mode, end_flags};
use crosslane_ring::trace::{Point, mark};
use crosslane_ring::{LaneMemory, RxCursor, Taken, TxCursor, WindowLane};
use crosslane_sys::store_wait::StoreWait;
use crosslane_sys::{kernel, process as system};

use crate::doubt;
use crate::family;
use crate::heir;
use crate::lane_cell::LaneCell;
use crate::lock::{self, Guard};
use crate::lost::Clock;
use crate::patience;
use crate::posted;
use crate::process::{self, Process};
use crate::restart;
use crate::shares::Shares;
use crate::spare::{self, Behind};
use crate::table::Table;
use crate::unheard;

/// What a process keeps for an end besides the slab.
#[repr(C, align(64))]
pub struct Local {
    tx_lane: LaneCell,
    rx_lane: LaneCell,
    /// A [`crate::table::Home`] where the shared state is elsewhere, otherwise 0.
    pub(crate) home: AtomicU64,
    /// Descriptors of this process that name the end, and [`KEPT`].
    pub(crate) fds: AtomicU32,
    /// The epoll set that the end was last added to, plus 1; for the layer above.
    pub epoll_set: AtomicU32,
    /// Key of the end's registration in that set.
    pub epoll_key: AtomicU32,
    /// Registrations of the end in epoll sets.
    pub registrations: AtomicU32,
    /// 1 once there have been several at a time: in several sets, or by several names.
    pub plural: AtomicU32,
    /// 1 once every epoll set that holds the end knows that rings have been granted; the end
    /// takes no part in the rings before.
    pub adopted: AtomicU32,
    /// A [`Blocked`]: whether a send found no room and the program has not been told of any since.
    pub blocked: AtomicU32,
    /// 1 from waking by a doorbell, or learning that one is on its way, until TCP is seen empty.
    pub(crate) rung: AtomicU32,
    /// 1 while the program builds a message in the sending lane, see [`crate::reserve`].
    pub(crate) reserved: AtomicU32,
    /// Number plus 1 of the library's own descriptor for a connection that the program has closed
    /// under a call that sleeps on it; see [`End::fd`].
    pub(crate) kept: AtomicU32,
    /// Whether the descriptor waits, as far as this process knows: see [`End::is_nonblocking`].
    pub(crate) waiting: AtomicU32,
    /// Calls of this process that sleep on it; see [`crate::stay`].
    pub(crate) calls: AtomicU32,
    /// Those of them that sleep in poll(2) by a number of the program's; see [`crate::stir`].
    pub(crate) polls: AtomicU32,
    /// 1 while the process's event is raised for these.
    pub(crate) stirred: AtomicU32,
    /// Where they look to.
    pub(crate) place: restart::Place,
    /// What the peer had taken when it was last seen to take something, while we wait for room.
    pub(crate) stalled_at: AtomicU64,
    /// When that was, in ticks.
    pub(crate) stalled_since: AtomicU64,
    /// When the kernel was last asked whether the peer still takes anything, in ticks.
    pub(crate) life_seen: AtomicU64,
    /// When a poll of it alone has last asked the kernel, in ticks; for the layer above.
    pub polled: AtomicU64,
    /// When it was first heard that the peer's process has ended, in ticks; 0 if it was not.
    pub(crate) death_heard: AtomicU64,
    /// How far the peer had sent and taken when it was last looked for.
    pub(crate) life_signs: [AtomicU64; 2],
    /// Bytes that it had received when it sent last, until it is registered.
    pub(crate) heard: AtomicU64,
    /// The token of the other end of a socket pair, plus 1; 0 if there is none.
    pub(crate) twin: AtomicU64,
    /// 1 after a receive has taken part of a message whose sender is writing the rest.
    pub(crate) goes_on: AtomicU32,
    /// Of the counts in the slab.
    pub(crate) shares: Shares,
    /// Changes of SO_RCVTIMEO under calls that sleep.
    pub(crate) limits: patience::Changes,
    /// 1 after a fork of which the monitor does not know: it is not told that the end is gone, as the child may use its lanes.
    pub(crate) unleased: AtomicU32,
    /// Calls until the chaos knob acts.
    pub chaos: AtomicU32,
    /// What stands behind the lanes of an end whose other end is on another host.
    pub(crate) behind: Behind,
    /// Of an end whose window is lost.
    pub(crate) clock: Clock,
    /// Of an end whose stream has ended, perhaps before all has come.
    pub(crate) doubt: doubt::Clock,
    /// Of what the peer has not read.
    pub(crate) unheard: unheard::Clock,
}

/// In [`Local::fds`], from then on: whoever closed a name has kept a descriptor for a call that slept. It is counted with the names,
/// as that may have been closed since, and the end's place be another's, when the one who drops the last name sees that it is.
pub(crate) const KEPT: u32 = 1 << 31;

impl Local {
    /// How many descriptors of this process name the end.
    pub fn names(&self) -> u32 {
        self.fds.load(Ordering::SeqCst) & !KEPT
    }

    /// The descriptor that is kept for calls that sleep, if there is one.
    pub(crate) fn kept_number(&self) -> Option<RawFd> {
        let kept = self.kept.load(Ordering::Acquire).checked_sub(1)?;
        Some(kept.cast_signed())
    }
}

/// Values of [`Local::blocked`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Blocked {
    /// No send has found the lane full.
    No = 0,
    /// A send has.
    Fresh = 1,
    /// One has, and the layer above has taken notice.
    Noted = 2,
}

/// Values of [`Local::waiting`]; unknown is any multiple of 4.
const UNKNOWN: u32 = 0;
const WAITS: u32 = 1;
const WAITS_NOT: u32 = 2;

/// One end of one connection.
#[derive(Clone, Copy)]
pub struct End {
    /// The descriptor through which the program reached it.
    pub fd: RawFd,
    /// Index in the slab.
    pub index: u32,
    /// State shared with forked children.
    pub entry: &'static EndEntry,
    /// State of this process.
    pub local: &'static Local,
    process: &'static Process,
    table: &'static Table,
}

impl End {
    /// The end that `fd` names, if there is one. A young connection has none.
    #[inline]
    pub fn known(fd: RawFd) -> Option<Self> {
        mark(Point::Called);
        let process = process::get()?;
        let index = process.index_of(fd)?;
        Some(Self::at(process, index, fd))
    }

    #[inline]
    pub(crate) fn at(process: &'static Process, index: u32, fd: RawFd) -> Self {
        let local = process.local(index);
        let (table, entry) = process.state_of(local, index);
        Self {
            fd,
            index,
            entry,
            local,
            process,
            table,
        }
    }

    /// The same end by another descriptor.
    #[must_use]
    pub fn by_name(self, fd: RawFd) -> Self {
        Self { fd, ..self }
    }

    /// The descriptor for calls to the kernel: the program's, or our own while a call outlives it.
    /// The kernel, too, keeps a socket for the calls inside it.
    #[inline]
    pub fn fd(&self) -> RawFd {
        match self.local.kept.load(Ordering::Acquire) {
            0 => self.fd,
            kept => (kept - 1).cast_signed(),
        }
    }

    /// The process's tables.
    #[inline]
    pub fn process(&self) -> &'static Process {
        self.process
    }

    /// How far the upgrade has come.
    #[inline]
    pub fn phase(&self) -> EndPhase {
        let code = self.entry.id.phase.load(Ordering::Acquire); // SYNC: phase
        EndPhase::from_code(code).unwrap_or(EndPhase::Free)
    }

    /// Move to another phase.
    pub(crate) fn set_phase(&self, phase: EndPhase) {
        self.entry.id.phase.store(phase as u32, Ordering::SeqCst); // SYNC: phase
    }

    /// Names this use of the entry to the monitor.
    pub fn token(&self) -> u64 {
        u64::from(self.process.generation(self.index)) << 32 | u64::from(self.index)
    }

    /// Whether the kernel alone has the stream, and not because it is being closed.
    pub(crate) fn is_kernels(&self) -> bool {
        matches!(self.phase(), EndPhase::Plain | EndPhase::Registered)
    }

    /// The mode of the sending direction.
    #[inline]
    pub fn tx_mode(&self) -> Mode {
        Mode::from_code(self.entry.tx.mode.load(Ordering::Acquire)).unwrap_or(Mode::Tcp)
    }

    /// The mode of the receiving direction.
    #[inline]
    pub fn rx_mode(&self) -> Mode {
        Mode::from_code(self.entry.rx.mode.load(Ordering::Acquire)).unwrap_or(Mode::Tcp)
    }

    pub(crate) fn set_tx_mode(&self, mode: Mode) {
        self.entry.tx.mode.store(mode as u32, Ordering::Release);
    }

    pub(crate) fn set_rx_mode(&self, mode: Mode) {
        self.entry.rx.mode.store(mode as u32, Ordering::Release);
    }

    /// The lane in which this end sends.
    #[inline]
    pub fn tx_lane(&self) -> Option<WindowLane> {
        self.local.tx_lane.get()
    }

    /// The lane in which this end receives.
    #[inline]
    pub fn rx_lane(&self) -> Option<WindowLane> {
        self.local.rx_lane.get()
    }

    pub(crate) fn set_lanes(&self, tx: WindowLane, rx: WindowLane) {
        self.note_size();
        self.local.tx_lane.set(tx);
        self.local.rx_lane.set(rx);
    }

    /// See how much the program lets be on its way.
    pub(crate) fn note_size(&self) {
        let wants_little = self.family().wants_little(self.fd());
        self.local.tx_lane.bound(wants_little);
    }

    /// The program has changed the size of the send buffer of a connection over TCP.
    pub fn resize(&self) {
        self.local.tx_lane.bound(family::is_small(self.fd()));
    }

    pub(crate) fn clear_lanes(&self) {
        self.local.tx_lane.clear();
        self.local.rx_lane.clear();
        spare::give_back(self);
    }

    /// In a forked child that has no descriptor of the end. What stands behind the lanes is the parent's.
    pub(crate) fn forget_lanes(&self) {
        self.local.tx_lane.clear();
        self.local.rx_lane.clear();
    }

    /// Whether a child may use the lanes of which the monitor does not know.
    pub(crate) fn is_unleased(&self) -> bool {
        self.local.unleased.load(Ordering::Relaxed) != 0
    }

    /// The lane in which this end sends, for as long as the sending direction is held. One that was looked
    /// up before may be the end's no more: lanes change while both directions are held.
    #[inline]
    pub(crate) fn hold_tx_lane(&self) -> Option<(WindowLane, Guard<'static>)> {
        self.tx_lane()?;
        let held = self.lock_tx();
        Some((self.tx_lane()?, held))
    }

    /// As [`End::hold_tx_lane`], of the receiving direction.
    #[inline]
    pub(crate) fn hold_rx_lane(&self) -> Option<(WindowLane, Guard<'static>)> {
        self.rx_lane()?;
        let held = self.lock_rx();
        Some((self.rx_lane()?, held))
    }

    /// Hold the sending direction.
    #[inline]
    pub fn lock_tx(&self) -> Guard<'static> {
        match self.try_lock(&self.entry.tx.lock) {
            Some(held) => held,
            None => heir::wait_for_tx(self),
        }
    }

    /// As [`End::lock_tx`], if nobody holds it.
    pub(crate) fn try_lock_tx(&self) -> Option<Guard<'static>> {
        self.try_lock(&self.entry.tx.lock)
    }

    /// As [`End::lock_rx`], if nobody holds it.
    pub(crate) fn try_lock_rx(&self) -> Option<Guard<'static>> {
        self.try_lock(&self.entry.rx.lock)
    }

    /// Hold the receiving direction.
    #[inline]
    pub fn lock_rx(&self) -> Guard<'static> {
        match self.try_lock(&self.entry.rx.lock) {
            Some(held) => held,
            None => heir::wait_for_rx(self),
        }
    }

    #[inline]
    fn try_lock(&self, word: &'static AtomicU32) -> Option<Guard<'static>> {
        let owner = self.table().member().number();
        if system::is_single_threaded() && !self.has_flags(end_flags::FORKED) {
            lock::lock_alone(word, owner)
        } else {
            lock::try_lock(word, owner)
        }
    }

    /// The slab in which the end's shared state is, also after another thread has let go of it.
    #[inline]
    pub(crate) fn table(&self) -> &'static Table {
        self.table
    }

    /// The sender's cursor; the caller holds the sending direction.
    #[inline]
    pub(crate) fn tx_cursor(&self) -> TxCursor {
        TxCursor {
            tail: self.entry.tx.tail.load(Ordering::Relaxed),
            credit: self.entry.tx.credit.load(Ordering::Relaxed),
        }
    }

    /// Store the sender's cursor; the caller holds the sending direction. What is new before it is
    /// posted first where the lane is in a window between hosts.
    #[inline]
    pub(crate) fn set_tx_cursor(&self, cursor: TxCursor) {
        if self.has_flags(end_flags::FAR) {
            spare::post(self, cursor.tail);
        }
        self.set_near_tx_cursor(cursor);
    }

    /// As [`End::set_tx_cursor`], of an end whose other end is on this host.
    #[inline]
    pub(crate) fn set_near_tx_cursor(&self, cursor: TxCursor) {
        // The last: who is killed before has published what an heir finds.
        compiler_fence(Ordering::SeqCst);
        self.entry.tx.tail.store(cursor.tail, Ordering::Relaxed);
        self.entry.tx.credit.store(cursor.credit, Ordering::Relaxed);
    }

    /// The receiver's cursor; the caller holds the receiving direction, or only wants to peek.
    #[inline]
    pub(crate) fn rx_cursor(&self) -> RxCursor {
        RxCursor {
            head: self.entry.rx.head.load(Ordering::Relaxed),
            taken: self.entry.rx.taken.load(Ordering::Relaxed) as usize,
        }
    }

    /// Store the receiver's cursor; the caller holds the receiving direction, and has told the sender.
    #[inline]
    pub(crate) fn set_rx_cursor(&self, cursor: RxCursor) {
        let has_moved = || self.rx_cursor() != cursor;
        let is_told = self.has_flags(end_flags::FAR) && has_moved();
        self.set_near_rx_cursor(cursor);
        if is_told {
            posted::note_read(self);
        }
    }

    /// As [`End::set_rx_cursor`], of an end whose other end is on this host.
    #[inline]
    pub(crate) fn set_near_rx_cursor(&self, cursor: RxCursor) {
        compiler_fence(Ordering::SeqCst);
        // A record has at most 2^13 bytes.
        let taken = u32::try_from(cursor.taken).unwrap_or(u32::MAX);
        self.entry.rx.taken.store(taken, Ordering::Relaxed);
        // The last: between the two, an heir sees that the sender has been told of more.
        compiler_fence(Ordering::SeqCst);
        self.entry.rx.head.store(cursor.head, Ordering::Relaxed);
    }

    /// Count what has been taken from the ring, and keep whether its message goes on.
    pub(crate) fn note_taken(&self, taken: Taken) {
        add(&self.entry.rx.ring_bytes, taken.bytes as u64);
        let goes_on = u32::from(taken.goes_on);
        self.local.goes_on.store(goes_on, Ordering::Relaxed);
    }

    /// Whether a record stands in the receiving lane. Looks at one line and takes no lock, so the
    /// answer is a hint unless the caller holds the receiving direction.
    #[inline]
    pub fn has_record(&self) -> bool {
        match self.rx_lane() {
            Some(lane) => {
                let head = self.entry.rx.head.load(Ordering::Relaxed);
                let line = u32::try_from(head & u64::from(lane.lines() - 1)).unwrap_or(0);
                lane.header(line) != 0 && !self.has_flags(end_flags::FROZEN)
            }
            None => false,
        }
    }

    /// As [`End::has_record`], for one who looks again and again: the record's second line is on its
    /// way when its first has arrived.
    #[inline]
    pub(crate) fn watches_record(&self) -> bool {
        if let Some(lane) = self.rx_lane() {
            let next = self.entry.rx.head.load(Ordering::Relaxed) + 1;
            lane.prefetch(u32::try_from(next & u64::from(lane.lines() - 1)).unwrap_or(0));
        }
        self.has_record()
    }

    /// Rest until the next record may have come, for `ticks` at most.
    pub fn rest_for_record(&self, how: StoreWait, ticks: u64) {
        if let Some(lane) = self.rx_lane() {
            let head = self.entry.rx.head.load(Ordering::Relaxed);
            let line = u32::try_from(head & u64::from(lane.lines() - 1)).unwrap_or(0);
            lane.rest(how, line, ticks, || self.has_record());
        }
    }

    /// Whether the bits of `flags` (see [`end_flags`]) are all set.
    #[inline]
    pub fn has_flags(&self, flags: u32) -> bool {
        self.flags() & flags == flags
    }

    /// All bits that are set.
    #[inline]
    pub(crate) fn flags(&self) -> u32 {
        self.entry.id.flags.load(Ordering::Relaxed)
    }

    pub(crate) fn add_flags(&self, flags: u32) {
        self.entry.id.flags.fetch_or(flags, Ordering::Relaxed);
    }

    pub(crate) fn clear_flags(&self, flags: u32) {
        self.entry.id.flags.fetch_and(!flags, Ordering::Relaxed);
    }

    /// Whether the descriptor has O_NONBLOCK. The flag belongs to the open file, which other
    /// processes may have, too: then the kernel is asked each time.
    #[inline]
    pub fn is_nonblocking(&self) -> bool {
        match self.local.waiting.load(Ordering::Relaxed) {
            WAITS => false,
            WAITS_NOT => true,
            unknown => self.ask_nonblocking(unknown),
        }
    }

    /// What the kernel says is remembered unless it may have changed meanwhile.
    #[cold]
    pub(crate) fn ask_nonblocking(&self, unknown: u32) -> bool {
        let flags = kernel::status_flags(self.fd());
        let is_nonblocking = flags.is_ok_and(|flags| flags & libc::O_NONBLOCK != 0);
        if !self.has_flags(end_flags::FORKED) {
            let known = if is_nonblocking { WAITS_NOT } else { WAITS };
            let waiting = &self.local.waiting;
            let _ = waiting.compare_exchange(unknown, known, Ordering::Relaxed, Ordering::Relaxed);
        }
        is_nonblocking
    }

    /// Whether calls are known to wait.
    #[inline]
    pub(crate) fn is_blocking(&self) -> bool {
        self.local.waiting.load(Ordering::Relaxed) == WAITS
    }

    /// The program may have changed O_NONBLOCK, or may share it with another process.
    pub fn forget_waiting(&self) {
        static TIMES: AtomicU32 = AtomicU32::new(0);
        let times = TIMES.fetch_add(1, Ordering::Relaxed);
        // Each time by another value, so that who has asked before does not take its answer for a new one.
        let unknown = UNKNOWN + (times << 2);
        self.local.waiting.store(unknown, Ordering::Relaxed);
    }

    /// Whether the program builds a message in the sending lane. The caller holds the direction.
    pub(crate) fn is_reserved(&self) -> bool {
        self.local.reserved.load(Ordering::Relaxed) != 0
    }

    /// A send found no room.
    pub fn note_blocked(&self) {
        let fresh = Blocked::Fresh as u32;
        self.local.blocked.store(fresh, Ordering::Relaxed);
        self.entry.tx.refusals.fetch_add(1, Ordering::Relaxed);
    }

    /// How often any process that has the end has found no room; only good to be compared.
    #[inline]
    pub fn refusals(&self) -> u32 {
        self.entry.tx.refusals.load(Ordering::Relaxed)
    }

    /// Somebody else found no room, of which one of this process's sets has yet to tell.
    pub fn note_refusal(&self) {
        let (no, noted) = (Blocked::No as u32, Blocked::Noted as u32);
        let blocked = &self.local.blocked;
        let _ = blocked.compare_exchange(no, noted, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether a send has found no room of which the program has not been told since.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.local.blocked.load(Ordering::Relaxed) != Blocked::No as u32
    }

    /// A send has found room. Sets of epoll have yet to tell of it.
    #[inline]
    pub(crate) fn note_room(&self) {
        if self.is_blocked() && self.local.registrations.load(Ordering::Relaxed) == 0 {
            self.local
                .blocked
                .store(Blocked::No as u32, Ordering::Relaxed);
        }
    }

    /// Whether the end must stay on TCP.
    pub fn is_pinned(&self) -> bool {
        self.has_flags(end_flags::PINNED)
    }

    /// What the kernel has said about the connection's end.
    #[inline]
    pub fn ending(&self) -> Ending {
        match self.entry.wait.ending.load(Ordering::Relaxed) {
            0 => Ending::Open,
            1 => Ending::Eof,
            _ => Ending::Reset,
        }
    }

    pub(crate) fn note_ending(&self, ending: Ending) {
        let noted = &self.entry.wait.ending;
        let before = noted.fetch_max(ending as u32, Ordering::Relaxed);
        if ending == Ending::Eof && before == Ending::Open as u32 {
            self.add_flags(end_flags::ENDED | end_flags::EOF);
        } else if ending != Ending::Open {
            self.add_flags(end_flags::ENDED);
        }
    }

    /// Why the end is on TCP.
    pub fn reason(&self) -> Reason {
        Reason::from_code(self.entry.id.reason.load(Ordering::Relaxed)).unwrap_or(Reason::None)
    }

    pub(crate) fn set_reason(&self, reason: Reason) {
        self.entry.id.reason.store(reason as u32, Ordering::Relaxed);
    }

    /// Count something that happened to this end.
    pub fn count(&self, counter: Counter, by: u64) {
        self.process.count(counter, by);
    }
}

/// Add to a cell that only the holder of a lock writes: no locked instruction is needed.
#[inline]
pub(crate) fn add(cell: &AtomicU64, by: u64) {
    cell.store(
        cell.load(Ordering::Relaxed).wrapping_add(by),
        Ordering::Relaxed,
    );
}
