//! A program that has functions of libc's names.

use crosslane_testkit::{Host, Route};

#[test]
fn functions_of_a_program_are_called_by_it_alone() {
    let natively = run(&Host::new(Route::Tcp));
    assert_eq!(natively, "2000 signals; 1 1 4000 4001 2000 2 calls\n");
    let host = Host::new(Route::Crosslane);
    assert_eq!(run(&host), natively);
    assert!(host.stats().count("ring_bytes_received") > 0);
}

fn run(host: &Host) -> String {
    let source = host.file("own_names.c", include_str!("own_names.c"));
    let program = host.folder().join("own_names");
    let compile = host.plain("cc").arg("-o").arg(&program).arg(&source);
    let _compiled = compile.run();
    host.program(&program).run().text()
}
