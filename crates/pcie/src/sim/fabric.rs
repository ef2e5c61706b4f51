//! Links, hops and the root complex as one system that a device model drives.
//!
//! The user submits DMA reads and writes (as the device) and register accesses (as the host), then
//! polls: [`Fabric::poll`] advances virtual time to the next thing that the user has to know. Requests
//! are split as the configuration says; completions come back split too, and are reported one by one
//! because devices start on the first.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::iommu::Counts;
use super::link::{CreditGate, Wire, left_for_packets};
use super::root::{Root, Setup};
use super::slab::Slab;
use super::split::{completions, pieces};
use super::trace::{Record, Trace};
use super::{Ps, ps};
use crate::model::explain::Direction;
use crate::model::{LinkConfig, Tlp, TlpKind};
use crate::profile::{Host, ProfileError};

pub use super::options::{FabricError, Hop, MAX_HOPS, MAX_TAGS, Options, OptionsError};

/// The latest virtual time, 53 days: so far from the largest [`Ps`] that no step beyond it overflows.
const LATEST: Ps = 1 << 62;

/// A transaction's handle; the user's own numbers come back with it.
pub type Transaction = u32;

/// What the user is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A completion of a DMA read arrived at the device.
    ReadData {
        /// Which read.
        transaction: Transaction,
        /// The user's number.
        cookie: u64,
        /// Bytes in this completion.
        bytes: u32,
        /// Nothing is missing any more.
        last: bool,
    },
    /// A DMA write is visible to the host.
    WriteVisible {
        /// The user's number.
        cookie: u64,
    },
    /// A host's register write arrived at the device.
    HostWrite {
        /// The user's number.
        cookie: u64,
        /// Bytes.
        bytes: u32,
    },
    /// A host's register read arrived at the device, which answers with [`Fabric::answer`].
    HostRead {
        /// Which read.
        transaction: Transaction,
        /// The user's number.
        cookie: u64,
        /// Bytes asked for.
        bytes: u32,
    },
    /// The answer to a host's register read arrived at the host.
    HostReadDone {
        /// The user's number.
        cookie: u64,
    },
    /// A timer of the user's.
    Timer {
        /// The user's number.
        cookie: u64,
    },
}

#[derive(Debug, Clone, Copy)]
struct Packet {
    kind: TlpKind,
    direction: Direction,
    address: u64,
    data_bytes: u32,
    transaction: Transaction,
    segment: u8,
    /// The completion that ends its request, and frees its tag.
    ends_request: bool,
    /// A request that is answered line by line.
    by_line: bool,
    /// How long the link is idle after the request's answer.
    gap: Ps,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    cookie: u64,
    missing_bytes: u32,
    requests: u32,
    from_host: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Arrive,
    Forward,
    DataReady,
    Freed,
    Visible,
    Timer,
}

type Scheduled = Reverse<(Ps, u64, Step, u32)>;

/// The system.
#[derive(Debug)]
pub struct Fabric {
    link: LinkConfig,
    completion_bytes: u32,
    completion_gap: Ps,
    write_dllp: Ps,
    busy_until: Ps,
    now: Ps,
    order: u64,
    queue: BinaryHeap<Scheduled>,
    packets: Slab<Packet>,
    transactions: Slab<Pending>,
    timers: Slab<u64>,
    up: Vec<Wire>,
    down: Vec<Wire>,
    hops: Vec<Ps>,
    posted: CreditGate,
    nonposted: CreditGate,
    tags: u32,
    waiting_posted: VecDeque<u32>,
    waiting_reads: VecDeque<u32>,
    ready: VecDeque<Event>,
    root: Root,
    trace: Trace,
    sent: u64,
    is_too_late: bool,
}

impl Fabric {
    /// The system of this host.
    ///
    /// # Errors
    /// [`FabricError`] if the profile or an option cannot be simulated.
    pub fn new(host: &Host, options: &Options) -> Result<Self, FabricError> {
        host.check()?;
        options.check()?;
        let link = host.link.config().map_err(|cause| ProfileError::Link {
            place: format!("host profile {}", host.name),
            cause,
        })?;
        let (gbps, dllp_bytes) = left_for_packets(&link, &host.link);
        let wire = Wire::new(gbps, 0.0);
        let setup = Setup {
            iommu: options.iommu,
            remote: options.remote_node,
            cache: options.cache,
            window: options.window_start..options.window_start + options.window_bytes,
            deep_sleeps: options.deep_sleeps,
        };
        let write_dllp = wire.time(dllp_bytes);
        let wires = vec![wire; options.hops.len() + 1];
        Ok(Self {
            completion_bytes: link.completion_bytes().min(host.completion_bytes),
            link,
            completion_gap: ps(host.completion_gap_ns),
            write_dllp,
            busy_until: 0,
            now: 0,
            order: 0,
            queue: BinaryHeap::with_capacity(1024),
            packets: Slab::default(),
            transactions: Slab::default(),
            timers: Slab::default(),
            up: wires.clone(),
            down: wires,
            hops: options.hops.iter().map(|hop| ps(hop.forward_ns)).collect(),
            posted: CreditGate::new(&host.posted),
            nonposted: CreditGate::headers_only(host.nonposted_headers),
            tags: options.tags,
            waiting_posted: VecDeque::new(),
            waiting_reads: VecDeque::new(),
            ready: VecDeque::new(),
            root: Root::new(host, setup, options.seed),
            trace: Trace::new(options.trace_limit),
            sent: 0,
            is_too_late: false,
        })
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Ps {
        self.now
    }

    /// Whether something would happen after the latest time that is simulated; nothing is reported
    /// from then on.
    #[must_use]
    pub fn is_too_late(&self) -> bool {
        self.is_too_late
    }

    /// TLPs put on links so far.
    #[must_use]
    pub fn tlps(&self) -> u64 {
        self.sent
    }

    /// The recorded TLPs.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Lets a write have happened long ago: the cache is as it leaves it, and no time passes.
    pub fn settle(&mut self, address: u64, bytes: u32) {
        self.root.settle(address, bytes);
    }

    /// Posted packets that wait for credits.
    #[must_use]
    pub fn writes_waiting(&self) -> usize {
        self.waiting_posted.len()
    }

    /// Time that one packet occupies a link.
    #[must_use]
    pub fn wire_time(&self, kind: TlpKind, payload_bytes: u32) -> Ps {
        self.up[0].time(
            Tlp {
                kind,
                payload_bytes,
            }
            .wire_bytes(&self.link),
        )
    }

    /// Time that the root complex's deep sleeps take on average in what has been simulated so far.
    #[must_use]
    pub fn deep_sleep(&self) -> Ps {
        self.root.deep_sleep()
    }

    /// What the IOMMU did.
    #[must_use]
    pub fn translations(&self) -> Counts {
        self.root.translations()
    }

    /// The device reads host memory.
    pub fn dma_read(&mut self, address: u64, bytes: u32, cookie: u64) -> Transaction {
        let most = self.link.spec().mrrs_bytes;
        let requests = bytes.div_ceil(most);
        let transaction = self.transactions.insert(Pending {
            cookie,
            missing_bytes: bytes,
            requests,
            from_host: false,
        });
        for (address, data_bytes) in pieces(address, bytes, most) {
            let packet = self.packet(
                TlpKind::MemoryRead,
                Direction::Up,
                address,
                data_bytes,
                transaction,
            );
            self.waiting_reads.push_back(packet);
        }
        self.send_waiting();
        transaction
    }

    /// The device writes host memory with packets of the link's payload size.
    pub fn dma_write(&mut self, address: u64, bytes: u32, cookie: u64) -> Transaction {
        let most = self.link.spec().mps_bytes;
        let parts: Vec<u32> = pieces(address, bytes, most).map(|(_, n)| n).collect();
        self.dma_write_parts(address, &parts, cookie)
    }

    /// The device writes host memory with packets of these sizes, and more of them where one would
    /// cross a 4 KiB boundary.
    pub fn dma_write_parts(&mut self, address: u64, parts: &[u32], cookie: u64) -> Transaction {
        let transaction = self.transactions.insert(Pending {
            cookie,
            missing_bytes: 0,
            requests: 0,
            from_host: false,
        });
        let (mut address, mut requests) = (address, 0);
        for &part in parts {
            for (at, bytes) in pieces(address, part, u32::MAX) {
                let kind = TlpKind::MemoryWrite;
                let packet = self.packet(kind, Direction::Up, at, bytes, transaction);
                self.waiting_posted.push_back(packet);
                requests += 1;
            }
            address += u64::from(part);
        }
        self.transactions[transaction].requests = requests;
        self.send_waiting();
        transaction
    }

    /// The host writes a device register, or a write-combined line.
    pub fn host_write(&mut self, bytes: u32, cookie: u64) {
        let transaction = self.transactions.insert(Pending {
            cookie,
            missing_bytes: bytes,
            requests: 1,
            from_host: true,
        });
        let packet = self.packet(TlpKind::MemoryWrite, Direction::Down, 0, bytes, transaction);
        self.transmit(packet);
    }

    /// The host reads a device register.
    pub fn host_read(&mut self, bytes: u32, cookie: u64) -> Transaction {
        let transaction = self.transactions.insert(Pending {
            cookie,
            missing_bytes: bytes,
            requests: 1,
            from_host: true,
        });
        let packet = self.packet(TlpKind::MemoryRead, Direction::Down, 0, bytes, transaction);
        self.transmit(packet);
        transaction
    }

    /// The device answers a host's read, now or later.
    pub fn answer(&mut self, transaction: Transaction) {
        let bytes = self.transactions[transaction].missing_bytes;
        let packet = self.packet(TlpKind::Completion, Direction::Up, 0, bytes, transaction);
        self.transmit(packet);
    }

    /// Reports [`Event::Timer`] at this time.
    pub fn timer(&mut self, at: Ps, cookie: u64) {
        let timer = self.timers.insert(cookie);
        self.schedule(at, Step::Timer, timer);
    }

    /// Advances to the next event, or says that nothing is under way any more.
    pub fn poll(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.is_too_late {
                return None;
            }
            let Reverse((at, _, step, id)) = self.queue.pop()?;
            self.now = at;
            match step {
                Step::Arrive => self.arrive(id),
                Step::Forward => self.transmit(id),
                Step::DataReady => self.complete(id),
                Step::Freed => self.freed(id),
                Step::Visible => self.visible(id),
                Step::Timer => {
                    let cookie = self.timers.remove(id);
                    self.ready.push_back(Event::Timer { cookie });
                }
            }
        }
    }

    fn packet(
        &mut self,
        kind: TlpKind,
        direction: Direction,
        address: u64,
        bytes: u32,
        of: Transaction,
    ) -> u32 {
        let segment = match direction {
            Direction::Up => 0,
            Direction::Down => u8::try_from(self.hops.len()).expect("at most MAX_HOPS"),
        };
        self.packets.insert(Packet {
            kind,
            direction,
            address,
            data_bytes: bytes,
            transaction: of,
            segment,
            ends_request: false,
            by_line: false,
            gap: 0,
        })
    }

    fn schedule(&mut self, at: Ps, step: Step, id: u32) {
        self.order += 1;
        self.is_too_late |= at > LATEST;
        self.queue.push(Reverse((at, self.order, step, id)));
    }

    /// Sends what credits and tags allow. Reads do not pass writes that wait
    /// (PCIe Base Specification 2.4.1), writes may pass reads.
    fn send_waiting(&mut self) {
        while let Some(&packet) = self.waiting_posted.front() {
            if !self.posted.take(self.packets[packet].data_bytes) {
                return;
            }
            self.waiting_posted.pop_front();
            self.transmit(packet);
        }
        while let Some(&packet) = self.waiting_reads.front() {
            if self.tags == 0 || !self.nonposted.take(0) {
                return;
            }
            self.tags -= 1;
            self.waiting_reads.pop_front();
            self.transmit(packet);
        }
    }

    fn transmit(&mut self, id: u32) {
        let packet = self.packets[id];
        let payload_bytes = if packet.kind == TlpKind::MemoryRead {
            0
        } else {
            packet.data_bytes
        };
        let wire_bytes = Tlp {
            kind: packet.kind,
            payload_bytes,
        }
        .wire_bytes(&self.link);
        let wires = if packet.direction == Direction::Up {
            &mut self.up
        } else {
            &mut self.down
        };
        let (start, end) = wires[usize::from(packet.segment)].send(self.now, wire_bytes);
        self.sent += 1;
        if usize::from(packet.segment) == self.hops.len() {
            let idle = start.saturating_sub(self.busy_until);
            self.busy_until = self.busy_until.max(end);
            self.root.link_was_used(idle, packet.kind, start, end);
        }
        self.trace.add(Record {
            start,
            end,
            direction: packet.direction,
            segment: packet.segment,
            kind: packet.kind,
            address: packet.address,
            data_bytes: packet.data_bytes,
            wire_bytes,
            transaction: packet.transaction,
        });
        self.schedule(end, Step::Arrive, id);
    }

    /// The end of a segment: a hop's buffer, the root complex, or the device.
    fn arrive(&mut self, id: u32) {
        let packet = &mut self.packets[id];
        let hop = match packet.direction {
            Direction::Up if usize::from(packet.segment) < self.hops.len() => {
                packet.segment += 1;
                Some(usize::from(packet.segment) - 1)
            }
            Direction::Down if packet.segment > 0 => {
                packet.segment -= 1;
                Some(usize::from(packet.segment))
            }
            _ => None,
        };
        let packet = *packet;
        match (hop, packet.direction) {
            (Some(hop), _) => self.schedule(self.now + self.hops[hop], Step::Forward, id),
            (None, Direction::Up) => self.at_root(id, packet),
            (None, Direction::Down) => self.at_device(id, packet),
        }
    }

    fn at_root(&mut self, id: u32, packet: Packet) {
        match packet.kind {
            TlpKind::MemoryWrite => {
                let (freed, visible) = self.root.write(self.now, packet.address, packet.data_bytes);
                let root = self.hops.len();
                self.down[root].occupy(self.now, self.write_dllp);
                self.busy_until = self.busy_until.max(self.down[root].free_at());
                let flag = self.packets.insert(packet);
                self.schedule(freed, Step::Freed, id);
                self.schedule(visible, Step::Visible, flag);
            }
            TlpKind::MemoryRead => {
                let answer = self.root.read(self.now, packet.address, packet.data_bytes);
                self.busy_until = self.busy_until.max(answer.behind_writes);
                self.packets[id].by_line = answer.by_line;
                self.packets[id].gap = answer.gap;
                self.nonposted.give_back(0);
                self.schedule(answer.ready, Step::DataReady, id);
                self.send_waiting();
            }
            TlpKind::Completion => {
                self.packets.remove(id);
                let done = self.transactions.remove(packet.transaction);
                self.ready.push_back(Event::HostReadDone {
                    cookie: done.cookie,
                });
            }
        }
    }

    fn at_device(&mut self, id: u32, packet: Packet) {
        self.packets.remove(id);
        let transaction = packet.transaction;
        let pending = &mut self.transactions[transaction];
        let cookie = pending.cookie;
        let bytes = packet.data_bytes;
        let event = match packet.kind {
            TlpKind::MemoryRead => Event::HostRead {
                transaction,
                cookie,
                bytes,
            },
            TlpKind::MemoryWrite => Event::HostWrite { cookie, bytes },
            TlpKind::Completion => {
                pending.missing_bytes -= bytes;
                Event::ReadData {
                    transaction,
                    cookie,
                    bytes,
                    last: pending.missing_bytes == 0,
                }
            }
        };
        if matches!(
            event,
            Event::HostWrite { .. } | Event::ReadData { last: true, .. }
        ) {
            self.transactions.remove(transaction);
        }
        if packet.ends_request {
            self.tags += 1;
            self.send_waiting();
        }
        self.ready.push_back(event);
    }

    /// A read's data is there: the completions go down.
    fn complete(&mut self, id: u32) {
        let request = self.packets.remove(id);
        let most = if request.by_line {
            self.link.spec().rcb_bytes
        } else {
            self.completion_bytes
        };
        let end = request.address + u64::from(request.data_bytes);
        for (address, bytes) in completions(request.address, end, most, self.link.spec().rcb_bytes)
        {
            let packet = self.packet(
                TlpKind::Completion,
                Direction::Down,
                address,
                bytes,
                request.transaction,
            );
            self.packets[packet].ends_request = address + u64::from(bytes) == end;
            self.transmit(packet);
        }
        let root = self.hops.len();
        self.down[root].pause(self.completion_gap + request.gap);
        self.busy_until = self.busy_until.max(self.down[root].free_at());
        self.root.read_ends(self.down[root].free_at());
    }

    fn freed(&mut self, id: u32) {
        let packet = self.packets.remove(id);
        self.posted.give_back(packet.data_bytes);
        self.send_waiting();
    }

    fn visible(&mut self, id: u32) {
        let packet = self.packets.remove(id);
        let pending = &mut self.transactions[packet.transaction];
        debug_assert!(!pending.from_host, "register writes do not reach memory");
        pending.requests -= 1;
        if pending.requests == 0 {
            let done = self.transactions.remove(packet.transaction);
            self.ready.push_back(Event::WriteVisible {
                cookie: done.cookie,
            });
        }
    }
}
