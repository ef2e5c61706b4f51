//! Knees: where a sweep of window sizes leaves a plateau.

use serde::Serialize;

/// A rise counts from this ratio to the plateau before it.
const RISE: f64 = 1.25;
/// A plateau goes on while values stay within this ratio of its lowest.
const FLAT: f64 = 1.12;

/// The end of a plateau.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Knee {
    /// The last window on the plateau.
    pub window_bytes: usize,
    /// The plateau's value.
    pub before_ns: f64,
    /// The value of the next plateau, or the last one measured.
    pub after_ns: f64,
}

/// Finds the knees of (window, ns) points that are sorted by window.
#[must_use]
pub fn knees(points: &[(usize, f64)]) -> Vec<Knee> {
    let mut knees = Vec::new();
    let mut start = 0;
    while start < points.len() {
        let (mut level, mut end) = (points[start].1, start);
        while end + 1 < points.len() && points[end + 1].1 <= level * FLAT {
            end += 1;
            level = level.min(points[end].1);
        }
        let plateau = end > start || start == 0;
        if end + 1 >= points.len() {
            break;
        }
        let next = settle(points, end + 1);
        if plateau && points[next].1 >= level * RISE {
            knees.push(Knee {
                window_bytes: points[end].0,
                before_ns: level,
                after_ns: points[next].1,
            });
        }
        start = if plateau { next } else { end + 1 };
    }
    knees
}

/// The first point from `from` on after which the rise is over.
fn settle(points: &[(usize, f64)], from: usize) -> usize {
    let rising = |i: &usize| {
        points
            .get(i + 1)
            .is_some_and(|next| next.1 > points[*i].1 * FLAT)
    };
    (from..points.len()).find(|i| !rising(i)).unwrap_or(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(values: &[f64]) -> Vec<(usize, f64)> {
        values
            .iter()
            .enumerate()
            .map(|(i, v)| (4096 << i, *v))
            .collect()
    }

    #[test]
    fn two_plateaus_have_one_knee_between_them() {
        let found = knees(&sweep(&[1.0, 1.0, 1.05, 1.0, 3.0, 3.9, 4.0, 4.0, 4.1]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].window_bytes, 4096 << 3);
        assert!((found[0].after_ns - 3.9).abs() < 1e-9);
    }

    #[test]
    fn three_levels_have_two_knees_and_a_flat_sweep_none() {
        let found = knees(&sweep(&[
            1.0, 1.0, 1.0, 4.0, 4.0, 4.0, 4.1, 20.0, 80.0, 90.0, 91.0,
        ]));
        let windows: Vec<_> = found.iter().map(|k| k.window_bytes >> 12).collect();
        assert_eq!(windows, [4, 64], "{found:?}");
        assert!(knees(&sweep(&[5.0, 5.1, 5.2, 5.0])).is_empty());
        assert!(knees(&[]).is_empty());
    }
}
