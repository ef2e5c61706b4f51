//! What was measured: every round of every case over every transport, and their medians.

use crosslane_benchkit::Verdict;
use crosslane_benchkit::stats::{median, significant};
use crosslane_sockbench::client;
use crosslane_sockbench::outcome::Outcome;
use serde::Serialize;

use super::case::Case;
use super::host::Measured;
use super::transport::Transport;

/// All measurements, in the order of the plan.
pub struct Results {
    cells: Vec<Cell>,
}

struct Cell {
    case: Case,
    transport: Transport,
    outcomes: Vec<Outcome>,
    verdicts: Vec<Verdict>,
    failure: Option<anyhow::Error>,
}

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
    #[serde(flatten)]
    figures: Option<Figures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accelerated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ring_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Figures {
    Rtt {
        p50_ns: u64,
        p99_ns: u64,
        p999_ns: u64,
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
    /// Nothing measured yet.
    pub fn new(plan: &[(Case, Transport)]) -> Self {
        let cell = |&(case, transport): &(Case, Transport)| Cell {
            case,
            transport,
            outcomes: Vec::new(),
            verdicts: Vec::new(),
            failure: None,
        };
        Self {
            cells: plan.iter().map(cell).collect(),
        }
    }

    /// Notes one round of one case over one transport.
    pub fn add(&mut self, case: Case, transport: Transport, measured: anyhow::Result<Measured>) {
        let mut cells = self.cells.iter_mut();
        let Some(cell) = cells.find(|cell| cell.is_of(case, transport)) else {
            return;
        };
        match measured {
            Ok(measured) => {
                cell.outcomes.push(measured.outcome);
                cell.verdicts.extend(measured.verdict);
            }
            Err(error) => cell.failure = Some(error),
        }
    }

    /// Whether a round of it has failed, so that no further one is worth its timeout.
    pub fn has_failed(&self, case: Case, transport: Transport) -> bool {
        self.cell(case, transport)
            .is_some_and(|cell| cell.failure.is_some())
    }

    /// Whether nothing has failed.
    pub fn is_complete(&self) -> bool {
        self.cells.iter().all(|cell| cell.failure.is_none())
    }

    /// The cases in order, each once.
    pub fn cases(&self) -> Vec<Case> {
        let mut cases: Vec<_> = self.cells.iter().map(|cell| cell.case).collect();
        cases.dedup();
        cases
    }

    /// The transports that anything was to be measured over, in the table's order.
    pub fn transports(&self) -> Vec<Transport> {
        let mut transports: Vec<_> = self.cells.iter().map(|cell| cell.transport).collect();
        transports.sort_unstable();
        transports.dedup();
        transports
    }

    /// The median over the rounds; none where there was no round or one failed.
    pub fn median(&self, case: Case, transport: Transport, figure: Figure) -> Option<f64> {
        self.cell(case, transport)?.median(figure)
    }

    /// A line for every case over every transport.
    pub fn rows(&self) -> Vec<Row> {
        self.cells.iter().map(Cell::row).collect()
    }

    /// What a person must know before believing the figures; a line each.
    pub fn complaints(&self) -> Vec<String> {
        self.cells.iter().filter_map(Cell::complaint).collect()
    }

    fn cell(&self, case: Case, transport: Transport) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.is_of(case, transport))
    }
}

impl Cell {
    fn is_of(&self, case: Case, transport: Transport) -> bool {
        self.case == case && self.transport == transport
    }

    fn median(&self, figure: Figure) -> Option<f64> {
        if self.failure.is_some() {
            return None;
        }
        let values: Vec<_> = self
            .outcomes
            .iter()
            .filter_map(|outcome| figure.of(outcome))
            .collect();
        median(&values)
    }

    /// The verdict on a round that was not accelerated, or else on any round.
    fn verdict(&self) -> Option<&Verdict> {
        self.verdicts
            .iter()
            .find(|verdict| !verdict.accelerated)
            .or(self.verdicts.first())
    }

    fn complaint(&self) -> Option<String> {
        let (case, transport) = (self.case, self.transport);
        if let Some(error) = &self.failure {
            return Some(format!("FAILED: {case} over {transport}: {error:#}"));
        }
        let reason = self.verdict()?.reason.as_ref()?;
        Some(format!(
            "WARNING: NOT ACCELERATED: {case} over {transport}: {reason}"
        ))
    }

    fn row(&self) -> Row {
        let verdict = self.verdict();
        let shares: Vec<_> = self
            .verdicts
            .iter()
            .filter_map(|verdict| verdict.ring_share)
            .collect();
        Row {
            bench: "sockets",
            case: self.case.name(),
            bytes: (self.case.kind != client::Case::Connect).then_some(self.case.bytes),
            transport: self.transport,
            figures: self.figures(),
            accelerated: verdict.map(|verdict| verdict.accelerated),
            reason: verdict.and_then(|verdict| verdict.reason.clone()),
            ring_share: median(&shares).map(|share| significant(share, 4)),
            error: self.failure.as_ref().map(|error| format!("{error:#}")),
        }
    }

    fn figures(&self) -> Option<Figures> {
        let value = |figure| self.median(figure).map(|value| significant(value, 4));
        Some(match self.case.kind {
            client::Case::Rtt => Figures::Rtt {
                p50_ns: whole(value(Figure::P50)?),
                p99_ns: whole(value(Figure::P99)?),
                p999_ns: whole(value(Figure::P999)?),
            },
            client::Case::Stream => Figures::Stream {
                gbps: value(Figure::Gbps)?,
                msgs_per_s: value(Figure::MessagesPerSecond)?,
            },
            client::Case::Connect => Figures::Connect {
                per_s: value(Figure::ConnectionsPerSecond)?,
            },
        })
    }
}

impl Figure {
    fn of(self, outcome: &Outcome) -> Option<f64> {
        match (self, outcome) {
            (Self::P50, Outcome::Rtt { p50_ns, .. }) => Some(nanoseconds(*p50_ns)),
            (Self::P99, Outcome::Rtt { p99_ns, .. }) => Some(nanoseconds(*p99_ns)),
            (Self::P999, Outcome::Rtt { p999_ns, .. }) => Some(nanoseconds(*p999_ns)),
            (Self::MessagesPerSecond, Outcome::Stream { msgs_per_s, .. }) => Some(*msgs_per_s),
            (Self::Gbps, Outcome::Stream { gbps, .. }) => Some(*gbps),
            (Self::ConnectionsPerSecond, Outcome::Connect { per_s, .. }) => Some(*per_s),
            _ => None,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "the histogram ends at a minute")]
fn nanoseconds(value: u64) -> f64 {
    value as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time of a minute at most"
)]
fn whole(nanoseconds: f64) -> u64 {
    nanoseconds.round() as u64
}

#[cfg(test)]
mod tests;
