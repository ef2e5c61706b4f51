//! What carries a message through a window: nothing but the window, a posted lane, a coherent one.
//!
//! *Bare* is the least that moves a message: payload, fence, a number in front of it, fence; the other side
//! waits for the number, copies the payload, and answers in the same way, each message behind the last one.
//! What a lane takes beyond that is its overhead: credit, checks, clearing, requests for doorbells.

use std::hint::spin_loop;

use crosslane_ctl::lane::{DEFAULT_RING_LINES, Geometry, MIN_RING_LINES, WINDOW_RING_LINES};
use crosslane_ring::posted::{PostedRx, PostedTx, Slot};
use crosslane_ring::{RxCursor, TxCursor, WindowLane};
use crosslane_window::backend::{Memory, Window, half_bytes, lasting_halves, lasting_view};
use crosslane_window::inbound::Inbound;
use crosslane_window::outbound::Outbound;

/// One end of whatever carries messages.
pub trait End: Send {
    fn send(&mut self, message: &[u8]);
    fn receive(&mut self, message: &mut [u8]);
    /// Let the other end have what was sent and is held back.
    fn flush(&mut self) {}
}

impl End for Box<dyn End> {
    fn send(&mut self, message: &[u8]) {
        (**self).send(message);
    }

    fn receive(&mut self, message: &mut [u8]) {
        (**self).receive(message);
    }

    fn flush(&mut self) {
        (**self).flush();
    }
}

/// What carries messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    Bare,
    Posted,
    Coherent,
    /// A coherent lane as long as those of connections within a host.
    Grown,
}

impl Carrier {
    /// As rows call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare window",
            Self::Posted => "posted lane",
            Self::Coherent => "coherent lane",
            Self::Grown => "coherent lane that grows",
        }
    }

    /// The carriers of messages that a window is measured by.
    pub fn measured(window: &dyn Window) -> Vec<Self> {
        let mut carriers = vec![Self::Bare, Self::Posted];
        let is_shared = matches!(window.memory(), Memory::Shared(_));
        if window.traits().is_coherent() && is_shared {
            carriers.push(Self::Coherent);
        }
        carriers
    }

    /// Both ends, where the window has room for them. What is in it is lost.
    pub fn ends(self, window: &'static dyn Window) -> Option<[Box<dyn End>; 2]> {
        let lines = self.lines(half_bytes(window));
        clear(window, lane_bytes(lines.max(WINDOW_RING_LINES)));
        Some([self.end(window, 0, 0)?, self.end(window, 1, 0)?])
    }

    /// The end of one side, in what is left of both halves behind so many bytes. These must have been cleared, as far as
    /// [`Carrier::used_bytes`].
    pub fn end(
        self,
        window: &'static dyn Window,
        side: usize,
        from: usize,
    ) -> Option<Box<dyn End>> {
        let room = half_bytes(window).checked_sub(from)?;
        let lines = self.lines(room);
        Some(match self {
            Self::Bare => {
                let (local, remote) = lasting_halves(window, side);
                let (local, remote) = (local.part(from, room)?, remote.part(from, room)?);
                Box::new(Bare::new(local, remote))
            }
            Self::Posted => Box::new(Posted::new(window, side, from, lines)?),
            Self::Coherent | Self::Grown => Box::new(Coherent::new(window, side, from, lines)?),
        })
    }

    /// Of a half with so many bytes of room.
    pub fn used_bytes(self, room: usize) -> usize {
        room.min(2 * lane_bytes(self.lines(room).max(WINDOW_RING_LINES)))
    }

    fn lines(self, room: usize) -> u32 {
        match self {
            Self::Grown => DEFAULT_RING_LINES,
            _ => ring_lines(room),
        }
    }
}

/// As whoever lends slots does before.
pub fn clear(window: &'static dyn Window, lane_bytes: usize) {
    for side in [0, 1] {
        let (local, remote) = lasting_halves(window, side);
        let end = local.bytes().min(2 * lane_bytes);
        (0..end).step_by(8).for_each(|at| local.clear(at));
        remote.fence();
    }
}

/// Messages one behind the other, each behind its number.
struct Bare {
    local: Inbound,
    remote: Outbound,
    sent: u64,
    received: u64,
}

impl Bare {
    fn new(local: Inbound, remote: Outbound) -> Self {
        Self {
            local,
            remote,
            sent: 0,
            received: 0,
        }
    }

    /// Where the message of a number lies, in a part as large as a lane's.
    fn place(&self, number: u64, bytes: usize) -> usize {
        let message = (8 + bytes).next_multiple_of(64);
        let room = self.local.bytes().min(lane_bytes(WINDOW_RING_LINES));
        let places = room / message;
        usize::try_from(number % places as u64).unwrap_or(0) * message
    }
}

impl End for Bare {
    fn send(&mut self, message: &[u8]) {
        self.sent += 1;
        let at = self.place(self.sent, message.len());
        self.remote.put_bytes(at + 8, message);
        self.remote.fence();
        self.remote.store(at, self.sent);
        self.remote.fence();
    }

    fn receive(&mut self, message: &mut [u8]) {
        self.received += 1;
        let at = self.place(self.received, message.len());
        self.local.refresh(at, 8);
        while self.local.load(at) != self.received {
            spin_loop();
            self.local.refresh(at, 8);
        }
        self.local.refresh(at + 8, message.len());
        self.local.take_bytes(at + 8, message);
    }
}

/// The rings of a lane in a half: the usual ones where they fit.
fn ring_lines(half_bytes: usize) -> u32 {
    if lane_bytes(WINDOW_RING_LINES) <= half_bytes {
        WINDOW_RING_LINES
    } else {
        MIN_RING_LINES
    }
}

/// Bytes of a lane with so long a ring.
pub fn lane_bytes(ring_lines: u32) -> usize {
    let slots = 1;
    Geometry { ring_lines, slots }.lane_bytes()
}

struct Posted {
    slot: Slot<Inbound, Outbound>,
    tx: PostedTx,
    rx: PostedRx,
}

impl Posted {
    fn new(window: &'static dyn Window, side: usize, from: usize, lines: u32) -> Option<Self> {
        let (local, remote) = lasting_halves(window, side);
        let part = lane_bytes(lines);
        let slot = Slot::new(local.part(from, part)?, remote.part(from, part)?, lines);
        let (tx, rx) = (PostedTx::default(), PostedRx::default());
        Some(Self { slot, tx, rx })
    }
}

const HONEST: &str = "the other end is this program, here or on the other host";

impl End for Posted {
    fn send(&mut self, message: &[u8]) {
        let mut sent = 0;
        while sent < message.len() {
            sent += self
                .tx
                .write_slice(&self.slot, &message[sent..])
                .expect(HONEST);
            self.tx.answer(&self.slot).expect(HONEST);
        }
    }

    fn receive(&mut self, message: &mut [u8]) {
        let mut received = 0;
        while received < message.len() {
            while !self.rx.has_record(&self.slot) {
                spin_loop();
            }
            received += self
                .rx
                .read_slice(&self.slot, &mut message[received..])
                .expect(HONEST);
            self.rx.answer(&self.slot).expect(HONEST);
        }
    }
}

struct Coherent {
    tx: (WindowLane, TxCursor),
    rx: (WindowLane, RxCursor),
}

impl Coherent {
    fn new(window: &'static dyn Window, side: usize, from: usize, lines: u32) -> Option<Self> {
        let half = half_bytes(window);
        let lane = |number: usize| {
            let view = lasting_view(window, number * half + from, lane_bytes(lines))?;
            WindowLane::new(view, lines)
        };
        Some(Self {
            tx: (lane(side)?, TxCursor::default()),
            rx: (lane(1 - side)?, RxCursor::default()),
        })
    }
}

impl End for Coherent {
    fn send(&mut self, message: &[u8]) {
        let mut sent = 0;
        while sent < message.len() {
            let (lane, tx) = &mut self.tx;
            sent += tx.write_slice(lane, &message[sent..]).expect(HONEST);
        }
    }

    fn receive(&mut self, message: &mut [u8]) {
        let mut received = 0;
        let (lane, rx) = &mut self.rx;
        while received < message.len() {
            while !rx.has_record(lane) {
                spin_loop();
            }
            received += rx
                .read_slice(lane, &mut message[received..])
                .expect(HONEST)
                .bytes;
        }
    }
}
