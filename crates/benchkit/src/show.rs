//! Numbers and tables for people.

use comfy_table::{CellAlignment, Table, presets};

/// A duration given in nanoseconds, with the unit that suits it: `231 ns`, `21.4 us`, `1.20 ms`.
#[must_use]
pub fn nanoseconds(value: f64) -> String {
    scaled(value, &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")])
}

/// A rate with a decimal prefix: `25.1 k`, `1.28 M`, `812`.
#[must_use]
pub fn count(value: f64) -> String {
    scaled(value, &[(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")])
        .trim_end()
        .to_owned()
}

/// A ratio: `15.2x`, `0.93x`.
#[must_use]
pub fn ratio(value: f64) -> String {
    format!("{}x", three_digits(value))
}

/// A plain number with three significant digits: `0.93`, `15.2`, `231`.
#[must_use]
pub fn three_digits(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 99.95 => format!("{value:.0}"),
        magnitude if magnitude >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Byte counts as the cases are named: `64 B`, `4 KiB`, `1 MiB`.
#[must_use]
pub fn bytes(value: u64) -> String {
    match value {
        v if v >= 1 << 20 && v % (1 << 20) == 0 => format!("{} MiB", v >> 20),
        v if v >= 1 << 10 && v % (1 << 10) == 0 => format!("{} KiB", v >> 10),
        v => format!("{v} B"),
    }
}

/// A table without frames, so that it can be pasted anywhere: the first `names` columns to the left,
/// the others, which hold numbers, to the right.
#[must_use]
pub fn table(names: usize, header: Vec<String>, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(header)
        .add_rows(rows);
    for column in table.column_iter_mut().skip(names) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let fits = |(scale, _): &&(f64, &str)| value.abs() >= *scale;
    let (scale, unit) = units
        .iter()
        .find(fits)
        .or(units.last())
        .copied()
        .unwrap_or((1.0, ""));
    format!("{} {unit}", three_digits(value / scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits_and_their_unit() {
        assert_eq!(nanoseconds(231.4), "231 ns");
        assert_eq!(nanoseconds(21_400.0), "21.4 us");
        assert_eq!(nanoseconds(0.4), "0.40 ns");
        assert_eq!(count(25_100.0), "25.1 k");
        assert_eq!(count(812.0), "812");
        assert_eq!(ratio(0.93), "0.93x");
        assert_eq!(bytes(65_536), "64 KiB");
        assert_eq!(bytes(56), "56 B");
    }
}
