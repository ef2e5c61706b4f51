//! The same between two hosts, with a process or a monitor on either side killed again and again, or the window
//! between them lost.

use std::time::{Duration, Instant};

use crosslane_testkit::{Process, Program, Sides, binary, free_port, on_all_routes};

use crate::{SECONDS, seed};

/// A run between two hosts.
struct Run<'a> {
    sides: &'a Sides,
    port: u16,
    seed: u64,
}

impl<'a> Run<'a> {
    fn new(sides: &'a Sides) -> Self {
        Self {
            sides,
            port: free_port(),
            seed: seed(),
        }
    }

    /// The server, which ends when its input does.
    fn server(&self, options: &[&str]) -> Process {
        let port = self.port.to_string();
        let roles = ["serve", "--address", self.sides.address(), "--port", &port];
        let program = self.sides.server().program(binary("crosslane-stress"));
        let server = self.play(program.args(roles).args(options).with_open_input());
        server.wait_for_port(self.port);
        server
    }

    /// A client that begins connections from this number on.
    fn client(&self, first: u64, options: &[&str]) -> Process {
        let to = format!("{}:{}", self.sides.address(), self.port);
        let program = self.sides.client().program(binary("crosslane-stress"));
        let roles = ["connect", "--to", &to, "--seconds", &SECONDS.to_string()].map(str::to_owned);
        let first = format!("--first={first}");
        self.play(program.args(roles).arg(first).args(options))
    }

    fn play(&self, program: Program<'_>) -> Process {
        println!("seed {}", self.seed);
        program.args(["--seed", &self.seed.to_string()]).start()
    }

    /// Moments at which something is killed, until the time is over.
    fn moments(&self) -> impl Iterator<Item = u64> + use<> {
        let (seed, deadline) = (self.seed, Instant::now() + Duration::from_secs(SECONDS));
        (0..).take_while(move |number| {
            let pause = 30 + (seed.wrapping_mul(2 * number + 1) >> 7) % 870;
            std::thread::sleep(Duration::from_millis(pause));
            Instant::now() < deadline
        })
    }
}

fn finish(process: Process) {
    println!("{}", process.finish().expect_success().text());
}

/// What the server has to say comes first: where it has failed, its clients fail.
fn finish_both(client: Process, server: Process) {
    let [client, server] = [client, server].map(Process::finish);
    println!("{}", String::from_utf8_lossy(&server.stderr));
    println!("{}", client.expect_success().text());
    println!("{}", server.expect_success().text());
}

fn every_byte_arrives(sides: &Sides) {
    let run = Run::new(sides);
    let witness = run.sides.witness(run.port);
    let server = run.server(&[]);
    finish_both(run.client(0, &[]), server);
    witness.assert_accelerated();
}

fn every_byte_arrives_while_either_monitor_is_killed(sides: &Sides) {
    let run = Run::new(sides);
    let server = run.server(&[]);
    let client = run.client(0, &[]);
    let mut upgrades = 0;
    for (number, host) in run
        .moments()
        .zip([run.sides.server(), run.sides.client()].into_iter().cycle())
    {
        println!("monitor {number} is killed");
        upgrades = upgrades.max(host.stats().count("upgrades"));
        host.kill_monitor();
        host.start_monitor();
    }
    finish_both(client, server);
    assert!(upgrades > 0, "nothing went over the window");
}

fn a_server_survives_killed_clients_of_the_other_host(sides: &Sides) {
    let run = Run::new(sides);
    let witness = run.sides.witness(run.port);
    let server = run.server(&["--peer-may-die"]);
    let mut client = run.client(0, &["--peer-may-die"]);
    for number in run.moments() {
        client.assert_running();
        client.kill();
        client = run.client((number + 1) * 100_000, &["--peer-may-die"]);
    }
    client.kill();
    finish(server);
    witness.assert_accelerated();
}

fn a_client_survives_killed_servers_of_the_other_host(sides: &Sides) {
    let run = Run::new(sides);
    let witness = run.sides.witness(run.port);
    let mut server = run.server(&["--peer-may-die"]);
    let client = run.client(0, &["--peer-may-die"]);
    for _ in run.moments() {
        server.assert_running();
        server.kill();
        server = run.server(&["--peer-may-die"]);
    }
    finish_both(client, server);
    witness.assert_accelerated();
}

/// Every other time the memory is there no more; otherwise it goes on to answer who has it mapped.
fn every_byte_arrives_whenever_the_window_goes(sides: &Sides) {
    let run = Run::new(sides);
    let rack = run.sides.rack();
    let server = run.server(&["--window-may-go"]);
    let client = run.client(0, &["--window-may-go"]);
    let mut losses = 0;
    for number in run.moments() {
        match number % 2 {
            0 => rack.lose_window(),
            _ => rack.replace_window(),
        }
        losses += 1;
        rack.wait_for_another_window();
    }
    finish_both(client, server);
    for host in &rack.hosts {
        let stats = host.stats();
        let [lost, unsettled, lies] =
            ["windows_lost", "windows_unsettled", "peer_lies"].map(|name| stats.count(name));
        println!("{losses} losses: {lost} ends were in a window, {unsettled} could not be settled");
        assert!(lost > 0, "no connection went over a window");
        assert_eq!(lies, 0);
    }
}

on_all_routes!([two_hosts, posted](
    every_byte_arrives,
    every_byte_arrives_while_either_monitor_is_killed,
    a_server_survives_killed_clients_of_the_other_host,
    a_client_survives_killed_servers_of_the_other_host,
    every_byte_arrives_whenever_the_window_goes,
));
