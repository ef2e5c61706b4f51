//! Other people's servers, on a port that was free a moment ago.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use crosslane_benchkit::{Crosslane, End, Process, Verdict};

use super::programs::GRACE;

/// How often it is looked whether something is there.
pub const PAUSE: Duration = Duration::from_millis(10);

/// A server that accepts connections.
pub struct Daemon {
    process: Process,
    port: u16,
}

impl Daemon {
    /// Starts it and waits until it accepts connections at `port`.
    pub fn start(name: &str, command: &mut Command, port: u16) -> anyhow::Result<Self> {
        let process = Process::spawn(name, command)?;
        let end = Instant::now() + GRACE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if !process.runs_after(PAUSE)? {
                let said = process.stop()?.stderr;
                return Err(anyhow!("{name} ended at once; it said: {said}"));
            }
            if Instant::now() >= end {
                return Err(anyhow!(
                    "{name} does not accept connections at port {port} within {GRACE:?}"
                ));
            }
        }
        Ok(Self { process, port })
    }

    /// Where it listens, as `crosslane-sockbench` takes it.
    pub fn address(&self) -> String {
        address(self.port)
    }

    /// Fails when `crosslane run` has fallen back to running it as it is.
    pub fn ensure_loaded(&self, crosslane: &Crosslane) -> anyhow::Result<()> {
        anyhow::ensure!(
            crosslane.is_loaded_in(self.process.pid()),
            "`crosslane run` ran the server without Crosslane"
        );
        Ok(())
    }
}

/// A port of this host, as `crosslane-sockbench` takes it.
pub fn address(port: u16) -> String {
    format!("tcp:127.0.0.1:{port}")
}

/// What became of the connections to a port.
pub fn verdict(crosslane: &Crosslane, port: u16) -> anyhow::Result<Verdict> {
    let ends: Vec<End> = crosslane.connections()?;
    let to_it: Vec<_> = ends.into_iter().filter(|end| end.has_port(port)).collect();
    Ok(Verdict::from_the_start(&to_it))
}

/// A port for a server that takes none of the system's choice.
pub fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port is free")?;
    Ok(listener.local_addr()?.port())
}

/// Where a program is: in PATH, or where Debian has what is not for everybody.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let mut files = folders.map(|folder| folder.join(program));
    files.find(|file| file.is_file())
}

/// What has to be installed before a program can be run.
pub fn missing(program: &str, package: &str) -> Option<String> {
    let is_missing = find(program).is_none();
    is_missing.then(|| format!("no {program}; install Debian's {package}"))
}
