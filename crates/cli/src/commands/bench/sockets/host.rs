//! The processes of the bench: a server for each transport, a client for each measurement.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use crosslane_benchkit::{Crosslane, Process, Verdict};
use crosslane_sockbench::client;
use crosslane_sockbench::cpus::two_cpus;
use crosslane_sockbench::outcome::{Line, Listening, Outcome};
use crosslane_sockbench::span::Span;

use super::case::Case;
use super::transport::Transport;

/// Starting, connecting, an upgrade and an exit take milliseconds; only a hang takes this.
const GRACE: Duration = Duration::from_secs(10);

const SOCKBENCH: &str = "crosslane-sockbench";

/// Where the two programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Where the scheduler puts them
    Free,
    /// On two different CPUs
    Apart,
    /// On the same CPU
    Together,
}

/// Everything that is needed to start the processes.
pub struct Host {
    sockbench: PathBuf,
    crosslane: Crosslane,
    span: Span,
    /// The CPUs of the server and of the client, when they are to be pinned.
    cpus: Option<(usize, usize)>,
}

/// One measurement.
pub struct Measured {
    /// The figures.
    pub outcome: Outcome,
    /// What `crosslane ss` said of the connection, when it is Crosslane's.
    pub verdict: Option<Verdict>,
}

/// The servers that have been started so far.
pub struct Servers<'a> {
    host: &'a Host,
    running: BTreeMap<Transport, Server>,
}

struct Server {
    address: String,
    process: Process,
}

impl Host {
    /// Finds the program beside this one.
    pub fn new(span: Span, placement: Placement) -> anyhow::Result<Self> {
        let crosslane = std::env::current_exe().context("cannot find this executable")?;
        let sockbench = crosslane.with_file_name(SOCKBENCH);
        ensure!(
            sockbench.is_file(),
            "{} is missing; build it with: cargo build --release --package {SOCKBENCH}",
            sockbench.display()
        );
        let cpus = match placement {
            Placement::Free => None,
            Placement::Apart => Some(two_cpus()?),
            Placement::Together => Some(two_cpus()?).map(|(first, _)| (first, first)),
        };
        Ok(Self {
            sockbench,
            crosslane: Crosslane::at(crosslane),
            span,
            cpus,
        })
    }

    /// No server yet; each is started when it is first needed.
    pub fn servers(&self) -> Servers<'_> {
        Servers {
            host: self,
            running: BTreeMap::new(),
        }
    }

    fn program(&self, over: Transport, cpu: Option<usize>) -> Command {
        let mut command = match over {
            Transport::Crosslane => self.crosslane.run(&self.sockbench),
            Transport::Tcp | Transport::Unix | Transport::Limit => Command::new(&self.sockbench),
        };
        command.arg("--die-with-parent");
        if let Some(cpu) = cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
        command
    }

    fn start_server(&self, over: Transport) -> anyhow::Result<Server> {
        let listen = match over {
            Transport::Unix => format!("unix:@{SOCKBENCH}-{}", std::process::id()),
            Transport::Tcp | Transport::Crosslane | Transport::Limit => "tcp:127.0.0.1:0".into(),
        };
        let mut command = self.program(over, self.cpus.map(|(server, _)| server));
        command.args(["server", "--listen", &listen]);
        let mut process = Process::spawn(format!("{over} server"), &mut command)?;
        let line = process.next_line(GRACE)?;
        let listening: Listening = serde_json::from_str(&line).with_context(|| {
            format!("the {over} server printed {line:?} instead of its address")
        })?;
        Ok(Server {
            address: listening.listening,
            process,
        })
    }

    fn client(&self, case: Case, over: Transport, address: &str) -> Command {
        let mut command = self.program(over, self.cpus.map(|(_, client)| client));
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

    fn limit(&self) -> anyhow::Result<Measured> {
        let mut command = Command::new(&self.sockbench);
        self.add_span(command.args(["--die-with-parent", "limit"]));
        let exit = Process::spawn("limit", &mut command)?.finish(self.deadline())?;
        Ok(Measured {
            outcome: parse(&exit.stdout)?.outcome,
            verdict: None,
        })
    }

    /// Runs a client that keeps its connection after measuring, so that `crosslane ss` can be
    /// asked about it without disturbing what is measured.
    fn measure_and_ask(&self, mut command: Command) -> anyhow::Result<Measured> {
        let mut process = Process::spawn("crosslane client", command.arg("--hold"))?;
        let line = parse(&process.next_line(self.deadline())?)?;
        let mut ends = self.crosslane.connections()?;
        ends.retain(|end| end.is_between(&line.local, &line.peer));
        process.close_stdin();
        process.finish(GRACE)?;
        Ok(Measured {
            outcome: line.outcome,
            verdict: Some(Verdict::of(&ends)),
        })
    }
}

impl Servers<'_> {
    /// Measures one case over one transport. After a failure the transport's server is a new one.
    pub fn measure(&mut self, case: Case, over: Transport) -> anyhow::Result<Measured> {
        self.try_to_measure(case, over).map_err(|error| {
            let server = self
                .running
                .remove(&over)
                .and_then(|server| server.process.stop().ok());
            match server
                .map(|exit| exit.stderr)
                .filter(|said| !said.is_empty())
            {
                Some(said) => anyhow!("{error:#}; its server said: {said}"),
                None => error,
            }
        })
    }

    fn try_to_measure(&mut self, case: Case, over: Transport) -> anyhow::Result<Measured> {
        if over == Transport::Limit {
            return self.host.limit();
        }
        if !self.running.contains_key(&over) {
            self.running.insert(over, self.host.start_server(over)?);
        }
        let server = &self.running[&over];
        ensure!(
            over != Transport::Crosslane || self.host.crosslane.is_loaded_in(server.process.pid()),
            "`crosslane run` ran the server without Crosslane"
        );
        let command = self.host.client(case, over, &server.address);
        if over == Transport::Crosslane && case.kind != client::Case::Connect {
            return self.host.measure_and_ask(command);
        }
        let mut command = command;
        let exit =
            Process::spawn(format!("{over} client"), &mut command)?.finish(self.host.deadline())?;
        Ok(Measured {
            outcome: parse(&exit.stdout)?.outcome,
            verdict: None,
        })
    }
}

fn parse(line: &str) -> anyhow::Result<Line> {
    serde_json::from_str(line).with_context(|| format!("{SOCKBENCH} printed {line:?}"))
}
