//! A logarithmic axis.

/// Maps values to positions, equal ratios to equal distances.
#[derive(Clone, Copy, Debug)]
pub struct LogScale {
    low: f64,
    high: f64,
    left: f64,
    right: f64,
}

/// More ticks than this do not fit a phone.
const MOST_TICKS: usize = 6;
/// The densest set of ticks that fits is taken.
const MANTISSAS: [&[f64]; 3] = [&[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];

impl LogScale {
    /// An axis from `left` to `right` that holds all of `values`, which must be positive.
    pub fn holding(values: impl Iterator<Item = f64>, left: f64, right: f64) -> Self {
        let (low, high) = values
            .filter(|value| value.is_finite() && *value > 0.0)
            .fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| {
                (low.min(value), high.max(value))
            });
        let (low, high) = if low <= high {
            (low, high)
        } else {
            (1.0, 10.0)
        };
        // Some air at the ends; it also keeps an axis of one value from having no length.
        Self {
            low: low / 1.25,
            high: high * 1.25,
            left,
            right,
        }
    }

    /// Where a value is.
    pub fn at(&self, value: f64) -> f64 {
        let share = (value / self.low).ln() / (self.high / self.low).ln();
        self.left + share.clamp(0.0, 1.0) * (self.right - self.left)
    }

    /// Round values to label the axis with.
    pub fn ticks(&self) -> Vec<f64> {
        let sets = MANTISSAS.map(|mantissas| self.ticks_of(mantissas));
        let [.., sparsest] = &sets;
        sets.iter()
            .find(|ticks| ticks.len() <= MOST_TICKS)
            .unwrap_or(sparsest)
            .clone()
    }

    fn ticks_of(&self, mantissas: &[f64]) -> Vec<f64> {
        let powers = (-12..=12).map(|exponent| 10f64.powi(exponent));
        let all = powers.flat_map(|power| mantissas.iter().map(move |mantissa| mantissa * power));
        all.filter(|tick| (self.low..=self.high).contains(tick))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ratios_are_equal_distances() {
        let scale = LogScale::holding([1.0, 100.0].into_iter(), 0.0, 300.0);
        let (first, second) = (
            scale.at(10.0) - scale.at(1.0),
            scale.at(100.0) - scale.at(10.0),
        );
        assert!((first - second).abs() < 1e-9);
        assert!(scale.at(1.0) > 0.0 && scale.at(100.0) < 300.0);
    }

    #[test]
    fn ticks_are_round_and_few() {
        let ticks = |low, high| LogScale::holding([low, high].into_iter(), 0.0, 300.0).ticks();
        assert_eq!(ticks(1.0, 16.0), [1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(ticks(7.0, 900.0), [10.0, 30.0, 100.0, 300.0, 1000.0]);
        assert!(ticks(1.0, 1e9).len() > 3);
    }

    #[test]
    fn nothing_to_show_is_still_an_axis() {
        let scale = LogScale::holding([f64::NAN, 0.0].into_iter(), 0.0, 300.0);
        assert!(scale.at(5.0).is_finite() && !scale.ticks().is_empty());
    }
}
