//! DAX memory that the hosts keep coherent. A file stands in for it, as in the tests of windows.

use crosslane_testkit::rack::{Rack, can_run};

use crate::counters::{self, CONNECTIONS, COUNT_PORT};
use crate::programs;

const DAX: &str = "dax";

#[test]
fn redis_here_and_its_clients_there() {
    if can_run() {
        programs::serve_redis(DAX);
    }
}

/// A touch of it raises SIGBUS from one moment to the next; every byte is checked.
#[test]
fn connections_leave_memory_that_is_gone_and_come_back_with_it() {
    if can_run() {
        take_and_give(&Rack::of_kind(DAX));
    }
}

/// Take the window away under connections that count, and give it back.
pub fn take_and_give(rack: &Rack) {
    let mut sides = counters::start(rack, CONNECTIONS);
    for round in 1..=3 {
        rack.wait_for_accelerated(COUNT_PORT, CONNECTIONS);
        counters::pauses(&mut sides, rack, "in the window");
        rack.take_window(0);
        counters::pauses(&mut sides, rack, "without it");
        for host in &rack.hosts {
            let lost = host.stats().count("windows_lost");
            assert_eq!(lost, (round * CONNECTIONS) as u64);
        }
        rack.give_window(0);
        rack.wait_for_window();
    }
    rack.wait_for_accelerated(COUNT_PORT, CONNECTIONS);
    counters::pauses(&mut sides, rack, "at the end");
    for host in &rack.hosts {
        let stats = host.stats();
        assert_eq!(stats.count("windows_unsettled"), 0);
        assert_eq!(stats.count("peer_lies"), 0);
    }
}
