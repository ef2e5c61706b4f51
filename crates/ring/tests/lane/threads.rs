//! A sender and a receiver in two threads, on the memory that two processes would share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::scope;
use std::time::{Duration, Instant};

use crosslane_ctl::lane::{LINE_BYTES, MIN_RING_LINES, SMALL_RING_LINES};
use crosslane_ring::receive::Next;
use crosslane_ring::{Control, LaneMemory, MAX_RECORD_BYTES, WindowLane};

use crate::support::hostile::Dice;
use crate::support::memory::{Edge, Memory};
use crate::support::pair::forged_header;
use crate::support::sides::{ReceiveSide, SendSide, stream_bytes};

const LINES: u32 = MIN_RING_LINES;

/// Bytes that each test carries; Miri takes a millisecond for a few of them.
const VOLUME: u64 = if cfg!(miri) { 6_000 } else { 16 << 20 };

const LARGE_BYTES: u64 = if cfg!(miri) { 3_000 } else { 30_000 };

/// Near the end of the ring, so that even little goes over it.
const FIRST_LINE: u64 = LINES as u64 - 12;

/// Waits for the other thread, but not for ever.
struct Patience(Instant);

impl Patience {
    fn new() -> Self {
        Self(Instant::now())
    }

    fn wait(&self) {
        assert!(
            self.0.elapsed() < Duration::from_secs(120),
            "the other thread does nothing"
        );
        std::thread::yield_now();
    }
}

/// A lane in which `FIRST_LINE` comes next.
fn empty_lane() -> (Memory, WindowLane) {
    lane_of(LINES)
}

/// The same with a longer ring.
fn lane_of(lines: u32) -> (Memory, WindowLane) {
    let memory = Memory::new(lines, Edge::Last);
    let lane = memory.lane();
    lane.set_consumed(FIRST_LINE << 16, false);
    (memory, lane)
}

fn random_sizes(dice: &mut Dice) -> Vec<usize> {
    let most = if dice.below(3) == 0 { LARGE_BYTES } else { 300 };
    let one = |_| usize::try_from(dice.below(most)).unwrap();
    (0..3).map(one).collect()
}

fn send_stream(lane: WindowLane) {
    let (mut side, mut dice) = (SendSide::new(lane, FIRST_LINE), Dice(0x1234_5678_9abc));
    let (mut sent, patience) = (0, Patience::new());
    while sent < VOLUME {
        let sizes = random_sizes(&mut dice);
        let payload = stream_bytes(sent, sizes.iter().sum());
        let written: usize = side.write(&sizes, &payload).unwrap().iter().sum();
        sent += written as u64;
        if written < payload.len() {
            patience.wait();
        }
    }
    while !side.control(Control::Stop, sent).unwrap() {
        patience.wait();
    }
}

fn receive_stream(lane: WindowLane) {
    let (mut side, mut dice) = (ReceiveSide::new(lane, FIRST_LINE), Dice(0xfedc_ba98_7654));
    let (mut received, patience) = (0, Patience::new());
    loop {
        match side.cursor.peek(&side.lane).unwrap() {
            Next::Empty => patience.wait(),
            Next::Control(kind, value) => {
                assert_eq!((kind, value), (Control::Stop, received));
                return;
            }
            Next::Data(_) => {
                let (bytes, _) = side.read(&random_sizes(&mut dice)).unwrap();
                assert_eq!(
                    bytes,
                    stream_bytes(received, bytes.len()),
                    "from byte {received} on"
                );
                received += bytes.len() as u64;
            }
        }
    }
}

#[test]
fn two_threads_carry_a_stream() {
    let (memory, lane) = empty_lane();
    scope(|scope| {
        scope.spawn(move || send_stream(lane));
        receive_stream(lane);
    });
    memory.check_canaries();
}

/// As `send_stream`, built in place, several records at a time.
fn build_stream(lane: WindowLane) {
    let (mut side, mut dice) = (SendSide::new(lane, FIRST_LINE), Dice(0x2468_ace0_1357));
    let (mut sent, patience) = (0, Patience::new());
    while sent < VOLUME {
        let wanted = random_sizes(&mut dice).iter().sum();
        let payload = stream_bytes(sent, wanted);
        let reserved = side.build(wanted, &payload).unwrap();
        sent += reserved as u64;
        if reserved < wanted {
            patience.wait();
        }
    }
    while !side.control(Control::Stop, sent).unwrap() {
        patience.wait();
    }
}

fn consume_stream(lane: WindowLane) {
    let (mut side, mut dice) = (ReceiveSide::new(lane, FIRST_LINE), Dice(0x1122_3344_5566));
    let (mut received, patience) = (0, Patience::new());
    loop {
        let places = usize::try_from(1 + dice.below(8)).unwrap();
        let most = random_sizes(&mut dice)[0];
        let (found, taken) = side.consume(places, most).unwrap();
        assert_eq!(
            found,
            stream_bytes(received, found.len()),
            "from byte {received} on"
        );
        received += taken.bytes as u64;
        if let Next::Control(kind, value) = side.cursor.peek(&side.lane).unwrap() {
            assert_eq!((kind, value), (Control::Stop, received));
            return;
        }
        if found.is_empty() {
            patience.wait();
        }
    }
}

#[test]
fn two_threads_carry_a_stream_in_place() {
    type Sender = fn(WindowLane);
    let pairs: [(Sender, Sender); 3] = [
        (build_stream, consume_stream),
        (send_stream, consume_stream),
        (build_stream, receive_stream),
    ];
    for (send, receive) in pairs {
        for lines in [LINES, 2 * SMALL_RING_LINES] {
            let (memory, lane) = lane_of(lines);
            scope(|scope| {
                scope.spawn(move || send(lane));
                receive(lane);
            });
            memory.check_canaries();
        }
    }
}

/// Payload of forged headers for the next lap, in a record of whole lines at `line`.
fn forged_payload(line: u64, lines: u64) -> Vec<u8> {
    let words = 1..lines * (LINE_BYTES / 8) as u64;
    let forged = words.flat_map(|word| {
        let valid_at = line + word * 8 / LINE_BYTES as u64 + u64::from(LINES);
        forged_header(1, MAX_RECORD_BYTES, valid_at, LINES).to_le_bytes()
    });
    forged.collect()
}

#[test]
fn a_receiver_that_polls_all_the_time_sees_no_forged_header() {
    for record_lines in [1, 2, 3, 7, 30] {
        let (memory, lane) = empty_lane();
        let records = VOLUME / 8 / (record_lines * LINE_BYTES as u64);
        // Records read, so that the receiver knows that there cannot be more than were written.
        let written = AtomicU64::new(0);
        scope(|scope| {
            scope.spawn(|| {
                let (mut side, patience) = (SendSide::new(lane, FIRST_LINE), Patience::new());
                for _ in 0..records {
                    while side.cursor.free_lines(&lane, record_lines).unwrap() < record_lines {
                        patience.wait();
                    }
                    let payload = forged_payload(side.cursor.tail, record_lines);
                    written.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(
                        side.write(&[payload.len()], &payload),
                        Ok(vec![payload.len()])
                    );
                }
            });
            let (mut side, patience) = (ReceiveSide::new(lane, FIRST_LINE), Patience::new());
            for record in 0..records {
                while !side.cursor.has_record(&lane) {
                    patience.wait();
                }
                let expected = forged_payload(side.cursor.head, record_lines);
                assert_eq!(side.cursor.peek(&lane), Ok(Next::Data(expected.len())));
                assert!(
                    written.load(Ordering::Relaxed) > record,
                    "nobody wrote this"
                );
                assert_eq!(side.read(&[expected.len()]).unwrap().0, expected);
            }
            assert!(!side.cursor.has_record(&lane));
        });
        memory.check_canaries();
    }
}
