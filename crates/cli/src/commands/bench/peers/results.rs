//! What was measured of whom, and the table of it.

use std::fmt;

use crosslane_benchkit::show;
use crosslane_benchkit::stats::{Better, significant};
use crosslane_sockbench::client;
use serde::Serialize;

use super::super::daemon::missing;
use super::super::output::{number, whole};
use super::super::rounds::{self, Proof, Rounds};
use super::super::sockets::case::Case;
use super::foreign::{FI_PINGPONG, UCX_PERFTEST};

/// A way between two programs on one host, in the order of the table's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// TCP over the loopback device
    Tcp,
    /// AF_UNIX stream sockets
    Unix,
    /// A pipe each way
    Pipe,
    /// libfabric over its provider shm, by fi_pingpong
    Libfabric,
    /// UCX over POSIX shared memory, by ucx_perftest
    Ucx,
    /// TCP under `crosslane run`
    Crosslane,
}

/// A case of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The case.
    pub case: Case,
    /// The peer.
    pub peer: Peer,
}

/// The figures of one round.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum Figures {
    /// Of a round trip, the median or the mean.
    RoundTrip {
        trips: u64,
        p50_ns: Option<f64>,
        mean_ns: Option<f64>,
    },
    /// Of one-way messages.
    Stream {
        messages: u64,
        msgs_per_s: f64,
        gbps: f64,
    },
}

/// All measurements, in the order of the plan.
pub struct Results(pub Rounds<Key, Figures>);

type Cell = rounds::Cell<Key, Figures>;

/// One line of the JSON output.
#[derive(Serialize)]
pub struct Row {
    bench: &'static str,
    case: &'static str,
    bytes: u64,
    transport: Peer,
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    msgs_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gbps: Option<f64>,
    #[serde(flatten)]
    proof: Proof,
}

impl Peer {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Tcp,
        Self::Unix,
        Self::Pipe,
        Self::Libfabric,
        Self::Ucx,
        Self::Crosslane,
    ];

    /// Whether the case can be measured of it.
    pub fn has(self, case: Case) -> bool {
        self != Self::Libfabric || case.kind == client::Case::Rtt
    }

    /// What has to be installed first.
    pub fn missing(self) -> Option<String> {
        let (program, package) = match self {
            Self::Ucx => (UCX_PERFTEST, "ucx-utils"),
            Self::Libfabric => (FI_PINGPONG, "libfabric-bin"),
            Self::Tcp | Self::Unix | Self::Pipe | Self::Crosslane => return None,
        };
        missing(program, package)
    }
}

impl Figures {
    /// The figures of so many messages, and of so many per second.
    pub fn stream(bytes: u64, messages: u64, msgs_per_s: f64) -> Self {
        Self::Stream {
            messages,
            msgs_per_s,
            gbps: msgs_per_s * 8.0 * number(bytes) / 1e9,
        }
    }

    /// The median of a round trip.
    pub fn p50_ns(&self) -> Option<f64> {
        match self {
            Self::RoundTrip { p50_ns, .. } => *p50_ns,
            Self::Stream { .. } => None,
        }
    }

    /// The mean of a round trip.
    pub fn mean_ns(&self) -> Option<f64> {
        match self {
            Self::RoundTrip { mean_ns, .. } => *mean_ns,
            Self::Stream { .. } => None,
        }
    }

    /// Messages per second.
    pub fn msgs_per_s(&self) -> Option<f64> {
        match self {
            Self::Stream { msgs_per_s, .. } => Some(*msgs_per_s),
            Self::RoundTrip { .. } => None,
        }
    }

    /// Payload.
    pub fn gbps(&self) -> Option<f64> {
        match self {
            Self::Stream { gbps, .. } => Some(*gbps),
            Self::RoundTrip { .. } => None,
        }
    }
}

impl Results {
    /// A line for every case of every peer.
    pub fn rows(&self) -> Vec<Row> {
        self.0.cells().iter().map(row).collect()
    }

    /// A row for every case of every peer, with how many times better Crosslane is.
    pub fn table(&self) -> String {
        let header = ["case", "over", "figure", "", "crosslane to it"];
        let header = header.map(str::to_owned).to_vec();
        let rows = self.0.cells().iter().map(|cell| self.line(cell));
        show::table(3, header, rows.collect())
    }

    fn line(&self, cell: &Cell) -> Vec<String> {
        let (name, show, better, _) = kind(cell.key.case);
        let is_mean = cell.median(Figures::mean_ns).is_some();
        let name = if is_mean { "mean" } else { name };
        let value = value(cell);
        let ours = self.0.cell(Key {
            peer: Peer::Crosslane,
            ..cell.key
        });
        let ours = ours.filter(|_| cell.key.peer != Peer::Crosslane);
        // A mean cannot be compared with a median.
        let ratio = ours.and_then(self::value).zip(value.filter(|_| !is_mean));
        let mark = ours.map_or("", |ours| ours.mark());
        let ratio = ratio.map(|(ours, its)| show::ratio(better.ratio(its, ours)) + mark);
        vec![
            cell.key.case.to_string(),
            cell.key.peer.to_string(),
            name.to_owned(),
            value.map_or_else(|| "-".to_owned(), show) + cell.mark(),
            ratio.unwrap_or_else(|| "-".to_owned()),
        ]
    }
}

type Kind = (
    &'static str,
    fn(f64) -> String,
    Better,
    fn(&Figures) -> Option<f64>,
);

/// How a case is shown and compared.
fn kind(case: Case) -> Kind {
    match (case.kind, case.bytes) {
        (client::Case::Rtt, _) => ("p50", show::nanoseconds, Better::Lower, Figures::p50_ns),
        (_, ..1024) => (
            "messages/s",
            show::count,
            Better::Higher,
            Figures::msgs_per_s,
        ),
        _ => ("Gb/s", show::three_digits, Better::Higher, Figures::gbps),
    }
}

/// The figure that is shown; a mean where there is no median.
fn value(cell: &Cell) -> Option<f64> {
    let (_, _, _, figure) = kind(cell.key.case);
    cell.median(figure)
        .or_else(|| cell.median(Figures::mean_ns))
}

fn row(cell: &Cell) -> Row {
    let rounded = |figure: fn(&Figures) -> Option<f64>| {
        cell.median(figure).map(|value| significant(value, 4))
    };
    Row {
        bench: "peers",
        case: cell.key.case.name(),
        bytes: cell.key.case.bytes,
        transport: cell.key.peer,
        p50_ns: cell.median(Figures::p50_ns).map(whole),
        mean_ns: cell.median(Figures::mean_ns).map(whole),
        msgs_per_s: rounded(Figures::msgs_per_s),
        gbps: rounded(Figures::gbps),
        proof: cell.proof(),
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Unix => "unix",
            Self::Pipe => "pipe",
            Self::Libfabric => "libfabric",
            Self::Ucx => "ucx",
            Self::Crosslane => "crosslane",
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} over {}", self.case, self.peer)
    }
}
