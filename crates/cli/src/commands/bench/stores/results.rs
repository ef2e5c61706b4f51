//! What was measured of each store, and the table of it.

use std::fmt;

use crosslane_benchkit::show;
use crosslane_benchkit::stats::significant;
use serde::Serialize;

use super::super::daemon::missing;
use super::super::output::{number, whole};
use super::super::over::Over;
use super::super::rounds::{self, Proof, Rounds, tail};

/// A server of values by keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Store {
    /// redis-server
    Redis,
    /// memcached, with its usual four threads
    Memcached,
}

/// What is asked for, by the shares of reads, inserts and updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[clap(rename_all = "verbatim")]
pub enum Mix {
    R100,
    R95I5,
    R90U10,
    R50U50,
}

/// A mix for a store, by so many clients, over something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub store: Store,
    pub mix: Mix,
    /// Of each value.
    pub bytes: u64,
    pub clients: u32,
    pub over: Over,
}

/// The figures of one round.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// How many were counted.
    pub requests: u64,
    /// Requests of all clients.
    pub per_s: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
}

/// All measurements, in the order of the plan.
pub struct Results(pub Rounds<Key, Figures>);

type Cell = rounds::Cell<Key, Figures>;

/// One line of the JSON output.
#[derive(Serialize)]
pub struct Row {
    bench: &'static str,
    case: Store,
    way: Mix,
    bytes: u64,
    connections: u32,
    transport: Over,
    #[serde(flatten)]
    medians: Option<Medians>,
    #[serde(flatten)]
    proof: Proof,
}

/// The medians of a cell.
#[derive(Clone, Copy, Debug, Serialize)]
struct Medians {
    per_s: f64,
    p50_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p999_ns: Option<u64>,
}

impl Store {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Redis, Self::Memcached];

    /// The program's name.
    pub fn program(self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Memcached => "memcached",
        }
    }

    /// As `crosslane-sockbench` calls it.
    pub fn protocol(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Memcached => "memcached",
        }
    }

    /// What has to be installed first. Debian's packages are called like the programs.
    pub fn missing(self) -> Option<String> {
        missing(self.program(), self.program())
    }
}

impl Mix {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::R100, Self::R95I5, Self::R90U10, Self::R50U50];

    /// As `crosslane-sockbench` calls it.
    pub fn option(self) -> &'static str {
        match self {
            Self::R100 => "r100",
            Self::R95I5 => "r95i5",
            Self::R90U10 => "r90u10",
            Self::R50U50 => "r50u50",
        }
    }
}

impl Results {
    /// A line for each cell.
    pub fn rows(&self) -> Vec<Row> {
        let row = |cell: &Cell| Row {
            bench: "stores",
            case: cell.key.store,
            way: cell.key.mix,
            bytes: cell.key.bytes,
            connections: cell.key.clients,
            transport: cell.key.over,
            medians: medians(cell),
            proof: cell.proof(),
        };
        self.0.cells().iter().map(row).collect()
    }

    /// A row for each case, with both transports.
    pub fn table(&self) -> String {
        let header = [
            "store",
            "mix",
            "value",
            "clients",
            "req/s tcp",
            "crosslane",
            "ratio",
            "p50 tcp",
            "crosslane",
            "ratio",
            "p99 tcp",
            "crosslane",
            "ratio",
        ];
        let mut cases: Vec<Key> = Vec::new();
        for cell in self.0.cells() {
            let case = Key {
                over: Over::Tcp,
                ..cell.key
            };
            if cases.last() != Some(&case) {
                cases.push(case);
            }
        }
        let rows = cases.into_iter().map(|case| self.table_row(case)).collect();
        show::table(2, header.map(str::to_owned).to_vec(), rows)
    }

    fn table_row(&self, case: Key) -> Vec<String> {
        let of = |over| medians(self.0.cell(Key { over, ..case })?);
        let (tcp, ours) = (of(Over::Tcp), of(Over::Crosslane));
        let mut row = vec![
            case.store.to_string(),
            case.mix.to_string(),
            show::bytes(case.bytes),
            case.clients.to_string(),
        ];
        let mark = self.0.mark(Key {
            over: Over::Crosslane,
            ..case
        });
        let mut add =
            |figure: fn(&Medians) -> Option<f64>, show: fn(f64) -> String, is_time: bool| {
                let (tcp, ours) = (
                    tcp.as_ref().and_then(figure),
                    ours.as_ref().and_then(figure),
                );
                let ratio = tcp.zip(ours).map(|(tcp, ours)| match is_time {
                    true => tcp / ours,
                    false => ours / tcp,
                });
                row.extend([
                    shown(tcp, show),
                    shown(ours, show) + mark,
                    shown(ratio, show::ratio) + mark,
                ]);
            };
        add(|own| Some(own.per_s), show::count, false);
        add(|own| Some(number(own.p50_ns)), show::nanoseconds, true);
        add(|own| own.p99_ns.map(number), show::nanoseconds, true);
        row
    }
}

fn shown(value: Option<f64>, show: fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

fn medians(cell: &Cell) -> Option<Medians> {
    let value = |figure: fn(&Figures) -> f64| cell.median(|figures| Some(figure(figures)));
    let beyond = |figure: fn(&Figures) -> u64, one_in| {
        let of = |figures: &Figures| tail(number(figure(figures)), figures.requests, one_in);
        cell.median(of).map(whole)
    };
    Some(Medians {
        per_s: significant(value(|figures| figures.per_s)?, 4),
        p50_ns: whole(value(|figures| number(figures.p50_ns))?),
        p99_ns: beyond(|figures| figures.p99_ns, 100),
        p999_ns: beyond(|figures| figures.p999_ns, 1000),
    })
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.protocol())
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.option().to_ascii_uppercase())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            store,
            mix,
            clients,
            over,
            ..
        } = self;
        let bytes = show::bytes(self.bytes);
        write!(f, "{store} {mix} {bytes}, {clients} clients over {over}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::rounds::Measured;

    #[test]
    fn a_row_has_the_documented_form_and_the_table_the_ratios() {
        let key = |over| Key {
            store: Store::Memcached,
            mix: Mix::R95I5,
            bytes: 256,
            clients: 50,
            over,
        };
        let keys = [key(Over::Tcp), key(Over::Crosslane)];
        let mut rounds = Rounds::new(&keys);
        for (key, slower) in keys.into_iter().zip([8u32, 1]) {
            let figures = Figures {
                requests: 10_000,
                per_s: 800_000.0 / f64::from(slower),
                p50_ns: 10_000 * u64::from(slower),
                p99_ns: 20_000 * u64::from(slower),
                p999_ns: 30_000 * u64::from(slower),
            };
            let verdict = None;
            rounds.add(key, Ok(Measured { figures, verdict }));
        }
        let results = Results(rounds);
        assert_eq!(
            serde_json::to_string(&results.rows()[1]).expect("a row is JSON"),
            r#"{"bench":"stores","case":"memcached","way":"R95I5","bytes":256,"connections":50,"transport":"crosslane","per_s":800000.0,"p50_ns":10000,"p99_ns":20000,"p999_ns":30000,"ranges":{"p50_ns":[10000.0,10000.0],"p999_ns":[30000.0,30000.0],"p99_ns":[20000.0,20000.0],"per_s":[800000.0,800000.0],"requests":[10000.0,10000.0]}}"#
        );
        let table = results.table();
        assert_eq!(table.matches("8.00x").count(), 3, "{table}");
    }
}
