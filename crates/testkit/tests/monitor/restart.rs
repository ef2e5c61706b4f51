//! A monitor dies and another one takes its place.

use crosslane_testkit::{Host, Process, Route, wait_until};

use crate::talk::Talk;

fn restart_monitor(host: &Host) {
    host.kill_monitor();
    host.start_monitor();
}

/// Arenas that are mapped in a process.
fn arenas(process: &Process) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", process.pid()));
    let maps = maps.expect("the process runs");
    maps.lines()
        .filter(|line| line.contains("crosslane-arena"))
        .count()
}

#[test]
fn an_end_that_waits_for_its_peer_asks_the_next_monitor() {
    let host = Host::new(Route::Crosslane);
    let mut talk = Talk::begin(&host);
    talk.open();
    wait_until("the client to be registered", || {
        let ends = host.ends();
        ends.iter()
            .any(|end| end.reason.as_deref() == Some("no-peer"))
            .then_some(())
    });
    restart_monitor(&host);
    talk.go();
    talk.wait_for_accelerated(&host, 2);
    talk.close();
    talk.end();
}

#[test]
fn rings_go_on_and_are_shown_by_the_next_monitor() {
    let host = Host::new(Route::Crosslane);
    let mut talk = Talk::begin(&host);
    talk.go();
    talk.open();
    talk.wait_for_accelerated(&host, 2);
    let before = host.stats().count("ring_bytes_sent");
    restart_monitor(&host);
    talk.wait_for_accelerated(&host, 2);
    wait_until("the counters to be shown and to go on", || {
        (host.stats().count("ring_bytes_sent") > before).then_some(())
    });
    talk.close();
    talk.end();
}

#[test]
fn the_next_monitor_gives_other_memory_and_the_old_is_let_go() {
    let host = Host::new(Route::Crosslane);
    let mut talk = Talk::begin(&host);
    talk.go();
    talk.open();
    talk.wait_for_accelerated(&host, 2);
    restart_monitor(&host);
    talk.open();
    talk.wait_for_accelerated(&host, 4);
    assert_eq!([arenas(&talk.client), arenas(&talk.server)], [2, 2]);
    // The oldest one: its arena is the dead monitor's, and the other connection goes on.
    talk.close();
    wait_until("the memory of the dead monitor to be let go", || {
        talk.client.assert_running();
        ([arenas(&talk.client), arenas(&talk.server)] == [1, 1]).then_some(())
    });
    assert_eq!(talk.accelerated_ends(&host), 2);
    talk.close();
    talk.end();
}

#[test]
fn without_a_monitor_connections_wait_on_tcp_for_the_next_one() {
    let host = Host::new(Route::Crosslane);
    let mut talk = Talk::begin(&host);
    talk.go();
    talk.open();
    talk.wait_for_accelerated(&host, 2);
    host.kill_monitor();
    talk.open();
    host.start_monitor();
    talk.wait_for_accelerated(&host, 4);
    talk.close();
    talk.close();
    talk.end();
}
