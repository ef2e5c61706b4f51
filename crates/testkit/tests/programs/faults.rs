//! A program in C that handles its own faults, in every way that there is, between calls that are given bad pointers.

use crosslane_testkit::{Host, Route};

#[test]
fn a_programs_faults_are_its_own() {
    let natively = run(&Host::new(Route::Tcp));
    let host = Host::new(Route::Crosslane);
    assert_eq!(run(&host), natively);
    assert!(host.stats().count("ring_bytes_received") > 0);
}

fn run(host: &Host) -> String {
    let source = host.file("faults.c", include_str!("faults.c"));
    let program = host.folder().join("faults");
    let compile = host.plain("cc").arg("-o").arg(&program).arg(&source);
    let _compiled = compile.run();
    host.program(&program).run().text()
}
