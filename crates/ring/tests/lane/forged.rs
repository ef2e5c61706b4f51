//! Payload of nothing but headers that would be valid where they come to lie one or two laps
//! later. The receiver must never take payload for a header.

use crosslane_ctl::lane::{LINE_BYTES, MIN_RING_LINES};
use crosslane_ring::receive::Next;
use crosslane_ring::together::ByLine;
use crosslane_ring::{LaneMemory, MAX_RECORD_BYTES, Part, Parts, RxCursor, TxCursor, WindowLane};
use crosslane_sys::program::Fault;

use crate::support::memory::{Edge, Memory};
use crate::support::pair::forged_header;

const LINES: u32 = MIN_RING_LINES;
const LAPS: u64 = 3;

/// What the forger varies.
#[derive(Clone, Copy, Debug)]
struct Forgery {
    /// Bytes of each record.
    record_bytes: usize,
    /// The record that a forged header announces.
    kind: u64,
    announced_bytes: usize,
    /// In how many laps the headers would be valid.
    laps_ahead: u64,
    /// By how many bytes the headers are moved against the words of the ring.
    shift: usize,
}

impl Forgery {
    /// The payload of the record at `line`.
    fn payload(&self, line: u64) -> Vec<u8> {
        let words = (0..self.record_bytes / 8 + 2).flat_map(|word| {
            let lies_at = line + ((1 + word) * 8 / LINE_BYTES) as u64;
            let valid_at = lies_at + self.laps_ahead * u64::from(LINES);
            forged_header(self.kind, self.announced_bytes, valid_at, LINES).to_le_bytes()
        });
        words.skip(self.shift).take(self.record_bytes).collect()
    }

    /// Send forged records for some laps, `burst` at a time, and read each. Whether the receiver
    /// ever saw a record that was not sent.
    fn succeeds(&self, lane: &impl LaneMemory, burst: usize) -> bool {
        let (mut tx, mut rx) = (TxCursor::default(), RxCursor::default());
        while tx.tail < LAPS * u64::from(LINES) {
            let mut sent = Vec::new();
            for _ in 0..burst {
                let payload = self.payload(tx.tail);
                match write_record(lane, &mut tx, &payload) {
                    0 => break,
                    bytes => sent.push(payload[..bytes].to_vec()),
                }
            }
            assert!(!sent.is_empty(), "an empty ring takes a record");
            for payload in sent {
                assert_eq!(rx.peek(lane), Ok(Next::Data(payload.len())), "{self:?}");
                assert_eq!(read(lane, &mut rx, payload.len()), payload, "{self:?}");
            }
            if rx.peek(lane) != Ok(Next::Empty) {
                return true;
            }
        }
        false
    }
}

fn write_record(lane: &impl LaneMemory, tx: &mut TxCursor, payload: &[u8]) -> usize {
    let part = [Part::of(payload)];
    // SAFETY: the payload outlives the cursor.
    let mut parts = unsafe { Parts::new(&part) }.unwrap();
    tx.write_record(lane, &mut parts).unwrap()
}

fn read(lane: &impl LaneMemory, rx: &mut RxCursor, bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0; bytes];
    let part = [Part::of_mut(&mut buffer)];
    // SAFETY: the buffer outlives the cursor.
    let mut parts = unsafe { Parts::new(&part) }.unwrap();
    let taken = rx.read(lane, &mut parts).unwrap();
    buffer.truncate(taken.bytes);
    buffer
}

/// Sizes of records: all small ones, and those around the ends of lines up to the greatest.
fn record_sizes() -> impl Iterator<Item = usize> {
    let ends_of_lines = [3_usize, 4, 5, 16, 63, 64, 127, 128]
        .into_iter()
        .flat_map(|lines| lines * LINE_BYTES - 16..=lines * LINE_BYTES + 1);
    (1..=200).chain(ends_of_lines.filter(|&bytes| (200..=MAX_RECORD_BYTES).contains(&bytes)))
}

fn every_forgery(mut each: impl FnMut(Forgery)) {
    const ANNOUNCED: [(u64, usize, u64); 5] = [
        (1, MAX_RECORD_BYTES, 1),
        (0x9, MAX_RECORD_BYTES, 1),
        (1, 1, 1),
        (4, 8, 1),
        (1, 56, 2),
    ];
    for record_bytes in record_sizes() {
        for shift in 0..8 {
            // Headers that do not lie on words of the ring are all alike.
            let kinds = if shift == 0 { ANNOUNCED.len() } else { 1 };
            for (kind, announced_bytes, laps_ahead) in ANNOUNCED.into_iter().take(kinds) {
                each(Forgery {
                    record_bytes,
                    kind,
                    announced_bytes,
                    laps_ahead,
                    shift,
                });
            }
        }
    }
}

#[test]
fn payload_is_never_taken_for_a_header() {
    every_forgery(|forgery| {
        // One record at a time, so that every line comes to be the next one; then full rings.
        for burst in [1, usize::MAX] {
            let memory = Memory::new(LINES, Edge::First);
            assert!(!forgery.succeeds(&memory.lane(), burst), "{forgery:?}");
            if forgery.shift != 0 {
                break;
            }
        }
    });
}

/// A lane whose sender forgets to clear the line after a record.
struct Uncleared(WindowLane);

impl LaneMemory for Uncleared {
    type Lines<'a> = ByLine<'a, Self>;

    fn together(&self, line: u32, _lines: u64) -> Option<ByLine<'_, Self>> {
        Some(ByLine(self, line))
    }

    fn lines(&self) -> u32 {
        self.0.lines()
    }

    fn header(&self, line: u32) -> u64 {
        self.0.header(line)
    }

    fn clear(&self, _line: u32) {}

    fn set_header(&self, line: u32, header: u64) {
        self.0.set_header(line, header);
    }

    fn publish(&self, line: u32, header: u64) {
        self.0.publish(line, header);
    }

    unsafe fn copy_in(&self, offset: usize, from: *const u8, bytes: usize) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        unsafe { self.0.copy_in(offset, from, bytes) }
    }

    unsafe fn copy_out(&self, offset: usize, to: *mut u8, bytes: usize) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        unsafe { self.0.copy_out(offset, to, bytes) }
    }

    fn consumed(&self) -> u64 {
        self.0.consumed()
    }

    fn set_consumed(&self, consumed: u64, fenced: bool) {
        self.0.set_consumed(consumed, fenced);
    }
}

#[test]
fn without_the_cleared_line_forgeries_would_succeed() {
    let mut successes = 0;
    every_forgery(|forgery| {
        let memory = Memory::new(LINES, Edge::First);
        successes += usize::from(forgery.succeeds(&Uncleared(memory.lane()), 1));
    });
    assert!(
        successes > 0,
        "these forgeries would not show a missing clear"
    );
}
