//! The program gets what it would get without the command.

use std::process::Command;

use super::sandbox::{Sandbox, err, finish, out};

/// The program's line of /proc/self/status, started by a shell that has prepared its start by `words`.
fn status_line(sandbox: &Sandbox, words: &str, line: &str) -> String {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("{words} grep {line} /proc/self/status")])
        .arg(env!("CARGO_BIN_EXE_crosslane"))
        .env_remove("LD_PRELOAD")
        .env("CROSSLANE_RUNTIME_DIR", sandbox.runtime_dir())
        .env("CROSSLANE_LIBRARY", sandbox.library());
    out(&finish(&mut shell))
}

#[test]
fn all_that_follows_the_program_is_its_own() {
    let sandbox = Sandbox::new();
    for words in [
        &["-h"][..],
        &["--help"],
        &["--wait", "3"],
        &["--unix", "a"],
        &["--strict", "--explain"],
        &["--", "a", "--", "b"],
        &["a", "--", "-V"],
    ] {
        for before in [
            &["run", "printf", "%s\n"][..],
            &["run", "--strict", "--", "printf", "%s\n"],
        ] {
            let output = sandbox.run(&[before, words].concat());
            let wanted: String = words.iter().map(|word| format!("{word}\n")).collect();
            assert_eq!(out(&output), wanted, "{}", err(&output));
        }
    }
    let refused = sandbox.run(&["run", "--bogus", "ls"]);
    assert_eq!(refused.status.code(), Some(2));
    let help = out(&sandbox.run(&["run", "--help"]));
    assert!(
        help.contains("Usage: crosslane run [OPTIONS] <PROGRAM> [ARGS]..."),
        "{help}"
    );
}

#[test]
fn signals_that_are_ignored_or_held_back_stay_so() {
    let sandbox = Sandbox::new();
    for (preparation, line) in [
        ("trap '' PIPE; exec", "SigIgn"),
        ("exec env --default-signal=PIPE", "SigIgn"),
        ("exec env --block-signal=USR1", "SigBlk"),
        ("exec", "SigBlk"),
    ] {
        let wanted = status_line(&sandbox, preparation, line);
        assert!(wanted.starts_with(line), "{preparation}");
        for options in ["", "--explain"] {
            let words = format!("{preparation} \"$0\" run {options}");
            let found = status_line(&sandbox, &words, line);
            assert_eq!(found, wanted, "{preparation} {options}");
        }
    }
}

#[test]
fn a_standard_error_that_takes_nothing_keeps_no_program_from_running() {
    let sandbox = Sandbox::new();
    for closing in ["2>/dev/full", "2>&-"] {
        let script = format!("exec \"$0\" run echo ran {closing}");
        let command = sandbox.crosslane(&[]);
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).arg(command.get_program());
        shell.env("CROSSLANE_RUNTIME_DIR", sandbox.runtime_dir());
        let output = finish(shell.env("CROSSLANE_LIBRARY", "/nowhere/library.so"));
        assert_eq!(out(&output), "ran\n", "{closing}");
        assert!(output.status.success(), "{closing}");
    }
}

#[test]
fn an_empty_variable_is_as_none() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.crosslane(&["run", "echo", "ran"]);
    let output = finish(command.env("CROSSLANE_WAIT", "").env("CROSSLANE_EAGER", ""));
    assert_eq!(out(&output), "ran\n", "{}", err(&output));
}
