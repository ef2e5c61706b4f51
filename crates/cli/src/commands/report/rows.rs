//! The lines of the benches' JSON, whatever bench they are of.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use crosslane_benchkit::Machine;
use crosslane_benchkit::stats::median;
use crosslane_sockbench::outcome::Clocks;
use serde::Deserialize;
use serde_json::Value;

/// What was read.
#[derive(Default)]
pub struct Data {
    /// The first line of each run.
    pub runs: Vec<Run>,
    /// All other lines, in their order.
    pub rows: Vec<Row>,
    /// What could not be measured.
    pub notes: Vec<String>,
}

/// Where and how a bench was run.
#[derive(Clone, Debug, Deserialize)]
pub struct Run {
    /// Which bench.
    pub bench: String,
    /// Where.
    #[serde(flatten)]
    pub machine: Machine,
    /// How many rounds it took the median of.
    pub rounds: u32,
    /// How long each measurement took, where it went by time.
    pub measure_ms: Option<u64>,
    /// How many messages it took, where it went by those.
    pub messages: Option<u64>,
    /// How the two processors' counters agree, for `breakdown`.
    pub clocks: Option<Clocks>,
    /// What the bench could not do.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Whether the client's processor time counts, for `wait`.
    #[serde(default)]
    pub pace: String,
    /// Who said so, for errors.
    #[serde(skip)]
    source: String,
    /// The whole line.
    #[serde(skip)]
    line: Value,
}

/// What runs of a bench must have in common for a median of them to mean anything.
const COMMON: [&str; 10] = [
    "cpu",
    "cores",
    "memory_gib",
    "kernel",
    "tcp_congestion_control",
    "commit",
    "hosts",
    "placement",
    "pace",
    "workers",
];

/// What a row is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Key {
    /// The bench.
    pub bench: String,
    /// Its case.
    pub case: String,
    /// Over what.
    #[serde(default)]
    pub transport: String,
    /// How it waited, for `wait`; how files are sent, for `files`; what is asked, for `stores`.
    #[serde(default)]
    pub way: String,
    /// The message size.
    pub bytes: Option<u64>,
    /// Requests per second, for `wait`.
    pub per_second: Option<u32>,
    /// How many, for `connections` and `stores`.
    pub connections: Option<u32>,
}

/// One row: figures of one case.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Row {
    /// What it is of.
    #[serde(flatten)]
    pub key: Key,
    /// Whether it was accelerated, where it should have been.
    pub accelerated: Option<bool>,
    /// Why it was not.
    pub reason: Option<String>,
    /// Why there is no figure.
    pub error: Option<String>,
    /// Figures and judgements by name.
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

/// The case of a run's first line.
const MACHINE: &str = "machine";

impl Row {
    /// A figure by its name in the JSON.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.others.get(name)?.as_f64()
    }

    /// A judgement by its name in the JSON.
    pub fn is(&self, name: &str) -> Option<bool> {
        self.others.get(name)?.as_bool()
    }

    /// Pairs of numbers by their name in the JSON.
    pub fn pairs(&self, name: &str) -> Vec<(f64, f64)> {
        let pair = |pair: &Value| Some((pair.get(0)?.as_f64()?, pair.get(1)?.as_f64()?));
        let array = self.others.get(name).and_then(Value::as_array);
        array.into_iter().flatten().filter_map(pair).collect()
    }

    fn name(&self) -> String {
        let Key {
            bench,
            case,
            transport,
            way,
            bytes,
            per_second,
            connections,
        } = &self.key;
        let numbers = [
            bytes.map(|bytes| format!("{bytes} B")),
            per_second.map(|rate| format!("{rate} requests/s")),
            connections.map(|count| format!("{count} connections")),
        ];
        let words = [bench, case, transport, way].map(ToString::to_string);
        let all = words.into_iter().chain(numbers.into_iter().flatten());
        all.filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn complaint(&self) -> Option<String> {
        if let Some(error) = &self.error {
            return Some(format!("{} failed: {error}", self.name()));
        }
        let reason = self.reason.as_deref().unwrap_or("no reason was given");
        (self.accelerated == Some(false))
            .then(|| format!("{} was not accelerated: {reason}", self.name()))
    }
}

impl Data {
    /// Adds the lines of `text`, which `source` names in errors.
    pub fn add(&mut self, text: &str, source: &str) -> anyhow::Result<()> {
        for (index, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.is_empty())
        {
            let bad = || {
                let number = index + 1;
                format!("{source}, line {number} is no line of a bench: {line:?}")
            };
            let row: Row = serde_json::from_str(line).with_context(bad)?;
            if row.key.case == MACHINE {
                self.runs.push(Run {
                    source: source.to_owned(),
                    line: serde_json::from_str(line).with_context(bad)?,
                    ..serde_json::from_str(line).with_context(bad)?
                });
            } else {
                self.rows.push(row);
            }
        }
        Ok(())
    }

    /// The same with one row for each case: figures of several runs become their medians, and one
    /// run that was not as it should be is enough to spoil the case. Fails where runs of a bench are not of the
    /// same machine, library and setting.
    pub fn merged(self) -> anyhow::Result<Self> {
        for (index, run) in self.runs.iter().enumerate() {
            let earlier = self.runs[..index].iter();
            let mut others = earlier.filter(|other| other.bench == run.bench);
            others.try_for_each(|other| ensure_same(other, run))?;
        }
        let mut merged: Vec<Row> = Vec::new();
        let mut done: Vec<Key> = Vec::new();
        for row in &self.rows {
            if done.contains(&row.key) {
                continue;
            }
            done.push(row.key.clone());
            let same: Vec<&Row> = (self.rows.iter())
                .filter(|other| other.key == row.key)
                .collect();
            merged.push(merge(row, &same));
        }
        Ok(Self {
            runs: self.runs,
            rows: merged,
            notes: self.notes,
        })
    }

    /// The rows of a bench.
    pub fn of<'a>(&'a self, bench: &'a str) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| row.key.bench == bench)
    }

    /// The benches that there are lines of, each once.
    pub fn benches(&self) -> Vec<&str> {
        let of_runs = self.runs.iter().map(|run| run.bench.as_str());
        let of_rows = self.rows.iter().map(|row| row.key.bench.as_str());
        let all: std::collections::BTreeSet<_> = of_runs.chain(of_rows).collect();
        all.into_iter().collect()
    }

    /// What is not as it should be; a line each.
    pub fn complaints(&self) -> Vec<String> {
        self.rows.iter().filter_map(Row::complaint).collect()
    }
}

fn ensure_same(one: &Run, other: &Run) -> anyhow::Result<()> {
    for name in COMMON {
        let (own, its) = (&one.line[name], &other.line[name]);
        let (bench, first, second) = (&one.bench, &one.source, &other.source);
        ensure!(
            own == its,
            "runs of bench {bench} that differ in {name} cannot be merged: {own} in {first}, {its} in {second}; \
             make a page of each"
        );
    }
    Ok(())
}

fn merge(first: &Row, same: &[&Row]) -> Row {
    let worst = |bad: fn(&Row) -> bool| same.iter().copied().find(|row| bad(row));
    let spoiled = worst(|row| row.error.is_some()).or(worst(|row| row.accelerated == Some(false)));
    let mut row = spoiled.unwrap_or(first).clone();
    for (name, value) in &mut row.others {
        let values: Vec<_> = same.iter().filter_map(|row| row.figure(name)).collect();
        if let (true, Some(middle)) = (value.is_number(), median(&values)) {
            *value = middle.into();
        }
        if value.is_array() {
            *value = middle_pairs(same.iter().map(|row| row.pairs(name)).collect());
        }
    }
    row
}

/// Of each first number the median of the second ones.
fn middle_pairs(all: Vec<Vec<(f64, f64)>>) -> Value {
    let Some(first) = all.first() else {
        return Value::Null;
    };
    let middle = |&(place, _): &(f64, f64)| {
        let here = |pairs: &Vec<(f64, f64)>| {
            let pair = pairs.iter().find(|pair| pair.0.total_cmp(&place).is_eq())?;
            Some(pair.1)
        };
        let values: Vec<_> = all.iter().filter_map(here).collect();
        (place, median(&values).unwrap_or(0.0))
    };
    first
        .iter()
        .map(middle)
        .map(|(place, value)| vec![place, value])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(text: &str) -> Data {
        let mut data = Data::default();
        data.add(text, "test").expect("lines of a bench");
        data.merged().expect("of one setting")
    }

    #[test]
    fn several_runs_of_a_case_become_their_median() {
        let line = |p50: u32| {
            format!(
                r#"{{"bench":"sockets","case":"rtt","bytes":64,"transport":"tcp","p50_ns":{p50}}}"#
            )
        };
        let data = data(&[line(300), line(100), line(200)].join("\n"));
        assert_eq!(data.rows.len(), 1);
        assert_eq!(data.rows[0].figure("p50_ns"), Some(200.0));
        assert!(data.complaints().is_empty());
    }

    #[test]
    fn several_distributions_become_one() {
        let line = |p50: u32| {
            format!(r#"{{"bench":"sockets","case":"rtt","cdf_ns":[[0.0,1],[0.5,{p50}]]}}"#)
        };
        let data = data(&[line(300), line(100), line(200)].join("\n"));
        assert_eq!(data.rows[0].pairs("cdf_ns"), [(0.0, 1.0), (0.5, 200.0)]);
    }

    #[test]
    fn one_bad_run_spoils_the_case() {
        let good = r#"{"bench":"wait","case":"load","way":"spin","transport":"crosslane","per_second":10,"p50_ns":1,"accelerated":true}"#;
        let bad = r#"{"bench":"wait","case":"load","way":"spin","transport":"crosslane","per_second":10,"p50_ns":9,"accelerated":false,"reason":"no-window"}"#;
        let data = data(&format!("{good}\n{bad}\n"));
        assert_eq!(
            data.complaints(),
            ["wait load crosslane spin 10 requests/s was not accelerated: no-window"]
        );
    }

    #[test]
    fn runs_that_cannot_be_compared_are_not_merged() {
        let run = |hosts: u8, commit: &str| {
            format!(
                r#"{{"bench":"sockets","case":"machine","commit":"{commit}","cpu":"x","cores":2,"memory_gib":1.0,"kernel":"x","tcp_congestion_control":"bbr","os":"x","command":"x","date":"x","rounds":3,"hosts":{hosts}}}"#
            )
        };
        let merged = |one: &str, other: &str| {
            let mut data = Data::default();
            data.add(one, "one.jsonl").expect("a run");
            data.add(other, "other.jsonl").expect("a run");
            data.merged().map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(merged(&run(1, "a"), &run(1, "a")), Ok(()));
        let error = merged(&run(1, "a"), &run(2, "a")).expect_err("other hosts");
        assert!(
            error.contains("differ in hosts cannot be merged: 1 in one.jsonl, 2 in other.jsonl"),
            "{error}"
        );
        assert!(merged(&run(1, "a"), &run(1, "b")).is_err());
    }

    #[test]
    fn what_is_no_line_of_a_bench_is_named() {
        let mut data = Data::default();
        let error = data
            .add("\n{\"bench\":1}\n", "x.jsonl")
            .expect_err("no row");
        assert!(error.to_string().contains("x.jsonl, line 2"), "{error}");
    }
}
