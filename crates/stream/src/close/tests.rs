use crosslane_ctl::slab::Ending;

use super::*;
use crate::both::{ends, queued};
use crate::slices;

/// The kernel would reset a connection that is closed before its doorbells are read.
#[test]
fn the_last_doorbells_are_taken_from_a_peer_that_stops_when_it_sees_the_close() {
    let ([end, peer], _sockets) = ends();
    bell::arm(&end, &end.rx_lane().unwrap());
    assert_eq!(slices::send(&peer, &[2; 8], false), Ok(8));
    assert_eq!(slices::receive(&end, &mut [0; 8], false), Ok(8));
    assert_eq!(queued(&end), 1, "the doorbell");
    before_shutdown(&peer, libc::SHUT_WR);
    kernel::shutdown(peer.fd(), libc::SHUT_WR).unwrap();
    end.note_ending(Ending::Eof);
    say_closed(&end);
    switch::attend(&peer);
    assert_eq!(peer.tx_mode(), Mode::Tcp, "the peer has said STOP");
    assert!(!are_bells_over(&end));
    await_last_bells(&end, Instant::now() + Duration::from_secs(10));
    assert_eq!(queued(&end), 0);
}
