//! What was measured in which mode, and the table of it.

use std::fmt;

use crosslane_apibench::client::Case as Kind;
use crosslane_benchkit::show;
use crosslane_benchkit::stats::{Better, significant};
use crosslane_sockbench::outcome::Outcome;
use serde::Serialize;

use super::super::output::{number, whole};
use super::super::rounds::{self, Proof, Rounds, tail};

/// A mode, in the order of the table's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Sockets over the loopback device
    Tcp,
    /// The same program under `crosslane run`
    Origin,
    /// The native interface, reading and writing
    Shm,
    /// The native interface, building and reading in place
    Direct,
    /// The same between two threads of one process, without a monitor
    Runtime,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Tcp,
        Self::Origin,
        Self::Shm,
        Self::Direct,
        Self::Runtime,
    ];

    /// How the program calls it.
    pub fn way(self) -> &'static str {
        match self {
            Self::Tcp | Self::Origin => "sockets",
            Self::Shm => "copy",
            Self::Direct | Self::Runtime => "direct",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Origin => "origin",
            Self::Shm => "shm",
            Self::Direct => "direct",
            Self::Runtime => "runtime",
        })
    }
}

/// A kind of traffic and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The kind.
    pub kind: Kind,
    /// The size of each message.
    pub bytes: u64,
}

impl Case {
    fn name(self) -> &'static str {
        match self.kind {
            Kind::Rtt => "rtt",
            Kind::Stream => "stream",
            Kind::Batch => "batch",
        }
    }

    /// How it is shown and compared.
    fn style(self) -> Style {
        match (self.kind, self.bytes) {
            (Kind::Rtt, _) => ("p50", show::nanoseconds, Better::Lower, p50_ns),
            (_, ..1024) => ("messages/s", show::count, Better::Higher, msgs_per_s),
            _ => ("Gb/s", show::three_digits, Better::Higher, gbps),
        }
    }
}

type Style = (
    &'static str,
    fn(f64) -> String,
    Better,
    fn(&Outcome) -> Option<f64>,
);

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name(), show::bytes(self.bytes))
    }
}

/// A case in a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The case.
    pub case: Case,
    /// The mode.
    pub mode: Mode,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.case, self.mode)
    }
}

/// All measurements, in the order of the plan.
pub struct Results(pub Rounds<Key, Outcome>);

type Cell = rounds::Cell<Key, Outcome>;

/// One line of the JSON output.
#[derive(Serialize)]
pub struct Row {
    bench: &'static str,
    case: &'static str,
    bytes: u64,
    transport: Mode,
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    msgs_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gbps: Option<f64>,
    #[serde(flatten)]
    proof: Proof,
}

impl Results {
    /// A line for every case in every mode.
    pub fn rows(&self) -> Vec<Row> {
        self.0.cells().iter().map(row).collect()
    }

    /// For every case its figures, and below how many times better than TCP they are.
    pub fn table(&self) -> String {
        let cells = self.0.cells();
        let mut modes: Vec<_> = cells.iter().map(|cell| cell.key.mode).collect();
        modes.sort_unstable();
        modes.dedup();
        let mut cases: Vec<_> = cells.iter().map(|cell| cell.key.case).collect();
        cases.dedup();
        let mut header = vec!["case".to_owned(), String::new()];
        header.extend(modes.iter().map(ToString::to_string));
        let rows = cases.iter().flat_map(|&case| self.lines(case, &modes));
        show::table(2, header, rows.collect())
    }

    fn lines(&self, case: Case, modes: &[Mode]) -> Vec<Vec<String>> {
        let (name, show, better, figure) = case.style();
        let value = |mode| self.0.cell(Key { case, mode })?.median(figure);
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let mut figures = vec![case.to_string(), name.to_owned()];
        let mark = |mode| self.0.mark(Key { case, mode });
        figures.extend(
            modes
                .iter()
                .map(|&mode| or_dash(value(mode).map(show)) + mark(mode)),
        );
        let Some(tcp) = value(Mode::Tcp) else {
            return vec![figures];
        };
        let ratio = |&mode: &Mode| {
            let ours = value(mode).filter(|_| mode != Mode::Tcp);
            or_dash(ours.map(|ours| show::ratio(better.ratio(tcp, ours)))) + mark(mode)
        };
        let mut ratios = vec![String::new(), "vs tcp".to_owned()];
        ratios.extend(modes.iter().map(ratio));
        vec![figures, ratios]
    }
}

fn p50_ns(outcome: &Outcome) -> Option<f64> {
    match outcome {
        Outcome::Rtt { p50_ns, .. } => Some(number(*p50_ns)),
        _ => None,
    }
}

fn p99_ns(outcome: &Outcome) -> Option<f64> {
    match outcome {
        Outcome::Rtt { trips, p99_ns, .. } => tail(number(*p99_ns), *trips, 100),
        _ => None,
    }
}

fn msgs_per_s(outcome: &Outcome) -> Option<f64> {
    match outcome {
        Outcome::Stream { msgs_per_s, .. } => Some(*msgs_per_s),
        _ => None,
    }
}

fn gbps(outcome: &Outcome) -> Option<f64> {
    match outcome {
        Outcome::Stream { gbps, .. } => Some(*gbps),
        _ => None,
    }
}

fn row(cell: &Cell) -> Row {
    let rounded = |figure: fn(&Outcome) -> Option<f64>| {
        cell.median(figure).map(|value| significant(value, 4))
    };
    Row {
        bench: "api",
        case: cell.key.case.name(),
        bytes: cell.key.case.bytes,
        transport: cell.key.mode,
        p50_ns: cell.median(p50_ns).map(whole),
        p99_ns: cell.median(p99_ns).map(whole),
        msgs_per_s: rounded(msgs_per_s),
        gbps: rounded(gbps),
        proof: cell.proof(),
    }
}
