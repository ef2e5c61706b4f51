//! A monitor of another version, as after half an upgrade.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use crosslane_ctl::ABI_VERSION;
use crosslane_ctl::message::HEADER_BYTES;
use crosslane_ctl::paths::socket_in;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, accept, bind, listen, recv,
    send, socket,
};

use super::sandbox::{Sandbox, err, finish, out};

const OTHER: u16 = ABI_VERSION + 1;

/// Answer everything in this directory as a monitor of another version does, until the test ends.
fn answer_in(directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    let door = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    bind(&door, &SocketAddrUnix::new(socket_in(directory)).unwrap()).unwrap();
    listen(&door, 16).unwrap();
    std::thread::spawn(move || {
        while let Ok(client) = accept(&door) {
            let mut header = [0; HEADER_BYTES];
            // Who has gone away meanwhile is not answered.
            if recv(&client, &mut header[..], RecvFlags::empty()).is_ok() {
                // Behind the magic number.
                header[4..6].copy_from_slice(&OTHER.to_le_bytes());
                let _ = send(&client, &header, SendFlags::NOSIGNAL);
            }
        }
    });
}

fn assert_told(output: &Output, code: i32) {
    let versions =
        format!("speaks version {OTHER} of the protocol, and this is version {ABI_VERSION}");
    assert!(err(output).contains(&versions), "{}", err(output));
    assert_eq!(err(output).lines().count(), 1, "{}", err(output));
    assert_eq!(output.status.code(), Some(code));
}

#[test]
fn it_is_named_and_nothing_is_started_beside_it() {
    let sandbox = Sandbox::new();
    answer_in(&sandbox.runtime_dir());
    let output = sandbox.run(&["run", "echo", "ran"]);
    assert_told(&output, 0);
    assert_eq!(out(&output), "ran\n");
    let strict = sandbox.run(&["run", "--strict", "echo", "ran"]);
    assert_told(&strict, 125);
    assert_eq!(out(&strict), "");
    for command in ["ss", "stats"] {
        assert_told(&sandbox.run(&[command]), 1);
    }
    assert!(!sandbox.runtime_dir().join("monitor.log").exists());
}

/// In a mount namespace whose system monitor is the one in the folder `$1`; tells of a private one on standard output.
const BESIDE: &str = "mount -t tmpfs none /run; mkdir /run/crosslane; mount --bind \"$1\" /run/crosslane; shift; \
                      code=0; \"$@\" || code=$?; if [ -e /run/crosslane-root ]; then echo private; fi; exit $code";

#[test]
fn a_system_monitor_of_another_version_gets_no_private_one_beside_it() {
    let sandbox = Sandbox::new();
    let may_mount = Command::new("unshare").args(["-m", "true"]).output();
    if !rustix::process::geteuid().is_root() || !may_mount.is_ok_and(|made| made.status.success()) {
        let _ = writeln!(std::io::stderr(), "SKIPPED: mounts need root");
        return;
    }
    let system = sandbox.folder.path().join("system");
    answer_in(&system);
    let beside = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-ec", BESIDE, "sh"]).arg(&system);
        command.arg(env!("CARGO_BIN_EXE_crosslane")).args(args);
        command
            .env_remove("LD_PRELOAD")
            .env_remove("CROSSLANE_RUNTIME_DIR")
            .env("CROSSLANE_LIBRARY", sandbox.library());
        finish(&mut command)
    };
    let output = beside(&["run", "sh", "-c", "echo $CROSSLANE_RUNTIME_DIR"]);
    assert_told(&output, 0);
    assert_eq!(out(&output), "/run/crosslane\n");
    let strict = beside(&["run", "--strict", "echo", "ran"]);
    assert_told(&strict, 125);
    assert_eq!(out(&strict), "");
    assert_told(&beside(&["ss"]), 1);
}
