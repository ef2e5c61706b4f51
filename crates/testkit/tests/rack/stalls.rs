//! Windows that are there, are mapped, and carry nothing.

use std::time::{Duration, SystemTime};

use crosslane_testkit::rack::{Plan, Rack, Stall, can_run};
use crosslane_testkit::{Process, wait_until};

use crate::counters::{self, CONNECTIONS, COUNT_PORT};
use crate::losses::{self, Dice};
use crate::monitors;
use crate::pauses::Pauses;
use crate::puppets::{self, Puppets};

/// What the monitors promise.
const FOUND_WITHIN: Duration = Duration::from_secs(1);

/// Beats come twice a second.
const BETWEEN_BEATS_US: u64 = 500_000;

/// Links that go dead, as a rule.
const LOSSES: usize = 20;

/// So many of them between the same two hosts, which may not live for long.
const LOSSES_PER_RACK: usize = 20;

/// Two hosts whose monitors map the window, as they do with a device's.
pub fn mapped() -> Rack {
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

/// Wait until these hosts have brought all connections back.
fn wait_for_losses(rack: &Rack, before: &[(usize, u64)]) {
    wait_until("the window to be found to carry nothing", || {
        let is_lost = |(at, before)| lost(rack, at) >= before + CONNECTIONS as u64;
        before.iter().copied().all(is_lost).then_some(())
    });
}

/// When a host's monitor has found each of the windows that it has lost so far, by its log.
fn findings(rack: &Rack, at: usize) -> Vec<SystemTime> {
    let log = rack.hosts[at].monitor_log();
    let found = log.lines().filter(|line| line.contains("go back to TCP"));
    let moment = |line: &str| {
        let (moment, _) = line.split_once(' ').expect("a line begins with it");
        humantime::parse_rfc3339(moment).expect("as the log writes it")
    };
    found.map(moment).collect()
}

fn assert_settled(rack: &Rack) {
    for at in 0..2 {
        let stats = rack.hosts[at].stats();
        assert_eq!(stats.count("windows_unsettled"), 0);
        assert_eq!(stats.count("peer_lies"), 0);
    }
}

/// Either host may be the one that is cut off.
#[test]
fn no_byte_is_lost_doubled_or_reordered_whenever_the_window_stands_still() {
    if can_run() {
        lose_at_random(mapped, |rack| vec![rack.stall()]);
    }
}

/// What has been seen of links that went dead, in milliseconds.
struct Seen {
    /// From the loss until the first host has found it.
    found: Pauses,
    /// Of the programs, from then on.
    returns: Pauses,
    /// The same from the loss on.
    whole: Pauses,
}

/// Have links go dead at random moments under load, and come to life again; every byte is checked. `ways` are what may
/// stand still, of which each loss takes one or all.
pub fn lose_at_random(links: impl Fn() -> Rack, ways: impl Fn(&Rack) -> Vec<Stall>) {
    let mut dice = Dice(11);
    let mut seen = Seen {
        found: Pauses::default(),
        returns: Pauses::default(),
        whole: Pauses::default(),
    };
    let losses = losses::asked_for(LOSSES);
    for first in (0..losses).step_by(LOSSES_PER_RACK) {
        let rack = links();
        let mut ways = ways(&rack);
        let mut sides = counters::start(&rack, CONNECTIONS);
        for loss in first..losses.min(first + LOSSES_PER_RACK) {
            // The others may find connections on their way into the window.
            let is_inside = !dice.next().is_multiple_of(4);
            if is_inside {
                rack.wait_for_accelerated(COUNT_PORT, CONNECTIONS);
            }
            std::thread::sleep(Duration::from_micros(dice.next() % BETWEEN_BEATS_US));
            let before = [0, 1].map(|at| (at, lost(&rack, at)));
            lose(&rack, &mut sides, (&mut ways, &mut dice), &mut seen, loss);
            if is_inside {
                wait_for_losses(&rack, &before);
            }
            ways.iter_mut().for_each(Stall::end);
            // It would be offered again within five seconds.
            rack.reload(0);
            rack.wait_for_window();
        }
        counters::pauses(&mut sides, &rack, "at the end");
        assert_settled(&rack);
    }
    seen.found
        .tell(&format!("{losses} dead links were found after"));
    seen.whole.tell("pauses from the loss on");
    seen.returns
        .conclude(&format!("pauses of {losses} dead links once found"));
}

/// One loss, until all goes on by TCP.
fn lose(
    rack: &Rack,
    sides: &mut [Process; 2],
    (ways, dice): (&mut [Stall], &mut Dice),
    seen: &mut Seen,
    loss: usize,
) {
    let before = [0, 1].map(|at| findings(rack, at).len());
    counters::longest_pauses(sides);
    let only = usize::try_from(dice.next() % (ways.len() as u64 + 1)).expect("it is small");
    let since = SystemTime::now();
    let all = ways.len();
    for (way, stall) in ways.iter_mut().enumerate() {
        let cut_off = usize::from(dice.next().is_multiple_of(2));
        if only == way || only == all {
            stall.begin(cut_off);
        }
    }
    // The other host's monitor may hear of it by the next offer, and its programs by their peers.
    let found = wait_until(&format!("loss {loss} to be found"), || {
        let by = |at: usize| findings(rack, at).get(before[at]).copied();
        [by(0), by(1)].into_iter().flatten().min()
    });
    let whole = counters::pauses(sides, rack, &format!("loss {loss}"));
    let state = &rack.status(0)["hosts"][0]["windows"][0]["state"];
    assert_ne!(state, "open", "after loss {loss}");
    seen.whole.0.extend(whole);
    seen.returns.0.extend(counters::pauses_since(sides, found));
    let after = found.duration_since(since).unwrap_or_default();
    let after = u64::try_from(after.as_millis()).expect("it is short");
    seen.found.0.push(after);
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
        wait_for_losses(&rack, &[(other, before)]);
        stall.end();
        counters::pauses(&mut sides, &rack, "after it");
        rack.wait_for_window();
    }
    assert_settled(&rack);
}

/// Monitors that were started after the connection do not know in which window it is, and neither end can tell the other.
#[test]
fn who_waits_hears_of_it_where_both_monitors_are_new() {
    if !can_run() {
        return;
    }
    let rack = mapped();
    let mut stall = rack.stall();
    for cut_off in 0..2 {
        let mut puppets = Puppets::new(&rack);
        puppets.go_to_lanes(&rack);
        monitors::renew(&rack, &[0, 1], puppets::PORT);
        stall.begin(cut_off);
        puppets::tell(&mut puppets.server, "send 8000", "ok");
        puppets::tell(&mut puppets.client, "receive 8000", "ok");
        stall.end();
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
