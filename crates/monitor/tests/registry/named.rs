//! Named cases.

use std::collections::HashSet;
use std::mem::offset_of;

use crosslane_ctl::lane::LaneControl;
use crosslane_ctl::lane::receiver_flags::DIED;
use crosslane_ctl::layout::Layout;
use crosslane_ctl::message::MonitorMessage;
use crosslane_ctl::reason::Reason;
use crosslane_monitor::config::Quotas;
use crosslane_monitor::endpoint::{EndKey, Endpoint, EndpointError};
use crosslane_monitor::registry::{FamilyId, GRANTS_PER_END, Violation};

use crate::support::{Bench, GEOMETRY, socket};

#[test]
fn registration_is_answered_before_the_grant() {
    let mut bench = Bench::new();
    let (a, b) = (bench.process(), bench.process());
    bench.register(a, 1, socket(0, 0, 10));
    bench.register(b, 2, socket(0, 1, 11));
    let said = bench.said();
    assert_eq!(said[0], (a, MonitorMessage::Registered { token: 1 }));
    assert_eq!(said[1], (b, MonitorMessage::Registered { token: 2 }));
    assert!(matches!(said[2], (to, MonitorMessage::Grant(_)) if to == a));
    assert!(matches!(said[3], (to, MonitorMessage::Grant(_)) if to == b));
    assert_eq!(said.len(), 4);
}

#[test]
fn the_same_names_in_another_namespace_do_not_match() {
    let mut bench = Bench::new();
    let (a, b) = (bench.process(), bench.process());
    let mut elsewhere = socket(0, 1, 11);
    elsewhere.key.netns = 2;
    bench.register(a, 1, socket(0, 0, 10));
    bench.register(b, 2, elsewhere);
    assert_eq!(bench.grants(), []);
}

#[test]
fn a_newer_socket_of_the_same_names_takes_the_partner_over() {
    let mut bench = Bench::new();
    let (a, b, c) = (bench.process(), bench.process(), bench.process());
    bench.register(a, 1, socket(0, 0, 10));
    bench.register(b, 2, socket(0, 1, 11));
    let old = bench.grants();
    bench.register(c, 3, socket(0, 0, 12));
    let new = bench.grants();
    assert_eq!((new[0].0, new[0].1.token), (b, 2));
    assert_eq!((new[1].0, new[1].1.token), (c, 3));
    // The dead socket's late release leaves the new pair alone, and its slot stays taken as
    // long as the partner may still look into it.
    bench.registry.release(a, 1, 0);
    assert_eq!(bench.registry.arenas().slots_in_use(), 2);
    bench.registry.release(b, 2, 0);
    assert_eq!(bench.registry.arenas().slots_in_use(), 1);
    assert_eq!(old.len(), 2);
}

#[test]
fn who_sends_to_a_process_that_has_ended_is_told() {
    let mut bench = Bench::new();
    let (a, b) = (bench.process(), bench.process());
    for number in [0, 1] {
        let token = u64::from(number);
        bench.register(a, token, socket(number, 0, 2 * token + 1));
        bench.register(b, token, socket(number, 1, 2 * token + 2));
    }
    let grants = bench.grants();
    // A close says so itself.
    bench.registry.release(a, 0, 0);
    assert_eq!(*bench.flags_set.borrow(), []);
    bench.registry.gone(a);
    let (_, by_b) = grants.iter().rfind(|(client, _)| *client == b).unwrap();
    let lane = Layout::Parted.lane(&GEOMETRY, by_b.slot, by_b.role);
    let flags = lane.unwrap().control + offset_of!(LaneControl, receiver.flags);
    assert_eq!(*bench.flags_set.borrow(), [(flags, DIED)]);
    // Nobody is left.
    bench.registry.gone(b);
    assert_eq!(bench.flags_set.borrow().len(), 1);
}

#[test]
fn who_sends_to_a_child_that_has_ended_is_told_though_a_younger_one_lives() {
    let mut bench = Bench::new();
    let (a, b) = (bench.process(), bench.process());
    bench.register(a, 1, socket(0, 0, 10));
    bench.register(b, 2, socket(0, 1, 11));
    bench.grants();
    let elder = bench.registry.lease(a).unwrap().unwrap();
    bench.registry.lease(a).unwrap().unwrap();
    bench.registry.release(a, 1, 0);
    assert_eq!(*bench.flags_set.borrow(), []);
    bench.registry.lease_ended(elder);
    assert_eq!(bench.flags_set.borrow().len(), 1);
}

#[test]
fn a_slot_is_used_again_only_when_both_sides_are_out() {
    let mut bench = Bench::new();
    let (a, b) = (bench.process(), bench.process());
    let connect = |bench: &mut Bench, number: u16| {
        let token = u64::from(number);
        bench.register(a, token, socket(number, 0, 2 * token + 1));
        bench.register(b, token, socket(number, 1, 2 * token + 2));
        let grants = bench.grants();
        (grants[0].1.arena, grants[0].1.slot)
    };
    let first = connect(&mut bench, 1);
    let second = connect(&mut bench, 2);
    assert_ne!(first, second);
    bench.registry.release(a, 1, 0);
    let third = connect(&mut bench, 3);
    assert_eq!(third.0, 1, "the first arena is full");
    bench.registry.release(b, 1, 0);
    bench.registry.release(b, 1, 0);
    assert_eq!(connect(&mut bench, 4), first);
}

#[test]
fn a_slot_that_cannot_be_zeroed_is_never_used_again() {
    let mut bench = Bench::new();
    let (a, b) = (bench.process(), bench.process());
    bench.punching_works.set(false);
    let mut seen = HashSet::new();
    for number in 0..6 {
        let token = u64::from(number);
        bench.register(a, token, socket(number, 0, 2 * token + 1));
        bench.register(b, token, socket(number, 1, 2 * token + 2));
        let grant = bench.grants()[0].1;
        assert!(seen.insert((grant.arena, grant.slot)));
        bench.registry.release(a, token, 0);
        bench.registry.release(b, token, 0);
    }
}

#[test]
fn a_lease_keeps_what_was_granted_before_it() {
    let mut bench = Bench::new();
    let (a, b) = (bench.process(), bench.process());
    bench.register(a, 1, socket(1, 0, 1));
    bench.register(b, 1, socket(1, 1, 2));
    let lease = bench.registry.lease(a).unwrap().unwrap();
    bench.register(a, 2, socket(2, 0, 3));
    bench.register(b, 2, socket(2, 1, 4));
    for token in [1, 2] {
        bench.registry.release(a, token, 0);
        bench.registry.release(b, token, 0);
    }
    assert_eq!(bench.registry.arenas().slots_in_use(), 1);
    bench.registry.gone(a);
    assert_eq!(
        bench.registry.arenas().slots_in_use(),
        1,
        "children outlive it"
    );
    bench.registry.lease_ended(lease);
    assert_eq!(bench.registry.arenas().slots_in_use(), 0);
}

#[test]
fn the_last_of_several_leases_counts() {
    let mut bench = Bench::new();
    let (a, b) = (bench.process(), bench.process());
    bench.register(a, 1, socket(1, 0, 1));
    bench.register(b, 1, socket(1, 1, 2));
    let first = bench.registry.lease(a).unwrap().unwrap();
    let second = bench.registry.lease(a).unwrap().unwrap();
    bench.registry.release(a, 1, 0);
    bench.registry.release(b, 1, 0);
    bench.registry.lease_ended(second);
    assert_eq!(bench.registry.arenas().slots_in_use(), 1);
    bench.registry.lease_ended(first);
    assert_eq!(bench.registry.arenas().slots_in_use(), 0);
}

#[test]
fn the_survivor_of_a_pair_is_told_to_unmap_the_arena_when_it_is_out_too() {
    let mut bench = Bench::new();
    let (a, b) = (bench.process(), bench.process());
    bench.register(a, 1, socket(1, 0, 1));
    bench.register(b, 1, socket(1, 1, 2));
    let arena = bench.grants()[1].1.arena;
    bench.registry.gone(a);
    assert_eq!(bench.said(), []);
    bench.registry.release(b, 1, 0);
    assert_eq!(bench.said(), [(b, MonitorMessage::Retire { arena })]);
    assert!(bench.registry.arenas().is_empty());
}

#[test]
fn a_process_that_is_gone_is_told_nothing_whatever_its_children_do() {
    let mut bench = Bench::new();
    let (a, b) = (bench.process(), bench.process());
    bench.register(a, 1, socket(1, 0, 1));
    bench.register(b, 1, socket(1, 1, 2));
    let lease = bench.registry.lease(a).unwrap().unwrap();
    bench.registry.gone(a);
    bench.registry.gone(b);
    bench.said();
    bench.registry.lease_ended(lease);
    assert_eq!(bench.said(), []);
    assert!(bench.registry.arenas().is_empty());
}

#[test]
fn who_closes_a_copy_releases_nothing_that_another_member_has_registered() {
    let mut bench = Bench::new();
    let parent = bench.member(FamilyId(7));
    let child = bench.member(FamilyId(7));
    bench.register(parent, 1, socket(1, 0, 1));
    bench.registry.release(child, 1, 0);
    assert_eq!(bench.registry.ends(), 1);
    bench.register(child, 1, socket(1, 0, 1));
    bench.registry.release(parent, 1, 0);
    assert_eq!(bench.registry.ends(), 1);
    bench.registry.release(child, 1, 0);
    assert_eq!(bench.registry.ends(), 0);
}

#[test]
fn a_forked_child_that_registers_again_is_told_from_then_on() {
    let mut bench = Bench::new();
    let parent = bench.member(FamilyId(7));
    let child = bench.member(FamilyId(7));
    let other = bench.process();
    bench.register(parent, 1, socket(1, 0, 1));
    bench.register(child, 1, socket(1, 0, 1));
    bench.register(other, 1, socket(1, 1, 2));
    let to: Vec<_> = bench.grants().iter().map(|(client, _)| *client).collect();
    assert_eq!(to, [child, other]);
    bench.registry.gone(parent);
    assert_eq!(bench.registry.ends(), 2);
}

/// Both may have forked while they had it.
#[test]
fn what_two_members_were_granted_is_kept_for_the_children_of_both() {
    for last in 0..2 {
        let mut bench = Bench::new();
        let members = [bench.member(FamilyId(7)), bench.member(FamilyId(7))];
        let other = bench.process();
        bench.register(other, 1, socket(1, 1, 2));
        bench.register(members[0], 1, socket(1, 0, 1));
        assert_eq!(bench.grants().len(), 2);
        bench.register(members[1], 1, socket(1, 0, 1));
        assert_eq!(bench.grants()[0].0, members[1]);
        let leases = members.map(|member| bench.registry.lease(member).unwrap().unwrap());
        bench.registry.release(other, 1, 0);
        bench.registry.release(members[1], 1, 0);
        bench.registry.lease_ended(leases[1 - last]);
        assert_eq!(bench.registry.arenas().slots_in_use(), 1);
        bench.registry.lease_ended(leases[last]);
        assert_eq!(bench.registry.arenas().slots_in_use(), 0);
    }
}

#[test]
fn a_socket_that_another_program_holds_is_foreign() {
    let mut bench = Bench::new();
    let (a, b) = (bench.process(), bench.process());
    bench.register(a, 1, socket(1, 0, 1));
    bench.said();
    bench.register(b, 5, socket(1, 0, 1));
    let reason = Reason::Foreign as u32;
    let refused = MonitorMessage::Refused { token: 5, reason };
    assert_eq!(bench.said(), [(b, refused)]);
}

#[test]
fn a_token_cannot_name_two_sockets() {
    let mut bench = Bench::new();
    let a = bench.process();
    bench.register(a, 1, socket(1, 0, 1));
    let again = bench.registry.register(a, 1, Ok(socket(2, 0, 2)));
    assert_eq!(again, Err(Violation::TokenInUse(1)));
}

/// As in VRFs, where the kernel tells them apart by it.
#[test]
fn ends_that_are_bound_to_different_devices_are_not_paired() {
    let mut bench = Bench::new();
    let (a, b) = (bench.process(), bench.process());
    let bound = |side, device| Endpoint {
        device,
        ..socket(1, side, device.into())
    };
    bench.register(a, 1, bound(0, 7));
    bench.register(b, 2, bound(1, 8));
    assert_eq!(bench.grants(), []);
    bench.register(b, 3, bound(1, 7));
    let granted: Vec<_> = bench.grants();
    let tokens: Vec<u64> = granted.iter().map(|(_, grant)| grant.token).collect();
    assert_eq!(tokens, [1, 3]);
}

#[test]
fn what_cannot_be_paired_is_refused_with_its_cause() {
    let mut bench = Bench::new();
    let a = bench.process();
    let self_connected = Endpoint {
        key: EndKey::new(1, ([127, 0, 0, 1], 5).into(), ([127, 0, 0, 1], 5).into()),
        cookie: 1,
        device: 0,
    };
    for (endpoint, reason) in [
        (Err(EndpointError::NotAStream), Reason::NotStream),
        (Err(EndpointError::NotConnected), Reason::Unconnected),
        (Err(EndpointError::NotAccepted), Reason::TooYoung),
        (Err(EndpointError::OtherNamespace), Reason::Namespace),
        (Err(EndpointError::NoDiag), Reason::NoDiag),
        (Err(EndpointError::NoNetns), Reason::OldKernel),
        (Err(EndpointError::Lost), Reason::MonitorFull),
        (Err(EndpointError::Transparent), Reason::Option),
        (Ok(self_connected), Reason::NoPeer),
    ] {
        bench.registry.register(a, 1, endpoint).unwrap();
        let reason = reason as u32;
        let refused = MonitorMessage::Refused { token: 1, reason };
        assert_eq!(bench.said(), [(a, refused)]);
    }
}

#[test]
fn without_memory_both_ends_are_refused_and_stay_so() {
    let mut bench = Bench::with(Quotas::default(), 0);
    let (a, b) = (bench.process(), bench.process());
    bench.register(a, 1, socket(1, 0, 1));
    bench.register(b, 2, socket(1, 1, 2));
    let reason = Reason::NoMemory as u32;
    assert_eq!(
        bench.said()[2..],
        [
            (a, MonitorMessage::Refused { token: 1, reason }),
            (b, MonitorMessage::Refused { token: 2, reason }),
        ]
    );
}

#[test]
fn who_registers_a_connection_again_and_again_does_not_use_up_its_peers_memory() {
    let mut bench = Bench::new();
    let (victim, other) = (bench.process(), bench.process());
    bench.register(victim, 1, socket(0, 0, 1));
    bench.said();
    let most = GRANTS_PER_END as u64;
    for token in 0..2 * most {
        bench.register(other, token, socket(0, 1, 2 + token));
        let said = bench.said();
        let reason = Reason::TooOften as u32;
        let refused = (other, MonitorMessage::Refused { token, reason });
        match token < most {
            true => assert_eq!(said.len(), 3),
            false => assert_eq!(said[1..], [refused]),
        }
        bench.registry.release(other, token, 0);
    }
    assert_eq!(bench.registry.arenas().slots_in_use(), most);
    bench.registry.release(victim, 1, 0);
    assert_eq!(bench.registry.arenas().slots_in_use(), 0);
}

#[test]
fn a_process_maps_no_more_arenas_than_allowed() {
    let quotas = Quotas {
        arenas_per_process: 1,
        ..Quotas::default()
    };
    let mut bench = Bench::with(quotas, usize::MAX);
    let server = bench.process();
    let mut granted = Vec::new();
    for number in 0..2 {
        let client = bench.process();
        let token = u64::from(number);
        bench.register(server, token, socket(number, 0, 2 * token + 1));
        bench.register(client, token, socket(number, 1, 2 * token + 2));
        granted.push(bench.grants().len());
    }
    assert_eq!(granted, [2, 0]);
}

#[test]
fn quotas_are_kept_and_given_back() {
    let quotas = Quotas {
        ends_per_process: 2,
        ends_per_user: 3,
        leases_per_process: 1,
        ..Quotas::default()
    };
    let mut bench = Bench::with(quotas, usize::MAX);
    let (a, b) = (bench.process(), bench.process());
    let refused = |bench: &mut Bench| {
        let said = bench.said();
        let by_quota = Reason::Quota as u32;
        matches!(said[..], [(_, MonitorMessage::Refused { reason, .. })] if reason == by_quota)
    };
    bench.register(a, 1, socket(1, 0, 1));
    bench.register(a, 2, socket(2, 0, 2));
    bench.said();
    bench.register(a, 3, socket(3, 0, 3));
    assert!(refused(&mut bench), "of the process");
    bench.register(b, 1, socket(4, 0, 4));
    bench.said();
    bench.register(b, 2, socket(5, 0, 5));
    assert!(refused(&mut bench), "of the user");
    bench.registry.release(a, 1, 0);
    bench.register(b, 2, socket(5, 0, 5));
    assert!(!refused(&mut bench));
    bench.registry.lease(a).unwrap();
    assert_eq!(bench.registry.lease(a), Err(Violation::Leases(1)));
}
