//! The processes of the bench: a server for each transport, a client for each measurement.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use crosslane_benchkit::{Process, Verdict};
use crosslane_sockbench::client;
use crosslane_sockbench::outcome::{Line, Outcome};
use crosslane_sockbench::span::Span;

use super::super::placement::Placement;
use super::super::programs::{GRACE, Programs, SOCKBENCH, Server, parse};
use super::super::rounds::Measured;
use super::super::window::carrier::Carrier;
use super::case::Case;
use super::ground::Ground;
use super::transport::Transport;

/// Everything that is needed to start the processes.
pub struct Host {
    ground: Ground,
    span: Span,
    /// The CPUs of the server and of the client, when they are to be pinned.
    cpus: Option<(usize, usize)>,
}

/// The servers that have been started so far.
pub struct Servers<'a> {
    host: &'a Host,
    running: BTreeMap<Transport, Server>,
}

impl Host {
    /// Measures on `ground`.
    pub fn new(ground: Ground, span: Span, placement: Placement) -> anyhow::Result<Self> {
        Ok(Self {
            ground,
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

    fn program(programs: &Programs, over: Transport, cpu: Option<usize>) -> Command {
        let mut command = match over {
            Transport::Crosslane => programs.accelerated(&[]),
            _ => programs.plain(),
        };
        if let Some(cpu) = cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
        command
    }

    fn start_server(&self, over: Transport) -> anyhow::Result<Server> {
        let listen = match over {
            Transport::Unix => format!("unix:@{SOCKBENCH}-{}", std::process::id()),
            _ => format!("tcp:{}:0", self.ground.sides.server().address),
        };
        let cpu = self.cpus.map(|(server, _)| server);
        let mut command = Self::program(self.ground.sides.server(), over, cpu);
        command.args(["server", "--listen", &listen]);
        Server::start(&over.to_string(), &mut command)
    }

    fn client(&self, case: Case, over: Transport, address: &str) -> Command {
        let cpu = self.cpus.map(|(_, client)| client);
        let mut command = Self::program(self.ground.sides.client(), over, cpu);
        command.args(["client", "--connect", address, "--case", case.name()]);
        command.args(["--bytes", &case.bytes.to_string()]);
        self.add_span(&mut command);
        command
    }

    fn add_span(&self, command: &mut Command) {
        command.args(["--warmup", &self.span.warmup.as_millis().to_string()]);
        command.args(["--measure", &self.span.measure.as_millis().to_string()]);
    }

    fn deadline(&self) -> Duration {
        self.span.warmup + self.span.measure + GRACE
    }

    fn limit(&self) -> anyhow::Result<Outcome> {
        let mut command = self.ground.sides.client().plain();
        self.add_span(command.arg("limit"));
        let exit = Process::spawn("limit", &mut command)?.finish(self.deadline())?;
        Ok(parse::<Line>(&exit.stdout)?.outcome)
    }

    /// Runs a client that keeps its connection after measuring, so that `crosslane ss` can be
    /// asked about it without disturbing what is measured.
    fn measure_and_ask(&self, mut command: Command) -> anyhow::Result<Measured<Outcome>> {
        let mut process = Process::spawn("crosslane client", command.arg("--hold"))?;
        let line: Line = parse(&process.next_line(self.deadline())?)?;
        let mut ends = self.ground.sides.connections()?;
        ends.retain(|end| end.is_between(&line.local, &line.peer));
        process.close_stdin();
        process.finish(GRACE)?;
        Ok(Measured {
            figures: line.outcome,
            verdict: Some(Verdict::of(&ends)),
        })
    }
}

impl Servers<'_> {
    /// Measures one case over one transport. After a failure the transport's server is a new one.
    pub fn measure(&mut self, case: Case, over: Transport) -> anyhow::Result<Measured<Outcome>> {
        self.try_to_measure(case, over)
            .map_err(|error| match self.running.remove(&over) {
                Some(server) => server.blame(error),
                None => error,
            })
    }

    fn try_to_measure(&mut self, case: Case, over: Transport) -> anyhow::Result<Measured<Outcome>> {
        let Host { ground, span, .. } = self.host;
        let without_programs = match over {
            Transport::Limit if case.kind == client::Case::Rtt => Some(self.host.limit()?),
            Transport::Limit => Some(ground.copies(case.bytes, *span)?),
            Transport::Lane => Some(ground.carry(ground.lane(), case, *span)?),
            Transport::Window => Some(ground.carry(Carrier::Bare, case, *span)?),
            Transport::Tcp | Transport::Unix | Transport::Crosslane => None,
        };
        if let Some(figures) = without_programs {
            let verdict = None;
            return Ok(Measured { figures, verdict });
        }
        if !self.running.contains_key(&over) {
            self.running.insert(over, self.host.start_server(over)?);
        }
        let server = &self.running[&over];
        if over == Transport::Crosslane {
            ground.sides.server().ensure_loaded(server)?;
        }
        let command = self.host.client(case, over, &server.address);
        if over == Transport::Crosslane && case.kind.requests().is_none() {
            return self.host.measure_and_ask(command);
        }
        let mut command = command;
        let exit =
            Process::spawn(format!("{over} client"), &mut command)?.finish(self.host.deadline())?;
        Ok(Measured {
            figures: parse::<Line>(&exit.stdout)?.outcome,
            verdict: None,
        })
    }
}
