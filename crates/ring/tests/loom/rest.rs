//! A receiver that leaves its socket to the kernel for a while, and a sender that may be about to
//! enter the lane (docs/decisions/lending.md, ready and entered).

use std::sync::Arc;

use crosslane_ctl::lane::receiver_flags::{ENTERED, READY};
use crosslane_ring::Control;
use crosslane_ring::receive::Next;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{AcqRel, Acquire};
use loom::thread;

use crate::check;
use crate::lane::{Fault, LoomLane};
use crate::support::sides::{ReceiveSide, SendSide};

/// What a side does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lapse {
    Nothing,
    /// The sender looks whether it may enter, and does not say that it does.
    NoClaim,
    /// The receiver does not look into the lane after it has taken its word back.
    NoLastLook,
}

/// Enter the lane if the receiver waits for that, and leave it again.
fn enter_and_leave(flags: &AtomicU32, sender: &mut SendSide<LoomLane>, lapse: Lapse) {
    let may = match lapse {
        Lapse::NoClaim => flags.load(Acquire) & READY != 0,
        _ => {
            let claim = |flags| (flags & READY != 0).then_some(flags | ENTERED);
            flags.fetch_update(AcqRel, Acquire, claim).is_ok()
        }
    };
    if !may {
        return;
    }
    assert_eq!(sender.control(Control::Start, 0), Ok(true));
    assert_eq!(sender.control(Control::Stop, 0), Ok(true));
    flags.fetch_and(!ENTERED, AcqRel);
}

/// Follow the direction as far as it has gone. Returns whether it is on TCP.
fn follow(receiver: &mut ReceiveSide<LoomLane>, is_on_tcp: &mut bool) -> bool {
    loop {
        match receiver.cursor.peek(&receiver.lane).unwrap() {
            Next::Empty => return *is_on_tcp,
            Next::Control(kind, _) => {
                *is_on_tcp = kind == Control::Stop;
                receiver.cursor.pass_control(&receiver.lane);
            }
            Next::Data(_) => unreachable!("nobody writes any"),
        }
    }
}

fn rest(lapse: Lapse) {
    let lane = LoomLane::new(8, 0, Fault::None);
    let flags = Arc::new(AtomicU32::new(READY));
    let mut sender = SendSide::new(lane.clone(), 0);
    let mut receiver = ReceiveSide::new(lane, 0);
    let theirs = Arc::clone(&flags);
    let writer = thread::spawn(move || enter_and_leave(&theirs, &mut sender, lapse));
    let mut is_on_tcp = true;
    follow(&mut receiver, &mut is_on_tcp);
    let without = |flags| (flags & ENTERED == 0).then_some(flags & !READY);
    let is_taken_back = flags.fetch_update(AcqRel, Acquire, without).is_ok();
    let rests =
        is_taken_back && (lapse == Lapse::NoLastLook || follow(&mut receiver, &mut is_on_tcp));
    writer.join().unwrap();
    if rests {
        let next = receiver.cursor.peek(&receiver.lane).unwrap();
        assert!(
            matches!(next, Next::Empty),
            "nobody looks for this any more"
        );
    }
}

#[test]
fn nothing_comes_by_the_lane_during_a_rest() {
    check(4, || rest(Lapse::Nothing));
}

#[test]
#[should_panic(expected = "nobody looks for this any more")]
fn a_start_that_is_not_claimed_comes_too_late() {
    check(4, || rest(Lapse::NoClaim));
}

#[test]
#[should_panic(expected = "nobody looks for this any more")]
fn a_receiver_that_does_not_look_again_leaves_a_passage_behind() {
    check(4, || rest(Lapse::NoLastLook));
}
