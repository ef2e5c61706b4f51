//! A program that starts a bench, which starts a server, and is interrupted. Both are this test's own executable.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crosslane_benchkit::{Folder, Process, stop_benches_on_signals, stop_children_on_signals};
use rustix::process::{Pid, Signal, kill_process};

/// What this executable is started as.
const ROLE: &str = "CROSSLANE_TEST_ROLE";
/// Only a hang lasts this long.
const WATCHDOG: Duration = Duration::from_secs(60);
/// Before what the server and the folder are called.
const MARK: &str = "are: ";

#[test]
fn who_is_interrupted_leaves_no_process_of_its_children_and_no_folder() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut report = this("report");
        let mut report = report.stdout(Stdio::piped()).spawn().expect("it starts");
        let stdout = BufReader::new(report.stdout.take().expect("it is piped"));
        let mut lines = stdout.lines().map_while(Result::ok);
        let line = lines.find_map(|line| Some(line.split_once(MARK)?.1.to_owned()));
        let line = line.expect("the bench says what it has made");
        let [servers @ .., folder] = &line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line:?} names nothing")
        };
        assert!(servers.iter().all(|pid| is_alive(pid)) && Path::new(folder).is_dir());
        kill_process(Pid::from_child(&report), signal).expect("it runs");
        assert_eq!(code(&mut report), Some(130));
        let left: Vec<_> = servers.iter().filter(|pid| is_alive(pid)).collect();
        assert!(left.is_empty(), "{left:?} of {servers:?} are left");
        assert!(!Path::new(folder).exists(), "{folder} is left");
    }
}

#[test]
fn a_part_of_the_test_above() {
    match std::env::var(ROLE).as_deref() {
        Ok("report") => {
            stop_benches_on_signals().expect("no handler is there");
            let mut bench = Process::spawn("bench", &mut this("bench")).expect("it starts");
            loop {
                println!("{}", bench.next_line(WATCHDOG).expect("it says something"));
            }
        }
        Ok("bench") => {
            stop_children_on_signals().expect("no handler is there");
            let folder = Folder::new("crosslane-test-").expect("a folder");
            std::fs::write(folder.path().join("file"), "text").expect("a file");
            let servers = ["sleep 60", "trap '' TERM; sleep 60"].map(|script| {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("echo ready; {script}; true")]);
                let mut server = Process::spawn("server", &mut shell).expect("sh starts");
                server
                    .next_line(WATCHDOG)
                    .expect("it says that it is ready");
                server
            });
            let [one, other] = servers.each_ref().map(Process::pid);
            println!("{MARK}{one} {other} {}", folder.path().display());
            std::thread::sleep(WATCHDOG);
        }
        _ => {}
    }
}

fn this(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("it is running"));
    command.args(["--exact", "a_part_of_the_test_above", "--nocapture"]);
    command.env(ROLE, role);
    command
}

/// Waits for its end.
fn code(child: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + WATCHDOG;
    loop {
        if let Some(status) = child.try_wait().expect("it is a child") {
            return status.code();
        }
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether the process exists in a state other than zombie, which is what an orphan may stay for a moment.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with('Z'))
}
