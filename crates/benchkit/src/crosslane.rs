//! The `crosslane` command as the benches use it: to run a program, and to ask what became of it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use crate::{Process, ProcessError};

const RUNTIME_DIR_VARIABLE: &str = "CROSSLANE_RUNTIME_DIR";
const LIBRARY: &str = "/libcrosslane.so";
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Where the `crosslane` executable is.
#[derive(Clone, Debug)]
pub struct Crosslane {
    executable: PathBuf,
    runtime_dir: Option<PathBuf>,
}

/// Why `crosslane ss` gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum CrosslaneError {
    /// It could not be run, or failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// It printed something else than the documented lines.
    #[error("`crosslane ss --json` printed {line:?}, which is no connection")]
    Line {
        /// The line as it came.
        line: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// One end of one connection, as `crosslane ss --json` prints it.
#[derive(Clone, Debug, Deserialize)]
pub struct End {
    /// The program's name.
    pub program: String,
    /// Its process id.
    pub pid: u32,
    /// This end's address.
    pub local: String,
    /// The other end's address.
    pub peer: String,
    /// `accelerated`, `partly`, `switching` or `tcp`.
    pub state: String,
    /// Why it is not accelerated.
    #[serde(default)]
    pub reason: Option<String>,
    /// The window to another host that its rings are in.
    #[serde(default)]
    pub window: Option<String>,
    /// Bytes that this end has sent through its ring.
    pub ring_bytes_sent: u64,
    /// Bytes that this end has received through its ring.
    pub ring_bytes_received: u64,
    /// Bytes that this end has sent over TCP.
    pub tcp_bytes_sent: u64,
    /// Bytes that this end has received over TCP.
    pub tcp_bytes_received: u64,
}

/// A command that runs `program` without Crosslane, also where this program itself runs under it.
#[must_use]
pub fn plain(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    if let Some(list) = std::env::var_os(PRELOAD_VARIABLE) {
        match without_library(&list.to_string_lossy()) {
            rest if rest.is_empty() => command.env_remove(PRELOAD_VARIABLE),
            rest => command.env(PRELOAD_VARIABLE, rest),
        };
    }
    command
}

/// A list of libraries to preload without Crosslane's.
fn without_library(list: &str) -> String {
    let others = list.split([':', ' ']);
    let others = others.filter(|library| !library.is_empty() && !library.ends_with(LIBRARY));
    others.collect::<Vec<_>>().join(":")
}

impl End {
    /// Whether this end is accelerated now.
    #[must_use]
    pub fn is_accelerated(&self) -> bool {
        self.state == "accelerated"
    }

    /// This end with only the bytes that it has carried since it was `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            ring_bytes_sent: self.ring_bytes_sent.saturating_sub(before.ring_bytes_sent),
            ring_bytes_received: self
                .ring_bytes_received
                .saturating_sub(before.ring_bytes_received),
            tcp_bytes_sent: self.tcp_bytes_sent.saturating_sub(before.tcp_bytes_sent),
            tcp_bytes_received: self
                .tcp_bytes_received
                .saturating_sub(before.tcp_bytes_received),
            ..self.clone()
        }
    }

    /// Whether this end belongs to the connection between these two addresses.
    #[must_use]
    pub fn is_between(&self, one: &str, other: &str) -> bool {
        (self.local == one && self.peer == other) || (self.local == other && self.peer == one)
    }

    /// Whether either side of the connection has this TCP port.
    #[must_use]
    pub fn has_port(&self, port: u16) -> bool {
        let of = |address: &str| {
            address
                .rsplit_once(':')
                .and_then(|(_, port)| port.parse().ok())
        };
        of(&self.local) == Some(port) || of(&self.peer) == Some(port)
    }
}

impl Crosslane {
    /// The executable at this path.
    #[must_use]
    pub fn at(executable: impl Into<PathBuf>) -> Self {
        Self {
            executable: executable.into(),
            runtime_dir: None,
        }
    }

    /// The same with the monitor in this directory, instead of the one that the environment gives.
    #[must_use]
    pub fn with_monitor_in(self, runtime_dir: impl Into<PathBuf>) -> Self {
        Self {
            runtime_dir: Some(runtime_dir.into()),
            ..self
        }
    }

    /// The command itself, to which a subcommand is to be added.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        if let Some(directory) = &self.runtime_dir {
            command.env(RUNTIME_DIR_VARIABLE, directory);
        }
        command
    }

    /// Where it is.
    #[must_use]
    pub fn executable(&self) -> &Path {
        &self.executable
    }

    /// A command that runs `program` under Crosslane; arguments can be added as usual.
    #[must_use]
    pub fn run(&self, program: impl AsRef<OsStr>) -> Command {
        self.run_with(&[], program)
    }

    /// The same with options of `crosslane run`.
    #[must_use]
    pub fn run_with(&self, options: &[&str], program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command();
        command.arg("run").args(options).arg("--").arg(program);
        command
    }

    /// Whether the library is in the process, which `crosslane run` falls back from when it must.
    #[must_use]
    pub fn is_loaded_in(&self, pid: u32) -> bool {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        maps.lines().any(|line| line.ends_with(LIBRARY))
    }

    /// All connection ends that the monitor knows of at this moment.
    ///
    /// # Errors
    /// [`CrosslaneError`].
    pub fn connections(&self) -> Result<Vec<End>, CrosslaneError> {
        let mut command = self.command();
        let exit =
            Process::spawn("crosslane ss", command.args(["ss", "--json"]))?.finish(ANSWER_TIME)?;
        let lines = exit.stdout.lines().filter(|line| !line.is_empty());
        let end = |line: &str| {
            let bad = |source| CrosslaneError::Line {
                line: line.to_owned(),
                source,
            };
            serde_json::from_str(line).map_err(bad)
        };
        lines.map(end).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_program_has_every_library_preloaded_but_crosslanes() {
        assert_eq!(without_library("/opt/lib/libcrosslane.so"), "");
        let list = "/usr/lib/libjemalloc.so:/opt/lib/libcrosslane.so libother.so";
        assert_eq!(without_library(list), "/usr/lib/libjemalloc.so:libother.so");
    }
}
