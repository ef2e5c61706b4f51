//! Random operations on a lane, compared with the reference.

use core::sync::atomic::Ordering;

use crosslane_ctl::lane::{MIN_RING_LINES, SMALL_RING_LINES};
use crosslane_ctl::layout::HEAD_LINES;
use crosslane_ring::{Control, MAX_RECORD_BYTES, RxCursor, TxCursor};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use crate::support::memory::{Edge, Memory};
use crate::support::op::Op;
use crate::support::pair::{Pair, Payload, run};

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        3 => 0..130_usize,
        2 => (1..260_usize, 0..4_usize).prop_map(|(lines, more)| lines * 64 - 10 + more),
        2 => 0..20_000_usize,
        1 => Just(crosslane_ring::MAX_RECORD_BYTES),
    ]
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![2 => vec(size(), 1), 1 => vec(size(), 0..5)]
}

fn op() -> impl Strategy<Value = Op> {
    let control = prop_oneof![
        Just(Control::Start),
        Just(Control::Stop),
        Just(Control::Closing)
    ];
    prop_oneof![
        8 => sizes().prop_map(Op::Write),
        1 => (control, any::<u64>()).prop_map(|(kind, value)| Op::WriteControl(kind, value)),
        1 => Just(Op::Writable),
        6 => sizes().prop_map(Op::Read),
        1 => sizes().prop_map(Op::CopyOnly),
        1 => (0..40_000_usize).prop_map(Op::Readable),
        3 => Just(Op::PassControl),
        6 => (size(), size()).prop_map(|(wanted, filled)| Op::Build(wanted, filled)),
        5 => (0..5_usize, size()).prop_map(|(places, most)| Op::Consume(places, most)),
    ]
}

fn payload() -> impl Strategy<Value = Payload> {
    prop_oneof![Just(Payload::Stream), (0..8_u8).prop_map(Payload::Headers)]
}

fn edge() -> impl Strategy<Value = Edge> {
    prop_oneof![Just(Edge::Last), Just(Edge::Parted)]
}

/// Any line, most often one near the end of a lap; the lap in the header wraps after 2^14 laps, and the line that is
/// credited after 2^48.
fn line() -> impl Strategy<Value = u64> {
    let last_lap = (1_u64 << 14) * u64::from(MIN_RING_LINES);
    prop_oneof![
        Just(0),
        0..10_000_u64,
        (0..300_u64).prop_map(move |lines| last_lap - lines),
        (0..300_u64).prop_map(move |lines| (1 << 48) - lines),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_lane_does_what_the_reference_says(
        edge in edge(),
        line in line(),
        payload in payload(),
        ops in vec(op(), 1..120),
    ) {
        run(edge, MIN_RING_LINES, line, payload, ops);
    }

    #[test]
    fn a_long_ring_grows_and_shrinks_as_the_reference_says(
        edge in edge(),
        part in 0..5_usize,
        lines_before in 0..400_u64,
        payload in payload(),
        ops in vec(op(), 1..120),
    ) {
        // At the end of a small ring, at that of the ring, or at that of a head.
        let end = [1, 2, 3, 4].map(|part| part * u64::from(SMALL_RING_LINES));
        let ends = end.into_iter().chain([u64::from(4 * SMALL_RING_LINES + HEAD_LINES)]);
        let end = ends.into_iter().nth(part).unwrap_or(0);
        let line = end.saturating_sub(lines_before);
        run(edge, 4 * SMALL_RING_LINES, line, payload, ops);
    }
}

/// A receiver that keeps up is sent all in the same few lines.
#[test]
fn few_lines_of_a_long_ring_are_used_while_the_receiver_keeps_up() {
    const UNTOUCHED: u64 = 0x1234_5678;
    let memory = Memory::filled(4 * SMALL_RING_LINES, Edge::Last, |_| UNTOUCHED);
    let mut pair = Pair::new(memory.lane(), 0, Payload::Stream);
    for round in 0..20_000 {
        pair.apply(&Op::Write(vec![round % 700, 40]));
        pair.apply(&Op::Read(vec![1000]));
    }
    let words = |lines: u64| usize::try_from(lines * 8).unwrap();
    let most_used = u64::from(SMALL_RING_LINES) + 12;
    let beyond = (words(4 + most_used)..memory.lane_words()).map(|word| memory.lane_word(word));
    assert!(
        beyond
            .into_iter()
            .all(|word| word.load(Ordering::Relaxed) == UNTOUCHED)
    );
    pair.apply(&Op::Write(vec![1 << 20]));
    pair.drain();
}

/// Who receives has to know whether what it has taken is all of what was sent at once.
#[test]
fn the_first_records_of_a_message_say_that_it_goes_on() {
    let memory = Memory::filled(MIN_RING_LINES, Edge::Last, |_| 0);
    let lane = memory.lane();
    let (mut send, mut receive) = (TxCursor::default(), RxCursor::default());
    let mut bytes = vec![0; 3 * MAX_RECORD_BYTES];
    let payload = vec![7; MAX_RECORD_BYTES + 100];
    let written = send.write_slice(&lane, &payload).unwrap();
    assert_eq!(written, MAX_RECORD_BYTES, "the rest is not written yet");
    // SAFETY: the vector has so many bytes.
    let short = unsafe { receive.read_short(&lane, bytes.as_mut_ptr(), bytes.len()) };
    assert_eq!(short, None, "who has room for more must look again");
    let taken = receive.read_slice(&lane, &mut bytes).unwrap();
    assert_eq!((taken.bytes, taken.goes_on), (written, true));
    send.write_slice(&lane, &payload[written..]).unwrap();
    let taken = receive.read_slice(&lane, &mut bytes).unwrap();
    assert_eq!((taken.bytes, taken.goes_on), (100, false));
}

#[test]
fn a_message_does_not_go_on_where_it_ends_or_has_no_room() {
    let memory = Memory::filled(MIN_RING_LINES, Edge::Last, |_| 0);
    let lane = memory.lane();
    // Behind the head, where even the longest record lies together.
    let line = u64::from(HEAD_LINES);
    let (mut send, mut receive) = (TxCursor::default(), RxCursor::default());
    (send.tail, send.credit, receive.head) = (line, line, line);
    let mut bytes = vec![0; MIN_RING_LINES as usize * 64];
    let payload = vec![7; 1 << 20];
    send.write_slice(&lane, &payload[..MAX_RECORD_BYTES])
        .unwrap();
    // SAFETY: the vector has so many bytes.
    let short = unsafe { receive.read_short(&lane, bytes.as_mut_ptr(), bytes.len()) };
    assert_eq!(short.map(|taken| taken.bytes), Some(MAX_RECORD_BYTES));
    // A sender without room may send the rest much later, by another call.
    let mut written = 0;
    loop {
        match send.write_slice(&lane, &payload[written..]).unwrap() {
            0 => break,
            more => written += more,
        }
    }
    let taken = receive.read_slice(&lane, &mut bytes).unwrap();
    assert_eq!((taken.bytes, taken.goes_on), (written, false));
}

#[test]
fn a_control_record_fits_when_data_has_filled_the_ring() {
    for line in 0..u64::from(MIN_RING_LINES) {
        let fill = Op::Write(vec![40_000]);
        let one_byte = Op::Write(vec![1]);
        let control = Op::WriteControl(Control::Stop, line);
        // The second control record finds no room, which the reference says too.
        let ops = [fill, one_byte, control.clone(), control, Op::Read(vec![1])];
        run(Edge::Last, MIN_RING_LINES, line, Payload::Headers(0), ops);
    }
}

/// Short enough for Miri, which takes a millisecond for a few bytes.
#[test]
fn a_short_run_goes_over_the_end() {
    let ops = [
        Op::Write(vec![40, 0, 100]),
        Op::CopyOnly(vec![30, 30]),
        Op::Read(vec![25, 50]),
        Op::Write(vec![200]),
        Op::WriteControl(Control::Stop, 340),
        Op::Readable(100),
        Op::Read(vec![300]),
        Op::PassControl,
        Op::Write(vec![100]),
    ];
    let line = 3 * u64::from(MIN_RING_LINES) - 4;
    run(
        Edge::Last,
        MIN_RING_LINES,
        line,
        Payload::Headers(0),
        ops.clone(),
    );
    run(Edge::Last, MIN_RING_LINES, line, Payload::Stream, ops);
}

/// Short enough for Miri, too.
#[test]
fn records_built_and_read_in_place_go_over_the_end() {
    let ops = [
        Op::Build(200, 200),
        Op::Consume(1, 150),
        Op::Build(300, 100),
        Op::Write(vec![60]),
        Op::Consume(4, 30),
        Op::Build(100, 0),
        Op::WriteControl(Control::Stop, 340),
        Op::Consume(4, 1000),
        Op::PassControl,
        Op::Build(80, 80),
    ];
    let line = 3 * u64::from(MIN_RING_LINES) - 4;
    run(
        Edge::Last,
        MIN_RING_LINES,
        line,
        Payload::Headers(0),
        ops.clone(),
    );
    run(Edge::Last, MIN_RING_LINES, line, Payload::Stream, ops);
}

#[test]
fn a_reservation_takes_all_the_room_and_leaves_that_of_a_control_record() {
    for line in 0..u64::from(MIN_RING_LINES) {
        let fill = Op::Build(1 << 20, 1 << 20);
        let control = Op::WriteControl(Control::Stop, line);
        let ops = [
            fill,
            Op::Build(1, 1),
            control.clone(),
            control,
            Op::Consume(9, 20_000),
        ];
        run(Edge::Last, MIN_RING_LINES, line, Payload::Headers(0), ops);
    }
}

#[test]
fn every_small_size_of_write_and_read_carries_the_stream() {
    for written in 1..200 {
        for read in [1, 7, 56, 64, 200] {
            let pair = [Op::Write(vec![written]), Op::Read(vec![read])];
            run(
                Edge::Last,
                MIN_RING_LINES,
                500,
                Payload::Stream,
                pair.into_iter().cycle().take(40),
            );
        }
    }
}
