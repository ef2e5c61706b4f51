//! What was measured: every round of every case over every transport, and their medians.

use std::fmt;

use crosslane_benchkit::stats::significant;
use crosslane_sockbench::client;
use crosslane_sockbench::outcome::{CDF, Outcome};
use serde::Serialize;

use super::super::output::{number, whole};
use super::super::rounds::{self, Proof, Rounds, tail};
use super::case::Case;
use super::transport::Transport;

/// A case over a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The case.
    pub case: Case,
    /// The transport.
    pub over: Transport,
}

/// All measurements, in the order of the plan.
pub struct Results(pub Rounds<Key, Outcome>);

type Cell = rounds::Cell<Key, Outcome>;

/// A figure of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    P50,
    P99,
    P999,
    MessagesPerSecond,
    Gbps,
    ConnectionsPerSecond,
}

/// One line of the JSON output.
#[derive(Serialize)]
pub struct Row {
    bench: &'static str,
    case: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    transport: Transport,
    /// What a lane adds to the bare window, one way.
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead_ns: Option<f64>,
    #[serde(flatten)]
    figures: Option<Figures>,
    #[serde(flatten)]
    proof: Proof,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Figures {
    Rtt {
        p50_ns: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        p99_ns: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        p999_ns: Option<u64>,
        /// Shares of round trips and what they do not exceed.
        #[serde(skip_serializing_if = "Option::is_none")]
        cdf_ns: Option<Vec<(f64, u64)>>,
    },
    Stream {
        gbps: f64,
        msgs_per_s: f64,
    },
    Connect {
        per_s: f64,
    },
}

impl Results {
    /// The cases in order, each once.
    pub fn cases(&self) -> Vec<Case> {
        let mut cases: Vec<_> = self.0.cells().iter().map(|cell| cell.key.case).collect();
        cases.dedup();
        cases
    }

    /// The transports that anything was to be measured over, in the table's order.
    pub fn transports(&self) -> Vec<Transport> {
        let mut transports: Vec<_> = self.0.cells().iter().map(|cell| cell.key.over).collect();
        transports.sort_unstable();
        transports.dedup();
        transports
    }

    /// The median over the rounds; none where there was no round or one failed.
    pub fn median(&self, case: Case, over: Transport, figure: Figure) -> Option<f64> {
        let cell = self.0.cell(Key { case, over })?;
        cell.median(|outcome| figure.of(outcome))
    }

    /// What a lane adds to the bare window, one way: half of what it adds to a round trip.
    pub fn overhead_ns(&self, case: Case) -> Option<f64> {
        let p50 = |over| self.median(case, over, Figure::P50);
        Some((p50(Transport::Lane)? - p50(Transport::Window)?) / 2.0)
    }

    /// A line for every case over every transport; with `cdf`, distributions are in it.
    pub fn rows(&self, cdf: bool) -> Vec<Row> {
        let row = |cell: &Cell| Row {
            overhead_ns: (cell.key.over == Transport::Lane)
                .then(|| self.overhead_ns(cell.key.case))
                .flatten(),
            ..row(cell, cdf)
        };
        self.0.cells().iter().map(row).collect()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} over {}", self.case, self.over)
    }
}

fn row(cell: &Cell, cdf: bool) -> Row {
    let case = cell.key.case;
    Row {
        bench: "sockets",
        case: case.name(),
        bytes: case.kind.requests().is_none().then_some(case.bytes),
        transport: cell.key.over,
        overhead_ns: None,
        figures: figures(cell, cdf),
        proof: cell.proof(),
    }
}

fn figures(cell: &Cell, cdf: bool) -> Option<Figures> {
    let value = |figure: Figure| cell.median(|outcome| figure.of(outcome));
    let rounded = |figure| value(figure).map(|value| significant(value, 4));
    Some(match cell.key.case.kind {
        client::Case::Rtt => Figures::Rtt {
            p50_ns: whole(value(Figure::P50)?),
            p99_ns: value(Figure::P99).map(whole),
            p999_ns: value(Figure::P999).map(whole),
            cdf_ns: cdf.then(|| distribution(cell)).flatten(),
        },
        client::Case::Stream => Figures::Stream {
            gbps: rounded(Figure::Gbps)?,
            msgs_per_s: rounded(Figure::MessagesPerSecond)?,
        },
        client::Case::Connect | client::Case::Brief => Figures::Connect {
            per_s: rounded(Figure::ConnectionsPerSecond)?,
        },
    })
}

/// The distribution, of which each point is the median of the rounds.
fn distribution(cell: &Cell) -> Option<Vec<(f64, u64)>> {
    let point = |(index, &share): (usize, &f64)| {
        let time = cell.median(|outcome| match outcome {
            Outcome::Rtt { cdf_ns, trips, .. } if has_samples_beyond(share, *trips) => {
                cdf_ns.get(index).copied().map(number)
            }
            _ => None,
        });
        Some((share, whole(time?)))
    };
    let points: Vec<_> = CDF.iter().enumerate().filter_map(point).collect();
    (!points.is_empty()).then_some(points)
}

/// Whether there are ten samples beyond a share of all, as for any percentile.
fn has_samples_beyond(share: f64, samples: u64) -> bool {
    (1.0 - share) * number(samples) >= 10.0
}

impl Figure {
    fn of(self, outcome: &Outcome) -> Option<f64> {
        match (self, outcome) {
            (Self::P50, Outcome::Rtt { p50_ns, .. }) => Some(number(*p50_ns)),
            (Self::P99, Outcome::Rtt { trips, p99_ns, .. }) => tail(number(*p99_ns), *trips, 100),
            (Self::P999, Outcome::Rtt { trips, p999_ns, .. }) => {
                tail(number(*p999_ns), *trips, 1000)
            }
            (Self::MessagesPerSecond, Outcome::Stream { msgs_per_s, .. }) => Some(*msgs_per_s),
            (Self::Gbps, Outcome::Stream { gbps, .. }) => Some(*gbps),
            (Self::ConnectionsPerSecond, Outcome::Connect { per_s, .. }) => Some(*per_s),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
