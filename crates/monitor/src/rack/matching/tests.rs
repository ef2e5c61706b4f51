//! Pairs across hosts, in named cases and in random histories.

mod room;
mod world;

use crosslane_ctl::message::MonitorMessage;
use proptest::prelude::*;

use super::*;
use crate::rack::extents::Extents;
use crate::rack::message::Deal;
use crate::registry::{ClientId, GRANTS_PER_END};
use world::{PARTS, WINDOW, World};

#[test]
fn ends_of_one_connection_get_the_same_slot_whoever_comes_first() {
    for first in 0..2 {
        let mut world = World::new(9);
        world.connect();
        for at in [first, 1 - first] {
            let client = world.hosts[at].hello(1);
            world.hosts[at].register(client, 3);
            world.settle(at);
            world.deliver_all();
        }
        assert!(world.paired(3));
        assert_eq!(world.hosts[0].matching.connections(HostId(0)), 1);
    }
}

#[test]
fn ends_that_were_there_before_the_session_are_paired() {
    let mut world = World::new(9);
    for at in 0..2 {
        let client = world.hosts[at].hello(1);
        world.hosts[at].register(client, 3);
        world.settle(at);
    }
    world.connect();
    world.deliver_all();
    assert!(world.paired(3));
}

/// After a fork the child is told; but whom the other host has been told to be absent does not come any more.
#[test]
fn lanes_are_offered_to_a_child_unless_nobody_is_to_come_there() {
    let mut world = World::new(9);
    world.connect();
    let mut ours = (0, 0);
    for at in 0..2 {
        let client = world.hosts[at].hello(1);
        ours = (client, world.hosts[at].register(client, 3));
        world.settle(at);
    }
    world.deliver_all();
    let host = &mut world.hosts[1];
    let pair = host.register_in_child(ours.0, ours.1, 3);
    let pair = pair.expect("the child may come there");
    let child = (ClientId(ours.0 + 1), ours.1);
    host.registry.void(child, pair);
    assert_eq!(host.register_in_child(ours.0, ours.1, 3), None);
    assert_eq!(host.registry.end_in(child, pair), None);
}

#[test]
fn who_is_not_allowed_is_told_and_so_is_the_other_end() {
    for strict in 0..2 {
        let mut world = World::new(9);
        world.connect();
        for at in 0..2 {
            let client = world.hosts[at].hello(if at == strict { 7 } else { 1 });
            world.hosts[at].register(client, 3);
            world.settle(at);
        }
        world.deliver_all();
        let reasons = |at: usize| {
            world.hosts[at]
                .denied
                .iter()
                .map(|d| d.1)
                .collect::<Vec<_>>()
        };
        assert_eq!(reasons(strict), [Reason::RackPolicy]);
        assert_eq!(reasons(1 - strict), [Reason::PeerPolicy]);
    }
}

/// Several ends of one user are offered while its quota has room for one.
#[test]
fn lanes_that_the_guest_declines_are_taken_back() {
    let mut world = World::with_quotas([9, 1]);
    let clients = [0, 1].map(|at| world.hosts[at].hello(1));
    let mut tokens = Vec::new();
    for connection in [3, 4, 5] {
        let of = [0, 1].map(|at| world.hosts[at].register(clients[at], connection));
        tokens.push(of);
    }
    world.connect();
    world.deliver_all();
    assert!(world.paired(3));
    let reason = |token, reason| (token, reason);
    let quota = Reason::RackQuota;
    let denied = [reason(tokens[1][1], quota), reason(tokens[2][1], quota)];
    assert_eq!(world.hosts[1].denied, denied);
    assert_eq!(world.hosts[0].taken_back, [tokens[1][0], tokens[2][0]]);
    // They leave the lanes, and begin anew.
    world.hosts[0].denied.clear();
    for (connection, tokens) in [4, 5].into_iter().zip(&tokens[1..]) {
        world.hosts[0].release(clients[0], tokens[0]);
        world.settle(0);
        let again = world.hosts[0].register(clients[0], connection);
        world.settle(0);
        world.deliver_all();
        let told = world.hosts[0].denied.pop();
        assert_eq!(told, Some((again, Reason::PeerPolicy)));
    }
    assert_eq!(world.hosts[0].matching.connections(HostId(0)), 1);
    finish(world, clients.map(|client| vec![client]));
}

#[test]
fn an_end_is_looked_for_again_when_its_host_is_back_in_the_file() {
    for at in 0..2 {
        let mut world = World::new(9);
        world.connect();
        let client = world.hosts[at].hello(1);
        world.hosts[at].register(client, 3);
        world.settle(at);
        world.disconnect();
        world.hosts[at].reload(|config| config.hosts.clear());
        world.settle(at);
        assert!(world.hosts[at].matching.ends.is_empty());
        world.hosts[at].reload(|_| {});
        world.settle(at);
        assert_eq!(world.hosts[at].matching.ends.len(), 1);
        world.connect();
        let other = world.hosts[1 - at].hello(1);
        world.hosts[1 - at].register(other, 3);
        world.settle(1 - at);
        world.deliver_all();
        assert!(world.paired(3));
    }
}

#[test]
fn an_end_that_waits_is_denied_when_the_file_forbids_it() {
    for at in 0..2 {
        let mut world = World::new(9);
        world.connect();
        let client = world.hosts[at].hello(1);
        let token = world.hosts[at].register(client, 3);
        world.settle(at);
        world.deliver_all();
        world.hosts[at].reload(|config| config.allow.clear());
        world.settle(at);
        assert_eq!(world.hosts[at].denied, [(token, Reason::RackPolicy)]);
        // Its partner is told, whether the owner has heard of the change or not.
        let other = world.hosts[1 - at].hello(1);
        world.hosts[1 - at].register(other, 3);
        world.settle(1 - at);
        world.deliver_all();
        assert_eq!(world.hosts[at].matching.connections(HostId(0)), 0);
        assert!(!world.paired(3));
    }
}

#[test]
fn a_slot_is_used_again_when_both_have_left_and_a_part_when_both_have_unmapped() {
    let mut world = World::new(99);
    world.connect();
    for round in 0..40u16 {
        let clients = [0, 1].map(|at| world.hosts[at].hello(1));
        let tokens = [0, 1].map(|at| world.hosts[at].register(clients[at], round));
        for at in 0..2 {
            world.settle(at);
        }
        world.deliver_all();
        assert!(world.paired(round), "round {round}");
        match round % 2 {
            0 => (0..2).for_each(|at| world.hosts[at].kill(clients[at])),
            _ => {
                (0..2).for_each(|at| world.hosts[at].release(clients[at], tokens[at]));
                (0..2).for_each(|at| world.settle(at));
                (0..2).for_each(|at| world.hosts[at].kill(clients[at]));
            }
        }
        (0..2).for_each(|at| world.settle(at));
        world.deliver_all();
        world.probe();
    }
    for host in &world.hosts {
        assert!(host.registry.is_empty());
        assert!(host.matching.sides.is_empty() && host.matching.of_user.is_empty());
    }
}

#[test]
fn a_host_that_lies_is_noticed() {
    let mut world = World::new(9);
    world.connect();
    let tuple = Tuple {
        local: "10.0.0.2:1".parse().unwrap(),
        remote: "10.0.0.1:2".parse().unwrap(),
    };
    let offer = Offer {
        offer: 1,
        family: 1,
        tuple,
        allowed: true,
    };
    let owner = &mut world.hosts[0];
    let mut hear = |message| {
        owner
            .matching
            .hear(&mut owner.registry, HostId(0), &message)
    };
    assert!(hear(HostMessage::Offer(offer)).is_ok());
    assert!(hear(HostMessage::Offer(offer)).is_err(), "the same twice");
    assert!(
        hear(HostMessage::Retire { arena: 1 }).is_err(),
        "not its part"
    );
    assert!(
        hear(HostMessage::Withdraw { offer: 77 }).is_ok(),
        "too late"
    );
}

/// A host has more addresses than the other one's `rack.toml` may name, and programs connect from any.
#[test]
fn an_end_with_an_address_that_is_not_listed_stays_on_tcp() {
    let mut world = World::new(9);
    world.hosts[0].reload(|config| config.hosts[0].addresses.clear());
    world.connect();
    let clients = [0, 1].map(|at| world.hosts[at].hello(1));
    let token = world.hosts[1].register(clients[1], 3);
    world.settle(1);
    world.hosts[0].register(clients[0], 3);
    world.settle(0);
    world.deliver_all();
    assert_eq!(world.hosts[1].denied, [(token, Reason::NoPeer)]);
    assert_eq!(world.hosts[0].denied, []);
    world.hosts[1].release(clients[1], token);
    world.settle(1);
    world.deliver_all();
    // It is no lie to go on, and what comes from a listed address is served as ever.
    world.hosts[0].reload(|_| {});
    world.settle(0);
    world.hosts[1].register(clients[1], 3);
    world.settle(1);
    world.deliver_all();
    assert!(world.paired(3));
}

#[test]
fn an_end_beyond_those_that_may_wait_is_refused() {
    let mut world = World::new(9);
    world.connect();
    let owner = &mut world.hosts[0];
    let mut hear = |number: u64| {
        let tuple = Tuple {
            local: "10.0.0.2:1".parse().unwrap(),
            remote: "10.0.0.1:2".parse().unwrap(),
        };
        let offer = HostMessage::Offer(Offer {
            offer: number,
            family: 1,
            tuple,
            allowed: true,
        });
        let heard = owner.matching.hear(&mut owner.registry, HostId(0), &offer);
        assert_eq!(heard, Ok(()));
        owner.matching.take_messages()
    };
    let most = owner::MOST_OFFERS as u64;
    assert!((1..=most).all(|number| hear(number).is_empty()));
    let refusal = HostMessage::Refuse {
        offer: most + 1,
        reason: Reason::RackQuota as u32,
    };
    assert_eq!(hear(most + 1), [(HostId(0), refusal)]);
}

/// Each offer takes another slot, of which only the last one is used.
#[test]
fn an_end_that_is_offered_ever_new_partners_is_given_so_many_and_no_more() {
    let mut world = World::new(99);
    let room = Extents::unknown(GRANTS_PER_END);
    world.hosts[0].held.0.borrow_mut().extents = Some(room);
    world.connect();
    let client = world.hosts[0].hello(1);
    world.hosts[0].register(client, 3);
    world.settle(0);
    let owner = &mut world.hosts[0];
    let tuple = *owner.matching.hosts[0].known.keys().next().unwrap();
    let mut hear = |offer| {
        let offer = Offer {
            offer,
            family: 1,
            tuple: tuple.mirrored(),
            allowed: true,
        };
        let message = HostMessage::Offer(offer);
        let heard = owner
            .matching
            .hear(&mut owner.registry, HostId(0), &message);
        assert_eq!(heard, Ok(()));
        owner.matching.take_messages()
    };
    let most = GRANTS_PER_END as u64;
    for offer in 1..=most {
        let said = hear(offer);
        let is_dealt = matches!(said[..], [(_, HostMessage::Deal(_))]);
        assert!(is_dealt, "{said:?}");
    }
    let said = hear(most + 1);
    let is_refused = matches!(said[..], [(_, HostMessage::Refuse { .. })]);
    assert!(is_refused, "{said:?}");
    world.settle(0);
    assert!(world.hosts[0].denied.is_empty(), "what it has goes on");
}

#[test]
fn an_owner_that_lies_is_noticed() {
    let mut world = World::new(9);
    world.connect();
    let client = world.hosts[1].hello(1);
    let clients = world.hosts[1].register(client, 3);
    world.settle(1);
    let guest = &mut world.hosts[1];
    let number = *guest.matching.ends.keys().next().unwrap();
    let deal = Deal {
        offer: number.0,
        epoch: WINDOW.epoch,
        arena: 1,
        part: 0,
        slot: 0,
        role: 1,
        pair: 9,
    };
    let mut hear = |deal| {
        let message = HostMessage::Deal(deal);
        guest
            .matching
            .hear(&mut guest.registry, HostId(0), &message)
    };
    for lie in [
        Deal { epoch: 6, ..deal },
        Deal { slot: 2, ..deal },
        Deal { role: 2, ..deal },
    ] {
        assert!(hear(lie).is_err(), "{lie:?}");
    }
    assert!(hear(deal).is_ok());
    for lie in [deal, Deal { arena: 2, ..deal }, Deal { part: 1, ..deal }] {
        assert!(hear(lie).is_err(), "{lie:?}");
    }
    // What was dealt out before the owner knew that the window is lost.
    guest
        .matching
        .window_lost(&mut guest.registry, HostId(0), WINDOW.id);
    let late = HostMessage::Deal(Deal { arena: 3, ..deal });
    let heard = guest.matching.hear(&mut guest.registry, HostId(0), &late);
    assert!(heard.is_ok());
    assert_eq!(guest.matching.take_spurned(), [deal.pair]);
    world.hosts[1].release(client, clients);
}

#[test]
fn ends_are_told_that_their_window_is_lost() {
    let mut world = World::new(9);
    world.connect();
    for at in 0..2 {
        let client = world.hosts[at].hello(1);
        world.hosts[at].register(client, 3);
        world.settle(at);
    }
    world.deliver_all();
    assert!(world.paired(3));
    let told = [0, 1].map(|at| {
        let host = &mut world.hosts[at];
        host.registry.take_actions();
        host.registry.tell_of_loss(WINDOW.id);
        let actions = host.registry.take_actions().into_iter();
        let pairs = actions.filter_map(|action| match action.message {
            MonitorMessage::WindowLost { pair, .. } => Some(pair),
            _ => None,
        });
        pairs.collect::<Vec<_>>()
    });
    assert_eq!(told[0], told[1]);
    assert!(matches!(told[0][..], [pair] if pair != 0), "{told:?}");
    // Once, however often it is opened in vain.
    for host in &mut world.hosts {
        host.registry.tell_of_loss(WINDOW.id);
        assert!(host.registry.take_actions().is_empty());
    }
}

/// A program that was slow to read is cut off by its monitor, and connects again; meanwhile it is in its lanes.
#[test]
fn who_has_said_nothing_may_be_in_its_lanes_still() {
    for says_so in [true, false] {
        let mut world = World::new(9);
        world.connect();
        let mut ours = (0, 0);
        for at in 0..2 {
            let client = world.hosts[at].hello(1);
            ours = (client, world.hosts[at].register(client, 3));
            world.settle(at);
        }
        world.deliver_all();
        assert!(world.paired(3));
        let host = &mut world.hosts[1];
        match says_so {
            true => host.release(ours.0, ours.1),
            false => host.kill(ours.0),
        }
        let notices = host.registry.take_notices();
        let left = notices.iter().filter_map(|notice| match notice {
            Notice::Left(left) => Some(left.is_told),
            _ => None,
        });
        assert_eq!(left.collect::<Vec<_>>(), [says_so]);
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Hello(usize),
    Register(usize, usize, u16),
    Release(usize, usize),
    Kill(usize, usize),
    Deliver(usize),
    /// All processes of a host fork.
    Fork(usize),
    /// All forked children of a host end.
    ChildrenEnd(usize),
    Probe,
    Break,
    Connect,
}

fn step() -> impl Strategy<Value = Step> {
    let host = || 0..2usize;
    prop_oneof![
        2 => host().prop_map(Step::Hello),
        6 => (host(), 0..8usize, 0..5u16).prop_map(|(at, by, c)| Step::Register(at, by, c)),
        4 => (host(), 0..16usize).prop_map(|(at, end)| Step::Release(at, end)),
        1 => (host(), 0..8usize).prop_map(|(at, by)| Step::Kill(at, by)),
        10 => host().prop_map(Step::Deliver),
        2 => Just(Step::Probe),
        1 => Just(Step::Break),
        4 => Just(Step::Connect),
        1 => host().prop_map(Step::Fork),
        1 => host().prop_map(Step::ChildrenEnd),
    ]
}

fn run(steps: &[Step]) {
    let mut world = World::new(4);
    let mut clients: [Vec<u64>; 2] = [vec![], vec![]];
    for step in steps {
        match *step {
            Step::Hello(at) => {
                let client = world.hosts[at].hello(1);
                clients[at].push(client);
            }
            Step::Register(at, by, connection) => {
                if clients[at].is_empty() {
                    continue;
                }
                let client = clients[at][by % clients[at].len()];
                // A process has one socket of a connection at a time.
                let mut ends = world.hosts[at].ends.values();
                if ends.all(|end| end.connection != connection) {
                    world.hosts[at].register(client, connection);
                }
            }
            Step::Release(at, end) => {
                let ends = &world.hosts[at].ends;
                let chosen = ends.keys().nth(end % ends.len().max(1)).copied();
                if let Some((client, token)) = chosen {
                    world.hosts[at].release(client, token);
                }
            }
            Step::Kill(at, by) => {
                if !clients[at].is_empty() {
                    let at_list = by % clients[at].len();
                    let client = clients[at].swap_remove(at_list);
                    world.hosts[at].kill(client);
                }
            }
            Step::Deliver(at) => {
                world.deliver(at);
            }
            Step::Fork(at) => clients[at].iter().for_each(|by| world.hosts[at].fork(*by)),
            Step::ChildrenEnd(at) => world.hosts[at].end_children(),
            Step::Probe if world.is_up => world.probe(),
            Step::Probe => {}
            Step::Break => world.disconnect(),
            Step::Connect => world.connect(),
        }
        world.settle(0);
        world.settle(1);
    }
    finish(world, clients);
}

/// When all programs have ended and all has been said, nothing is left.
fn finish(mut world: World, clients: [Vec<u64>; 2]) {
    world.connect();
    for (at, clients) in clients.into_iter().enumerate() {
        for client in clients {
            world.hosts[at].kill(client);
        }
        world.hosts[at].end_children();
        world.settle(at);
    }
    world.deliver_all();
    world.probe();
    for host in &world.hosts {
        assert!(host.registry.is_empty());
        let matching = &host.matching;
        assert!(matching.ends.is_empty() && matching.sides.is_empty());
        assert!(matching.of_user.is_empty() && matching.hosts[0].known.is_empty());
        assert!(!matching.is_short(HostId(0)));
        assert!(host.held.0.borrow().open.values().all(|open| *open == 0));
    }
    let free = world.hosts[0]
        .held
        .0
        .borrow()
        .extents
        .as_ref()
        .unwrap()
        .tally()
        .free;
    assert_eq!(free, PARTS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn no_lane_is_shared_by_strangers_and_nothing_is_left(
        steps in proptest::collection::vec(step(), 0..120),
    ) {
        run(&steps);
    }
}
