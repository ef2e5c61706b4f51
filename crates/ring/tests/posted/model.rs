//! Random operations on a posted lane whose writes arrive at once, compared with a queue.

use std::collections::VecDeque;

use crosslane_ring::posted::{PostedRx, PostedTx, Slot};
use crosslane_ring::receive::Next;
use crosslane_ring::{Control, MAX_RECORD_BYTES, Part, Parts};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::direct::Plain;

const LINES: u32 = 256;

#[derive(Clone, Debug)]
enum Op {
    /// Write so many bytes, in two buffers, of which the first has at most so many.
    Write(usize, usize),
    WriteControl(u64),
    Read(usize),
    PassControl,
    Credit,
}

#[derive(Debug, PartialEq)]
enum Item {
    Byte(u8),
    Control(u64),
}

struct Pair {
    sender: Slot<Plain, Plain>,
    receiver: Slot<Plain, Plain>,
    tx: PostedTx,
    rx: PostedRx,
    queue: VecDeque<Item>,
    sent: u64,
}

impl Pair {
    fn new(line: u64) -> Self {
        use crosslane_ring::posted::memory::Remote;
        let (here, there) = (Plain::new(LINES), Plain::new(LINES));
        here.store(crosslane_ctl::posted::receiver::CONSUMED, line << 16);
        Self {
            sender: Slot::new(here.clone(), there.clone(), LINES),
            receiver: Slot::new(there, here, LINES),
            tx: PostedTx::at(line),
            rx: PostedRx::at(line),
            queue: VecDeque::new(),
            sent: 0,
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Write(bytes, cut) => self.write(bytes, cut),
            Op::WriteControl(value) => {
                let written = self.tx.write_control(&self.sender, Control::Stop, value);
                if written.unwrap() {
                    self.queue.push_back(Item::Control(value));
                }
            }
            Op::Read(bytes) => self.read(bytes),
            Op::PassControl => {
                if let Some(Item::Control(_)) = self.queue.front() {
                    self.queue.pop_front();
                    self.rx.pass_control(&self.receiver).unwrap();
                }
            }
            Op::Credit => self.rx.credit(&self.receiver),
        }
        self.check();
    }

    fn write(&mut self, bytes: usize, cut: usize) {
        let hash = |index: usize| (self.sent + index as u64).wrapping_mul(0x9e37_79b9);
        let payload: Vec<u8> = (0..bytes)
            .map(|index| hash(index).to_le_bytes()[2])
            .collect();
        let (first, second) = payload.split_at(cut.min(bytes));
        let parts = [Part::of(first), Part::of(second)];
        // SAFETY: the payload outlives the cursor.
        let mut parts = unsafe { Parts::new(&parts) }.unwrap();
        let written = self.tx.write_record(&self.sender, &mut parts).unwrap();
        assert!(written <= bytes.min(MAX_RECORD_BYTES));
        assert_eq!(parts.left(), bytes - written);
        // More than half of the ring has always been asked back.
        assert!(written > 0 || bytes == 0 || !self.queue.is_empty());
        self.queue
            .extend(payload[..written].iter().map(|byte| Item::Byte(*byte)));
        self.sent += written as u64;
    }

    fn read(&mut self, bytes: usize) {
        let mut buffer = vec![0; bytes];
        let part = [Part::of_mut(&mut buffer)];
        // SAFETY: the buffer outlives the cursor.
        let mut parts = unsafe { Parts::new(&part) }.unwrap();
        let taken = self.rx.read(&self.receiver, &mut parts).unwrap();
        let data = |item: &&Item| matches!(item, Item::Byte(_));
        assert_eq!(taken, self.queue.iter().take_while(data).count().min(bytes));
        for (byte, item) in buffer.iter().zip(self.queue.drain(..taken)) {
            assert_eq!(item, Item::Byte(*byte));
        }
    }

    fn check(&self) {
        let next = self.rx.peek(&self.receiver).unwrap();
        match self.queue.front() {
            None => assert_eq!(next, Next::Empty),
            Some(Item::Control(value)) => assert_eq!(next, Next::Control(Control::Stop, *value)),
            Some(Item::Byte(_)) => assert!(matches!(next, Next::Data(_))),
        }
        assert!(self.tx.tail - self.tx.credit < u64::from(LINES));
        assert!(self.rx.credited <= self.rx.head && self.rx.head <= self.tx.tail);
    }
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..130_usize,
        (1..140_usize).prop_map(|lines| lines * 64 - 9),
        0..20_000_usize
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (size(), size()).prop_map(|(bytes, cut)| Op::Write(bytes, cut)),
        1 => any::<u64>().prop_map(Op::WriteControl),
        6 => size().prop_map(Op::Read),
        2 => Just(Op::PassControl),
        1 => Just(Op::Credit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_posted_lane_is_a_queue(line in 0..1_000_u64, ops in vec(op(), 1..200)) {
        let mut pair = Pair::new(line);
        ops.iter().for_each(|op| pair.apply(op));
    }
}

#[test]
fn a_control_record_fits_when_data_has_filled_the_ring() {
    let mut pair = Pair::new(0);
    (0..300).for_each(|_| pair.apply(&Op::Write(56, 10)));
    assert_eq!(
        pair.tx.write_control(&pair.sender, Control::Stop, 7),
        Ok(true)
    );
    assert_eq!(
        pair.tx.write_control(&pair.sender, Control::Stop, 8),
        Ok(false)
    );
}
