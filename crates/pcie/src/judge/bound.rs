//! How well anybody could do: rows that a model cannot tell apart get one prediction, and measurements
//! that do not repeat cannot all be met by it.

use serde::Serialize;

use super::{Judged, limit_percent};
use crate::sim::bench::Bench;

/// Predictions that are this close to the smallest of them count as one.
const ALIKE_PERCENT: f64 = 1.0;

/// Rows of one host, benchmark and size that the simulator predicts alike: they differ in the window or
/// in the cache's state only, and in when they were measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bound {
    /// Host profile.
    pub host: String,
    /// Benchmark.
    pub bench: Bench,
    /// Whether addresses were translated.
    pub iommu: bool,
    /// Transfer size.
    #[serde(rename = "bytes")]
    pub size_bytes: u32,
    /// Rows that no parameter was set by.
    pub rows: usize,
    /// Smallest measurement.
    pub lowest: f64,
    /// Largest measurement.
    pub highest: f64,
    /// Prediction of the first of them.
    pub predicted: f64,
    /// Rows within the limit of their prediction.
    pub within: usize,
    /// A value that most rows are within the limit of.
    pub best: f64,
    /// How many.
    pub reachable: usize,
    /// Rows that are within the limit of the row measured before them.
    pub repeat: usize,
}

/// What a single prediction for each group could reach.
#[must_use]
pub fn bounds(judged: &[Judged]) -> Vec<Bound> {
    let mut rows: Vec<(usize, &Judged)> = judged
        .iter()
        .enumerate()
        .filter(|(_, j)| !j.row.fitted)
        .collect();
    rows.sort_by(|(_, a), (_, b)| {
        same_run(a)
            .cmp(&same_run(b))
            .then(a.predicted.total_cmp(&b.predicted))
    });
    let mut found = Vec::new();
    let mut rest = rows.as_slice();
    while let Some((_, first)) = rest.first() {
        let count = rest.iter().take_while(|(_, j)| alike(first, j)).count();
        let (group, others) = rest.split_at(count);
        let mut group = group.to_vec();
        group.sort_by_key(|(order, _)| *order);
        found.push(bound(&group.iter().map(|(_, j)| *j).collect::<Vec<_>>()));
        rest = others;
    }
    found
}

fn same_run(j: &Judged) -> (&str, Bench, bool, u32) {
    (&j.row.host, j.row.bench, j.row.iommu, j.row.size_bytes)
}

fn alike(first: &Judged, other: &Judged) -> bool {
    same_run(first) == same_run(other)
        && other.predicted <= first.predicted * (1.0 + ALIKE_PERCENT / 100.0)
}

/// `group` is not empty, and in the order of measurement.
fn bound(group: &[&Judged]) -> Bound {
    let row = &group[0].row;
    let limit = limit_percent(row.bench);
    let measured: Vec<f64> = group.iter().map(|j| j.row.measured).collect();
    let (best, reachable) = best_single(&measured, limit);
    Bound {
        host: row.host.clone(),
        bench: row.bench,
        iommu: row.iommu,
        size_bytes: row.size_bytes,
        rows: group.len(),
        lowest: measured.iter().copied().fold(f64::INFINITY, f64::min),
        highest: measured.iter().copied().fold(0.0, f64::max),
        predicted: group[0].predicted,
        within: group.iter().filter(|j| j.is_within()).count(),
        best,
        reachable,
        repeat: measured
            .windows(2)
            .filter(|pair| meets(pair[0], pair[1], limit))
            .count(),
    }
}

fn meets(prediction: f64, measured: f64, limit: f64) -> bool {
    // The ends of a limit are within it, whatever their rounding.
    ((prediction / measured - 1.0) * 100.0).abs() <= limit + 1e-9
}

/// The value that most of these are within `limit` per cent of, and how many: the middle of where most
/// of their limits overlap, for there one of them begins.
fn best_single(measured: &[f64], limit: f64) -> (f64, usize) {
    let (below, above) = (1.0 - limit / 100.0, 1.0 + limit / 100.0);
    let met = |value: f64| measured.iter().filter(move |m| meets(value, **m, limit));
    let from = measured
        .iter()
        .map(|m| m * below)
        .max_by_key(|value| met(*value).count())
        .unwrap_or_default();
    let to = met(from).map(|m| m * above).fold(f64::INFINITY, f64::min);
    (f64::midpoint(from, to), met(from).count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::rows;

    fn judged(measured: &[f64], predicted: &[f64]) -> Vec<Judged> {
        let row = rows().into_iter().find(|row| !row.fitted).unwrap();
        measured
            .iter()
            .zip(predicted)
            .map(|(&measured, &predicted)| {
                let mut row = row.clone();
                (row.bench, row.measured) = (Bench::BwWr, measured);
                Judged::new(row, predicted, [predicted; 2])
            })
            .collect()
    }

    #[test]
    fn measurements_far_apart_cannot_all_be_met() {
        let found = bounds(&judged(&[10.0, 20.0, 10.5, 21.0, 11.0], &[15.0; 5]));
        assert_eq!(found.len(), 1);
        let bound = &found[0];
        assert_eq!((bound.rows, bound.within, bound.reachable), (5, 0, 3));
        assert_eq!(bound.repeat, 0, "each is far from the one before it");
        assert!((bound.lowest, bound.highest) == (10.0, 21.0));
        assert!((10.2..=10.7).contains(&bound.best), "{}", bound.best);
    }

    #[test]
    fn both_ends_of_the_limit_count() {
        // 7 % above 100 and 7 % below 115.05 is the same value.
        assert_eq!(best_single(&[100.0, 107.0 / 0.93], 7.0).1, 2);
        assert_eq!(best_single(&[100.0, 107.2 / 0.93], 7.0).1, 1);
    }

    #[test]
    fn rows_that_are_predicted_apart_are_bounded_apart() {
        let found = bounds(&judged(&[10.0, 20.0, 10.1], &[10.0, 20.0, 10.05]));
        let counts: Vec<_> = found.iter().map(|b| (b.rows, b.reachable)).collect();
        assert_eq!(counts, [(2, 2), (1, 1)]);
        assert_eq!(found[0].repeat, 1);
    }

    proptest::proptest! {
        #[test]
        fn no_prediction_reaches_more_than_the_bound(
            measured in proptest::collection::vec(1.0_f64..100.0, 1..20),
            guess in 1.0_f64..100.0,
        ) {
            let found = bounds(&judged(&measured, &vec![guess; measured.len()]));
            proptest::prop_assert!(found[0].within <= found[0].reachable);
            proptest::prop_assert!((1..=measured.len()).contains(&found[0].reachable));
        }
    }
}
