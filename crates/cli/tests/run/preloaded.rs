//! Programs into which the library is loaded, and libraries that cannot be.

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::sandbox::{Sandbox, err, finish, out};

/// A user who is not root.
const SOMEBODY: u32 = 12345;

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// `crosslane run --strict` as somebody else, who may look at the sandbox. None, loudly, if we are not root.
fn as_somebody(sandbox: &Sandbox, program: &[&str]) -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: only root can become another user"
        );
        return None;
    }
    set_mode(sandbox.folder.path(), 0o755);
    let own = sandbox.folder.path().join("crosslane");
    std::fs::copy(env!("CARGO_BIN_EXE_crosslane"), &own).unwrap();
    let runtime = sandbox.folder.path().join("of-somebody");
    std::fs::create_dir(&runtime).unwrap();
    set_mode(&runtime, 0o700);
    chown(&runtime, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    let mut command = Command::new(own);
    command
        .args(["run", "--strict"])
        .args(program)
        .env_remove("LD_PRELOAD")
        .env("CROSSLANE_RUNTIME_DIR", runtime)
        .env("CROSSLANE_LIBRARY", sandbox.library())
        .uid(SOMEBODY)
        .gid(SOMEBODY);
    Some(command)
}

fn end_monitor_of_somebody(sandbox: &Sandbox) {
    let directory = sandbox.folder.path().join("of-somebody");
    let pid = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .find_map(|entry| {
            let words = std::fs::read(entry.path().join("cmdline")).ok()?;
            let is_its = String::from_utf8_lossy(&words).contains(directory.to_str()?);
            is_its.then(|| entry.file_name().to_str()?.parse().ok())?
        });
    if let Some(pid) = pid {
        super::sandbox::signal_process(pid, rustix::process::Signal::TERM);
    }
}

#[test]
fn a_program_that_may_be_run_and_not_read_is_preloaded() {
    let sandbox = Sandbox::new();
    let program = sandbox.folder.path().join("printenv");
    let found = ["/usr/bin/printenv", "/bin/printenv"].map(Path::new);
    let found = found.into_iter().find(|path| path.exists()).unwrap();
    std::fs::copy(found, &program).unwrap();
    set_mode(&program, 0o111);
    let words = [program.to_str().unwrap(), "LD_PRELOAD"];
    let Some(mut command) = as_somebody(&sandbox, &words) else {
        return;
    };
    let output = finish(&mut command);
    end_monitor_of_somebody(&sandbox);
    assert_eq!(out(&output).trim(), sandbox.preload(), "{}", err(&output));
}

#[test]
fn a_library_that_its_user_may_not_read_is_told_with_the_remedy() {
    let sandbox = Sandbox::new();
    set_mode(&sandbox.library(), 0o600);
    let Some(mut command) = as_somebody(&sandbox, &["echo", "ran"]) else {
        return;
    };
    let output = finish(&mut command);
    assert_eq!(
        (out(&output).as_str(), output.status.code()),
        ("", Some(125))
    );
    assert!(err(&output).contains("chmod a+r"), "{}", err(&output));
}

#[test]
fn what_the_loader_would_refuse_is_no_library() {
    let sandbox = Sandbox::new();
    let whole = std::fs::read(sandbox.library()).unwrap();
    let short = sandbox.folder.path().join("short.so");
    std::fs::write(&short, &whole[..whole.len() / 2]).unwrap();
    for library in [short.as_path(), Path::new("/proc/self/exe")] {
        let mut command = sandbox.crosslane(&["run", "--strict", "echo", "ran"]);
        let output = finish(command.env("CROSSLANE_LIBRARY", library));
        assert_eq!(
            (out(&output).as_str(), output.status.code()),
            ("", Some(125))
        );
        let name = library.display().to_string();
        assert!(err(&output).contains(&name), "{}", err(&output));
    }
}

#[test]
fn without_a_path_programs_are_found_as_always() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.crosslane(&["run", "--strict", "sh", "-c", "echo $LD_PRELOAD"]);
    let output = finish(command.env_remove("PATH"));
    assert_eq!(out(&output).trim(), sandbox.preload(), "{}", err(&output));
}

#[test]
fn options_of_env_that_take_a_value_are_not_the_program() {
    let sandbox = Sandbox::new();
    let script = sandbox.folder.path().join("script");
    std::fs::write(&script, "#!/usr/bin/env -S -u FOO sh\necho $LD_PRELOAD\n").unwrap();
    set_mode(&script, 0o755);
    let output = sandbox.run(&["run", "--strict", script.to_str().unwrap()]);
    assert_eq!(out(&output).trim(), sandbox.preload(), "{}", err(&output));
}

#[test]
fn a_path_that_cannot_be_preloaded_has_a_remedy() {
    let sandbox = Sandbox::new();
    let library = sandbox.folder.path().join("a library.so");
    std::fs::copy(sandbox.library(), &library).unwrap();
    let mut command = sandbox.crosslane(&["run", "echo", "ran"]);
    let output = finish(command.env("CROSSLANE_LIBRARY", library));
    assert_eq!(out(&output), "ran\n");
    assert!(
        err(&output).contains("copy it to one without"),
        "{}",
        err(&output)
    );
}

#[test]
fn a_script_that_may_not_be_executed_is_not_said_to_be_accelerated() {
    let sandbox = Sandbox::new();
    let script = sandbox.folder.path().join("script");
    std::fs::write(&script, "#!/bin/sh\n").unwrap();
    let output = sandbox.run(&["check", script.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(out(&output).contains("chmod +x"), "{}", out(&output));
}
