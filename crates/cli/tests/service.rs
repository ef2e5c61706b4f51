//! The monitor as a service: the unit for systemd, and that it tells when programs can connect.

use std::io::{ErrorKind, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use crosslane_monitor::client::MonitorClient;
use rustix::process::{Pid, Signal, kill_process};

/// Every wait ends after this long, with a failure.
const WATCHDOG: Duration = Duration::from_secs(30);

fn unit() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/crosslane.service");
    std::fs::read_to_string(path).unwrap()
}

/// A monitor that tells `notify`, ended when dropped.
struct Service(Child);

impl Service {
    fn start(runtime_dir: &Path, notify: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crosslane"));
        command.args(["monitor", "--runtime-dir"]).arg(runtime_dir);
        Self(command.env("NOTIFY_SOCKET", notify).spawn().unwrap())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn assert_ready(manager: &UnixDatagram, runtime_dir: &Path) {
    manager.set_read_timeout(Some(WATCHDOG)).unwrap();
    let mut said = [0; 100];
    let bytes = manager.recv(&mut said).unwrap();
    assert_eq!(&said[..bytes], b"READY=1");
    // The first try has to do.
    let client = MonitorClient::connect(runtime_dir).unwrap();
    client.counters(WATCHDOG).unwrap();
}

#[test]
fn systemd_finds_nothing_wrong_with_the_unit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("crosslane.service");
    let text = unit().replace("/usr/local/bin/crosslane", env!("CARGO_BIN_EXE_crosslane"));
    std::fs::write(&path, text).unwrap();
    let Ok(output) = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&path)
        .output()
    else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: systemd is not installed");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    // It looks at what the unit needs, too, which may have faults of its own.
    let is_ours = |line: &&str| line.contains("crosslane.service");
    assert_eq!(said.lines().find(is_ours), None, "{said}");
    assert!(output.status.success(), "{said}");
}

#[test]
fn the_unit_waits_for_what_the_monitor_tells() {
    let lines: Vec<_> = unit().lines().map(str::to_owned).collect();
    for line in [
        "Type=notify",
        "ExecStart=/usr/local/bin/crosslane monitor",
        "RuntimeDirectory=crosslane",
        "WantedBy=multi-user.target",
    ] {
        assert!(lines.iter().any(|found| found == line), "{line}");
    }
}

#[test]
fn it_tells_when_programs_can_connect() {
    let folder = tempfile::tempdir().unwrap();
    let (path, runtime_dir) = (folder.path().join("notify"), folder.path().join("runtime"));
    let manager = UnixDatagram::bind(&path).unwrap();
    let _service = Service::start(&runtime_dir, path.to_str().unwrap());
    assert_ready(&manager, &runtime_dir);
}

#[test]
fn a_reload_outside_of_a_rack_ends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (path, runtime_dir) = (folder.path().join("notify"), folder.path().join("runtime"));
    let manager = UnixDatagram::bind(&path).unwrap();
    let service = Service::start(&runtime_dir, path.to_str().unwrap());
    assert_ready(&manager, &runtime_dir);
    kill_process(Pid::from_child(&service.0), Signal::HUP).unwrap();
    // It would be gone within this.
    std::thread::sleep(Duration::from_millis(200));
    let client = MonitorClient::connect(&runtime_dir).unwrap();
    client.counters(WATCHDOG).unwrap();
}

#[test]
fn it_tells_a_manager_that_has_no_path() {
    let folder = tempfile::tempdir().unwrap();
    let runtime_dir = folder.path().join("runtime");
    let name = format!("crosslane-notify-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let manager = UnixDatagram::bind_addr(&address).unwrap();
    let _service = Service::start(&runtime_dir, &format!("@{name}"));
    assert_ready(&manager, &runtime_dir);
}

#[test]
fn a_manager_that_is_not_there_keeps_nobody_from_serving() {
    let folder = tempfile::tempdir().unwrap();
    let runtime_dir = folder.path().join("runtime");
    for nobody in ["/nowhere/notify", "vsock:2:1234"] {
        let _service = Service::start(&runtime_dir, nobody);
        let end = std::time::Instant::now() + WATCHDOG;
        while !MonitorClient::connect(&runtime_dir)
            .is_ok_and(|client| client.counters(WATCHDOG).is_ok())
        {
            assert!(std::time::Instant::now() < end, "{nobody}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_private_monitor_does_not_speak_for_the_program_that_it_serves() {
    let folder = tempfile::tempdir().unwrap();
    let (path, runtime_dir) = (folder.path().join("notify"), folder.path().join("runtime"));
    let manager = UnixDatagram::bind(&path).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_crosslane"));
    // Any file of the right kind is a library for this.
    command
        .args(["run", "sh", "-c", "echo $NOTIFY_SOCKET"])
        .env("CROSSLANE_RUNTIME_DIR", &runtime_dir)
        .env("CROSSLANE_LIBRARY", library())
        .env("NOTIFY_SOCKET", &path);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said.trim(), path.to_str().unwrap(), "{output:?}");
    let client = MonitorClient::connect(&runtime_dir).unwrap();
    let pid = client.counters(WATCHDOG).unwrap().monitor.pid;
    manager.set_nonblocking(true).unwrap();
    let heard = manager.recv(&mut [0; 100]).map_err(|error| error.kind());
    kill_process(
        Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(),
        Signal::TERM,
    )
    .unwrap();
    assert_eq!(heard, Err(ErrorKind::WouldBlock));
}

/// A shared library that does nothing here.
fn library() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    let found = paths.find(|path| path.contains("libgcc_s"));
    found.expect("the test is linked with libgcc_s").to_owned()
}
