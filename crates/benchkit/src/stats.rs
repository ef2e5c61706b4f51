//! How several rounds become one number.

/// The median, or none of no values: the middle one, or the mean of the two in the middle.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.get(sorted.len() / 2)?;
    let lower = sorted.get((sorted.len() - 1) / 2)?;
    Some(lower + (upper - lower) / 2.0)
}

/// The mean of the middle half of the values, or none of no values: as steady as the median, and finer
/// where a clock goes by steps.
#[must_use]
pub fn midmean(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let quarter = sorted.len() / 4;
    let middle = &sorted[quarter..sorted.len() - quarter];
    let count = u32::try_from(middle.len())
        .ok()
        .filter(|count| *count > 0)?;
    Some(middle.iter().sum::<f64>() / f64::from(count))
}

/// The smallest and the largest value, or none of no values.
#[must_use]
pub fn range(values: &[f64]) -> Option<(f64, f64)> {
    let lowest = values.iter().copied().reduce(f64::min)?;
    let highest = values.iter().copied().reduce(f64::max)?;
    Some((lowest, highest))
}

/// Which of two values of a metric is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// As for throughput.
    Higher,
    /// As for latency.
    Lower,
}

impl Better {
    /// How many times better `new` is than `old`: above 1 when it is better.
    #[must_use]
    pub fn ratio(self, old: f64, new: f64) -> f64 {
        match self {
            Self::Higher => new / old,
            Self::Lower => old / new,
        }
    }
}

/// `value` to `digits` significant digits, so that files do not promise more than was measured.
#[must_use]
pub fn significant(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    // Scaling by a whole power of ten on the side where it is exact keeps 0.3 from becoming 0.30000000000000004.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a logarithm of an f64 is within ±324"
    )]
    let exponent = digits - 1 - value.abs().log10().floor() as i32;
    if exponent >= 0 {
        let scale = 10f64.powi(exponent);
        (value * scale).round() / scale
    } else {
        let scale = 10f64.powi(-exponent);
        (value / scale).round() * scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_middle_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 90.0]), Some(3.0));
    }

    #[test]
    fn the_middle_half_decides() {
        assert_eq!(midmean(&[]), None);
        assert_eq!(midmean(&[3.0]), Some(3.0));
        assert_eq!(midmean(&[900.0, 10.0, 20.0, -5.0]), Some(15.0));
    }

    #[test]
    fn a_ratio_above_one_is_always_an_improvement() {
        assert_eq!(Better::Higher.ratio(10.0, 40.0), 4.0);
        assert_eq!(Better::Lower.ratio(40.0, 10.0), 4.0);
        assert_eq!(Better::Lower.ratio(10.0, 40.0), 0.25);
    }

    #[test]
    fn significant_digits_count_from_the_first_that_is_not_zero() {
        assert_eq!(significant(123_456.7, 4), 123_500.0);
        assert_eq!(significant(0.001_234_56, 3), 0.001_23);
        assert_eq!(significant(0.3, 4), 0.3);
        assert_eq!(significant(0.0, 4), 0.0);
    }
}
