//! A runtime directory and a library for a test, and how it runs programs.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crosslane_monitor::client::MonitorClient;

/// Every wait ends after this long, with a failure.
pub const WATCHDOG: Duration = Duration::from_secs(30);

/// A runtime directory of its own, whose monitor ends with the test.
pub struct Sandbox {
    pub folder: tempfile::TempDir,
}

impl Sandbox {
    pub fn new() -> Self {
        let sandbox = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        // Once: what is written anew while another program reads it is no library for a moment.
        empty_library(&sandbox.library());
        sandbox
    }

    pub fn runtime_dir(&self) -> PathBuf {
        self.folder.path().join("runtime")
    }

    pub fn library(&self) -> PathBuf {
        self.folder.path().join("library.so")
    }

    /// LD_PRELOAD with the library in a form that a musl loader passes over, if there is one.
    pub fn preload(&self) -> String {
        let musl = std::fs::read_dir("/lib").unwrap().flatten().any(|entry| {
            let name = entry.file_name().into_string();
            name.is_ok_and(|name| name.starts_with("ld-musl-"))
        });
        let prefix = if musl {
            "/$LIB/../../../../../../../.."
        } else {
            ""
        };
        format!("{prefix}{}", self.library().display())
    }

    /// The command, with an empty library in place of the real one.
    pub fn crosslane(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crosslane"));
        command
            .args(args)
            .env_remove("LD_PRELOAD")
            .env("CROSSLANE_RUNTIME_DIR", self.runtime_dir())
            .env("CROSSLANE_LIBRARY", self.library());
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        finish(&mut self.crosslane(args))
    }

    pub fn monitor_pid(&self) -> Option<u32> {
        let client = MonitorClient::connect(&self.runtime_dir()).ok()?;
        client.counters(WATCHDOG).ok().map(|c| c.monitor.pid)
    }

    pub fn signal_monitor(&self, signal: rustix::process::Signal) {
        signal_process(self.monitor_pid().unwrap(), signal);
    }
}

pub fn signal_process(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if self.monitor_pid().is_some() {
            self.signal_monitor(rustix::process::Signal::TERM);
        }
    }
}

/// The loader accepts any shared object; the smallest one at hand is a copy of one of ours.
pub fn empty_library(path: &Path) {
    if path.exists() {
        return;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let library = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .find(|path| path.contains("libgcc_s"))
        .expect("the test is linked with libgcc_s");
    std::fs::copy(library, path).unwrap();
}

/// Run to the end, within the watchdog's time.
pub fn finish(command: &mut Command) -> Output {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let readers = [
        read_all(child.stdout.take().unwrap()),
        read_all(child.stderr.take().unwrap()),
    ];
    let end = Instant::now() + WATCHDOG;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("{command:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    // Also proves that no background process holds our pipes open.
    let [stdout, stderr] = readers.map(|reader| reader.recv_timeout(WATCHDOG).unwrap());
    Output {
        status,
        stdout,
        stderr,
    }
}

fn read_all(mut pipe: impl Read + Send + 'static) -> std::sync::mpsc::Receiver<Vec<u8>> {
    let (done, result) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        // The test may have failed meanwhile.
        let _ = done.send(bytes);
    });
    result
}

pub fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
