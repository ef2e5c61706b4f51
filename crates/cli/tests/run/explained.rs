//! `crosslane run --explain`: the program is a child, and is treated as if it were none.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::sandbox::{Sandbox, err, finish, out, signal_process};

/// The command, with no signal ignored, as a shell has those at the keyboard for what runs beside it.
fn heeding_signals(command: &Command) -> Command {
    let mut heeding = Command::new("env");
    heeding.arg("--default-signal=INT,QUIT");
    heeding.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => heeding.env(name, value),
            None => heeding.env_remove(name),
        };
    }
    heeding
}

#[test]
fn signals_that_are_sent_to_the_command_reach_the_program() {
    let sandbox = Sandbox::new();
    for (signal, name) in [
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
        (Signal::TERM, "TERM"),
        (Signal::USR1, "USR1"),
    ] {
        let script =
            format!("trap 'echo got; exit 7' {name}; echo ready; while :; do sleep 0.01; done");
        let crosslane = sandbox.crosslane(&["run", "--explain", "sh", "-c", &script]);
        let mut child = heeding_signals(&crosslane)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        signal_process(child.id(), signal);
        assert_eq!(lines.next().unwrap().unwrap(), "got", "{name}");
        assert_eq!(child.wait().unwrap().code(), Some(7), "{name}");
    }
}

#[test]
fn a_program_that_crashes_leaves_its_own_memory_alone() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if pattern.trim() != "core" {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: core_pattern is {pattern:?}, not \"core\""
        );
        return;
    }
    let sandbox = Sandbox::new();
    let folder = sandbox.folder.path();
    let script =
        "ulimit -c unlimited && exec env --default-signal=QUIT \"$0\" run --explain sleep 600";
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .arg(env!("CARGO_BIN_EXE_crosslane"));
    command
        .current_dir(folder)
        .env("CROSSLANE_RUNTIME_DIR", sandbox.runtime_dir());
    let mut child = command
        .env("CROSSLANE_LIBRARY", sandbox.library())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It passes this on, to be ended by it as the program is.
    std::thread::sleep(std::time::Duration::from_millis(500));
    signal_process(child.id(), Signal::QUIT);
    assert_eq!(child.wait().unwrap().signal(), Some(3));
    let core = std::fs::read(folder.join("core"));
    if let Ok(core) = core {
        let is_ours = core.windows(9).any(|part| part == b"--explain");
        assert!(!is_ours, "the dump is not the program's");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_the_program_runs() {
    let sandbox = Sandbox::new();
    let output = sandbox.run(&["run", "--explain-to", "/no/such/file", "echo", "ran"]);
    assert_eq!(
        (out(&output).as_str(), output.status.code()),
        ("", Some(125))
    );
    assert!(err(&output).contains("/no/such"), "{}", err(&output));
    let path = sandbox.folder.path().join("told");
    let path = path.to_str().unwrap();
    let output = finish(&mut sandbox.crosslane(&["run", "--explain-to", path, "echo", "ran"]));
    assert_eq!(out(&output), "ran\n", "{}", err(&output));
    assert!(
        std::fs::read_to_string(path)
            .unwrap()
            .contains("echo: 0 of 0 ends")
    );
}
