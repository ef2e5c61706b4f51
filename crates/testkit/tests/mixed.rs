//! One side under Crosslane and the other not: TCP, with a reason, on one host and between two.

use crosslane_testkit::redis::Redis;
use crosslane_testkit::{End, Host, Process, Sides, on_all_routes, wait_until};

/// Enough traffic that a connection would have been upgraded.
fn talk(client: Process) -> String {
    client.finish().expect_success().text()
}

fn commands() -> String {
    (0..500)
        .map(|index| format!("SET key {index}\nGET key\n"))
        .collect()
}

fn expected() -> String {
    (0..500).map(|index| format!("OK\n{index}\n")).collect()
}

/// The ends that are there while a client that talked stays connected.
fn ends_of_an_idle_client(host: &Host, redis: &Redis<'_>, client: Process) -> Vec<End> {
    client.wait_for_log("499");
    let ends = wait_until("a connection in crosslane ss", || {
        let ends = host.ends();
        ends.iter()
            .any(|end| end.has_port(redis.port))
            .then_some(ends)
    });
    drop(client);
    ends.into_iter()
        .filter(|end| end.has_port(redis.port))
        .collect()
}

fn assert_tcp_with_reason(ends: &[End]) {
    for end in ends {
        assert_eq!(end.state, "tcp", "{end:?}");
        assert_eq!(end.reason.as_deref(), Some("no-peer"), "{end:?}");
        assert_eq!(end.ring_bytes_sent + end.ring_bytes_received, 0, "{end:?}");
    }
    assert_eq!(ends.len(), 1, "one end is under Crosslane: {ends:?}");
}

/// Commands, and a last one that keeps the client waiting.
fn commands_and_wait() -> String {
    format!("{}BLPOP nothing 0\n", commands())
}

fn a_plain_client_of_an_accelerated_server(sides: &Sides) {
    let redis = Redis::between(sides, &[]);
    let plain = || redis.as_client(sides.client().plain("redis-cli"));
    assert_eq!(talk(plain().input(commands()).start()), expected());
    let waiting = plain().input(commands_and_wait()).start();
    assert_tcp_with_reason(&ends_of_an_idle_client(sides.server(), &redis, waiting));
}

fn an_accelerated_client_of_a_plain_server(sides: &Sides) {
    let plain = sides.server().plain("redis-server");
    let redis = Redis::between_as(sides, plain, &[]);
    assert_eq!(talk(redis.cli().input(commands()).start()), expected());
    let waiting = redis.cli().input(commands_and_wait()).start();
    assert_tcp_with_reason(&ends_of_an_idle_client(sides.client(), &redis, waiting));
}

fn plain_and_accelerated_clients_side_by_side(sides: &Sides) {
    let redis = Redis::between(sides, &[]);
    let witness = sides.witness(redis.port);
    let clients: Vec<_> = (0..6)
        .map(|index| {
            let program = if index % 2 == 0 {
                sides.client().plain("redis-cli")
            } else {
                sides.client().program("redis-cli")
            };
            redis
                .as_client(program)
                .input("INCR counter\n".repeat(5000))
                .start()
        })
        .collect();
    clients
        .into_iter()
        .for_each(|client| drop(client.finish().expect_success()));
    assert_eq!(redis.ask(&["GET", "counter"]), "30000");
    witness.assert_accelerated();
}

on_all_routes!([crosslane, two_hosts, posted](
    a_plain_client_of_an_accelerated_server,
    an_accelerated_client_of_a_plain_server,
    plain_and_accelerated_clients_side_by_side,
));
