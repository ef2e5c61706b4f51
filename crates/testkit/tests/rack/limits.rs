//! Who may use the window, how much of it, and what happens to the others.

use std::os::unix::fs::PermissionsExt;

use crosslane_testkit::rack::{Plan, Rack, can_run};
use crosslane_testkit::{End, wait_or_tell, wait_until};

use crate::counters::{self, CONNECTIONS, COUNT_PORT};
use crate::talk::{TALK_PORT, Talk};

#[test]
fn who_is_not_allowed_stays_on_tcp_and_is_told_why() {
    if !can_run() {
        return;
    }
    let nobody = "[[allow]]\nusers = [0]\nprograms = [\"other\"]\n";
    for strict in 0..2 {
        let mut plan = Plan::default();
        plan.allow[strict] = Some(nobody);
        let rack = Rack::with(&plan);
        rack.wait_for_window();
        let mut talk = Talk::new(&rack);
        assert_eq!(talk.reason(strict), "rack-policy");
        assert_eq!(talk.reason(1 - strict), "peer-policy");
    }
}

#[test]
fn who_is_not_allowed_is_told_at_the_end_of_the_run_where_to_allow_it() {
    if !can_run() {
        return;
    }
    let mut plan = Plan::default();
    plan.allow[1] = Some("[[allow]]\nusers = [0]\nprograms = [\"other\"]\n");
    let rack = Rack::with(&plan);
    rack.wait_for_window();
    let mut talk = Talk::explained(&rack, "told");
    assert_eq!(talk.reason(1), "rack-policy");
    talk.end();
    let told = std::fs::read_to_string(rack.hosts[1].folder().join("told")).expect("it was told");
    let end = told.lines().next().unwrap_or_default();
    assert!(end.contains(r#""reason":"rack-policy""#), "{told}");
    assert!(end.contains("add an [[allow]]"), "{told}");
}

#[test]
fn a_user_has_as_many_connections_as_allowed() {
    if !can_run() {
        return;
    }
    for strict in 0..2 {
        let mut plan = Plan::default();
        plan.quota[strict] = Some(1);
        let rack = Rack::with(&plan);
        rack.wait_for_window();
        let mut one = Talk::new(&rack);
        wait_until("the only connection in the window", || {
            one.go("more");
            one.is_accelerated().then_some(())
        });
        let mut other = one.another();
        wait_until("the other to be refused", || {
            other.go("more");
            let ends = rack.ends(strict, TALK_PORT);
            let is_refused = |end: &End| end.reason.as_deref() == Some("rack-quota");
            ends.iter().any(is_refused).then_some(())
        });
        let fast = rack.ends(strict, TALK_PORT);
        assert_eq!(fast.iter().filter(|end| end.is_accelerated()).count(), 1);
    }
}

/// Where a second server listens.
const OTHER_PORT: u16 = TALK_PORT + 1;

#[test]
fn a_port_that_is_not_allowed_stays_on_tcp_beside_one_that_is() {
    if !can_run() {
        return;
    }
    let first = "[[allow]]\nports = [\"6690-6700\"]\nusers = [0]\n";
    for strict in 0..2 {
        let mut plan = Plan::default();
        plan.allow[strict] = Some(first);
        let rack = Rack::with(&plan);
        rack.wait_for_window();
        let mut allowed = Talk::new(&rack);
        let mut other = Talk::at(&rack, OTHER_PORT, None);
        assert_eq!(other.reason(strict), "rack-policy");
        assert_eq!(other.reason(1 - strict), "peer-policy");
        wait_until("the port that is allowed", || {
            allowed.go("more");
            allowed.is_accelerated().then_some(())
        });
        assert!(!other.is_accelerated());
    }
}

#[test]
fn a_user_at_its_limit_leaves_other_users_theirs() {
    if !can_run() {
        return;
    }
    let [one, other] = [65_534, 1];
    let both = "[[allow]]\nusers = [65534, 1]\n";
    for strict in 0..2 {
        let mut plan = Plan {
            allow: [Some(both); 2],
            ..Plan::default()
        };
        plan.quota[strict] = Some(1);
        let rack = Rack::with(&plan);
        rack.wait_for_window();
        for host in &rack.hosts {
            let mode = PermissionsExt::from_mode(0o711);
            std::fs::set_permissions(host.folder(), mode).expect("the folder is ours");
        }
        let fast = |port| {
            let ends = rack.ends(strict, port).into_iter();
            ends.filter(End::is_accelerated).count()
        };
        let mut first = Talk::at(&rack, TALK_PORT, Some(one));
        wait_until("the first user's only connection in the window", || {
            first.go("more");
            first.is_accelerated().then_some(())
        });
        let mut second = first.another();
        wait_until("the first user's other one to be refused", || {
            second.go("more");
            let ends = rack.ends(strict, TALK_PORT);
            let is_refused = |end: &End| end.reason.as_deref() == Some("rack-quota");
            ends.iter().any(is_refused).then_some(())
        });
        let mut of_other = Talk::at(&rack, OTHER_PORT, Some(other));
        wait_until("the other user's in the window", || {
            of_other.go("more");
            of_other.is_accelerated().then_some(())
        });
        assert_eq!((fast(TALK_PORT), fast(OTHER_PORT)), (1, 1));
    }
}

/// Three connections wait for a window, of which the guest has room for one: the owner deals to all of them before
/// it hears that two are declined.
#[test]
fn lanes_that_the_other_host_declines_are_taken_back_and_the_reason_is_told() {
    if !can_run() {
        return;
    }
    let mut plan = Plan::default();
    plan.quota[1] = Some(1);
    let rack = Rack::with(&plan);
    rack.wait_for_window();
    rack.hide_window(0);
    for at in 0..2 {
        wait_until("the window to be missed", || {
            let status = rack.status(at);
            (status["hosts"][0]["windows"][0]["state"] != "open").then_some(())
        });
    }
    let mut sides = counters::start(&rack, CONNECTIONS);
    let told = |at: usize, reason: &str| {
        let ends = rack.ends(at, COUNT_PORT);
        let is_told = |end: &&End| end.reason.as_deref() == Some(reason);
        ends.iter().filter(is_told).count()
    };
    let all_wait = || {
        (told(0, "no-window") == CONNECTIONS && told(1, "no-window") == CONNECTIONS).then_some(())
    };
    wait_or_tell("all to wait for a window", all_wait, || {
        counters::tell(&rack)
    });
    rack.give_window(0);
    let one_goes = || {
        let fast = rack
            .ends(0, COUNT_PORT)
            .iter()
            .filter(|end| end.is_accelerated())
            .count();
        (fast == 1 && told(0, "peer-policy") == 2 && told(1, "rack-quota") == 2).then_some(())
    };
    let what = "one in the window, and why the others are not";
    wait_or_tell(what, one_goes, || counters::tell(&rack));
    counters::pauses(&mut sides, &rack, "after it");
    let dealt = rack.hosts[0].stats().monitor_count("paired");
    assert!(dealt > 1, "{dealt} dealt out: nothing was declined");
}

#[test]
fn a_full_window_leaves_the_others_on_tcp_until_there_is_room() {
    if can_run() {
        wait_for_room(false);
    }
}

/// Who waits asks the next monitors.
#[test]
fn a_full_window_is_waited_for_when_monitors_end() {
    if can_run() {
        wait_for_room(true);
    }
}

fn wait_for_room(ends_monitors: bool) {
    // Room for one part: one pair of processes.
    let rack = Rack::with(&Plan {
        window_bytes: 700 << 10,
        ..Plan::default()
    });
    rack.wait_for_window();
    let mut one = Talk::new(&rack);
    wait_until("the first pair in the window", || {
        one.go("more");
        one.is_accelerated().then_some(())
    });
    let mut other = one.another();
    for at in 0..2 {
        wait_until("the other to be refused", || {
            other.go("more");
            let ends = rack.ends(at, TALK_PORT);
            let is_refused = |end: &End| end.reason.as_deref() == Some("window-full");
            ends.iter().any(is_refused).then_some(())
        });
    }
    let server = one.kill_client();
    if ends_monitors {
        for host in &rack.hosts {
            host.kill_monitor();
            host.start_monitor();
        }
        rack.wait_for_window();
    }
    wait_or_tell(
        "who has waited to get the part",
        || {
            other.go("more");
            other.is_accelerated().then_some(())
        },
        || {
            format!(
                "{:#?}",
                [0, 1].map(|at| (rack.status(at), rack.ends(at, TALK_PORT)))
            )
        },
    );
    drop(server);
}
