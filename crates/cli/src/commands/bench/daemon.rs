//! Other people's servers, on a port that was free a moment ago.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use crosslane_benchkit::{Crosslane, End, Process, Verdict};

use super::programs::{GRACE, Programs};

/// How often it is looked whether something is there.
pub const PAUSE: Duration = Duration::from_millis(10);

/// A server that accepts connections.
pub struct Daemon {
    process: Process,
    at: SocketAddrV4,
}

impl Daemon {
    /// Starts it, by one of `programs`' commands, and waits until it accepts connections at `port`.
    pub fn start(
        name: &str,
        programs: &Programs,
        command: &mut Command,
        port: u16,
    ) -> anyhow::Result<Self> {
        let at = SocketAddrV4::new(programs.address, port);
        let process = Process::spawn(name, command)?;
        let end = Instant::now() + GRACE;
        while programs.do_there(|| TcpStream::connect(at))?.is_err() {
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
        Ok(Self { process, at })
    }

    /// Where it listens, as `crosslane-sockbench` takes it.
    pub fn address(&self) -> String {
        format!("tcp:{}", self.at)
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

/// What became of the connections to a port, of all that monitors know of.
pub fn verdict(ends: Vec<End>, port: u16) -> Verdict {
    let to_it: Vec<_> = ends.into_iter().filter(|end| end.has_port(port)).collect();
    Verdict::from_the_start(&to_it)
}

/// A port of an address of this host, for a server that takes none of the system's choice.
pub fn free_port(address: Ipv4Addr) -> anyhow::Result<u16> {
    let listener = TcpListener::bind((address, 0)).context("no port is free")?;
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
