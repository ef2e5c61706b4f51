//! The programs that benches run: the ordinary one that is measured, natively or accelerated.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use crosslane_benchkit::{Crosslane, Folder, Process, plain};
use crosslane_sockbench::outcome::Listening;
use serde::de::DeserializeOwned;

use super::hosts;

/// Starting, connecting, an upgrade and an exit take milliseconds; only a hang takes this.
pub const GRACE: Duration = Duration::from_secs(10);

/// What the names of the bench's folders begin with.
pub const FOLDER: &str = "crosslane-bench-";

pub const SOCKBENCH: &str = "crosslane-sockbench";

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    sockbench: PathBuf,
    /// The command that this is.
    pub crosslane: Crosslane,
    /// Where servers among them listen.
    pub address: Ipv4Addr,
    /// The network namespace that they run in, if not this one.
    namespace: Option<PathBuf>,
}

/// A server that answers clients.
pub struct Server {
    /// Where it listens.
    pub address: String,
    /// Its process.
    pub process: Process,
}

impl Programs {
    /// Finds them beside this one.
    pub fn find() -> anyhow::Result<Self> {
        let crosslane = std::env::current_exe().context("cannot find this executable")?;
        let sockbench = crosslane.with_file_name(SOCKBENCH);
        ensure!(
            sockbench.is_file(),
            "{} is missing; build it with: cargo build --release --package {SOCKBENCH}",
            sockbench.display()
        );
        Ok(Self {
            sockbench,
            crosslane: Crosslane::at(crosslane),
            address: Ipv4Addr::LOCALHOST,
            namespace: None,
        })
    }

    /// The same programs with another `crosslane`, such as one with a monitor of its own.
    pub fn using(&self, crosslane: &Crosslane) -> Self {
        Self {
            crosslane: crosslane.clone(),
            ..self.clone()
        }
    }

    /// The same programs in a network namespace, named by a file of the kernel's, that has this address.
    pub fn inside(self, namespace: PathBuf, address: Ipv4Addr) -> Self {
        Self {
            address,
            namespace: Some(namespace),
            ..self
        }
    }

    /// A command as it runs where these programs do.
    pub fn there(&self, command: Command) -> Command {
        match &self.namespace {
            Some(namespace) => hosts::inside(namespace, &command),
            None => command,
        }
    }

    /// Do something where these programs run.
    pub fn do_there<T: Send>(&self, act: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        match &self.namespace {
            Some(namespace) => hosts::do_inside(namespace, act),
            None => Ok(act()),
        }
    }

    /// The ordinary program as it is.
    pub fn plain(&self) -> Command {
        let mut command = plain(&self.sockbench);
        command.arg("--die-with-parent");
        self.there(command)
    }

    /// The same under `crosslane run` with these options.
    pub fn accelerated(&self, options: &[&str]) -> Command {
        let mut command = self.crosslane.run_with(options, &self.sockbench);
        command.arg("--die-with-parent");
        self.there(command)
    }

    /// Fails when `crosslane run` has fallen back to running the program as it is.
    pub fn ensure_loaded(&self, server: &Server) -> anyhow::Result<()> {
        ensure!(
            self.crosslane.is_loaded_in(server.process.pid()),
            "`crosslane run` ran the server without Crosslane"
        );
        Ok(())
    }
}

impl Server {
    /// Starts a server and waits until it listens.
    pub fn start(name: &str, command: &mut Command) -> anyhow::Result<Self> {
        let mut process = Process::spawn(format!("{name} server"), command)?;
        let listening: Listening = parse(&process.next_line(GRACE)?)?;
        Ok(Self {
            address: listening.listening,
            process,
        })
    }

    /// Ends it because of an error, which then also tells what the server said.
    pub fn blame(self, error: anyhow::Error) -> anyhow::Error {
        let said = self.process.stop().map(|exit| exit.stderr);
        match said.ok().filter(|said| !said.is_empty()) {
            Some(said) => anyhow!("{error:#}; its server said: {said}"),
            None => error,
        }
    }
}

/// A folder of the bench's own, removed in the end.
pub fn folder() -> anyhow::Result<Folder> {
    Folder::new(FOLDER).context("cannot make a folder of the bench's own")
}

/// A line of the ordinary program.
pub fn parse<T: DeserializeOwned>(line: &str) -> anyhow::Result<T> {
    serde_json::from_str(line).with_context(|| format!("{SOCKBENCH} printed {line:?}"))
}
