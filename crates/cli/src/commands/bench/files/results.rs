//! What was measured of each file, and the tables of it.

use std::fmt;

use crosslane_benchkit::show;
use crosslane_benchkit::stats::{Better, significant};
use serde::Serialize;

use super::super::output::{number, whole};
use super::super::over::Over;
use super::super::rounds::{self, Proof, Rounds, tail};

/// How nginx sends a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// By sendfile
    Sendfile,
    /// By reading and writing
    Write,
}

/// What a file goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// TCP over the loopback device
    Tcp,
    /// TCP under `crosslane run`
    Crosslane,
    /// No server and no client: the copies from the page cache to another processor alone
    Limit,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// One file at a time.
    Fetch,
    /// Small files, as many as go.
    Requests,
    /// The same, each over a new connection.
    Short,
}

/// A file, how it is sent and over what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// What is measured.
    pub kind: Kind,
    /// The file's size.
    pub bytes: u64,
    /// How nginx sends it.
    pub way: Way,
    /// Over what.
    pub carrier: Carrier,
}

/// The figures of one round.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum Figures {
    /// Of fetches one after the other.
    Fetch {
        fetches: u64,
        p50_ns: u64,
        p99_ns: u64,
        gbps: f64,
    },
    /// Of many clients.
    Requests { per_s: f64 },
}

/// All measurements, in the order of the plan.
pub struct Results(pub Rounds<Key, Figures>);

type Cell = rounds::Cell<Key, Figures>;

/// One line of the JSON output.
#[derive(Serialize)]
pub struct Row {
    bench: &'static str,
    case: Kind,
    bytes: u64,
    way: Way,
    transport: Carrier,
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gbps: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_s: Option<f64>,
    #[serde(flatten)]
    proof: Proof,
}

/// A figure, how it is shown and which way it is better.
type Figure = (fn(&Figures) -> Option<f64>, fn(f64) -> String, Better);

const P50: Figure = (Figures::p50_ns, show::nanoseconds, Better::Lower);
const P99: Figure = (Figures::p99_ns, show::nanoseconds, Better::Lower);
const GBPS: Figure = (Figures::gbps, show::three_digits, Better::Higher);
const PER_S: Figure = (Figures::per_s, show::count, Better::Higher);

impl Way {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Sendfile, Self::Write];
}

impl Carrier {
    /// All.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Crosslane, Self::Limit];

    /// What connections go over, where there are any.
    pub fn over(self) -> Option<Over> {
        match self {
            Self::Tcp => Some(Over::Tcp),
            Self::Crosslane => Some(Over::Crosslane),
            Self::Limit => None,
        }
    }
}

impl Figures {
    fn p50_ns(&self) -> Option<f64> {
        match self {
            Self::Fetch { p50_ns, .. } => Some(number(*p50_ns)),
            Self::Requests { .. } => None,
        }
    }

    fn p99_ns(&self) -> Option<f64> {
        match self {
            Self::Fetch {
                fetches, p99_ns, ..
            } => tail(number(*p99_ns), *fetches, 100),
            Self::Requests { .. } => None,
        }
    }

    fn gbps(&self) -> Option<f64> {
        match self {
            Self::Fetch { gbps, .. } => Some(*gbps),
            Self::Requests { .. } => None,
        }
    }

    fn per_s(&self) -> Option<f64> {
        match self {
            Self::Requests { per_s } => Some(*per_s),
            Self::Fetch { .. } => None,
        }
    }
}

impl Results {
    /// A line for each cell.
    pub fn rows(&self) -> Vec<Row> {
        self.0.cells().iter().map(row).collect()
    }

    /// A table of fetches and one of requests.
    pub fn table(&self) -> String {
        let fetches = self.table_of(Kind::Fetch, &[("p50", P50), ("p99", P99), ("Gb/s", GBPS)]);
        let requests = self.table_of(Kind::Requests, &[("requests/s", PER_S)]);
        let short = self.table_of(Kind::Short, &[("connections/s", PER_S)]);
        let tables = [fetches, requests, short].into_iter().flatten();
        tables
            .map(|table| table + "\n")
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn table_of(&self, kind: Kind, figures: &[(&str, Figure)]) -> Option<String> {
        let mut header = vec!["file".to_owned(), "sent by".to_owned()];
        for (name, _) in figures {
            header.extend([format!("{name} tcp"), "crosslane".into(), "ratio".into()]);
        }
        if kind == Kind::Fetch {
            header.extend(["p50 limit".to_owned(), "tcp to it".to_owned()]);
        }
        let mut files: Vec<_> = (self.0.cells().iter())
            .filter(|cell| cell.key.kind == kind)
            .map(|cell| (cell.key.bytes, cell.key.way))
            .collect();
        files.dedup();
        let row = |&(bytes, way): &(u64, Way)| {
            let mut row = vec![show::bytes(bytes), way.to_string()];
            let value = |carrier, figure: fn(&Figures) -> Option<f64>| {
                let key = Key {
                    kind,
                    bytes,
                    way,
                    carrier,
                };
                self.0.cell(key)?.median(figure)
            };
            let tcp_to = |carrier, (figure, show, better): Figure| {
                let (tcp, other) = (value(Carrier::Tcp, figure), value(carrier, figure));
                let ratio = tcp.zip(other).map(|(tcp, other)| better.ratio(tcp, other));
                let mark = self.0.mark(Key {
                    kind,
                    bytes,
                    way,
                    carrier,
                });
                [shown(other, show) + mark, shown(ratio, show::ratio) + mark]
            };
            for (_, figure) in figures {
                row.push(shown(value(Carrier::Tcp, figure.0), figure.1));
                row.extend(tcp_to(Carrier::Crosslane, *figure));
            }
            if kind == Kind::Fetch {
                row.extend(tcp_to(Carrier::Limit, P50));
            }
            row
        };
        let rows: Vec<_> = files.iter().map(row).collect();
        (!rows.is_empty()).then(|| show::table(2, header, rows))
    }
}

fn shown(value: Option<f64>, show: fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

fn row(cell: &Cell) -> Row {
    let value = |(figure, ..): Figure| cell.median(figure);
    let rounded = |value: f64| significant(value, 4);
    Row {
        bench: "files",
        case: cell.key.kind,
        bytes: cell.key.bytes,
        way: cell.key.way,
        transport: cell.key.carrier,
        p50_ns: value(P50).map(whole),
        p99_ns: value(P99).map(whole),
        gbps: value(GBPS).map(rounded),
        per_s: value(PER_S).map(rounded),
        proof: cell.proof(),
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sendfile => "sendfile",
            Self::Write => "write",
        })
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.over() {
            Some(over) => over.fmt(f),
            None => f.write_str("limit"),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            Kind::Fetch => "fetching",
            Kind::Requests => "requests for",
            Kind::Short => "a connection for each request for",
        };
        let bytes = show::bytes(self.bytes);
        write!(
            f,
            "{what} {bytes} sent by {} over {}",
            self.way, self.carrier
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::rounds::Measured;

    fn results() -> Results {
        let key = |kind, carrier| Key {
            kind,
            bytes: 8192,
            way: Way::Sendfile,
            carrier,
        };
        let keys = [
            (key(Kind::Fetch, Carrier::Tcp), fetch(90_000)),
            (key(Kind::Fetch, Carrier::Crosslane), fetch(30_000)),
            (key(Kind::Fetch, Carrier::Limit), fetch(20_000)),
            (
                key(Kind::Requests, Carrier::Tcp),
                Figures::Requests { per_s: 2e4 },
            ),
        ];
        let mut rounds = Rounds::new(&keys.map(|(key, _)| key));
        for (key, figures) in keys {
            let verdict = None;
            rounds.add(key, Ok(Measured { figures, verdict }));
        }
        Results(rounds)
    }

    fn fetch(p50_ns: u64) -> Figures {
        Figures::Fetch {
            fetches: 1000,
            p50_ns,
            p99_ns: 2 * p50_ns,
            gbps: 1.5,
        }
    }

    #[test]
    fn a_row_has_the_documented_form() {
        let rows = results().rows();
        let json = |row: &Row| serde_json::to_string(row).expect("a row is JSON");
        assert_eq!(
            json(&rows[1]),
            r#"{"bench":"files","case":"fetch","bytes":8192,"way":"sendfile","transport":"crosslane","p50_ns":30000,"p99_ns":60000,"gbps":1.5,"ranges":{"fetches":[1000.0,1000.0],"gbps":[1.5,1.5],"p50_ns":[30000.0,30000.0],"p99_ns":[60000.0,60000.0]}}"#
        );
        assert_eq!(
            json(&rows[3]),
            r#"{"bench":"files","case":"requests","bytes":8192,"way":"sendfile","transport":"tcp","per_s":20000.0,"ranges":{"per_s":[20000.0,20000.0]}}"#
        );
    }

    #[test]
    fn the_table_says_how_many_times_better() {
        let table = results().table();
        assert!(table.contains("90.0 us    30.0 us  3.00x"), "{table}");
        assert!(table.contains("20.0 us      4.50x"), "{table}");
        assert!(table.contains("20.0 k"), "{table}");
    }
}
