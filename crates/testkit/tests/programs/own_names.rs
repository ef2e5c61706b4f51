//! A program that has functions of libc's names.

use crosslane_testkit::{Host, Route};

use crate::compiled;

#[test]
fn functions_of_a_program_are_called_by_it_alone() {
    let natively = run(&Host::new(Route::Tcp));
    assert_eq!(natively, "2000 signals; 1 1 4000 4001 2000 2 calls\n");
    let host = Host::new(Route::Crosslane);
    assert_eq!(run(&host), natively);
    assert!(host.stats().count("ring_bytes_received") > 0);
}

fn run(host: &Host) -> String {
    let program = compiled(host, "own_names", include_str!("own_names.c"));
    host.program(program).run().text()
}
