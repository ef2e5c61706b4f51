//! Doorbells and data on one TCP connection, as the two sides of a direction tell them apart
//! (DESIGN 3.4).
//!
//! The sender publishes its total of TCP bytes before it sends a doorbell, and a STOP in the lane
//! before it puts data on TCP. A receiver that reads the total, and then finds no STOP, knows all
//! bytes up to the total for doorbells. On TCP it asks how much there is before it looks for a
//! START, which comes before doorbells. A sender says that it rings before it takes the request
//! away, so that an end which takes its requests back knows whether a doorbell is on its way.
//!
//! The checker takes sequentially consistent accesses for acquire and release ones; where more
//! than that is needed, a fence stands here beside them.

use std::collections::VecDeque;
use std::sync::Arc;

use crosslane_ctl::lane::RINGING;
use crosslane_ctl::lane::receiver_flags::{ARMED, FROZEN};
use crosslane_ring::Control;
use crosslane_ring::receive::Next;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::sync::{Condvar, Mutex};

use crate::lane::{Fault, LoomLane};
use crate::support::sides::{ReceiveSide, SendSide, stream_bytes};

/// Bytes of a record of data.
pub const RECORD_BYTES: usize = 8;

/// What a side does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lapse {
    Nothing,
    /// The receiver reads the total only after it has looked for a STOP.
    TotalAfterLook,
    /// It takes bytes up to the total without looking into the lane.
    NoLook,
    /// On TCP it looks for a START before it asks how much there is.
    StartBeforeTcp,
    /// The sender counts a doorbell in its total only after it has sent it.
    TotalAfterSend,
    /// It does not say that it is about to ring.
    NoRinging,
    /// It rings for a request that it has seen, whether or not it is still there.
    NoExchange,
    /// It rings unasked, although the receiver wants that no more.
    ProbeAlways,
    /// The closing end looks for doorbells before it takes its requests back.
    WithdrawLate,
    /// On TCP it closes without looking for a START.
    CloseOnTcp,
}

/// A byte on TCP. Only the test knows which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpByte {
    Data,
    Bell,
}

/// The bytes on their way from the sender to the receiver.
struct Tcp {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    bytes: VecDeque<TcpByte>,
    is_closed: bool,
    /// Bytes that a close has found unread, and that came afterwards: a kernel would have reset.
    lost: usize,
}

impl Tcp {
    fn send(&self, byte: TcpByte) {
        let mut queue = self.queue.lock().unwrap();
        if queue.is_closed {
            queue.lost += 1;
        } else {
            queue.bytes.push_back(byte);
            self.changed.notify_one();
        }
    }

    fn available(&self) -> u64 {
        self.queue.lock().unwrap().bytes.len() as u64
    }

    /// Sleep until there is something to read.
    fn wait(&self) {
        let mut queue = self.queue.lock().unwrap();
        while queue.bytes.is_empty() {
            queue = self.changed.wait(queue).unwrap();
        }
    }

    /// Read up to `most` bytes, which the receiver takes for `expected`.
    fn read(&self, most: u64, expected: TcpByte) -> u64 {
        let mut queue = self.queue.lock().unwrap();
        let mut count = 0;
        while count < most
            && let Some(byte) = queue.bytes.pop_front()
        {
            assert_eq!(byte, expected, "TCP was misunderstood");
            count += 1;
        }
        count
    }
}

/// What the two sides share besides the lane.
struct Shared {
    tcp: Tcp,
    /// In the sender's line.
    tcp_total: AtomicU64,
    /// In the receiver's line.
    flags: AtomicU32,
    /// In the sender's line of the other lane, in which the receiver sends.
    space_wanted: AtomicU32,
    lapse: Lapse,
}

/// The two sides of a direction on TCP that has a lane.
pub fn direction(lapse: Lapse) -> (Sender, Receiver) {
    let lane = LoomLane::new(8, 0, Fault::None);
    let shared = Arc::new(Shared {
        tcp: Tcp {
            queue: Mutex::default(),
            changed: Condvar::new(),
        },
        tcp_total: AtomicU64::new(0),
        flags: AtomicU32::new(0),
        space_wanted: AtomicU32::new(0),
        lapse,
    });
    let sender = Sender {
        side: SendSide::new(lane.clone(), 0),
        shared: Arc::clone(&shared),
        tcp_bytes: 0,
        sent: 0,
    };
    let receiver = Receiver {
        side: ReceiveSide::new(lane, 0),
        shared,
        is_in_ring: false,
        tcp_bytes: 0,
        received: 0,
    };
    (sender, receiver)
}

/// The sending side, which rings.
pub struct Sender {
    side: SendSide<LoomLane>,
    shared: Arc<Shared>,
    /// Bytes put on TCP in all.
    tcp_bytes: u64,
    /// Bytes of the stream sent in the lane.
    sent: u64,
}

impl Sender {
    /// Put a byte of the stream on TCP.
    pub fn data(&mut self) {
        self.shared.tcp.send(TcpByte::Data);
        self.tcp_bytes += 1;
    }

    /// Enter the lane.
    pub fn start(&mut self) {
        self.publish(self.tcp_bytes, 0);
        assert_eq!(self.side.control(Control::Start, self.tcp_bytes), Ok(true));
        self.ring_if_armed();
    }

    /// Send a record of data.
    pub fn record(&mut self) {
        let payload = stream_bytes(self.sent, RECORD_BYTES);
        assert_eq!(
            self.side.write(&[RECORD_BYTES], &payload),
            Ok(vec![RECORD_BYTES])
        );
        self.sent += RECORD_BYTES as u64;
        self.ring_if_armed();
    }

    /// Say that the end is near.
    pub fn closing(&mut self) {
        assert_eq!(self.side.control(Control::Closing, 0), Ok(true));
        self.ring_if_armed();
    }

    /// Leave the lane.
    pub fn stop(&mut self) {
        assert_eq!(self.side.control(Control::Stop, self.tcp_bytes), Ok(true));
    }

    /// Ring although nobody has asked, unless the receiver wants none of that.
    pub fn probe(&mut self) {
        let lapse = self.shared.lapse;
        self.ring_if(|shared| {
            shared.flags.load(Acquire) & FROZEN == 0 || lapse == Lapse::ProbeAlways
        });
    }

    /// Ring the receiver if it waits for space in the other lane.
    pub fn answer_space(&mut self) {
        let lapse = self.shared.lapse;
        if self.shared.space_wanted.load(Relaxed) != 0 {
            self.ring_if(|shared| {
                shared.space_wanted.swap(0, AcqRel) != 0 || lapse == Lapse::NoExchange
            });
        }
    }

    fn ring_if_armed(&mut self) {
        let lapse = self.shared.lapse;
        if self.shared.flags.load(Relaxed) & ARMED != 0 {
            self.ring_if(|shared| {
                shared.flags.fetch_and(!ARMED, AcqRel) & ARMED != 0 || lapse == Lapse::NoExchange
            });
        }
    }

    fn ring_if(&mut self, is_asked: impl FnOnce(&Shared) -> bool) {
        let lapse = self.shared.lapse;
        if lapse != Lapse::NoRinging {
            self.publish(self.tcp_bytes, RINGING);
        }
        let owed = u64::from(is_asked(&self.shared));
        let counted = if lapse == Lapse::TotalAfterSend {
            0
        } else {
            owed
        };
        self.publish(self.tcp_bytes + counted, 0);
        for _ in 0..owed {
            self.shared.tcp.send(TcpByte::Bell);
        }
        self.tcp_bytes += owed;
        if counted != owed {
            self.publish(self.tcp_bytes, 0);
        }
    }

    fn publish(&self, total: u64, ringing: u64) {
        self.shared.tcp_total.store(total << 1 | ringing, Release);
        fence(SeqCst);
    }
}

/// The receiving side, for which the sender rings.
pub struct Receiver {
    side: ReceiveSide<LoomLane>,
    shared: Arc<Shared>,
    is_in_ring: bool,
    /// Bytes taken from TCP in all.
    tcp_bytes: u64,
    /// Bytes of the stream received in the lane.
    received: u64,
}

impl Receiver {
    /// Follow the direction into the lane, where it is already.
    pub fn receive_start(&mut self) {
        assert!(self.step_tcp() && self.is_in_ring);
    }

    /// Receive until so many bytes have come in the lane.
    pub fn receive(&mut self, in_ring: u64) {
        while self.received < in_ring {
            let has_moved = if self.is_in_ring {
                self.step_ring()
            } else {
                self.step_tcp()
            };
            if !has_moved {
                self.sleep();
            }
        }
    }

    fn step_tcp(&mut self) -> bool {
        let (held, start) = if self.shared.lapse == Lapse::StartBeforeTcp {
            let start = self.start();
            (self.shared.tcp.available(), start)
        } else {
            (self.shared.tcp.available(), self.start())
        };
        let Some(limit) = start else {
            self.tcp_bytes += self.shared.tcp.read(held, TcpByte::Data);
            return held > 0;
        };
        self.read_up_to(limit, TcpByte::Data);
        self.side.cursor.pass_control(&self.side.lane);
        self.is_in_ring = true;
        true
    }

    /// Where the stream enters the lane, if the sender has said so.
    fn start(&self) -> Option<u64> {
        match self.side.cursor.peek(&self.side.lane).unwrap() {
            Next::Empty => None,
            Next::Control(Control::Start, count) => Some(count),
            other => panic!("{other:?} before a START"),
        }
    }

    fn step_ring(&mut self) -> bool {
        match self.side.cursor.peek(&self.side.lane).unwrap() {
            Next::Empty => return false,
            Next::Data(_) => {
                let (bytes, _) = self.side.read(&[RECORD_BYTES]).unwrap();
                assert_eq!(bytes, stream_bytes(self.received, bytes.len()));
                self.received += bytes.len() as u64;
            }
            Next::Control(Control::Stop, count) => {
                self.side.cursor.pass_control(&self.side.lane);
                self.read_up_to(count, TcpByte::Bell);
                self.is_in_ring = false;
            }
            Next::Control(Control::Closing, _) => self.side.cursor.pass_control(&self.side.lane),
            other => panic!("{other:?} in the ring"),
        }
        true
    }

    /// Take all up to a count from TCP, which the lane has announced to be `expected`.
    fn read_up_to(&mut self, count: u64, expected: TcpByte) {
        assert!(self.tcp_bytes <= count, "too much was taken from TCP");
        while self.tcp_bytes < count {
            self.shared.tcp.wait();
            let left = count - self.tcp_bytes;
            self.tcp_bytes += self.shared.tcp.read(left, expected);
        }
    }

    fn sleep(&mut self) {
        self.arm();
        if !self.side.cursor.has_record(&self.side.lane) {
            self.shared.tcp.wait();
            if self.is_in_ring {
                self.take_if_empty();
            }
        }
        self.disarm();
    }

    /// Ask for a doorbell with the next record.
    pub fn arm(&self) {
        self.shared.flags.fetch_or(ARMED, AcqRel);
        fence(SeqCst);
    }

    fn disarm(&self) {
        self.shared.flags.fetch_and(!ARMED, AcqRel);
    }

    /// Ask for a doorbell when there is space in the other lane.
    pub fn want_space(&self) {
        self.shared.space_wanted.store(1, Release);
        fence(SeqCst);
    }

    /// Take doorbells off TCP. Returns whether none is left, nor on its way.
    fn take(&mut self) -> bool {
        self.take_unless(Self::has_stop)
    }

    /// Take doorbells off TCP, but for that of a record that stands in the lane.
    fn take_if_empty(&mut self) {
        self.take_unless(|this| this.side.cursor.has_record(&this.side.lane));
    }

    fn take_unless(&mut self, speaks_against: impl FnOnce(&Self) -> bool) -> bool {
        let total = |this: &Self| this.shared.tcp_total.load(Acquire);
        let (published, must_leave) = match self.shared.lapse {
            Lapse::NoLook => (total(self), false),
            Lapse::TotalAfterLook => {
                let must_leave = speaks_against(self);
                (total(self), must_leave)
            }
            _ => (total(self), speaks_against(self)),
        };
        let missing = (published >> 1).saturating_sub(self.tcp_bytes);
        let taken = if must_leave {
            0
        } else {
            self.shared.tcp.read(missing, TcpByte::Bell)
        };
        self.tcp_bytes += taken;
        taken == missing && published & RINGING == 0
    }

    /// Whether data may follow the doorbells on TCP.
    fn has_stop(&self) -> bool {
        let mut at = self.side.cursor;
        loop {
            match at.peek(&self.side.lane).unwrap() {
                Next::Empty => return false,
                Next::Data(left) => at.pass(left, left),
                Next::Control(Control::Closing, _) => at.head += 1,
                Next::Control(..) => return true,
            }
        }
    }

    /// Look for doorbells, at a moment that nothing suggests.
    pub fn look(&mut self) {
        if self.is_in_ring {
            self.take();
        }
    }

    /// Close: take all requests back, and wait until no doorbell can come any more.
    pub fn close(&mut self) {
        let mut is_over = self.shared.lapse == Lapse::WithdrawLate && self.are_bells_over();
        self.shared.flags.fetch_or(FROZEN, AcqRel);
        fence(SeqCst);
        self.shared.space_wanted.swap(0, AcqRel);
        self.disarm();
        while !is_over {
            is_over = self.are_bells_over();
            if !is_over {
                loom::thread::yield_now();
            }
        }
        let mut queue = self.shared.tcp.queue.lock().unwrap();
        queue.is_closed = true;
        queue.lost += queue.bytes.len();
    }

    fn are_bells_over(&mut self) -> bool {
        if !self.is_in_ring {
            if self.shared.lapse == Lapse::CloseOnTcp || self.start().is_none() {
                return true;
            }
            self.step_tcp();
        }
        while self.step_ring() {}
        self.take()
    }

    /// That every byte on TCP that was not taken is a doorbell.
    pub fn check_left(&self, sender: &Sender) {
        let left = self.shared.tcp.read(u64::MAX, TcpByte::Bell);
        assert_eq!(self.tcp_bytes + left, sender.tcp_bytes);
    }

    /// That the close has left nothing behind.
    pub fn check_closed(&self) {
        let lost = self.shared.tcp.queue.lock().unwrap().lost;
        assert_eq!(lost, 0, "a doorbell was left behind");
    }
}
