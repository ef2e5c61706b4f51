//! Windows that are there, are mapped, and carry nothing.

use std::time::{Duration, Instant};

use crosslane_testkit::rack::{Plan, Rack, can_run};
use crosslane_testkit::{tell, wait_until};

use crate::counters::{self, CONNECTIONS, COUNT_PORT};

/// What the monitors promise, with some time for a busy machine to be read from the outside.
const FOUND_WITHIN: Duration = Duration::from_secs(1);

/// After so long, once a host has found it, data must come again by TCP.
const GOES_ON_WITHIN: Duration = Duration::from_millis(100);

/// Two hosts whose monitors map the window, as they do with a device's.
fn mapped() -> Rack {
    let rack = Rack::with(&Plan {
        kind: "bar",
        window_bytes: 8 << 20,
        ..Plan::default()
    });
    rack.wait_for_window();
    rack
}

fn lost(rack: &Rack, at: usize) -> u64 {
    rack.hosts[at].stats().count("windows_lost")
}

/// Wait until these hosts have brought all connections back, and return how long `since` then that took each.
fn wait_for_losses(rack: &Rack, since: Instant, before: &[(usize, u64)]) -> Vec<Duration> {
    let mut found = vec![None; before.len()];
    wait_until("the window to be found to carry nothing", || {
        for (found, (at, before)) in found.iter_mut().zip(before) {
            if found.is_none() && lost(rack, *at) >= before + CONNECTIONS as u64 {
                *found = Some(since.elapsed());
            }
        }
        found.iter().copied().collect()
    })
}

fn assert_settled(rack: &Rack) {
    for at in 0..2 {
        let stats = rack.hosts[at].stats();
        assert_eq!(stats.count("windows_unsettled"), 0);
        assert_eq!(stats.count("peer_lies"), 0);
    }
}

/// Either host may be the one that is cut off; every byte is checked.
#[test]
fn a_window_that_carries_nothing_is_lost_and_used_again_when_it_does() {
    if can_run() {
        stand_still(&mapped());
    }
}

/// Have the window stand still, and come to life again.
pub fn stand_still(rack: &Rack) {
    let mut stall = rack.stall();
    let mut sides = counters::start(rack, CONNECTIONS);
    for round in 0..6 {
        rack.wait_for_accelerated(COUNT_PORT, CONNECTIONS);
        counters::pauses(&mut sides, rack, "before");
        let before = [0, 1].map(|at| (at, lost(rack, at)));
        let since = Instant::now();
        stall.begin(round % 2);
        let found = wait_for_losses(rack, since, &before);
        std::thread::sleep(FOUND_WITHIN / 4);
        let pause = Duration::from_millis(counters::longest_pause(&mut sides));
        let told = format!("found after {found:?}, one stood still for {pause:?}");
        tell(&told);
        let first = *found.iter().min().expect("there are two hosts");
        assert!(pause <= first + GOES_ON_WITHIN, "round {round}: {told}");
        counters::pauses(&mut sides, rack, "without a window");
        let status = rack.status(0);
        let window = &status["hosts"][0]["windows"][0];
        assert_ne!(window["state"], "open", "{status:#}");
        stall.end();
        rack.wait_for_window();
    }
    assert_settled(rack);
}

/// The programs of one host do not hear of the loss before the window answers again: with all that the other
/// host has written since, and without what its own monitor and programs have.
#[test]
fn a_window_that_comes_to_life_before_all_know_passes_nothing_old_for_new() {
    if !can_run() {
        return;
    }
    let rack = mapped();
    let mut stall = rack.stall();
    let mut sides = counters::start(&rack, CONNECTIONS);
    for round in 0..6 {
        rack.wait_for_accelerated(COUNT_PORT, CONNECTIONS);
        counters::pauses(&mut sides, &rack, "before");
        let (cut_off, other) = (round % 2, 1 - round % 2);
        let before = lost(&rack, other);
        stall.begin_and_hold(cut_off);
        wait_for_losses(&rack, Instant::now(), &[(other, before)]);
        stall.end();
        counters::pauses(&mut sides, &rack, "after it");
        rack.wait_for_window();
    }
    assert_settled(&rack);
}

/// A monitor that stands still writes nothing either; its window is as good as ever.
#[test]
fn a_monitor_that_stands_still_costs_no_window() {
    if !can_run() {
        return;
    }
    let rack = mapped();
    let mut sides = counters::start(&rack, CONNECTIONS);
    rack.wait_for_accelerated(COUNT_PORT, CONNECTIONS);
    for at in 0..2 {
        rack.hosts[at].pause_monitor();
        std::thread::sleep(3 * FOUND_WITHIN);
        rack.hosts[at].resume_monitor();
        counters::pauses(&mut sides, &rack, "after it");
    }
    std::thread::sleep(2 * FOUND_WITHIN);
    rack.wait_for_accelerated(COUNT_PORT, CONNECTIONS);
    assert_eq!([0, 1].map(|at| lost(&rack, at)), [0, 0]);
}
