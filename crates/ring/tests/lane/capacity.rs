//! A sender that wants little on its way.

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_ring::LaneMemory;

use crate::support::memory::{Edge, Memory};
use crate::support::sides::{ReceiveSide, SendSide, stream_bytes};

const LINES: u32 = 1 << 13;
const CAPACITY: u64 = 128 << 10;
const MESSAGE: usize = 1000;

#[test]
fn little_is_on_its_way_lap_after_lap() {
    let memory = Memory::new(LINES, Edge::Last);
    let lane = memory.lane().with_capacity(true);
    let (mut tx, mut rx) = (SendSide::new(lane, 0), ReceiveSide::new(lane, 0));
    let (mut sent, mut received) = (0, 0);
    while tx.cursor.tail < 3 * u64::from(LINES) {
        loop {
            let records = tx.write(&[MESSAGE], &stream_bytes(sent, MESSAGE)).unwrap();
            let bytes: usize = records.into_iter().sum();
            sent += bytes as u64;
            if bytes < MESSAGE {
                break;
            }
        }
        let on_its_way = sent - received;
        assert!(on_its_way <= CAPACITY && on_its_way > CAPACITY / 8 * 7);
        assert!(!tx.writable().unwrap());
        while received + CAPACITY / 8 * 3 < sent {
            let (bytes, _) = rx.read(&[MESSAGE]).unwrap();
            assert_eq!(bytes, stream_bytes(received, bytes.len()));
            received += bytes.len() as u64;
        }
        assert!(tx.writable().unwrap(), "half of it has been read");
    }
    assert!(
        tx.cursor.tail < sent / LINE_BYTES as u64 * 5 / 4,
        "no lines are passed over"
    );
    memory.check_canaries();
}

#[test]
fn a_small_ring_is_used_whole() {
    let memory = Memory::new(1 << 9, Edge::Last);
    let lane = memory.lane();
    assert_eq!(lane.with_capacity(true).capacity(), lane.lines());
    let memory = Memory::new(LINES, Edge::Last);
    let lane = memory.lane().with_capacity(true).with_capacity(false);
    assert_eq!(lane.capacity(), LINES);
}
