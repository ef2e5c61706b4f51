//! A sender that wants little on its way.

use crosslane_ctl::lane::SMALL_RING_LINES;
use crosslane_ring::{LaneMemory, MAX_RECORD_BYTES};

use crate::support::hostile::Dice;
use crate::support::memory::{Edge, Memory};
use crate::support::sides::{ReceiveSide, SendSide, stream_bytes};

const LINES: u32 = 1 << 13;
/// A small ring, and the record that goes over its end.
const CAPACITY: u64 = 64 * 1024 + MAX_RECORD_BYTES as u64;

/// Messages of random lengths from 1 byte on, of which so many of four are built in place, sent until there is no room and read until a sleeping sender would be told
/// of some. Returns the line that was reached, and the bytes on their way when there was no room.
fn play(is_bounded: bool, longest: u64, builds: u64) -> (u64, Vec<u64>) {
    let memory = Memory::new(LINES, Edge::Last);
    let lane = memory.lane().bounded(is_bounded);
    let (mut tx, mut rx) = (SendSide::new(lane, 0), ReceiveSide::new(lane, 0));
    let (mut sent, mut received, mut full) = (0, 0, Vec::new());
    let mut dice = Dice(longest);
    while full.len() < 100 {
        loop {
            let wanted = usize::try_from(1 + dice.below(longest)).unwrap();
            let bytes = match dice.below(4) < builds {
                false => tx
                    .write(&[wanted], &stream_bytes(sent, wanted))
                    .unwrap()
                    .into_iter()
                    .sum(),
                true => tx.build(wanted, &stream_bytes(sent, wanted)).unwrap(),
            };
            sent += bytes as u64;
            if bytes < wanted {
                break;
            }
        }
        assert!(!tx.writable().unwrap(), "there was no room");
        full.push(sent - received);
        loop {
            let (bytes, taken) = rx.read(&[1000]).unwrap();
            assert_eq!(bytes, stream_bytes(received, bytes.len()));
            received += bytes.len() as u64;
            if taken.passed_quarter && tx.writable().unwrap() {
                break;
            }
            assert!(
                received < sent,
                "a sleeping sender is told before all has been read: {is_bounded} {longest} {builds} {:?}",
                tx.cursor
            );
        }
    }
    memory.check_canaries();
    (tx.cursor.tail, full)
}

#[test]
fn a_bounded_sender_keeps_to_a_small_ring() {
    for longest in [1, 100, 3000, 40_000] {
        for builds in [0, 2, 4] {
            let (tail, full) = play(true, longest, builds);
            let most = full.iter().max().unwrap();
            assert!(
                *most <= CAPACITY,
                "{most} bytes on their way, messages of {longest}"
            );
            let laps = tail / u64::from(LINES);
            assert!(
                laps >= 50,
                "{laps} laps: it turns, and waits at most once before it has turned"
            );
            let (_, free) = play(false, longest, builds);
            assert!(*free.iter().max().unwrap() > 2 * most, "another grows");
        }
    }
}

#[test]
fn a_ring_that_is_no_longer_than_a_small_one_is_used_whole() {
    let memory = Memory::new(SMALL_RING_LINES, Edge::Last);
    let sides = [true, false].map(|is_bounded| {
        memory.lane().set_consumed(0, false);
        let mut tx = SendSide::new(memory.lane().bounded(is_bounded), 0);
        tx.write(&[100_000], &stream_bytes(0, 100_000)).unwrap()
    });
    assert_eq!(sides[0], sides[1]);
}
