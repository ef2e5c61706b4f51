//! A direction that goes from TCP to the ring, back and there again, while its receiver tells
//! doorbells from data (DESIGN 3.7).

use loom::thread;

use crate::check;
use crate::doorbell::{Lapse, RECORD_BYTES, direction};

/// Data on TCP, then a doorbell that the receiver did not ask for, and data in the ring.
fn enter(lapse: Lapse) {
    let (mut sender, mut receiver) = direction(lapse);
    let writer = thread::spawn(move || {
        sender.data();
        sender.start();
        sender.probe();
        sender.record();
        sender
    });
    receiver.receive(RECORD_BYTES as u64);
    receiver.check_left(&writer.join().unwrap());
}

/// Out of the ring, in which a doorbell has been sent, and into it again.
fn leave_and_return(lapse: Lapse) {
    let (mut sender, mut receiver) = direction(lapse);
    sender.start();
    let writer = thread::spawn(move || {
        sender.record();
        sender.probe();
        sender.stop();
        sender.data();
        sender.start();
        sender.record();
        sender
    });
    receiver.receive(RECORD_BYTES as u64);
    receiver.look();
    receiver.receive(2 * RECORD_BYTES as u64);
    receiver.check_left(&writer.join().unwrap());
}

#[test]
fn doorbells_are_never_taken_for_data() {
    check(3, || enter(Lapse::Nothing));
}

#[test]
#[should_panic(expected = "TCP was misunderstood")]
fn a_receiver_that_looks_for_a_start_too_early_takes_a_doorbell_for_data() {
    check(3, || enter(Lapse::StartBeforeTcp));
}

#[test]
fn data_is_never_taken_for_doorbells() {
    check(3, || leave_and_return(Lapse::Nothing));
}

#[test]
#[should_panic(expected = "TCP was misunderstood")]
fn a_receiver_that_reads_the_total_too_late_takes_data_for_doorbells() {
    check(3, || leave_and_return(Lapse::TotalAfterLook));
}

#[test]
#[should_panic(expected = "TCP was misunderstood")]
fn a_receiver_that_does_not_look_into_the_lane_takes_data_for_doorbells() {
    check(3, || leave_and_return(Lapse::NoLook));
}
