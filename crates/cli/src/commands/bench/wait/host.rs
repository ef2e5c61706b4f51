//! The processes of the bench: a server for each way of waiting, a client for each measurement.

use std::collections::BTreeMap;
use std::process::Command;

use crosslane_benchkit::{End, Process, Verdict};
use crosslane_sockbench::load::Pace;
use crosslane_sockbench::outcome::{Line, Ready};
use crosslane_sockbench::span::Span;
use crosslane_sys::store_wait::StoreWait;

use super::super::placement::Placement;
use super::super::programs::{GRACE, Programs, Server, parse};
use super::super::rounds::Measured;
use super::energy::Meter;
use super::results::{Figures, Key};
use super::way::Way;

/// A server that is overloaded answers what it owes after the time of measuring: at most so many
/// times as long.
const OVERLOAD: u32 = 20;

/// Everything that is needed to start the processes.
pub struct Host {
    programs: Programs,
    span: Span,
    pace: Pace,
    cpus: Option<(usize, usize)>,
}

/// The servers that have been started so far.
pub struct Servers<'a> {
    host: &'a Host,
    running: BTreeMap<Way, Server>,
}

impl Host {
    /// Finds the programs.
    pub fn new(span: Span, placement: Placement, pace: Pace) -> anyhow::Result<Self> {
        Ok(Self {
            programs: Programs::find()?,
            span,
            pace,
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

    /// Whether the client waits as the server does, so that its processor time counts, too.
    pub fn counts_client(&self) -> bool {
        self.pace == Pace::Poll
    }

    /// Why this machine does not let a server wait so. Only what needs the processor or the kernel's
    /// permission is tried; other failures are failures.
    pub fn refusal(&self, way: Way) -> Option<String> {
        if way == Way::Monitor && StoreWait::here().is_none() {
            return Some("this processor has neither umwait nor mwaitx for programs".to_owned());
        }
        if way != Way::TcpBusyPoll {
            return None;
        }
        let error = self.start_server(way).err()?;
        Some(format!("{error:#}"))
    }

    fn program(&self, way: Way, cpu: Option<usize>) -> Command {
        let mut command = match way.strategy() {
            Some(strategy) => self.programs.accelerated(&["--wait", strategy]),
            None => self.programs.plain(),
        };
        if let Some(cpu) = cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
        command
    }

    fn start_server(&self, way: Way) -> anyhow::Result<Server> {
        let mut command = self.program(way, self.cpus.map(|(server, _)| server));
        command.args(["server", "--receive", way.receive()]);
        Server::start(&way.to_string(), &mut command)
    }

    fn client(&self, key: Key, seed: u64, address: &str) -> Command {
        let mut command = self.program(key.way, self.cpus.map(|(_, client)| client));
        command.args(["load", "--connect", address, "--hold"]);
        command.args(["--pace", super::pace_name(self.pace)]);
        command.args(["--rate", &key.per_second.to_string()]);
        command.args(["--seed", &seed.to_string()]);
        command.args(["--warmup", &self.span.warmup.as_millis().to_string()]);
        command.args(["--measure", &self.span.measure.as_millis().to_string()]);
        command
    }

    /// The ends of the client's connection, where it is Crosslane's.
    fn ends(&self, way: Way, local: &str, peer: &str) -> anyhow::Result<Option<Vec<End>>> {
        if way.strategy().is_none() {
            return Ok(None);
        }
        let mut ends = self.programs.crosslane.connections()?;
        ends.retain(|end| end.is_between(local, peer));
        Ok(Some(ends))
    }

    /// Runs a client that waits when it is warm and again when it has measured, so that
    /// `crosslane ss` can be asked what the connection carried in between and by which way.
    fn drive(
        &self,
        way: Way,
        command: &mut Command,
        meter: Option<&Meter>,
    ) -> anyhow::Result<Measured<Figures>> {
        let mut process = Process::spawn(format!("{way} client"), command)?;
        let ready: Ready = parse(&process.next_line(self.span.warmup + GRACE)?)?;
        let before = self.ends(way, &ready.local, &ready.peer)?;
        let from = meter.and_then(Meter::read);
        process.say("go");
        let line: Line = parse(&process.next_line(self.span.measure * OVERLOAD + GRACE)?)?;
        let to = meter.and_then(Meter::read);
        let after = self.ends(way, &ready.local, &ready.peer)?;
        process.close_stdin();
        process.finish(GRACE)?;
        let watts = (|| Some(meter?.watts(&from?, &to?)))();
        Ok(Measured {
            figures: Figures::of(&line.outcome, watts)?,
            verdict: (before.zip(after)).map(|(before, after)| Verdict::since(&before, &after)),
        })
    }
}

impl Servers<'_> {
    /// Measures one rate in one way. After a failure the way's server is a new one.
    pub fn measure(
        &mut self,
        key: Key,
        seed: u64,
        meter: Option<&Meter>,
    ) -> anyhow::Result<Measured<Figures>> {
        let measured = self.try_to_measure(key, seed, meter);
        measured.map_err(|error| match self.running.remove(&key.way) {
            Some(server) => server.blame(error),
            None => error,
        })
    }

    fn try_to_measure(
        &mut self,
        key: Key,
        seed: u64,
        meter: Option<&Meter>,
    ) -> anyhow::Result<Measured<Figures>> {
        if !self.running.contains_key(&key.way) {
            let server = self.host.start_server(key.way)?;
            self.running.insert(key.way, server);
        }
        let server = &self.running[&key.way];
        if key.way.strategy().is_some() {
            self.host.programs.ensure_loaded(server)?;
        }
        let mut command = self.host.client(key, seed, &server.address);
        self.host.drive(key.way, &mut command, meter)
    }
}
