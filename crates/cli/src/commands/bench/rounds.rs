//! What several rounds measured of each cell of a plan, and what a person must know of it.

use std::collections::BTreeMap;
use std::fmt::Display;

use crosslane_benchkit::Verdict;
use crosslane_benchkit::stats::{median, range, significant};
use serde::Serialize;
use serde_json::Value;

use super::output::show_progress;

/// All rounds of all cells, in the order of the plan. `K` names a cell, `M` is what one round of
/// it measured.
pub struct Rounds<K, M> {
    cells: Vec<Cell<K, M>>,
}

/// One cell.
pub struct Cell<K, M> {
    /// Its name.
    pub key: K,
    measured: Vec<M>,
    verdicts: Vec<Verdict>,
    failure: Option<anyhow::Error>,
}

/// One round of one cell.
pub struct Measured<M> {
    /// The figures.
    pub figures: M,
    /// What `crosslane ss` said of the connections, where they are Crosslane's.
    pub verdict: Option<Verdict>,
}

/// Fewer samples than this beyond a percentile say nothing about it.
const SAMPLES_BEYOND: u64 = 10;
/// What a round calls the number of its samples.
const SAMPLES: [&str; 4] = ["trips", "answers", "requests", "fetches"];
/// What a round repeats of its case.
const SETTINGS: [&str; 4] = ["bytes", "clients", "connections", "per_second"];

/// A percentile that one in `one_in` of so many samples exceeds; none where those are too few.
pub fn tail(value: f64, samples: u64, one_in: u64) -> Option<f64> {
    (samples >= SAMPLES_BEYOND * one_in).then_some(value)
}

/// The end of a row of JSON: the least and the most that a round gave of each of its numbers, whether the cell
/// was accelerated, or why it has no figures.
#[derive(Serialize)]
pub struct Proof {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    ranges: BTreeMap<String, (f64, f64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accelerated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ring_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl<K: Copy + PartialEq + Display, M> Rounds<K, M> {
    /// Nothing measured yet.
    pub fn new(plan: &[K]) -> Self {
        let cell = |&key: &K| Cell {
            key,
            measured: Vec::new(),
            verdicts: Vec::new(),
            failure: None,
        };
        Self {
            cells: plan.iter().map(cell).collect(),
        }
    }

    /// Measures every cell of a plan so many times in turn, and shows how far it is. `begin` prepares a
    /// round, by its number from 1 on, and `measure` takes one cell in it.
    pub fn measure<S>(
        plan: &[K],
        rounds: u8,
        begin: impl Fn(u8) -> S,
        mut measure: impl FnMut(&mut S, K) -> anyhow::Result<Measured<M>>,
    ) -> Self {
        let mut results = Self::new(plan);
        for round in 1..=rounds {
            let mut servers = begin(round);
            for &key in plan {
                if results.has_failed(key) {
                    continue;
                }
                show_progress(&format!("round {round} of {rounds}: {key}"));
                results.add(key, measure(&mut servers, key));
            }
        }
        show_progress("");
        results
    }

    /// Notes one round of one cell.
    pub fn add(&mut self, key: K, measured: anyhow::Result<Measured<M>>) {
        let Some(cell) = self.cells.iter_mut().find(|cell| cell.key == key) else {
            return;
        };
        match measured {
            Ok(measured) => {
                cell.measured.push(measured.figures);
                cell.verdicts.extend(measured.verdict);
            }
            Err(error) => cell.failure = Some(error),
        }
    }

    /// All cells, in order.
    pub fn cells(&self) -> &[Cell<K, M>] {
        &self.cells
    }

    /// A cell.
    pub fn cell(&self, key: K) -> Option<&Cell<K, M>> {
        self.cells.iter().find(|cell| cell.key == key)
    }

    /// Whether a round of it has failed, so that no further one is worth its timeout.
    pub fn has_failed(&self, key: K) -> bool {
        self.cell(key).is_some_and(|cell| cell.failure.is_some())
    }

    /// Whether nothing has failed, and all that should have been accelerated was.
    pub fn is_complete(&self) -> bool {
        let is_good = |cell: &Cell<K, M>| cell.failure.is_none() && cell.mark().is_empty();
        self.cells.iter().all(is_good)
    }

    /// What to put behind figures of a cell.
    pub fn mark(&self, key: K) -> &'static str {
        self.cell(key).map_or("", Cell::mark)
    }

    /// What that means, for below a table; nothing where nothing is marked.
    pub fn legend(&self) -> &'static str {
        match self.cells.iter().any(|cell| !cell.mark().is_empty()) {
            true => "! not accelerated in every round: this is not what Crosslane does\n",
            false => "",
        }
    }

    /// What a person must know before believing the figures; a line each.
    pub fn complaints(&self) -> Vec<String> {
        self.cells.iter().filter_map(Cell::complaint).collect()
    }
}

impl<K, M> Cell<K, M> {
    /// What to put behind its figures: a sign where it was not accelerated.
    pub fn mark(&self) -> &'static str {
        match self.verdicts.iter().all(|verdict| verdict.accelerated) {
            true => "",
            false => "!",
        }
    }

    /// The least and the most that any round gave of a figure; none where one failed.
    pub fn range(&self, figure: impl Fn(&M) -> Option<f64>) -> Option<(f64, f64)> {
        if self.failure.is_some() {
            return None;
        }
        range(&self.of_all(figure)?)
    }
}

impl<K, M> Cell<K, M> {
    /// A figure of all rounds: those that have it alone may be the fast ones.
    fn of_all(&self, figure: impl Fn(&M) -> Option<f64>) -> Option<Vec<f64>> {
        self.measured.iter().map(figure).collect()
    }
}

impl<K: Display, M: Serialize> Cell<K, M> {
    /// For the end of its row.
    pub fn proof(&self) -> Proof {
        let verdict = self.verdict();
        let shares: Vec<_> = self
            .verdicts
            .iter()
            .filter_map(|verdict| verdict.ring_share)
            .collect();
        Proof {
            ranges: self.ranges(),
            accelerated: verdict.map(|verdict| verdict.accelerated),
            reason: verdict.and_then(|verdict| verdict.reason.clone()),
            ring_share: median(&shares).map(|share| significant(share, 4)),
            error: self.failure.as_ref().map(|error| format!("{error:#}")),
        }
    }

    fn ranges(&self) -> BTreeMap<String, (f64, f64)> {
        let mut all = BTreeMap::<String, Vec<f64>>::new();
        if self.failure.is_none() {
            let numbers = self.measured.iter().flat_map(numbers);
            numbers.for_each(|(name, value)| all.entry(name).or_default().push(value));
        }
        let rounds = self.measured.len();
        let rounded = |values: Vec<f64>| {
            if values.len() < rounds {
                return None;
            }
            let (least, most) = range(&values)?;
            Some((significant(least, 4), significant(most, 4)))
        };
        let ranges = all.into_iter();
        ranges
            .filter_map(|(name, values)| Some((name, rounded(values)?)))
            .collect()
    }
}

/// The numbers of a round by their names, but for percentiles of too few samples.
fn numbers(figures: &impl Serialize) -> Vec<(String, f64)> {
    let Ok(Value::Object(fields)) = serde_json::to_value(figures) else {
        return Vec::new();
    };
    let samples = SAMPLES.iter().find_map(|name| fields.get(*name)?.as_u64());
    let number = |(name, value): (&String, &Value)| {
        let one_in = match name.as_str() {
            "p99_ns" => 100,
            "p999_ns" => 1000,
            name if SETTINGS.contains(&name) => return None,
            _ => 0,
        };
        let value = tail(value.as_f64()?, samples.unwrap_or(u64::MAX), one_in)?;
        Some((name.clone(), value))
    };
    fields.iter().filter_map(number).collect()
}

impl<K: Display, M> Cell<K, M> {
    /// The median over the rounds of a figure that every round has; none where one failed.
    pub fn median(&self, figure: impl Fn(&M) -> Option<f64>) -> Option<f64> {
        if self.failure.is_some() {
            return None;
        }
        median(&self.of_all(figure)?)
    }

    /// The verdict on a round that was not accelerated, or else on any round.
    fn verdict(&self) -> Option<&Verdict> {
        self.verdicts
            .iter()
            .find(|verdict| !verdict.accelerated)
            .or(self.verdicts.first())
    }

    fn complaint(&self) -> Option<String> {
        let key = &self.key;
        if let Some(error) = &self.failure {
            return Some(format!("FAILED: {key}: {error:#}"));
        }
        let reason = self.verdict()?.reason.as_ref()?;
        Some(format!("WARNING: NOT ACCELERATED: {key}: {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(figures: f64, reason: Option<&str>) -> anyhow::Result<Measured<f64>> {
        let verdict = Verdict {
            accelerated: reason.is_none(),
            reason: reason.map(Into::into),
            ring_share: Some(0.5),
        };
        Ok(Measured {
            figures,
            verdict: Some(verdict),
        })
    }

    fn json(rounds: &Rounds<&str, f64>) -> String {
        serde_json::to_string(&rounds.cells()[0].proof()).expect("it is JSON")
    }

    #[test]
    fn the_median_of_the_rounds_is_the_cells() {
        let mut rounds = Rounds::new(&["tcp"]);
        for figure in [3.0, 1.0, 2.0] {
            rounds.add("tcp", round(figure, None));
        }
        let cell = rounds.cell("tcp").expect("planned");
        assert_eq!(cell.median(|&figure| Some(figure)), Some(2.0));
        assert_eq!(json(&rounds), r#"{"accelerated":true,"ring_share":0.5}"#);
    }

    #[test]
    fn one_round_that_was_not_accelerated_is_enough_to_warn() {
        let mut rounds = Rounds::new(&["crosslane"]);
        rounds.add("crosslane", round(1.0, None));
        rounds.add(
            "crosslane",
            round(1.0, Some("of 2 ends: 2 tcp (no-window)")),
        );
        assert!(json(&rounds).starts_with(r#"{"accelerated":false,"reason":"of 2 ends"#));
        let complaints = rounds.complaints();
        assert!(complaints[0].contains("NOT ACCELERATED: crosslane: of 2 ends"));
        assert!(!rounds.is_complete(), "that is no success");
        assert_eq!(rounds.mark("crosslane"), "!");
        assert!(rounds.legend().contains("not accelerated"));
    }

    #[test]
    fn a_row_says_how_far_rounds_are_apart_and_how_many_samples_they_had() {
        #[derive(Serialize)]
        struct Figures {
            bytes: u64,
            trips: u64,
            p50_ns: u64,
            p99_ns: u64,
            p999_ns: u64,
        }
        let mut rounds = Rounds::new(&["tcp"]);
        for (trips, p50_ns) in [(2000, 300), (1000, 100), (9999, 200)] {
            let figures = Figures {
                bytes: 64,
                trips,
                p50_ns,
                p99_ns: 2 * p50_ns,
                p999_ns: 3 * p50_ns,
            };
            let verdict = None;
            rounds.add("tcp", Ok(Measured { figures, verdict }));
        }
        assert_eq!(
            serde_json::to_string(&rounds.cells()[0].proof()).expect("it is JSON"),
            r#"{"ranges":{"p50_ns":[100.0,300.0],"p99_ns":[200.0,600.0],"trips":[1000.0,9999.0]}}"#
        );
    }

    #[test]
    fn a_percentile_has_ten_samples_beyond_it_or_is_left_out() {
        assert_eq!(tail(7.0, 999, 100), None);
        assert_eq!(tail(7.0, 1000, 100), Some(7.0));
    }

    #[test]
    fn a_failure_leaves_no_figure() {
        let mut rounds = Rounds::new(&["unix"]);
        rounds.add("unix", round(1.0, None));
        rounds.add("unix", Err(anyhow::anyhow!("hung")));
        assert!(rounds.has_failed("unix") && !rounds.is_complete());
        assert_eq!(rounds.cells()[0].median(|&figure| Some(figure)), None);
        assert!(json(&rounds).ends_with(r#""error":"hung"}"#));
    }
}
