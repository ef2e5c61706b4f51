//! Handlers that use the connection whose call they have interrupted.

use crosslane_testkit::{Host, Route};

use crate::compiled;

#[test]
fn a_handler_uses_what_it_has_interrupted() {
    play(&[], &[]);
}

#[test]
fn a_handler_uses_a_pair_that_it_has_interrupted() {
    play(&["--unix"], &["pair"]);
}

fn play(flags: &[&str], arguments: &[&str]) {
    let natively = run(&Host::new(Route::Tcp), flags, arguments);
    let scenes = [
        "sending",
        "sending once",
        "receiving",
        "waiting",
        "allocating",
        "queueing",
        "leaving",
    ];
    let scenes = scenes.map(|scene| format!("{scene}: interrupted, 0\n"));
    assert_eq!(natively, scenes.concat().repeat(2));
    let host = Host::new(Route::Crosslane);
    assert_eq!(run(&host, flags, arguments), natively);
    assert!(host.stats().count("ring_bytes_received") > 256 << 20);
}

fn run(host: &Host, flags: &[&str], arguments: &[&str]) -> String {
    let program = compiled(host, "handlers", include_str!("handlers.c"));
    let run = host.program(program).args(arguments);
    flags
        .iter()
        .fold(run, |run, flag| run.run_flag(flag))
        .run()
        .text()
}
