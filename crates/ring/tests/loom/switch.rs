//! Doorbells among data, while a direction goes from TCP to the ring (DESIGN 3.7).
//!
//! TCP carries the stream up to a number that the sender publishes in a control record, and then
//! doorbells, which look like data. Before it reads TCP the receiver takes `ARMED` away: if it is
//! gone already, a doorbell is under way and the control record is visible; else none can come,
//! and all that is on TCP is data.

use std::collections::VecDeque;

use crosslane_ctl::lane::receiver_flags::ARMED;
use crosslane_ring::Control;
use crosslane_ring::receive::Next;
use loom::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use loom::sync::atomic::{AtomicU32, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;

use crate::check;
use crate::lane::{Fault, LoomLane};
use crate::support::sides::{ReceiveSide, SendSide};

/// Whether the receiver does as it should.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lapse {
    Nothing,
    /// It takes `ARMED` away only after it has read TCP.
    DisarmLate,
}

/// A byte on TCP. Only the test knows which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TcpByte {
    Data,
    Bell,
}

struct Tcp {
    bytes: Mutex<VecDeque<TcpByte>>,
    changed: Condvar,
}

impl Tcp {
    fn send(&self, byte: TcpByte) {
        self.bytes.lock().unwrap().push_back(byte);
        self.changed.notify_one();
    }

    /// Sleep until there is something to read.
    fn wait(&self) {
        let mut bytes = self.bytes.lock().unwrap();
        while bytes.is_empty() {
            bytes = self.changed.wait(bytes).unwrap();
        }
    }

    /// Read up to `most` bytes, which the receiver takes for `expected`.
    fn read(&self, most: u64, expected: TcpByte) -> u64 {
        let mut bytes = self.bytes.lock().unwrap();
        let mut count = 0;
        while count < most
            && let Some(byte) = bytes.pop_front()
        {
            assert_eq!(byte, expected, "TCP was misunderstood");
            count += 1;
        }
        count
    }
}

struct Shared {
    flags: AtomicU32,
    tcp: Tcp,
}

/// Bytes that go by TCP.
const BEFORE_SWITCH: u64 = 1;

/// Bytes that go by the ring.
const AFTER_SWITCH: usize = 8;

fn send(mut side: SendSide<LoomLane>, shared: &Shared) {
    for _ in 0..BEFORE_SWITCH {
        shared.tcp.send(TcpByte::Data);
    }
    assert_eq!(side.control(Control::Start, BEFORE_SWITCH), Ok(true));
    ring_if_armed(shared);
    side.write(&[AFTER_SWITCH], &[7; AFTER_SWITCH]).unwrap();
    ring_if_armed(shared);
}

fn ring_if_armed(shared: &Shared) {
    if shared.flags.load(Relaxed) & ARMED != 0
        && shared.flags.fetch_and(!ARMED, AcqRel) & ARMED != 0
    {
        shared.tcp.send(TcpByte::Bell);
    }
}

/// The receiver: what it has read from TCP, and the bells that it knows to be under way there.
struct Receiver {
    side: ReceiveSide<LoomLane>,
    from_tcp: u64,
    bells: u64,
}

impl Receiver {
    /// Where the stream continues in the ring, if the sender has said so.
    fn switched_at(&self) -> Option<u64> {
        match self.side.cursor.peek(&self.side.lane).unwrap() {
            Next::Control(Control::Start, position) => Some(position),
            _ => None,
        }
    }

    fn disarm(&mut self, shared: &Shared) {
        if shared.flags.fetch_and(!ARMED, AcqRel) & ARMED == 0 {
            self.bells += 1;
        }
    }

    /// Read on TCP until the direction has switched and TCP is drained.
    fn receive_tcp(&mut self, shared: &Shared, lapse: Lapse) {
        loop {
            shared.flags.fetch_or(ARMED, SeqCst);
            fence(SeqCst);
            if self.switched_at().is_none() {
                shared.tcp.wait();
            }
            let bells_before = self.bells;
            if lapse != Lapse::DisarmLate {
                self.disarm(shared);
            }
            match self.switched_at() {
                None => {
                    assert_eq!(
                        self.bells, bells_before,
                        "a bell before the switch is visible"
                    );
                    self.from_tcp += shared.tcp.read(u64::MAX, TcpByte::Data);
                    if lapse == Lapse::DisarmLate {
                        self.disarm(shared);
                    }
                }
                Some(position) => {
                    if lapse == Lapse::DisarmLate {
                        self.disarm(shared);
                    }
                    while self.from_tcp < position {
                        shared.tcp.wait();
                        let left = position - self.from_tcp;
                        self.from_tcp += shared.tcp.read(left, TcpByte::Data);
                    }
                    return;
                }
            }
        }
    }

    /// Read in the ring. The sender runs to its end without this side arming again.
    fn receive_ring(&mut self) {
        self.side.cursor.pass_control(&self.side.lane);
        let mut received = 0;
        while received < AFTER_SWITCH {
            let (bytes, _) = self.side.read(&[AFTER_SWITCH]).unwrap();
            received += bytes.len();
            if bytes.is_empty() {
                thread::yield_now();
            }
        }
    }
}

fn switch(lapse: Lapse) {
    let lane = LoomLane::new(8, 0, Fault::None);
    let shared = Arc::new(Shared {
        flags: AtomicU32::new(0),
        tcp: Tcp {
            bytes: Mutex::new(VecDeque::new()),
            changed: Condvar::new(),
        },
    });
    let sender_shared = Arc::clone(&shared);
    let sender = SendSide::new(lane.clone(), 0);
    let writer = thread::spawn(move || send(sender, &sender_shared));
    let mut receiver = Receiver {
        side: ReceiveSide::new(lane, 0),
        from_tcp: 0,
        bells: 0,
    };
    receiver.receive_tcp(&shared, lapse);
    receiver.receive_ring();
    writer.join().unwrap();
    assert_eq!(receiver.from_tcp, BEFORE_SWITCH);
    assert_eq!(shared.tcp.read(u64::MAX, TcpByte::Bell), receiver.bells);
}

#[test]
fn doorbells_are_never_taken_for_data() {
    check(4, || switch(Lapse::Nothing));
}

#[test]
#[should_panic(expected = "TCP was misunderstood")]
fn a_receiver_that_stays_armed_takes_a_doorbell_for_data() {
    check(4, || switch(Lapse::DisarmLate));
}
