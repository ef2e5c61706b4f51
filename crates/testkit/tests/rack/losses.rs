//! Windows that are taken away while connections go over them.

use std::time::{Duration, Instant};

use crosslane_testkit::rack::{Plan, Rack, WINDOWS, can_run};
use crosslane_testkit::{tell, wait_until};

use crate::counters::{self, CONNECTIONS, COUNT_PORT};
use crate::pauses::Pauses;
use crate::talk::Talk;

/// Moments at which the window is lost, by each of the connections.
const LOSSES: usize = 200;

/// How many losses a test is to see: what it usually does, or `CROSSLANE_TEST_LOSSES`.
pub fn asked_for(usual: usize) -> usize {
    let given = std::env::var("CROSSLANE_TEST_LOSSES");
    given.map_or(usual, |losses| losses.parse().expect("a number of losses"))
}

#[test]
fn a_connection_goes_back_to_tcp_when_its_window_is_lost_and_over_the_next_one() {
    if can_run() {
        lose_windows(&Rack::new());
    }
}

/// Lose windows under one connection.
pub fn lose_windows(rack: &Rack) {
    let mut talk = Talk::new(rack);
    talk.until_accelerated();
    for round in 0..3 {
        rack.lose_window();
        talk.go("without a window");
        for at in 0..2 {
            let lost = rack.hosts[at].stats().count("windows_lost");
            assert!(lost > round, "{lost} connections have lost {round} windows");
        }
        rack.wait_for_window();
        wait_until("the same connection over the next window", || {
            talk.go("more");
            talk.is_accelerated().then_some(())
        });
    }
    for at in 0..2 {
        assert_eq!(rack.hosts[at].stats().count("windows_unsettled"), 0);
    }
}

/// A new monitor has not been told of the connections that its host has in windows.
#[test]
fn a_connection_goes_back_to_tcp_also_when_a_monitor_is_new() {
    if !can_run() {
        return;
    }
    let rack = Rack::new();
    let mut talk = Talk::new(&rack);
    talk.until_accelerated();
    for at in [0, 1] {
        rack.hosts[at].kill_monitor();
        rack.hosts[at].start_monitor();
        rack.wait_for_window();
        wait_until("the connection to be shown by the new monitor", || {
            talk.go("with a new monitor");
            talk.is_accelerated().then_some(())
        });
        // Only the other host's program is told; the memory goes on to answer.
        rack.hide_window(0);
        wait_until("the connection to be on TCP", || {
            talk.go("without a window");
            (!talk.is_accelerated()).then_some(())
        });
        rack.give_window(0);
        rack.wait_for_window();
        wait_until("the connection over the next window", || {
            talk.go("more");
            talk.is_accelerated().then_some(())
        });
    }
}

/// Moments that are the same in each run (SplitMix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 27
    }
}

/// Losses at random moments under load in both directions; every byte is checked.
#[test]
fn no_byte_is_lost_doubled_or_reordered_whenever_the_window_goes() {
    if can_run() {
        lose_at_random(&Rack::new(), asked_for(LOSSES), CONNECTIONS);
    }
}

/// Lose the window so often under connections that count, at least so many of which are in it each time. Who touches a window
/// that is gone has detected it.
pub fn lose_at_random(rack: &Rack, losses: usize, inside: usize) {
    let mut sides = counters::start(rack, CONNECTIONS);
    let (mut lost, mut back) = (Pauses::default(), Pauses::default());
    let mut dice = Dice(7);
    for loss in 1..=losses {
        rack.wait_for_accelerated(COUNT_PORT, inside);
        back.0.extend(counters::longest_pauses(&mut sides));
        std::thread::sleep(Duration::from_micros(dice.next() % 20_000));
        rack.lose_window();
        lost.0
            .extend(counters::pauses(&mut sides, rack, &format!("loss {loss}")));
        for at in 0..2 {
            wait_until(&format!("loss {loss} of each connection in it"), || {
                let count = rack.hosts[at].stats().count("windows_lost");
                (count >= (loss * inside) as u64).then_some(())
            });
        }
    }
    back.tell("pauses from TCP into the next window");
    lost.conclude(&format!("pauses of {losses} losses"));
    for at in 0..2 {
        let stats = rack.hosts[at].stats();
        let lost = stats.count("windows_lost");
        let all = (losses * inside) as u64..=(losses * CONNECTIONS) as u64;
        assert!(all.contains(&lost), "{lost} losses of {all:?}");
        assert_eq!(stats.count("windows_unsettled"), 0);
        assert_eq!(stats.count("peer_lies"), 0);
    }
}

/// Wait until all connections of both hosts are in these windows, some in each.
fn wait_until_in(rack: &Rack, windows: &[&str], connections: usize) {
    for at in 0..2 {
        wait_until(&format!("all in {windows:?}"), || {
            let ends = rack.ends(at, COUNT_PORT);
            let fast: Vec<&str> = ends
                .iter()
                .filter(|end| end.is_accelerated())
                .filter_map(|end| end.window.as_deref())
                .collect();
            let is_used = |window: &&str| fast.contains(window);
            let are_there = fast.iter().all(|window| windows.contains(window));
            let is_done = fast.len() == connections && are_there && windows.iter().all(is_used);
            is_done.then_some(())
        });
    }
}

#[test]
fn connections_are_spread_over_two_windows_and_go_over_the_one_that_is_left() {
    if !can_run() {
        return;
    }
    let rack = Rack::with(&Plan {
        windows: 2,
        ..Plan::default()
    });
    rack.wait_for_window();
    let mut sides = counters::start(&rack, 6);
    wait_until_in(&rack, &WINDOWS, 6);
    for lost in [0, 1] {
        counters::pauses(&mut sides, &rack, "before");
        let since = Instant::now();
        rack.take_window(lost);
        wait_until_in(&rack, &[WINDOWS[1 - lost]], 6);
        let moved = since.elapsed();
        std::thread::sleep(Duration::from_millis(100));
        let pause = counters::longest_pause(&mut sides);
        tell(&format!(
            "all are in the other window after {moved:?}, one stood still for {pause} ms"
        ));
        rack.give_window(lost);
        rack.wait_for_window();
    }
    counters::pauses(&mut sides, &rack, "at the end");
}
