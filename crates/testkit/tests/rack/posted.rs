//! Windows in which each host has a memory of its own, and only writes the other's. The scenarios of `redis`, `http`, `mixed`
//! and the others run over them in their own suites.

use crosslane_testkit::rack::{POSTED, Plan, Rack, can_run};

use crate::counters::{self, CONNECTIONS, COUNT_PORT};
use crate::{endings, handed_on, losses, programs, stalls};

/// Losses under load here; coherent windows are lost more often.
const LOSSES: usize = 80;

fn small() -> Rack {
    let rack = Rack::with(&Plan {
        kind: POSTED,
        window_bytes: 8 << 20,
        ..Plan::default()
    });
    rack.wait_for_window();
    rack
}

#[test]
fn redis_here_and_its_clients_there() {
    if can_run() {
        programs::serve_redis(POSTED);
    }
}

#[test]
fn a_stream_ends_behind_all_its_bytes() {
    if can_run() {
        endings::end_streams(&Rack::of_kind(POSTED));
    }
}

#[test]
fn a_connection_goes_back_to_tcp_when_its_window_is_lost_and_over_the_next_one() {
    if can_run() {
        losses::lose_windows(&Rack::of_kind(POSTED));
    }
}

#[test]
fn no_byte_is_lost_doubled_or_reordered_whenever_the_window_goes() {
    if can_run() {
        let losses = losses::asked_for(LOSSES);
        losses::lose_at_random(&Rack::of_kind(POSTED), losses, CONNECTIONS);
    }
}

/// Each direction has a memory of its own, of which either may be the one that stands still, or both.
#[test]
fn no_byte_is_lost_doubled_or_reordered_whenever_the_window_stands_still() {
    if can_run() {
        let ways = |rack: &Rack| [0, 1].map(|at| rack.stall_of(&rack.memory(at))).into();
        stalls::lose_at_random(small, ways);
    }
}

#[test]
fn nothing_is_missing_without_an_error_from_a_window_that_stands_still() {
    if can_run() {
        endings::end_while_it_stands_still(&Rack::of_kind(POSTED));
    }
}

#[test]
fn a_program_that_takes_over_a_socket_hears_all_from_a_window_that_stands_still() {
    if can_run() {
        endings::exec_while_it_stands_still(&Rack::of_kind(POSTED));
    }
}

#[test]
fn a_socket_that_has_been_passed_on_outlives_its_window() {
    if can_run() {
        handed_on::lose_windows(&Rack::of_kind(POSTED));
    }
}

/// A monitor that is killed takes nothing along.
#[test]
fn connections_outlive_their_monitors() {
    if !can_run() {
        return;
    }
    let rack = Rack::of_kind(POSTED);
    let mut sides = counters::start(&rack, CONNECTIONS);
    rack.wait_for_accelerated(COUNT_PORT, CONNECTIONS);
    for at in [0, 1] {
        rack.hosts[at].kill_monitor();
        counters::pauses(&mut sides, &rack, "without a monitor");
        rack.hosts[at].start_monitor();
        rack.wait_for_window();
        rack.wait_for_accelerated(COUNT_PORT, CONNECTIONS);
        counters::pauses(&mut sides, &rack, "with a new one");
    }
}
