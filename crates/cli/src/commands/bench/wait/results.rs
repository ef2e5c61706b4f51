//! What was measured: every round of every way at every rate, and their medians.

use std::fmt;

use anyhow::bail;
use crosslane_benchkit::show;
use crosslane_benchkit::stats::significant;
use crosslane_sockbench::outcome::Outcome;
use serde::Serialize;

use super::super::output::{number, whole};
use super::super::rounds::{self, Proof, Rounds, tail};
use super::frontier::{Cost, Seen, frontier};
use super::way::Way;

/// With fewer answers than this share of the requests, the server cannot keep up, and latency
/// says only for how long it was measured.
const KEEPS_UP: f64 = 0.9;

/// A way of waiting at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Requests per second.
    pub per_second: u32,
    /// How the server waits.
    pub way: Way,
}

/// The figures of one round.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    answers: u64,
    p50_ns: Option<f64>,
    p99_ns: Option<f64>,
    p999_ns: Option<f64>,
    due_per_s: f64,
    answered_per_s: f64,
    server_cpu: f64,
    client_cpu: f64,
    watts: Option<f64>,
    #[serde(skip)]
    has_device_queue: bool,
}

/// All measurements, in the order of the plan.
pub struct Results {
    /// The rounds.
    pub rounds: Rounds<Key, Figures>,
    /// Whether the client's processor time counts, too.
    pub counts_client: bool,
}

pub type Cell = rounds::Cell<Key, Figures>;

/// The medians of a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Medians {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p999_ns: Option<u64>,
    pub due_per_s: f64,
    pub answered_per_s: f64,
    pub server_cpu: f64,
    pub client_cpu: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watts: Option<f64>,
}

/// One line of the JSON output.
#[derive(Serialize)]
pub struct Row {
    bench: &'static str,
    case: &'static str,
    way: Way,
    transport: &'static str,
    per_second: u32,
    #[serde(flatten)]
    medians: Option<Medians>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keeps_up: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frontier_p50: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frontier_p99: Option<bool>,
    #[serde(flatten)]
    proof: Proof,
}

impl Figures {
    /// The figures of what a client printed.
    pub fn of(outcome: &Outcome, watts: Option<f64>) -> anyhow::Result<Self> {
        let Outcome::Load {
            answers,
            due_per_s,
            answered_per_s,
            p50_ns,
            p99_ns,
            p999_ns,
            server_cpu,
            client_cpu,
            has_device_queue,
            ..
        } = outcome
        else {
            bail!("the client measured something else: {outcome:?}")
        };
        Ok(Self {
            answers: *answers,
            p50_ns: p50_ns.map(number),
            p99_ns: p99_ns.and_then(|ns| tail(number(ns), *answers, 100)),
            p999_ns: p999_ns.and_then(|ns| tail(number(ns), *answers, 1000)),
            due_per_s: *due_per_s,
            answered_per_s: *answered_per_s,
            server_cpu: *server_cpu,
            client_cpu: *client_cpu,
            watts,
            has_device_queue: *has_device_queue,
        })
    }

    /// The median latency.
    pub fn p50_ns(&self) -> Option<f64> {
        self.p50_ns
    }

    /// Its 99th percentile.
    pub fn p99_ns(&self) -> Option<f64> {
        self.p99_ns
    }
}

impl Results {
    /// The rates in order, each once.
    pub fn rates(&self) -> Vec<u32> {
        let cells = self.rounds.cells().iter();
        let mut rates: Vec<_> = cells.map(|cell| cell.key.per_second).collect();
        rates.dedup();
        rates
    }

    /// The cells at a rate, in the order of the table.
    pub fn at(&self, per_second: u32) -> impl Iterator<Item = &Cell> {
        let cells = self.rounds.cells().iter();
        cells.filter(move |cell| cell.key.per_second == per_second)
    }

    /// A line for every way at every rate.
    pub fn rows(&self) -> Vec<Row> {
        self.rounds
            .cells()
            .iter()
            .map(|cell| self.row(cell))
            .collect()
    }

    /// What a person must know before believing the figures; a line each.
    pub fn complaints(&self) -> Vec<String> {
        let overloaded = self.rounds.cells().iter().filter_map(|cell| {
            let medians = medians(cell).filter(|medians| keeps_up(cell.key, medians) == Some(false))?;
            Some(format!(
                "WARNING: OVERLOADED: {}: {} answers per second; latency grows with the time of measuring",
                cell.key,
                show::count(medians.answered_per_s)
            ))
        });
        self.rounds
            .complaints()
            .into_iter()
            .chain(overloaded)
            .collect()
    }

    /// What means less than it seems.
    pub fn notes(&self) -> Vec<String> {
        let mut polled = self.rounds.cells().iter();
        let in_vain = polled.any(|cell| {
            let queue = cell.median(|figures| Some(f64::from(u8::from(figures.has_device_queue))));
            cell.key.way == Way::TcpBusyPoll && queue == Some(0.0)
        });
        let note = "tcp-busy-poll: the kernel accepts SO_BUSY_POLL, but packets of the loopback \
                    device come from no queue that it could poll, so this is blocking TCP; \
                    tcp-spin is what busy polling is on one host";
        Vec::from_iter(in_vain.then(|| note.to_owned()))
    }

    /// Whether a way is on the frontier of its rate, by this latency; none where that cannot be
    /// said, as without requests or under overload.
    pub fn is_on_frontier(&self, key: Key, latency: fn(&Figures) -> Option<f64>) -> Option<bool> {
        let costs: Vec<_> = self
            .at(key.per_second)
            .filter_map(|cell| {
                medians(cell).filter(|m| keeps_up(cell.key, m) == Some(true))?;
                Some((cell.key, self.cost(cell, latency)?))
            })
            .collect();
        let place = costs.iter().position(|(other, _)| *other == key)?;
        let costs: Vec<_> = costs.into_iter().map(|(_, cost)| cost).collect();
        frontier(&costs).get(place).copied()
    }

    fn cost(&self, cell: &Cell, latency: fn(&Figures) -> Option<f64>) -> Option<Cost> {
        let of = |figure: &dyn Fn(&Figures) -> Option<f64>| {
            Some(Seen {
                median: cell.median(figure)?,
                range: cell.range(figure)?,
            })
        };
        let client = if self.counts_client { 1.0 } else { 0.0 };
        let cpu = |figures: &Figures| Some(figures.server_cpu + client * figures.client_cpu);
        Some(Cost {
            latency_ns: of(&latency)?,
            cpu: of(&cpu)?,
        })
    }

    fn row(&self, cell: &Cell) -> Row {
        let medians = medians(cell);
        Row {
            bench: "wait",
            case: if cell.key.per_second == 0 {
                "idle"
            } else {
                "load"
            },
            way: cell.key.way,
            transport: cell.key.way.transport(),
            per_second: cell.key.per_second,
            keeps_up: medians.as_ref().and_then(|m| keeps_up(cell.key, m)),
            frontier_p50: self.is_on_frontier(cell.key, Figures::p50_ns),
            frontier_p99: self.is_on_frontier(cell.key, Figures::p99_ns),
            medians,
            proof: cell.proof(),
        }
    }
}

/// The medians of a cell; none where a round failed.
pub fn medians(cell: &Cell) -> Option<Medians> {
    let value = |figure: fn(&Figures) -> Option<f64>| cell.median(figure);
    let rounded = |figure| value(figure).map(|value| significant(value, 4));
    Some(Medians {
        p50_ns: value(|figures| figures.p50_ns).map(whole),
        p99_ns: value(|figures| figures.p99_ns).map(whole),
        p999_ns: value(|figures| figures.p999_ns).map(whole),
        due_per_s: rounded(|figures| Some(figures.due_per_s))?,
        answered_per_s: rounded(|figures| Some(figures.answered_per_s))?,
        server_cpu: rounded(|figures| Some(figures.server_cpu))?,
        client_cpu: rounded(|figures| Some(figures.client_cpu))?,
        watts: rounded(|figures| figures.watts),
    })
}

/// Whether as many requests were answered per second as were due; none without requests.
pub fn keeps_up(key: Key, medians: &Medians) -> Option<bool> {
    (key.per_second > 0).then_some(medians.answered_per_s >= KEEPS_UP * medians.due_per_s)
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.per_second {
            0 => write!(f, "{}, idle", self.way),
            rate => write!(
                f,
                "{} at {} requests/s",
                self.way,
                show::round(f64::from(rate))
            ),
        }
    }
}

#[cfg(test)]
mod tests;
