//! One writer, one reader: records that cross the ring's end, and credit for a full ring.

use loom::thread;

use crate::check;
use crate::lane::{Fault, LoomLane};
use crate::support::sides::{ReceiveSide, SendSide};

/// The byte at a position of the stream: part of a header that is valid in lap 1.
fn forged_byte(position: usize) -> u8 {
    let announced_bytes = 1 + position as u64 / 8 % 50;
    (announced_bytes | 1 << 13 | 1 << 18).to_le_bytes()[position % 8]
}

fn forged_bytes(from: usize, bytes: usize) -> Vec<u8> {
    (from..from + bytes).map(forged_byte).collect()
}

/// Where a stream begins, and how it is written and read.
#[derive(Clone, Copy)]
struct Way {
    ring_lines: u32,
    first_line: u64,
    writes: &'static [usize],
    read_bytes: usize,
    in_place: bool,
}

/// Write in one thread, read in another.
fn carry(fault: Fault, way: Way) {
    let lane = LoomLane::new(way.ring_lines, way.first_line, fault);
    let total: usize = way.writes.iter().sum();
    let mut sender = SendSide::new(lane.clone(), way.first_line);
    let mut receiver = ReceiveSide::new(lane, way.first_line);
    let writer = thread::spawn(move || {
        let mut sent = 0;
        for size in way.writes {
            let end = sent + size;
            while sent < end {
                let payload = forged_bytes(sent, end - sent);
                sent += if way.in_place {
                    sender.build(payload.len(), &payload).unwrap()
                } else {
                    let records = sender.write(&[payload.len()], &payload).unwrap();
                    records.iter().sum::<usize>()
                };
                if sent < end {
                    thread::yield_now();
                }
            }
        }
    });
    let mut received = 0;
    while received < total {
        let most = way.read_bytes.min(total - received);
        let bytes = if way.in_place {
            let (mut found, taken) = receiver.consume(1, most).unwrap();
            found.truncate(taken.bytes);
            found
        } else {
            receiver.read(&[most]).unwrap().0
        };
        assert_eq!(
            bytes,
            forged_bytes(received, bytes.len()),
            "from byte {received} on"
        );
        received += bytes.len();
        if bytes.is_empty() {
            thread::yield_now();
        }
    }
    assert!(
        !receiver.cursor.has_record(&receiver.lane),
        "a record that nobody wrote"
    );
    writer.join().unwrap();
}

/// A record of two lines that begins in the last one, and then one that needs credit.
const CROSSES_THE_END: Way = Way {
    ring_lines: 4,
    first_line: 3,
    writes: &[104, 8],
    read_bytes: 40,
    in_place: false,
};

/// More than a lap in a ring that is full most of the time.
const GOES_ROUND: Way = Way {
    ring_lines: 4,
    first_line: 0,
    writes: &[104, 8, 104, 8],
    read_bytes: 1000,
    in_place: false,
};

/// The last record goes over the end, so that the next header is expected where the first record
/// had payload. No record is ever split.
const FORGES: Way = Way {
    ring_lines: 8,
    first_line: 0,
    writes: &[376, 8, 104],
    read_bytes: 1000,
    in_place: false,
};

/// Records that fill the ring: the second is written over lines that were just read.
const FILLS: Way = Way {
    ring_lines: 8,
    first_line: 0,
    writes: &[376, 376],
    read_bytes: 1000,
    in_place: false,
};

#[test]
fn records_cross_the_end_of_the_ring() {
    check(4, || carry(Fault::None, CROSSES_THE_END));
}

#[test]
fn records_are_built_and_read_in_place() {
    for way in [CROSSES_THE_END, GOES_ROUND, FILLS, FORGES] {
        let way = Way {
            in_place: true,
            ..way
        };
        check(4, move || carry(Fault::None, way));
    }
}

#[test]
#[should_panic(expected = "Causality violation")]
fn what_was_built_in_place_and_published_without_order_is_found() {
    let way = Way {
        in_place: true,
        ..CROSSES_THE_END
    };
    check(4, move || carry(Fault::HeaderRelaxed, way));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn credit_for_what_was_read_in_place_without_order_is_found() {
    let way = Way {
        in_place: true,
        ..FILLS
    };
    check(4, move || carry(Fault::CreditRelaxed, way));
}

#[test]
fn a_full_ring_waits_for_credit() {
    check(4, || carry(Fault::None, GOES_ROUND));
    check(4, || carry(Fault::None, FILLS));
}

#[test]
fn forged_headers_are_not_found() {
    check(4, || carry(Fault::None, FORGES));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_header_before_its_payload_is_found() {
    check(4, || carry(Fault::HeaderFirst, CROSSES_THE_END));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_header_without_release_order_is_found() {
    check(4, || carry(Fault::HeaderRelaxed, CROSSES_THE_END));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn credit_without_order_is_found() {
    check(4, || carry(Fault::CreditRelaxed, FILLS));
}

#[test]
#[should_panic(expected = "a record that nobody wrote")]
fn a_line_that_is_not_cleared_is_found() {
    check(4, || carry(Fault::NotCleared, FORGES));
}
