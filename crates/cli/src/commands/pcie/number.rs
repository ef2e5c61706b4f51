//! Numbers on the command line. What is none, or outside its range, is refused with the range; so are
//! negative ones, which options have to let through for that (`allow_hyphen_values`).

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use anyhow::{anyhow, ensure};

use super::args::parse_bytes;

/// Parses whole numbers of this range.
pub fn whole<T>(
    legal: RangeInclusive<T>,
) -> impl Fn(&str) -> anyhow::Result<T> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let range = || format!("a whole number from {} to {}", legal.start(), legal.end());
        let number = text.parse().ok().filter(|number| legal.contains(number));
        number.ok_or_else(|| anyhow!("legal is {}", range()))
    }
}

/// Parses numbers of this range; the unit is for the message.
pub fn real(
    legal: RangeInclusive<f64>,
    unit: &'static str,
) -> impl Fn(&str) -> anyhow::Result<f64> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| legal.contains(number));
        number.ok_or_else(|| anyhow!("legal is {} to {}{unit}", legal.start(), legal.end()))
    }
}

/// Parses numbers of bytes of this range.
pub fn bytes(
    legal: RangeInclusive<u64>,
) -> impl Fn(&str) -> anyhow::Result<u64> + Clone + Send + Sync + 'static {
    move |text| {
        let range = || {
            format!(
                "legal is {} to {}",
                short(*legal.start()),
                short(*legal.end())
            )
        };
        let number = parse_bytes(text).map_err(|error| anyhow!("{error:#}; {}", range()))?;
        ensure!(legal.contains(&number), range());
        Ok(number)
    }
}

/// Page sizes of a translation.
pub fn page(text: &str) -> anyhow::Result<u64> {
    let number = bytes(4096..=1 << 30)(text)?;
    ensure!(
        number.is_power_of_two(),
        "legal is a power of two from 4K to 1G"
    );
    Ok(number)
}

/// As people write it: 4096 as 4K.
fn short(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let whole = |&&(shift, _): &&(u32, &str)| bytes >> shift << shift == bytes && bytes > 0;
    let unit = units.iter().find(whole);
    unit.map_or_else(
        || bytes.to_string(),
        |(shift, name)| format!("{}{name}", bytes >> shift),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T: std::fmt::Debug>(result: anyhow::Result<T>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn what_is_outside_a_range_or_no_number_is_told_the_range() {
        for text in ["64", "-1", "abc", "", "1.5", "99999999999999999999"] {
            let error = refused(whole(0..=63_u32)(text));
            assert_eq!(error, "legal is a whole number from 0 to 63");
        }
        for text in ["NaN", "-0.1", "inf", "1e999", "x"] {
            assert_eq!(refused(real(0.0..=1.0, "")(text)), "legal is 0 to 1");
        }
        assert_eq!(
            refused(real(0.0..=1e6, " ns")("-1")),
            "legal is 0 to 1000000 ns"
        );
        for text in ["5", "2G", "-1", "4Q", "", "99999999999G"] {
            let error = refused(bytes(4096..=1 << 30)(text));
            assert!(error.ends_with("legal is 4K to 1G"), "{error}");
        }
        assert!(refused(page("5000")).contains("power of two from 4K to 1G"));
    }

    #[test]
    fn what_is_legal_is_taken() {
        assert_eq!(whole(0..=63_u32)("63").unwrap(), 63);
        assert!((real(0.0..=1.0, "")("0.5").unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(bytes(4096..=1 << 30)("1G").unwrap(), 1 << 30);
        assert_eq!(page("2M").unwrap(), 2 << 20);
        assert_eq!(short(0), "0");
    }
}
