//! A lane and its reference, step by step.

use crosslane_ctl::lane::{LINE_BYTES, MIN_RING_LINES};
use crosslane_ring::receive::Next;
use crosslane_ring::{LaneMemory, MAX_RECORD_BYTES};

use super::memory::{Edge, Memory};
use super::op::{Decoder, Op};
use super::reference::Reference;
use super::sides::{ReceiveSide, SendSide, stream_bytes};

/// What the program sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Bytes that differ from their neighbours.
    Stream,
    /// Nothing but headers that would be valid where they lie one lap later, moved by so many
    /// bytes against the words of the ring.
    Headers(u8),
}

/// A header as a forger would write it: `kind`, with flags, and `bytes` in the lap that `line` is in.
pub fn forged_header(kind: u64, bytes: usize, line: u64, ring_lines: u32) -> u64 {
    let lap = line / u64::from(ring_lines) % (1 << 14);
    bytes as u64 | kind << 13 | lap << 18
}

/// Run `ops` on a lane that begins at `line` and whose memory is full of headers that would do
/// one lap later.
pub fn run(edge: Edge, lines: u32, line: u64, payload: Payload, ops: impl IntoIterator<Item = Op>) {
    let forged = forged_header(1, 48, line + u64::from(lines), lines);
    let memory = Memory::filled(lines, edge, |_| forged);
    let mut pair = Pair::new(memory.lane(), line, payload);
    ops.into_iter().for_each(|op| pair.apply(&op));
    pair.drain();
    memory.check_canaries();
}

/// Run a fuzzer's bytes: a payload, a line to start at, and then operations.
pub fn replay(bytes: &[u8]) {
    let mut input = Decoder::new(bytes);
    let (Some(payload), Some(line)) = (input.byte(), input.word()) else {
        return;
    };
    let payload = match payload % 9 {
        8 => Payload::Stream,
        shift => Payload::Headers(shift),
    };
    let edge = [Edge::Last, Edge::Parted][usize::from(line & 1 != 0)];
    run(edge, MIN_RING_LINES, line >> 20, payload, input);
}

/// Both sides of a lane, and what they should do.
pub struct Pair<L> {
    send: SendSide<L>,
    receive: ReceiveSide<L>,
    reference: Reference,
    payload: Payload,
    sent: u64,
}

impl<L: LaneMemory + Clone> Pair<L> {
    /// An empty lane in which `line` comes next; whatever else its memory holds is old payload.
    pub fn new(lane: L, line: u64, payload: Payload) -> Self {
        lane.clear(u32::try_from(line % u64::from(lane.lines())).expect("a line of the ring"));
        lane.set_consumed(line << 16, false);
        Self {
            reference: Reference::new(lane.lines(), line),
            send: SendSide::new(lane.clone(), line),
            receive: ReceiveSide::new(lane, line),
            payload,
            sent: 0,
        }
    }

    /// Do `op` on the lane and on the reference, and compare.
    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::Write(sizes) => self.write(sizes),
            Op::WriteControl(kind, value) => {
                let expected = self.reference.control(*kind, *value);
                assert_eq!(self.send.control(*kind, *value), Ok(expected));
            }
            Op::Writable => {
                assert_eq!(self.send.has_room(), Ok(self.reference.has_room()));
                assert_eq!(self.send.writable(), Ok(self.reference.writable()));
            }
            Op::Read(sizes) => {
                let expected = self.reference.read(sizes.iter().sum());
                assert_eq!(self.receive.read(sizes), Ok(expected));
            }
            Op::CopyOnly(sizes) => {
                let mut expected = self.reference.data();
                expected.truncate(sizes.iter().sum());
                assert_eq!(self.receive.copy_only(sizes), Ok(expected));
            }
            Op::Readable(most) => {
                let expected = self.reference.data().len().min(*most);
                assert_eq!(
                    self.receive.cursor.readable(&self.receive.lane, *most),
                    Ok(expected)
                );
            }
            Op::PassControl => self.pass_control(),
            Op::Build(wanted, filled) => self.build(*wanted, *filled),
            Op::Consume(places, most) => {
                let found = self.reference.records(*places);
                let (_, taken) = self.reference.read(found.len().min(*most));
                assert_eq!(self.receive.consume(*places, *most), Ok((found, taken)));
            }
        }
        self.check();
    }

    /// Read all that is in the ring, as the last thing.
    pub fn drain(mut self) {
        while self.reference.next() != Next::Empty {
            self.apply(&Op::Read(vec![MAX_RECORD_BYTES]));
            self.apply(&Op::PassControl);
        }
        assert_eq!(self.send.writable(), Ok(true), "an empty ring has room");
    }

    fn write(&mut self, sizes: &[usize]) {
        let payload = self.next_payload(sizes.iter().sum());
        let expected = self.reference.write(&payload);
        self.sent += expected.iter().sum::<usize>() as u64;
        assert_eq!(self.send.write(sizes, &payload), Ok(expected));
    }

    fn build(&mut self, wanted: usize, filled: usize) {
        let room = self.reference.room(wanted);
        let payload = self.next_payload(filled.min(room));
        self.reference.build(wanted, &payload);
        self.sent += payload.len() as u64;
        assert_eq!(self.send.build(wanted, &payload), Ok(room));
    }

    fn pass_control(&mut self) {
        if let Next::Control(..) = self.reference.next() {
            self.reference.pass_control();
            self.receive.cursor.pass_control(&self.receive.lane);
        }
    }

    /// What must hold between any two operations.
    fn check(&self) {
        let ReceiveSide { lane, cursor } = &self.receive;
        let next = self.reference.next();
        assert_eq!(cursor.peek(lane), Ok(next));
        assert_eq!(cursor.has_record(lane), next != Next::Empty);
        assert_eq!(cursor.position(), self.reference.position());
        assert_eq!(lane.consumed(), self.reference.position());
        assert_eq!(self.send.cursor.tail, self.reference.tail());
    }

    fn next_payload(&self, bytes: usize) -> Vec<u8> {
        match self.payload {
            Payload::Stream => stream_bytes(self.sent, bytes),
            Payload::Headers(shift) => self.headers(usize::from(shift % 8), bytes),
        }
    }

    fn headers(&self, shift: usize, bytes: usize) -> Vec<u8> {
        let lines = self.send.lane.lines();
        let words = (0..bytes / 8 + 2).flat_map(|word| {
            let line = self.send.cursor.tail + ((1 + word) * 8 / LINE_BYTES) as u64;
            let kind = if word % 3 == 0 { 3 } else { 1 };
            forged_header(kind, 8, line + u64::from(lines), lines).to_le_bytes()
        });
        words.skip(shift).take(bytes).collect()
    }
}
