//! Who may use the window, how much of it, and what happens to the others.

use crosslane_testkit::rack::{Plan, Rack, can_run};
use crosslane_testkit::{End, wait_until};

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

#[test]
fn a_full_window_leaves_the_others_on_tcp() {
    if !can_run() {
        return;
    }
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
    wait_until("the part to be given out again", || {
        other.go("new");
        let ends = rack.ends(1, TALK_PORT);
        ends.iter().any(End::is_accelerated).then_some(())
    });
    drop(server);
}
