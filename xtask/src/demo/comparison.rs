//! What a workload gave over TCP and under Crosslane, and the files and the table made of it.

use crosslane_benchkit::stats::{median, significant};
use crosslane_benchkit::{Verdict, show};
use serde::Serialize;

use super::lane::Side;
use super::workload::Metric;

/// One workload's rounds on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub workload: String,
    pub description: String,
    pub series: Vec<Series>,
    #[serde(skip)]
    pub verdicts: Vec<Verdict>,
    /// Why it could not be measured to the end.
    pub failure: Option<String>,
}

/// One metric of a workload: a value for each round.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    pub metric: Metric,
    pub tcp: Vec<f64>,
    pub crosslane: Vec<f64>,
}

/// One line of `demo.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub workload: String,
    pub metric: Metric,
    pub tcp: Option<f64>,
    pub crosslane: Option<f64>,
    /// Above 1 is better, for latencies too.
    pub ratio: Option<f64>,
    pub accelerated: bool,
}

impl Comparison {
    pub fn new(workload: String, description: String) -> Self {
        Self {
            workload,
            description,
            series: Vec::new(),
            verdicts: Vec::new(),
            failure: None,
        }
    }

    /// Adds the figures of a round on one side.
    pub fn add(&mut self, side: Side, figures: &[(Metric, f64)]) {
        for &(metric, value) in figures {
            let index = self
                .series
                .iter()
                .position(|series| series.metric == metric);
            let index = index.unwrap_or_else(|| {
                self.series.push(Series {
                    metric,
                    tcp: Vec::new(),
                    crosslane: Vec::new(),
                });
                self.series.len() - 1
            });
            self.series[index].values_mut(side).push(value);
        }
    }

    /// Whether every round was looked at and found accelerated.
    pub fn is_accelerated(&self) -> bool {
        !self.verdicts.is_empty() && self.verdicts.iter().all(|verdict| verdict.accelerated)
    }

    /// What keeps this from being a success, if anything does.
    pub fn complaint(&self) -> Option<String> {
        let name = &self.workload;
        if let Some(failure) = &self.failure {
            return Some(format!("{name} failed: {failure}"));
        }
        let reason = self
            .verdicts
            .iter()
            .find_map(|verdict| verdict.reason.as_deref());
        let reason = reason.unwrap_or("its connections were never looked at");
        (!self.is_accelerated()).then(|| format!("{name} was not accelerated: {reason}"))
    }

    /// The medians, a row for each metric.
    pub fn rows(&self) -> Vec<Row> {
        self.series.iter().map(|series| series.row(self)).collect()
    }
}

impl Series {
    pub fn values(&self, side: Side) -> &[f64] {
        match side {
            Side::Tcp => &self.tcp,
            Side::Crosslane => &self.crosslane,
        }
    }

    fn values_mut(&mut self, side: Side) -> &mut Vec<f64> {
        match side {
            Side::Tcp => &mut self.tcp,
            Side::Crosslane => &mut self.crosslane,
        }
    }

    /// How many times better Crosslane's median is.
    pub fn ratio(&self) -> Option<f64> {
        Some(
            self.metric
                .better()
                .ratio(median(&self.tcp)?, median(&self.crosslane)?),
        )
    }

    fn row(&self, of: &Comparison) -> Row {
        let rounded = |value: Option<f64>| value.map(|value| significant(value, 4));
        Row {
            workload: of.workload.clone(),
            metric: self.metric,
            tcp: rounded(median(&self.tcp)),
            crosslane: rounded(median(&self.crosslane)),
            ratio: rounded(self.ratio()),
            accelerated: of.is_accelerated(),
        }
    }
}

/// All rows as a table.
pub fn table(comparisons: &[Comparison]) -> String {
    let header = ["workload", "", "tcp", "crosslane", "ratio", "accelerated"]
        .map(str::to_owned)
        .to_vec();
    let mut rows = Vec::new();
    for comparison in comparisons {
        for (index, row) in comparison.rows().into_iter().enumerate() {
            let shown = |value: Option<f64>| {
                value.map_or_else(|| "-".into(), |value| row.metric.show(value))
            };
            rows.push(vec![
                if index == 0 {
                    row.workload
                } else {
                    String::new()
                },
                row.metric.title().to_owned(),
                shown(row.tcp),
                shown(row.crosslane),
                row.ratio.map_or_else(|| "-".into(), show::ratio),
                if row.accelerated { "yes" } else { "NO" }.to_owned(),
            ]);
        }
    }
    show::table(2, header, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(verdicts: &[bool]) -> Comparison {
        let mut comparison = Comparison::new("redis-get-c1".into(), "Redis GET".into());
        for (tcp, crosslane) in [
            (20_000.0, 310_000.0),
            (21_000.0, 290_000.0),
            (25_000.0, 300_000.0),
        ] {
            comparison.add(Side::Tcp, &[(Metric::Rps, tcp), (Metric::P50Us, 40.0)]);
            comparison.add(
                Side::Crosslane,
                &[(Metric::Rps, crosslane), (Metric::P50Us, 8.0)],
            );
        }
        comparison.verdicts = verdicts
            .iter()
            .map(|&accelerated| Verdict {
                accelerated,
                reason: (!accelerated).then(|| "of 2 ends: 2 tcp (no-window)".into()),
                ring_share: None,
            })
            .collect();
        comparison
    }

    #[test]
    fn rows_have_the_documented_form_and_ratios_above_one_are_better() {
        let json = serde_json::to_string(&comparison(&[true, true]).rows()).expect("rows are JSON");
        let expected = r#"[{"workload":"redis-get-c1","metric":"rps","tcp":21000.0,"crosslane":300000.0,"ratio":14.29,"accelerated":true},{"workload":"redis-get-c1","metric":"p50_us","tcp":40.0,"crosslane":8.0,"ratio":5.0,"accelerated":true}]"#;
        assert_eq!(json, expected);
    }

    #[test]
    fn a_workload_that_was_not_accelerated_in_one_round_is_named_with_the_reason() {
        let complaint = comparison(&[true, false]).complaint().expect("a complaint");
        assert_eq!(
            complaint,
            "redis-get-c1 was not accelerated: of 2 ends: 2 tcp (no-window)"
        );
        assert_eq!(comparison(&[true, true]).complaint(), None);
    }

    #[test]
    fn a_workload_that_was_never_looked_at_is_not_accelerated() {
        assert!(
            comparison(&[])
                .complaint()
                .expect("a complaint")
                .contains("never looked at")
        );
    }

    #[test]
    fn a_failed_workload_is_named_with_its_failure() {
        let mut comparison = comparison(&[true]);
        comparison.failure = Some("iperf3 did not end".into());
        assert_eq!(
            comparison.complaint().expect("a complaint"),
            "redis-get-c1 failed: iperf3 did not end"
        );
    }
}
