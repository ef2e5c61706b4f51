//! Windows without room.

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
