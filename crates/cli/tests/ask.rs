//! The real command: what `ss` and `stats` say, and what they do when nobody answers.

use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crosslane_ctl::paths::socket_in;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use rustix::process::{Pid, Signal, kill_process};

/// Every wait ends after this long, with a failure.
const WATCHDOG: Duration = Duration::from_secs(30);

fn crosslane(runtime_dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crosslane"));
    command.args(args).env("CROSSLANE_RUNTIME_DIR", runtime_dir);
    command
}

fn ask(runtime_dir: &Path, args: &[&str]) -> Output {
    crosslane(runtime_dir, args).output().unwrap()
}

/// A monitor in the foreground, killed when dropped.
struct Foreground(Child);

impl Foreground {
    /// Start by a shell command that ends in `exec "$@"`.
    fn start(runtime_dir: &Path, script: &str) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", script, "sh", env!("CARGO_BIN_EXE_crosslane")])
            .args(["monitor", "--announce", "--runtime-dir"])
            .arg(runtime_dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert_eq!(line, "listening\n");
        Self(child)
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.0.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn without_a_monitor_the_remedy_is_named() {
    let directory = tempfile::tempdir().unwrap();
    for command in ["ss", "stats"] {
        let output = ask(directory.path(), &[command]);
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("crosslane run"), "{text}");
    }
}

#[test]
fn a_directory_whose_socket_has_too_long_a_name_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let deep = directory.path().join("x".repeat(120));
    for command in [&["ss"][..], &["stats"], &["monitor"]] {
        let output = ask(&deep, command);
        assert_ne!(output.status.code(), Some(0));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("more than 107 bytes"), "{text}");
    }
    assert!(!deep.exists());
}

#[test]
fn a_full_disk_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let _monitor = Foreground::start(directory.path(), "exec \"$@\"");
    for command in [&["ss"][..], &["stats"], &["check", "true"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let mut command = crosslane(directory.path(), command);
        let output = command.stdout(full.unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("cannot write to standard output"), "{text}");
    }
}

#[test]
fn an_empty_list_says_what_to_do_and_an_empty_json_list_is_empty() {
    let directory = tempfile::tempdir().unwrap();
    let _monitor = Foreground::start(directory.path(), "exec \"$@\"");
    let text = ask(directory.path(), &["ss"]).stdout;
    assert!(String::from_utf8(text).unwrap().contains("crosslane run"));
    assert!(ask(directory.path(), &["ss", "--json"]).stdout.is_empty());
}

#[test]
fn counters_come_in_three_forms() {
    let directory = tempfile::tempdir().unwrap();
    let _monitor = Foreground::start(directory.path(), "exec \"$@\"");
    let json = ask(directory.path(), &["stats", "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["upgrades"], 0);
    assert_eq!(json["monitor"]["connections"], 1);
    let text = ask(directory.path(), &["stats", "--prometheus"]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("\ncrosslane_upgrades_total 0\n"));
    let text = ask(directory.path(), &["stats"]).stdout;
    assert!(String::from_utf8(text).unwrap().contains("doorbells_sent"));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let directory = tempfile::tempdir().unwrap();
    let _monitor = Foreground::start(directory.path(), "exec \"$@\"");
    let mut child = crosslane(directory.path(), &["stats"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(output.stderr.is_empty());
}

#[test]
fn a_monitor_that_hangs_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let monitor = Foreground::start(directory.path(), "exec \"$@\"");
    monitor.signal(Signal::STOP);
    let output = ask(directory.path(), &["ss"]);
    monitor.signal(Signal::CONT);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("does not answer"), "{text}");
}

#[test]
fn a_monitor_without_descriptors_serves_those_it_has_and_recovers() {
    let directory = tempfile::tempdir().unwrap();
    let _monitor = Foreground::start(directory.path(), "ulimit -n 24; exec \"$@\"");
    let flood: Vec<OwnedFd> = (0..100).map(|_| knock(directory.path())).collect();
    // Some were let in, the others were turned away; nobody is left waiting.
    let turned_away = flood.iter().filter(|socket| has_hung_up(socket)).count();
    assert!(turned_away > 50, "{turned_away}");
    drop(flood);
    let end = Instant::now() + WATCHDOG;
    loop {
        let output = ask(directory.path(), &["stats", "--json"]);
        if output.status.success() {
            let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert!(json["monitor"]["turned_away"].as_u64() > Some(50));
            return;
        }
        assert!(Instant::now() < end);
    }
}

fn knock(runtime_dir: &Path) -> OwnedFd {
    let client = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let path = SocketAddrUnix::new(socket_in(runtime_dir)).unwrap();
    connect(&client, &path).unwrap();
    client
}

/// Whether the monitor hangs up within a moment.
fn has_hung_up(socket: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let moment = Timespec {
        tv_sec: 0,
        tv_nsec: 50_000_000,
    };
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    poll(&mut fds, Some(&moment)) == Ok(1)
}
