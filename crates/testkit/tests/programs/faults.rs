//! A program in C that handles its own faults, in every way that there is, between calls that are given bad pointers.

use crosslane_testkit::{Host, Route};

use crate::compiled;

#[test]
fn a_programs_faults_are_its_own() {
    let natively = run(&Host::new(Route::Tcp));
    let host = Host::new(Route::Crosslane);
    assert_eq!(run(&host), natively);
    assert!(host.stats().count("ring_bytes_received") > 0);
}

fn run(host: &Host) -> String {
    let program = compiled(host, "faults", include_str!("faults.c"));
    host.program(program).run().text()
}
