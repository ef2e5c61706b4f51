//! An end that closes while its peer rings (DESIGN 3.3). A doorbell that it leaves behind, or that
//! comes afterwards, would make the kernel reset the connection.

use loom::thread;

use crate::check;
use crate::doorbell::{Lapse, direction};

/// In the ring, with requests that the peer answers meanwhile; it also rings unasked.
fn close_in_ring(lapse: Lapse) {
    let (mut sender, mut receiver) = direction(lapse);
    sender.start();
    receiver.receive_start();
    receiver.arm();
    receiver.want_space();
    let ringer = thread::spawn(move || {
        sender.closing();
        sender.answer_space();
        sender.probe();
    });
    receiver.close();
    ringer.join().unwrap();
    receiver.check_closed();
}

/// On TCP, while the peer enters the lane.
fn close_on_tcp(lapse: Lapse) {
    let (mut sender, mut receiver) = direction(lapse);
    receiver.arm();
    let starter = thread::spawn(move || sender.start());
    receiver.close();
    starter.join().unwrap();
    receiver.check_closed();
}

#[test]
fn a_close_leaves_no_doorbell_behind() {
    check(4, || close_in_ring(Lapse::Nothing));
}

#[test]
#[should_panic(expected = "a doorbell was left behind")]
fn a_total_that_comes_after_its_doorbell_is_too_late() {
    check(4, || close_in_ring(Lapse::TotalAfterSend));
}

#[test]
#[should_panic(expected = "a doorbell was left behind")]
fn a_sender_that_does_not_say_that_it_rings_is_not_waited_for() {
    check(4, || close_in_ring(Lapse::NoRinging));
}

#[test]
#[should_panic(expected = "a doorbell was left behind")]
fn a_sender_that_does_not_exchange_rings_too_late() {
    check(4, || close_in_ring(Lapse::NoExchange));
}

#[test]
#[should_panic(expected = "a doorbell was left behind")]
fn requests_that_are_taken_back_too_late_are_answered_too_late() {
    check(4, || close_in_ring(Lapse::WithdrawLate));
}

#[test]
#[should_panic(expected = "a doorbell was left behind")]
fn a_peer_that_rings_unasked_must_be_told_to_stop() {
    check(4, || close_in_ring(Lapse::ProbeAlways));
}

#[test]
fn a_close_on_tcp_leaves_no_doorbell_behind() {
    check(4, || close_on_tcp(Lapse::Nothing));
}

#[test]
#[should_panic(expected = "a doorbell was left behind")]
fn a_close_on_tcp_that_does_not_look_for_a_start_leaves_one_behind() {
    check(4, || close_on_tcp(Lapse::CloseOnTcp));
}
