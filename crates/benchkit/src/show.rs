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

/// A number that was chosen, not measured: `1 k`, `100`, `2.5 M`.
#[must_use]
pub fn round(value: f64) -> String {
    without_zeros(&count(value))
}

/// The same text without zeros after the point that say nothing: `10.0 us` becomes `10 us`.
#[must_use]
pub fn without_zeros(shown: &str) -> String {
    let end = shown
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(shown.len());
    let (number, unit) = shown.split_at(end);
    let number = if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    };
    format!("{number}{unit}")
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

/// An amount of memory, with the unit that suits it: `0 B`, `8.64 KiB`, `97.8 MiB`.
#[must_use]
pub fn memory(bytes: f64) -> String {
    const KIB: f64 = 1024.0;
    match bytes {
        bytes if bytes < KIB => format!("{bytes:.0} B"),
        bytes if bytes < KIB * KIB => format!("{} KiB", three_digits(bytes / KIB)),
        bytes => format!("{} MiB", three_digits(bytes / KIB / KIB)),
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
    fn round_numbers_have_no_needless_zeros() {
        let shown = [1.0, 100.0, 1e3, 1e4, 2.5e6].map(round);
        assert_eq!(shown, ["1", "100", "1 k", "10 k", "2.5 M"]);
        assert_eq!(without_zeros("0.50x"), "0.5x");
    }

    #[test]
    fn memory_has_the_unit_that_suits_it() {
        let shown = [0.0, 512.0, 16_384.0, 209_715_200.0].map(memory);
        assert_eq!(shown, ["0 B", "512 B", "16.0 KiB", "200 MiB"]);
    }

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
