//! What was measured: every round of so many connections over each transport, and their medians.

use std::fmt;

use anyhow::bail;
use crosslane_benchkit::show;
use crosslane_benchkit::stats::significant;
use crosslane_sockbench::outcome::Outcome;
use serde::Serialize;

use super::super::output::{number, whole};
pub use super::super::over::Over as Transport;
use super::super::rounds::{self, Proof, Rounds, tail};

/// So many connections over a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// How many.
    pub connections: u32,
    /// Over what.
    pub over: Transport,
}

/// By how much memory has grown from no connection to all of them.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Growth {
    /// Private memory of client and server.
    pub program_bytes: u64,
    /// Private memory of the monitor.
    pub monitor_bytes: u64,
    /// Shared memory of all three.
    pub shared_bytes: u64,
    /// The kernel's slabs and page tables, on the whole machine.
    pub kernel_bytes: u64,
}

/// The figures of one round.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    trips: u64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    idle_server_cpu: f64,
    idle_client_cpu: f64,
    #[serde(flatten)]
    growth: Growth,
}

/// All measurements, in the order of the plan.
pub struct Results(pub Rounds<Key, Figures>);

pub type Cell = rounds::Cell<Key, Figures>;

/// The medians of a cell. Memory is that of all connections together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Medians {
    pub p50_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p999_ns: Option<u64>,
    pub program_bytes: u64,
    pub monitor_bytes: u64,
    pub shared_bytes: u64,
    /// The three above.
    pub total_bytes: u64,
    pub kernel_bytes: u64,
    pub idle_server_cpu: f64,
    pub idle_client_cpu: f64,
}

/// One line of the JSON output.
#[derive(Serialize)]
pub struct Row {
    bench: &'static str,
    case: &'static str,
    connections: u32,
    transport: Transport,
    #[serde(flatten)]
    medians: Option<Medians>,
    #[serde(flatten)]
    proof: Proof,
}

impl Growth {
    /// What user space has, without the kernel.
    fn total_bytes(&self) -> u64 {
        self.program_bytes + self.monitor_bytes + self.shared_bytes
    }
}

impl Figures {
    /// The figures of what a client printed, and of memory.
    pub fn of(outcome: &Outcome, growth: Growth) -> anyhow::Result<Self> {
        let Outcome::Crowd {
            trips,
            p50_ns,
            p99_ns,
            p999_ns,
            idle_server_cpu,
            idle_client_cpu,
            ..
        } = outcome
        else {
            bail!("the client measured something else: {outcome:?}")
        };
        Ok(Self {
            trips: *trips,
            p50_ns: *p50_ns,
            p99_ns: *p99_ns,
            p999_ns: *p999_ns,
            idle_server_cpu: *idle_server_cpu,
            idle_client_cpu: *idle_client_cpu,
            growth,
        })
    }
}

impl Results {
    /// A line for each.
    pub fn rows(&self) -> Vec<Row> {
        let row = |cell: &Cell| Row {
            bench: "connections",
            case: "crowd",
            connections: cell.key.connections,
            transport: cell.key.over,
            medians: medians(cell),
            proof: cell.proof(),
        };
        self.0.cells().iter().map(row).collect()
    }

    /// The medians of so many connections over a transport.
    pub fn medians(&self, connections: u32, over: Transport) -> Option<Medians> {
        medians(self.0.cell(Key { connections, over })?)
    }
}

/// The medians of a cell; none where a round failed.
pub fn medians(cell: &Cell) -> Option<Medians> {
    let value = |figure: fn(&Figures) -> f64| cell.median(|figures| Some(figure(figures)));
    let rounded = |figure| value(figure).map(whole);
    let beyond = |figure: fn(&Figures) -> u64, one_in| {
        let of = |figures: &Figures| tail(number(figure(figures)), figures.trips, one_in);
        cell.median(of).map(whole)
    };
    let cpu = |figure| value(figure).map(|cpu| significant(cpu, 3));
    Some(Medians {
        p50_ns: rounded(|figures| number(figures.p50_ns))?,
        p99_ns: beyond(|figures| figures.p99_ns, 100),
        p999_ns: beyond(|figures| figures.p999_ns, 1000),
        program_bytes: rounded(|figures| number(figures.growth.program_bytes))?,
        monitor_bytes: rounded(|figures| number(figures.growth.monitor_bytes))?,
        shared_bytes: rounded(|figures| number(figures.growth.shared_bytes))?,
        total_bytes: rounded(|figures| number(figures.growth.total_bytes()))?,
        kernel_bytes: rounded(|figures| number(figures.growth.kernel_bytes))?,
        idle_server_cpu: cpu(|figures| figures.idle_server_cpu)?,
        idle_client_cpu: cpu(|figures| figures.idle_client_cpu)?,
    })
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = show::round(f64::from(self.connections));
        write!(f, "{count} connections over {}", self.over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::rounds::Measured;

    #[test]
    fn a_row_has_the_documented_form() {
        let key = Key {
            connections: 100,
            over: Transport::Crosslane,
        };
        let mut rounds = Rounds::new(&[key]);
        for p50_ns in [300, 100, 200] {
            let figures = Figures {
                trips: 10_000,
                p50_ns,
                p99_ns: 1000,
                p999_ns: 2000,
                idle_server_cpu: 0.0,
                idle_client_cpu: 0.000_123_4,
                growth: Growth {
                    program_bytes: 4096,
                    monitor_bytes: 8192,
                    shared_bytes: 16384,
                    kernel_bytes: 1 << 20,
                },
            };
            let verdict = None;
            rounds.add(key, Ok(Measured { figures, verdict }));
        }
        let rows = Results(rounds).rows();
        assert_eq!(
            serde_json::to_string(&rows[0]).expect("a row is JSON"),
            r#"{"bench":"connections","case":"crowd","connections":100,"transport":"crosslane","p50_ns":200,"p99_ns":1000,"p999_ns":2000,"program_bytes":4096,"monitor_bytes":8192,"shared_bytes":16380,"total_bytes":28670,"kernel_bytes":1049000,"idle_server_cpu":0.0,"idle_client_cpu":0.000123,"ranges":{"idle_client_cpu":[0.0001234,0.0001234],"idle_server_cpu":[0.0,0.0],"kernel_bytes":[1049000.0,1049000.0],"monitor_bytes":[8192.0,8192.0],"p50_ns":[100.0,300.0],"p999_ns":[2000.0,2000.0],"p99_ns":[1000.0,1000.0],"program_bytes":[4096.0,4096.0],"shared_bytes":[16380.0,16380.0],"trips":[10000.0,10000.0]}}"#
        );
    }
}
