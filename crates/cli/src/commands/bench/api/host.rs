//! The processes of the bench: a monitor, a server for each mode, a client for each measurement.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use crosslane_benchkit::{Crosslane, Process, Verdict, plain};
use crosslane_sockbench::outcome::{Line, Outcome};
use crosslane_sockbench::span::Span;

use super::super::monitor::Monitor;
use super::super::placement::Placement;
use super::super::programs::{GRACE, Server, parse};
use super::super::rounds::Measured;
use super::results::{Key, Mode};

const PROGRAM: &str = "crosslane-apibench";

/// Everything that is needed to start the processes.
pub struct Host {
    program: PathBuf,
    monitor: Monitor,
    span: Span,
    /// The CPUs of the server and of the client, when they are to be pinned.
    cpus: Option<(usize, usize)>,
}

/// The servers that have been started so far.
pub struct Servers<'a> {
    host: &'a Host,
    running: BTreeMap<Mode, Server>,
}

impl Host {
    /// Finds the program beside this one, and starts a monitor for it.
    pub fn new(span: Span, placement: Placement) -> anyhow::Result<Self> {
        let crosslane = std::env::current_exe().context("cannot find this executable")?;
        let program = crosslane.with_file_name(PROGRAM);
        ensure!(
            program.is_file(),
            "{} is missing; build it with: cargo build --release --package {PROGRAM}",
            program.display()
        );
        Ok(Self {
            program,
            monitor: Monitor::start(&Crosslane::at(crosslane))?,
            span,
            cpus: placement.cpus()?,
        })
    }

    /// No server yet; each is started when it is first needed.
    pub fn servers(&self) -> Servers<'_> {
        Servers {
            host: self,
            running: BTreeMap::new(),
        }
    }

    fn program(&self, mode: Mode, cpu: Option<usize>) -> Command {
        let mut command = match mode {
            Mode::Origin => self.monitor.crosslane.run(&self.program),
            Mode::Tcp | Mode::Shm | Mode::Direct | Mode::Runtime => plain(&self.program),
        };
        // The native interface needs nothing but a monitor.
        command.env("CROSSLANE_RUNTIME_DIR", self.monitor.directory());
        command.args(["--die-with-parent", "--way", mode.way()]);
        if let Some(cpu) = cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
        command
    }

    /// `address` is the server's, if that is another process.
    fn client(&self, key: Key, address: Option<&str>) -> anyhow::Result<Command> {
        let kind = key.case.kind.to_possible_value();
        let kind = kind.context("every case has a name")?;
        let mut command = self.program(key.mode, self.cpus.map(|(_, client)| client));
        command.args(["client", "--case", kind.get_name()]);
        match (address, self.cpus) {
            (Some(address), _) => drop(command.args(["--connect", address])),
            (None, Some((server, _))) => drop(command.args(["--server-cpu", &server.to_string()])),
            (None, None) => {}
        }
        command.args(["--bytes", &key.case.bytes.to_string()]);
        let milliseconds = |time: Duration| time.as_millis().to_string();
        command.args(["--warmup", &milliseconds(self.span.warmup)]);
        command.args(["--measure", &milliseconds(self.span.measure)]);
        // It keeps its connection after measuring, so that `crosslane ss` can be asked about it
        // without disturbing what is measured.
        command.arg("--hold");
        Ok(command)
    }
}

impl Servers<'_> {
    /// Measures one case in one mode. After a failure the mode's server is a new one.
    pub fn measure(&mut self, key: Key) -> anyhow::Result<Measured<Outcome>> {
        self.try_to_measure(key)
            .map_err(|error| match self.running.remove(&key.mode) {
                Some(server) => server.blame(error),
                None => error,
            })
    }

    fn try_to_measure(&mut self, key: Key) -> anyhow::Result<Measured<Outcome>> {
        let (host, mode) = (self.host, key.mode);
        let server = match self.running.entry(mode) {
            _ if mode == Mode::Runtime => None,
            Entry::Occupied(running) => Some(running.into_mut()),
            Entry::Vacant(place) => {
                let mut command = host.program(mode, host.cpus.map(|(server, _)| server));
                Some(place.insert(Server::start(&mode.to_string(), command.arg("server"))?))
            }
        };
        let address = server.map(|server| &*server.address);
        let mut command = host.client(key, address)?;
        let mut process = Process::spawn(format!("{mode} client"), &mut command)?;
        let patience = host.span.warmup + host.span.measure + GRACE;
        let line: Line = parse(&process.next_line(patience)?)?;
        let verdict = match mode {
            // The program itself fails if nothing goes by memory: no monitor has heard of it.
            Mode::Tcp | Mode::Runtime => None,
            Mode::Origin | Mode::Shm | Mode::Direct => {
                let mut ends = host.monitor.crosslane.connections()?;
                ends.retain(|end| end.is_between(&line.local, &line.peer));
                Some(Verdict::of(&ends))
            }
        };
        process.close_stdin();
        process.finish(GRACE)?;
        Ok(Measured {
            figures: line.outcome,
            verdict,
        })
    }
}
