//! Programs of another libc that an accelerated program starts.

use std::process::Command;

use crosslane_testkit::{Host, Route, skipped};

const SOURCE: &str = r#"
#include <stdio.h>
#include <unistd.h>
int main(int count, char **arguments) {
    puts("musl");
    fflush(stdout);
    return count > 1 && execvp(arguments[1], arguments + 1);
}
"#;

#[test]
fn a_musl_program_runs_as_always_and_what_it_starts_is_accelerated() {
    let host = Host::new(Route::Crosslane);
    let source = host.file("program.c", SOURCE);
    let program = host.folder().join("program");
    let compiled = Command::new("musl-gcc")
        .arg("-o")
        .args([&program, &source])
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        skipped("musl-gcc of Debian's musl-tools does not work here");
        return;
    }
    let program = program.display();
    let script = format!("{program} sh -c 'grep -c libcrosslane.so /proc/$$/maps'");
    let output = host.program("sh").args(["-c", &script]).run();
    let said = output.text();
    let (first, mappings) = said.split_once('\n').expect("two lines");
    assert_eq!(first, "musl");
    assert!(
        mappings.trim().parse::<u32>().is_ok_and(|count| count > 0),
        "{said}"
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
