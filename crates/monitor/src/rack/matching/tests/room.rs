//! Windows without room.

use super::world::Monitor;
use super::*;

/// Of two programs, each connection of which is registered at both hosts.
fn meet(world: &mut World, clients: [u64; 2], connection: u16) -> [u64; 2] {
    let tokens = [0, 1].map(|at| world.hosts[at].register(clients[at], connection));
    (0..2).for_each(|at| world.settle(at));
    world.deliver_all();
    tokens
}

fn part(world: &mut World, clients: [u64; 2], tokens: [u64; 2]) {
    (0..2).for_each(|at| world.hosts[at].release(clients[at], tokens[at]));
    (0..2).for_each(|at| world.settle(at));
    world.deliver_all();
}

#[test]
fn connections_without_room_wait_for_some() {
    let mut world = World::new(99);
    world.connect();
    let pairs = [(); PARTS].map(|()| [0, 1].map(|at| world.hosts[at].hello(1)));
    let mut next = 0;
    let mut tokens = Vec::new();
    for clients in pairs.iter().flat_map(|clients| [*clients; 2]) {
        tokens.push(meet(&mut world, clients, next));
        assert!(world.paired(next), "{next}");
        next += 1;
    }
    // One more of the first two programs, and one of others.
    let [same, other] = [next, next + 1];
    let _same = meet(&mut world, pairs[0], same);
    let others = [0, 1].map(|at| world.hosts[at].hello(1));
    let _others = meet(&mut world, others, other);
    for host in &world.hosts {
        let told: Vec<Reason> = host.denied.iter().map(|denied| denied.1).collect();
        assert_eq!(told, [Reason::WindowFull; 2], "each once");
    }
    part(&mut world, pairs[0], tokens[0]);
    assert!(world.paired(same) && !world.paired(other));
    (0..2).for_each(|at| world.hosts[at].kill(pairs[1][at]));
    (0..2).for_each(|at| world.settle(at));
    world.deliver_all();
    assert!(!world.paired(other), "the part may be mapped by somebody");
    world.probe();
    world.settle(0);
    world.deliver_all();
    assert!(world.paired(other));
    assert!(!world.hosts[0].matching.is_short(HostId(0)));
}

#[test]
fn who_is_closed_does_not_wait_for_room() {
    for at in 0..2 {
        let mut world = World::new(99);
        world.connect();
        for connection in 0..u16::try_from(PARTS).unwrap() {
            let clients = [0, 1].map(|at| world.hosts[at].hello(1));
            meet(&mut world, clients, connection);
        }
        let clients = [0, 1].map(|at| world.hosts[at].hello(1));
        let tokens = meet(&mut world, clients, 9);
        assert!(world.hosts[0].matching.is_short(HostId(0)));
        world.hosts[at].release(clients[at], tokens[at]);
        world.settle(at);
        world.deliver_all();
        assert!(!world.hosts[0].matching.is_short(HostId(0)), "{at}");
    }
}

/// A window that is full, and a connection that waits for room. Returns the programs, those of the first part first.
fn full() -> (World, Vec<[u64; 2]>, [u64; 2]) {
    let mut world = World::new(99);
    world.connect();
    let pairs = [(); PARTS + 1].map(|()| [0, 1].map(|at| world.hosts[at].hello(1)));
    let mut tokens = [0, 0];
    for (connection, clients) in (0..).zip(&pairs) {
        tokens = meet(&mut world, *clients, connection);
    }
    (world, pairs.to_vec(), tokens)
}

fn told(world: &World) -> [Vec<Reason>; 2] {
    let of = |host: &Monitor| host.denied.iter().map(|denied| denied.1).collect();
    world.hosts.each_ref().map(of)
}

#[test]
fn who_waits_is_told_once_however_often_the_hosts_lose_each_other() {
    let (mut world, pairs, _) = full();
    for _ in 0..5 {
        world.disconnect();
        world.connect();
        world.deliver_all();
    }
    assert_eq!(told(&world), [[Reason::WindowFull], [Reason::WindowFull]]);
    (0..2).for_each(|at| world.hosts[at].kill(pairs[0][at]));
    (0..2).for_each(|at| world.settle(at));
    world.deliver_all();
    world.probe();
    world.settle(0);
    world.deliver_all();
    assert!(world.paired(u16::try_from(PARTS).unwrap()));
}

#[test]
fn a_guest_that_offers_again_and_again_tires_no_program() {
    let (mut world, _, tokens) = full();
    let waits = world.hosts[1].matching.end_of(HostId(0), &names(PARTS));
    let offer = Offer {
        offer: waits.unwrap().0,
        family: 9,
        tuple: names(PARTS),
        allowed: true,
    };
    let owner = &mut world.hosts[0];
    for _ in 0..100 {
        for message in [
            HostMessage::Withdraw { offer: offer.offer },
            HostMessage::Offer(offer),
        ] {
            let heard = owner
                .matching
                .hear(&mut owner.registry, HostId(0), &message);
            assert!(heard.is_ok());
        }
    }
    let _answers = owner.settle();
    assert_eq!(owner.denied, [(tokens[0], Reason::WindowFull)]);
}

/// The guest's names of a connection.
fn names(connection: usize) -> Tuple {
    Tuple {
        local: format!("10.0.0.2:{}", 40_000 + connection).parse().unwrap(),
        remote: "10.0.0.1:7000".parse().unwrap(),
    }
}

#[test]
fn who_waits_with_one_that_is_denied_is_told_so() {
    let (mut world, _, tokens) = full();
    world.hosts[0].reload(|config| config.allow.clear());
    world.settle(0);
    world.deliver_all();
    let last = |host: &Monitor| host.denied.last().copied();
    assert_eq!(last(&world.hosts[0]), Some((tokens[0], Reason::RackPolicy)));
    assert_eq!(last(&world.hosts[1]), Some((tokens[1], Reason::PeerPolicy)));
    assert!(!world.hosts[0].matching.is_short(HostId(0)));
}
