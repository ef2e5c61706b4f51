//! A peer that scribbles over everything while the victim works.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crosslane_ctl::lane::{LANE_CONTROL_BYTES, LINE_BYTES, MIN_RING_LINES};
use crosslane_ring::together::ByLine;
use crosslane_ring::{Control, LaneMemory, MAX_RECORD_BYTES, PeerLied, RxCursor, TxCursor};
use crosslane_sys::program::Fault;

use crate::support::hostile::{Dice, Suffered, Target, Victim};
use crate::support::memory::{Edge, Memory};
use crate::support::op::Op;
use crate::support::pair::forged_header;
use crate::support::sides::{ReceiveSide, SendSide};

/// How long each attack lasts, if by then the victim has gone through everything.
const ATTACK: Duration = Duration::from_secs(1);

const WATCHDOG: Duration = Duration::from_secs(60);

fn random_op(dice: &mut Dice) -> Op {
    let count = 1 + dice.below(4);
    let sizes = |dice: &mut Dice| -> Vec<usize> {
        let one = |_| usize::try_from(dice.below(20_000) >> dice.below(12)).unwrap();
        (0..count).map(one).collect()
    };
    match dice.below(12) {
        0..3 => Op::Write(sizes(dice)),
        3..6 => Op::Read(sizes(dice)),
        6 => Op::WriteControl(Control::Closing, dice.roll()),
        7 => Op::Writable,
        8 => Op::CopyOnly(sizes(dice)),
        9 => Op::Readable(usize::MAX),
        _ => Op::PassControl,
    }
}

/// Let the victim work under attack, until it has seen everything and the time is over.
fn survive(is_sender: bool, edge: Edge) {
    let target = Target::new(MIN_RING_LINES, edge);
    let seed = u64::from(std::process::id()) << 8 | u64::from(is_sender);
    println!("seed {seed}");
    let attack = target.attack(seed);
    let (start, mut dice) = (Instant::now(), Dice(seed | 1));
    let mut suffered = Suffered::default();
    while start.elapsed() < ATTACK || !suffered.is_everything() {
        assert!(
            start.elapsed() < WATCHDOG,
            "after {WATCHDOG:?} only {suffered:?}"
        );
        // A liar's connection is closed; the next one begins anywhere in the ring.
        let mut victim = Victim::new(&target, is_sender, dice.below(1 << 40));
        for _ in 0..200 {
            victim.apply(&target, &random_op(&mut dice), &mut suffered);
        }
    }
    drop(attack);
    println!("{suffered:?}");
}

#[test]
fn a_sender_survives_a_scribbling_peer() {
    survive(true, Edge::First);
}

#[test]
fn a_receiver_survives_a_scribbling_peer() {
    survive(false, Edge::First);
    survive(false, Edge::Last);
}

/// A ring in which the peer is always one record ahead.
struct Endless(Cell<u64>);

impl LaneMemory for Endless {
    type Lines<'a> = ByLine<'a, Self>;

    fn together(&self, line: u32, _lines: u64) -> Option<ByLine<'_, Self>> {
        Some(ByLine(self, line))
    }

    fn lines(&self) -> u32 {
        MIN_RING_LINES
    }

    fn header(&self, _line: u32) -> u64 {
        let line = self.0.get();
        assert!(line < 10 * u64::from(MIN_RING_LINES), "this never ends");
        self.0.set(line + 1);
        forged_header(1, 1, line, MIN_RING_LINES)
    }

    fn clear(&self, _line: u32) {}

    fn set_header(&self, _line: u32, _header: u64) {}

    fn publish(&self, _line: u32, _header: u64) {}

    unsafe fn copy_in(&self, _: usize, _: *const u8, _: usize) -> Result<(), Fault> {
        Ok(())
    }

    unsafe fn copy_out(&self, _: usize, _: *mut u8, _: usize) -> Result<(), Fault> {
        Ok(())
    }

    fn consumed(&self) -> u64 {
        0
    }

    fn set_consumed(&self, _consumed: u64, _fenced: bool) {}
}

#[test]
fn an_endless_ring_is_counted_for_one_lap_only() {
    let readable = RxCursor::default().readable(&Endless(Cell::new(0)), usize::MAX);
    assert_eq!(readable, Ok(MIN_RING_LINES as usize));
}

/// The word of the ring at which a line's header lies.
fn header_word(memory: &Memory, line: usize) -> &AtomicU64 {
    memory.lane_word((LANE_CONTROL_BYTES + line * LINE_BYTES) / 8)
}

#[test]
fn a_header_that_changes_during_a_record_is_checked_again() {
    let memory = Memory::new(MIN_RING_LINES, Edge::Last);
    let put = |kind, bytes| {
        let header = forged_header(kind, bytes, 0, MIN_RING_LINES);
        header_word(&memory, 0).store(header, Ordering::Relaxed);
        header
    };
    put(1, 100);
    let mut receiver = ReceiveSide::new(memory.lane(), 0);
    assert_eq!(receiver.read(&[60]).unwrap().0.len(), 60);

    let header = put(1, 60);
    let lie = PeerLied::Header { header, line: 0 };
    assert_eq!(
        receiver.read(&[1]),
        Err(lie),
        "more was taken than there is"
    );
    put(1, 61);
    assert_eq!(receiver.read(&[40]).unwrap().0.len(), 1);
    assert_eq!(receiver.cursor, RxCursor { head: 2, taken: 0 });
}

/// A receiver waits for what is to come behind a record that says so: for each of many short ones it would wait for long.
#[test]
fn only_a_record_of_the_greatest_length_may_say_that_it_goes_on() {
    let (goes_on, most) = (0x9, MAX_RECORD_BYTES);
    for bytes in [1, 8, 56, 1024, most - 1] {
        let memory = Memory::new(MIN_RING_LINES, Edge::Last);
        let header = forged_header(goes_on, bytes, 0, MIN_RING_LINES);
        header_word(&memory, 0).store(header, Ordering::Relaxed);
        let mut receiver = ReceiveSide::new(memory.lane(), 0);
        let lie = Err(PeerLied::Header { header, line: 0 });
        assert_eq!(receiver.cursor.peek(&memory.lane()), lie, "{bytes} bytes");
        assert!(receiver.read(&[most]).is_err(), "{bytes} bytes");
    }
    let memory = Memory::new(MIN_RING_LINES, Edge::Last);
    let header = forged_header(goes_on, most, 0, MIN_RING_LINES);
    header_word(&memory, 0).store(header, Ordering::Relaxed);
    let mut receiver = ReceiveSide::new(memory.lane(), 0);
    assert_eq!(receiver.read(&[most]).unwrap().0.len(), most);
}

#[test]
fn credit_that_goes_back_or_ahead_is_a_lie() {
    let memory = Memory::new(MIN_RING_LINES, Edge::Last);
    let lane = memory.lane();
    let mut sender = SendSide::new(lane, 0);
    sender.write(&[40_000], &[7; 40_000]).unwrap();
    let TxCursor { tail, .. } = sender.cursor;
    lane.set_consumed(300 << 16 | 0xffff, false);
    assert_eq!(sender.writable(), Ok(true));
    // The last is one before the first, as its word has 48 bits of it.
    for line in [0, 299, tail + 1, 1 << 46, u64::MAX] {
        lane.set_consumed(line << 16, false);
        assert_eq!(sender.cursor.refresh(&lane), Err(PeerLied::Credit { line }));
        assert_eq!(sender.cursor, TxCursor { tail, credit: 300 });
    }
}
