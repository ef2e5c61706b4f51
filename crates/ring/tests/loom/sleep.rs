//! Two threads that sleep when there is nothing to read or no room to write. A wake-up that is
//! lost ends as a deadlock.

use std::sync::Arc;

use crosslane_ring::Control;
use crosslane_ring::receive::Next;
use loom::thread;

use crate::check;
use crate::lane::{Fault, LoomLane};
use crate::support::sides::{ReceiveSide, SendSide, stream_bytes};
use crate::wake::{Lapse, Shared};

const RECORD_BYTES: usize = 8;

/// A ring of `lines`, and the `controls` and then `records` that go through it, a line each.
#[derive(Clone, Copy)]
struct Load {
    lines: u32,
    controls: u64,
    records: u64,
}

/// Room for all records.
const ROOMY: Load = Load {
    lines: 8,
    controls: 0,
    records: 3,
};

/// One record more than the ring has room for. Two lines are a quarter, so that not every read
/// looks at `space_wanted`.
const QUARTERS: Load = Load {
    lines: 8,
    controls: 0,
    records: 7,
};

/// Every line is a quarter, and all that can be read while the sender sleeps are control records.
const CONTROLS: Load = Load {
    lines: 4,
    controls: 2,
    records: 1,
};

fn carry(load: Load, fault: Fault, data: Lapse, space: Lapse) {
    let lane = LoomLane::new(load.lines, 0, fault);
    let shared = Arc::new(Shared::new(data, space));
    let sender = SendSide::new(lane.clone(), 0);
    let for_sender = Arc::clone(&shared);
    let writer = thread::spawn(move || send(load, sender, &for_sender));
    let looks_after_controls = space != Lapse::ControlRecord;
    receive(
        load,
        ReceiveSide::new(lane, 0),
        &shared,
        looks_after_controls,
    );
    writer.join().unwrap();
}

fn send(load: Load, mut side: SendSide<LoomLane>, shared: &Shared) {
    for number in 0..load.controls {
        assert_eq!(side.control(Control::Start, number), Ok(true));
        shared.data.ring_if_marked();
    }
    for record in 0..load.records {
        let payload = stream_bytes(record * RECORD_BYTES as u64, RECORD_BYTES);
        while side.write(&[RECORD_BYTES], &payload).unwrap().is_empty() {
            shared.sleep_for_space(&mut side);
        }
        shared.data.ring_if_marked();
    }
}

fn receive(
    load: Load,
    mut side: ReceiveSide<LoomLane>,
    shared: &Shared,
    looks_after_controls: bool,
) {
    let (mut controls, mut received) = (0, 0);
    while (controls, received) != (load.controls, load.records * RECORD_BYTES as u64) {
        match side.cursor.peek(&side.lane).unwrap() {
            Next::Empty => shared.sleep_for_data(&side),
            Next::Control(_, number) => {
                assert_eq!(number, controls);
                controls += 1;
                side.cursor.pass_control(&side.lane);
                if looks_after_controls {
                    shared.space.ring_if_marked();
                }
            }
            Next::Data(_) => {
                let (bytes, taken) = side.read(&[RECORD_BYTES]).unwrap();
                assert_eq!(bytes, stream_bytes(received, bytes.len()));
                received += bytes.len() as u64;
                if taken.passed_quarter {
                    shared.space.ring_if_marked();
                }
            }
        }
    }
}

#[test]
fn a_receiver_is_always_woken() {
    check(4, || {
        carry(ROOMY, Fault::None, Lapse::Nothing, Lapse::Nothing)
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_publication_without_a_fence_loses_a_wake_up() {
    check(4, || {
        carry(
            ROOMY,
            Fault::PublishUnfenced,
            Lapse::Nothing,
            Lapse::Nothing,
        )
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_receiver_without_a_fence_loses_a_wake_up() {
    check(4, || {
        carry(ROOMY, Fault::None, Lapse::FenceBeforeLook, Lapse::Nothing)
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_receiver_that_does_not_look_once_more_loses_a_wake_up() {
    check(4, || carry(ROOMY, Fault::None, Lapse::Look, Lapse::Nothing));
}

#[test]
fn a_sender_is_always_woken_when_a_quarter_is_passed() {
    check(3, || {
        carry(QUARTERS, Fault::None, Lapse::Nothing, Lapse::Nothing)
    });
}

#[test]
fn a_sender_is_always_woken_when_only_control_records_are_passed() {
    check(4, || {
        carry(CONTROLS, Fault::None, Lapse::Nothing, Lapse::Nothing)
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_receiver_that_forgets_control_records_loses_a_wake_up() {
    check(4, || {
        carry(CONTROLS, Fault::None, Lapse::Nothing, Lapse::ControlRecord)
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn credit_without_a_fence_loses_a_wake_up() {
    check(3, || {
        carry(
            QUARTERS,
            Fault::CreditUnfenced,
            Lapse::Nothing,
            Lapse::Nothing,
        )
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_sender_without_a_fence_loses_a_wake_up() {
    check(3, || {
        carry(
            QUARTERS,
            Fault::None,
            Lapse::Nothing,
            Lapse::FenceBeforeLook,
        )
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_sender_that_does_not_look_once_more_loses_a_wake_up() {
    check(3, || {
        carry(QUARTERS, Fault::None, Lapse::Nothing, Lapse::Look)
    });
}
