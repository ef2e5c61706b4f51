//! One side of a comparison: natively or under Crosslane, in network namespaces of its own.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::acceleration::Counts;

/// How the programs of a suite reach each other.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Over the kernel's TCP
    Native,
    /// Under `crosslane run`
    Default,
    /// Under `crosslane run --eager 1-65535`
    Eager,
    /// Under `crosslane run --unix --eager 1-65535`
    Unix,
}

impl Mode {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Default => "default",
            Self::Eager => "eager",
            Self::Unix => "unix",
        }
    }

    /// What stands before a command, of whose connections is told in the file `told`.
    fn prefix(self, crosslane: &Path, told: &Path) -> Vec<OsString> {
        let options: &[&str] = match self {
            Self::Native => return Vec::new(),
            Self::Default => &[],
            Self::Eager => &["--eager", "1-65535"],
            Self::Unix => &["--unix", "--eager", "1-65535"],
        };
        let run = [crosslane.into(), "run".into(), "--explain=json".into()];
        let options = options.iter().map(OsString::from);
        let last = ["--explain-to".into(), told.into(), "--".into()];
        run.into_iter().chain(options).chain(last).collect()
    }
}

/// A command of a suite.
pub struct Job {
    /// Names its log.
    pub name: String,
    pub words: Vec<OsString>,
    pub folder: PathBuf,
    pub limit: Duration,
}

/// How a job went.
pub struct Ended {
    /// Its output.
    pub log: PathBuf,
    /// What is told of its connections, if it has ended by itself and not natively.
    pub told: PathBuf,
    pub end: End,
    pub took: Duration,
}

/// What ended a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// It exited with 0.
    Good,
    /// It exited with something else.
    Bad,
    /// A signal did.
    Killed,
    /// It ran past its limit.
    Late,
}

impl End {
    fn of(status: ExitStatus) -> Self {
        match status.code() {
            Some(0) => Self::Good,
            Some(_) => Self::Bad,
            None => Self::Killed,
        }
    }
}

/// See the [module](self).
pub struct Side {
    pub mode: Mode,
    crosslane: PathBuf,
    folder: PathBuf,
    monitor: Option<Child>,
}

const RUNTIME_DIR: &str = "CROSSLANE_RUNTIME_DIR";
const PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Says which network namespace it is in, gives it a loopback device, and becomes the command.
const IN_NAMESPACE: &str = r#"readlink /proc/self/ns/net >"$0" && ip link set lo up && exec "$@""#;

impl Side {
    /// Work in `folder`; unless natively, with a monitor of its own.
    pub fn open(mode: Mode, crosslane: &Path, folder: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let mut side = Self {
            mode,
            crosslane: crosslane.to_owned(),
            folder: folder.to_owned(),
            monitor: None,
        };
        if mode != Mode::Native {
            side.monitor = Some(side.start_monitor()?);
        }
        Ok(side)
    }

    fn start_monitor(&self) -> anyhow::Result<Child> {
        let socket = self.folder.join("monitor.sock");
        let mut monitor = Command::new(&self.crosslane)
            .arg("monitor")
            .arg("--runtime-dir")
            .arg(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(self.folder.join("monitor.log"))?)
            .spawn()
            .context("cannot start crosslane monitor")?;
        let end = Instant::now() + PATIENCE;
        while !socket.exists() {
            if let Some(status) = monitor.try_wait()? {
                bail!(
                    "the monitor in {} has ended: {status}",
                    self.folder.display()
                );
            }
            ensure!(Instant::now() < end, "the monitor does not come up");
            std::thread::sleep(BETWEEN_LOOKS);
        }
        Ok(monitor)
    }

    /// Run the job to its end or its limit; afterwards, nothing of it is left.
    pub fn run(&self, job: &Job) -> anyhow::Result<Ended> {
        let [log, namespace, told] = ["log", "namespace", "ends"]
            .map(|what| self.folder.join(format!("{}.{what}", job.name)));
        let output = File::create(&log)?;
        let mut command = Command::new("unshare");
        if !geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command
            .args(["--net", "--", "sh", "-c", IN_NAMESPACE])
            .arg(&namespace)
            .args(self.mode.prefix(&self.crosslane, &told))
            .args(&job.words)
            .current_dir(&job.folder)
            .env(RUNTIME_DIR, &self.folder)
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let start = Instant::now();
        let mut child = command.spawn().context("cannot start unshare")?;
        let in_time = wait(&mut child, start + job.limit)?;
        let took = start.elapsed();
        if let Ok(namespace) = std::fs::read_to_string(&namespace) {
            kill_all_in(namespace.trim());
        }
        let status = child.wait()?;
        let end = if in_time { End::of(status) } else { End::Late };
        Ok(Ended {
            log,
            told,
            end,
            took,
        })
    }

    /// What the monitor has seen up to now, once it has noticed that all programs have ended; nothing natively.
    pub fn counts(&self) -> anyhow::Result<Option<Counts>> {
        if self.mode == Mode::Native {
            return Ok(None);
        }
        let end = Instant::now() + PATIENCE;
        loop {
            let stats = self.stats()?;
            let processes = stats["monitor"]["processes"].as_u64();
            if processes == Some(0) || Instant::now() > end {
                return Counts::of(&stats).map(Some);
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }

    fn stats(&self) -> anyhow::Result<Value> {
        let answer = Command::new(&self.crosslane)
            .args(["stats", "--json"])
            .env(RUNTIME_DIR, &self.folder)
            .output()
            .context("cannot start crosslane stats")?;
        serde_json::from_slice(&answer.stdout).with_context(|| {
            let said = String::from_utf8_lossy(&answer.stderr).into_owned();
            format!("crosslane stats does not answer: {}", said.trim())
        })
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if let Some(mut monitor) = self.monitor.take() {
            // One that has ended already is as good.
            let _ = monitor.kill();
            let _ = monitor.wait();
        }
    }
}

/// Whether it ended before then.
fn wait(child: &mut Child, deadline: Instant) -> anyhow::Result<bool> {
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            return Ok(false);
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    Ok(true)
}

/// Kill every process in the network namespace, until no look finds one.
fn kill_all_in(namespace: &str) {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let found = processes_in(namespace);
        if found.is_empty() {
            return;
        }
        for pid in found {
            // One that has ended by itself is as good.
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// Zombies have no namespace left, so they are not among them.
fn processes_in(namespace: &str) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_there = |entry: &std::fs::DirEntry| {
        let link = std::fs::read_link(entry.path().join("ns/net"));
        link.is_ok_and(|link| link == Path::new(namespace))
    };
    entries
        .filter(is_there)
        .filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
        .filter_map(Pid::from_raw)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, script: &str, folder: &Path) -> Job {
        Job {
            name: name.into(),
            words: ["sh", "-c", script].map(OsString::from).to_vec(),
            folder: folder.to_owned(),
            limit: Duration::from_millis(500),
        }
    }

    #[test]
    fn nothing_of_a_job_outlives_it() {
        let folder = tempfile::tempdir().unwrap();
        let side = Side::open(Mode::Native, Path::new("unused"), folder.path()).unwrap();
        let script = "sleep 1000 & setsid sleep 1000 & echo $!; sleep 1000";
        let ended = side.run(&job("sleepy", script, folder.path())).unwrap();
        assert_eq!(ended.end, End::Late);
        let namespace = std::fs::read_to_string(folder.path().join("sleepy.namespace")).unwrap();
        assert_eq!(processes_in(namespace.trim()), []);
    }

    #[test]
    fn who_exits_and_who_is_killed_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let side = Side::open(Mode::Native, Path::new("unused"), folder.path()).unwrap();
        let end = |script| side.run(&job("end", script, folder.path())).unwrap().end;
        assert_eq!(
            [end("exit 0"), end("exit 3"), end("kill -SEGV $$")],
            [End::Good, End::Bad, End::Killed]
        );
    }

    #[test]
    fn a_job_has_a_loopback_device_and_a_log() {
        let folder = tempfile::tempdir().unwrap();
        let side = Side::open(Mode::Native, Path::new("unused"), folder.path()).unwrap();
        let ended = side
            .run(&job("link", "ip -brief link", folder.path()))
            .unwrap();
        assert_eq!(ended.end, End::Good);
        let log = std::fs::read_to_string(ended.log).unwrap();
        assert!(log.contains("LOOPBACK,UP"), "{log}");
    }
}
