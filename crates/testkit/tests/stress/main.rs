//! `crosslane-stress` moves random bytes by random calls and checks each, in peace and while
//! processes and the monitor die.

mod two_hosts;

use std::time::{Duration, Instant, SystemTime};

use crosslane_testkit::{Host, Process, Program, Route, binary, free_port, on_both_routes};

const SECONDS: u64 = 8;

/// A run with a seed that is made up, or the one in `CROSSLANE_SEED`. The log has it.
fn stress<'a>(host: &'a Host, port: u16, options: &[&str]) -> Program<'a> {
    host.program(binary("crosslane-stress"))
        .args([
            "--port",
            &port.to_string(),
            "--seed",
            &seed().to_string(),
            "--seconds",
            &SECONDS.to_string(),
        ])
        .args(options)
}

fn seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let made_up = since.map_or(0, |since| since.subsec_nanos().into());
    let given = std::env::var("CROSSLANE_SEED");
    given.map_or(made_up, |seed| seed.parse().expect("a seed is a number"))
}

fn run(host: &Host, options: &[&str]) {
    let port = free_port();
    let witness = host.witness(port);
    println!("{}", stress(host, port, options).run().text());
    witness.assert_accelerated();
}

fn every_byte_arrives(host: &Host) {
    run(host, &[]);
}

fn a_server_survives_killed_clients(host: &Host) {
    run(host, &["--kill", "client"]);
}

fn a_client_survives_killed_servers(host: &Host) {
    run(host, &["--kill", "server"]);
}

on_both_routes!(
    every_byte_arrives,
    a_server_survives_killed_clients,
    a_client_survives_killed_servers,
);

/// Kill the monitor and start it again until the program ends. Returns the most that a monitor has
/// counted of `what`.
fn kill_monitor_while(host: &Host, program: Process, what: &str) -> u64 {
    let pause = Duration::from_millis(700);
    let deadline = Instant::now() + Duration::from_secs(SECONDS);
    let mut most = 0;
    while Instant::now() < deadline && program.is_running() {
        std::thread::sleep(pause);
        most = most.max(host.stats().count(what));
        host.kill_monitor();
        std::thread::sleep(pause);
        host.start_monitor();
    }
    println!("{}", program.finish().expect_success().text());
    most
}

#[test]
fn every_byte_arrives_while_the_monitor_is_killed() {
    let host = Host::new(Route::Crosslane);
    let program = stress(&host, free_port(), &[]).start();
    let upgrades = kill_monitor_while(&host, program, "upgrades");
    assert!(upgrades > 0, "nothing was upgraded");
}

#[test]
fn every_byte_arrives_on_connections_that_change_to_and_fro() {
    let host = Host::new(Route::Crosslane);
    let output = stress(&host, free_port(), &[])
        .env("CROSSLANE_CHAOS", "50")
        .run();
    println!("{}", output.text());
    let stats = host.stats();
    assert!(
        stats.count("upgrades") > 100,
        "hardly anything was upgraded: {stats:?}"
    );
    assert!(
        stats.count("downgrades") > 100,
        "hardly anything was brought back: {stats:?}"
    );
}

#[test]
fn every_byte_arrives_on_connections_that_change_while_all_die() {
    for victim in ["client", "server", "monitor"] {
        let host = Host::new(Route::Crosslane);
        let options = ["--kill", victim];
        let options = if victim == "monitor" {
            &[]
        } else {
            &options[..]
        };
        let program = stress(&host, free_port(), options).env("CROSSLANE_CHAOS", "50");
        let downgrades = match victim {
            "monitor" => kill_monitor_while(&host, program.start(), "downgrades"),
            _ => {
                println!("{}", program.run().text());
                host.stats().count("downgrades")
            }
        };
        assert!(downgrades > 0, "{victim}: nothing was brought back");
    }
}

#[test]
fn every_byte_arrives_however_it_is_waited_for() {
    for wait in ["spin", "sleep"] {
        let host = Host::new(Route::Crosslane);
        let port = free_port();
        let witness = host.witness(port);
        println!(
            "{}",
            stress(&host, port, &[])
                .run_option("--wait", wait)
                .run()
                .text()
        );
        witness.assert_accelerated();
    }
}

#[test]
fn every_byte_arrives_on_eager_connections() {
    let host = Host::new(Route::Crosslane);
    let port = free_port();
    let witness = host.witness(port);
    let program = stress(&host, port, &[]).run_option("--eager", &port.to_string());
    println!("{}", program.run().text());
    witness.assert_accelerated();
}
