//! What the demo runs: server programs, and for each of them the workloads of its client.

use std::time::Duration;

use crosslane_benchkit::stats::Better;
use serde::Serialize;

/// A real server program.
pub struct Program {
    /// What it is called in messages.
    pub name: &'static str,
    /// The command line that makes it listen on a port of 127.0.0.1 until it is killed.
    pub server: fn(port: u16) -> Vec<String>,
    /// What is run against it.
    pub workloads: Vec<Box<dyn Workload>>,
}

/// A client program with its arguments, and how to read what it prints.
pub trait Workload {
    /// As in the JSON output.
    fn name(&self) -> String;

    /// For people: what the client does.
    fn description(&self) -> String;

    /// Brings the server into the state that the client expects.
    fn prepare(&self, _port: u16) -> anyhow::Result<()> {
        Ok(())
    }

    /// The client's command line.
    fn client(&self, port: u16, pace: Pace) -> Vec<String>;

    /// The figures in what the client printed, the most telling one first.
    fn parse(&self, stdout: &str) -> anyhow::Result<Figures>;

    /// Whether the client takes a number of requests instead of a time.
    fn counts_requests(&self) -> bool {
        false
    }
}

/// What one run of a client gave.
pub type Figures = Vec<(Metric, f64)>;

/// How much a client shall do.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// For how long it shall run.
    pub time: Duration,
    /// How many requests it does in a second, as far as is known.
    pub requests_per_second: f64,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    Rps,
    Gbps,
    P50Us,
    P99Us,
}

impl Metric {
    pub fn better(self) -> Better {
        match self {
            Self::Rps | Self::Gbps => Better::Higher,
            Self::P50Us | Self::P99Us => Better::Lower,
        }
    }

    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Rps => "requests/s",
            Self::Gbps => "Gb/s",
            Self::P50Us => "p50",
            Self::P99Us => "p99",
        }
    }

    /// A value with its unit.
    pub fn show(self, value: f64) -> String {
        use crosslane_benchkit::show;
        match self {
            Self::Rps => show::count(value),
            Self::Gbps => show::three_digits(value),
            Self::P50Us | Self::P99Us => show::nanoseconds(value * 1e3),
        }
    }
}

impl Pace {
    /// How many requests fill the time; at least a few, so that there is something to measure.
    pub fn requests(self) -> u64 {
        const FEW: f64 = 100.0;
        let requests = (self.requests_per_second * self.time.as_secs_f64()).clamp(FEW, 1e9);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped"
        )]
        let whole = requests as u64;
        whole
    }

    /// The time for programs that take whole seconds, of which one is the least.
    pub fn whole_seconds(self) -> u64 {
        self.time.as_secs().max(1)
    }
}

/// A command line from its words.
pub fn words<const COUNT: usize>(words: [&str; COUNT]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}
