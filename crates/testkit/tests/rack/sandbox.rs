//! Programs that forbid themselves system calls while the library has a thread in them.

use std::time::Duration;

use crosslane_testkit::rack::{Rack, can_run};

use crate::talk::Talk;

/// Longer than that thread would wait before its next call.
const LONGER_THAN_A_LOOK: Duration = Duration::from_millis(2500);

#[test]
fn the_librarys_thread_ends_before_a_filter_would_end_the_program() {
    if !can_run() {
        return;
    }
    let rack = Rack::new();
    let mut talk = Talk::new(&rack);
    talk.until_accelerated();
    talk.go("sandbox");
    std::thread::sleep(LONGER_THAN_A_LOOK);
    talk.go("still there");
    assert!(rack.hosts[1].stats().reason_count("sandbox") > 0);
}
