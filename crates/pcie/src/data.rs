//! The published files: pcie-bench's `.dat` tables.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::model::config::check_transfer;

/// A file that cannot be used, with the place.
#[derive(Debug, Error)]
pub enum DataError {
    /// It cannot be read.
    #[error("{}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
    /// A line has too few columns, or too many.
    #[error("{}:{line}: {found} columns, expected {bound} {expected} ({kind})", path.display(),
        bound = if found < expected { "at least" } else { "at most" })]
    Columns {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Columns found.
        found: usize,
        /// Columns needed, or known.
        expected: usize,
        /// What the line should be.
        kind: &'static str,
    },
    /// A column is not what it should be.
    #[error("{}:{line}: column {column} ({name}) is {value:?}, expected {expected}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// Its name.
        name: &'static str,
        /// What stands there.
        value: String,
        /// What should.
        expected: &'static str,
    },
    /// No line of the wanted kind.
    #[error("{}: no {kind} in it", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What was expected.
        kind: &'static str,
    },
}

/// One row of `bw_calc.dat`: the published model, as printed.
#[derive(Debug, Clone, PartialEq)]
pub struct CalcRow {
    /// Transfer size.
    pub bytes: u32,
    /// The other eight columns: write, read, read/write and 40G Ethernet, each Gb/s and per second.
    pub printed: [String; 8],
}

/// One measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// `LAT_DMA_RD`, `LAT_DMA_WRRD`, `BW_DMA_RD`, `BW_DMA_WR` or `BW_DMA_RW`.
    pub test: String,
    /// `Cold`, `DThrash`, `DWarm` or `HWarm`.
    pub cache: String,
    /// `Seq` or `Rand`.
    pub pattern: String,
    /// Window.
    pub window_bytes: u64,
    /// Transfer size.
    pub size_bytes: u32,
    /// Mean and median latency in ns, or the bandwidth in Gb/s twice (the files' heading says GB/s).
    pub mean: f64,
    /// See `mean`.
    pub median: f64,
}

fn read(path: &Path) -> Result<String, DataError> {
    std::fs::read_to_string(path).map_err(|cause| DataError::Read {
        path: path.to_owned(),
        cause,
    })
}

/// The columns of one line, with the place for errors.
struct Line<'a> {
    path: &'a Path,
    line: usize,
    columns: Vec<&'a str>,
}

impl<'a> Line<'a> {
    fn parse<T: std::str::FromStr>(
        &self,
        column: usize,
        name: &'static str,
        expected: &'static str,
    ) -> Result<T, DataError> {
        self.columns[column]
            .parse()
            .map_err(|_| self.wrong(column, name, expected))
    }

    /// A column that is one of these words.
    fn word(
        &self,
        column: usize,
        name: &'static str,
        known: &[&str],
        expected: &'static str,
    ) -> Result<String, DataError> {
        if known.contains(&self.columns[column]) {
            return Ok(self.columns[column].to_owned());
        }
        Err(self.wrong(column, name, expected))
    }

    /// A column that is a number of this range: neither NaN nor infinite.
    fn number(
        &self,
        column: usize,
        name: &'static str,
        legal: std::ops::RangeInclusive<f64>,
        expected: &'static str,
    ) -> Result<f64, DataError> {
        let value: f64 = self.parse(column, name, expected)?;
        if legal.contains(&value) {
            return Ok(value);
        }
        Err(self.wrong(column, name, expected))
    }

    fn wrong(&self, column: usize, name: &'static str, expected: &'static str) -> DataError {
        DataError::Value {
            path: self.path.to_owned(),
            line: self.line,
            column: column + 1,
            name,
            value: self
                .columns
                .get(column)
                .copied()
                .unwrap_or_default()
                .to_owned(),
            expected,
        }
    }

    fn need(
        self,
        legal: std::ops::RangeInclusive<usize>,
        kind: &'static str,
    ) -> Result<Self, DataError> {
        let found = self.columns.len();
        if legal.contains(&found) {
            return Ok(self);
        }
        let bound = if found < *legal.start() {
            legal.start()
        } else {
            legal.end()
        };
        Err(DataError::Columns {
            path: self.path.to_owned(),
            line: self.line,
            found,
            expected: *bound,
            kind,
        })
    }
}

fn lines<'a>(path: &'a Path, text: &'a str) -> impl Iterator<Item = Line<'a>> {
    text.lines().enumerate().filter_map(move |(index, line)| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let skip = columns
            .first()
            .is_none_or(|first| first.starts_with(['#', '"']));
        (!skip).then_some(Line {
            path,
            line: index + 1,
            columns,
        })
    })
}

/// Reads a `bw_calc.dat`.
///
/// # Errors
/// [`DataError`] with file, line and column.
pub fn read_calc(path: &Path) -> Result<Vec<CalcRow>, DataError> {
    let text = read(path)?;
    let mut rows = Vec::new();
    for line in lines(path, &text) {
        let line = line.need(9..=9, "a row of the published model")?;
        for column in 1..9 {
            line.parse::<f64>(column, "bandwidth or rate", "a number")?;
        }
        let bytes = line.parse(0, "payload", "a number of bytes")?;
        rows.push(CalcRow {
            bytes,
            printed: std::array::from_fn(|i| line.columns[i + 1].to_owned()),
        });
    }
    if rows.is_empty() {
        return Err(DataError::Empty {
            path: path.to_owned(),
            kind: "row of the published model",
        });
    }
    Ok(rows)
}

/// Reads a latency or bandwidth table.
///
/// # Errors
/// [`DataError`] with file, line and column.
pub fn read_measurements(path: &Path) -> Result<Vec<Measurement>, DataError> {
    let text = read(path)?;
    check_headings(path, &text)?;
    let rows = lines(path, &text)
        .map(measurement)
        .collect::<Result<Vec<_>, _>>()?;
    if rows.is_empty() {
        return Err(DataError::Empty {
            path: path.to_owned(),
            kind: "measurement",
        });
    }
    Ok(rows)
}

const TESTS: [&str; 5] = [
    "LAT_DMA_RD",
    "LAT_DMA_WRRD",
    "BW_DMA_RD",
    "BW_DMA_WR",
    "BW_DMA_RW",
];
const LATENCY_HEADING: &str = "Test PAT Cache HO DO WinSZ SZ TAvg Avg Med Min Max 95% 99.9% TAvg(ns) Avg(ns) Med(ns) \
    Min(ns) Max(ns) 95%(ns) 99.9%(ns) #outliers #samples";
const BANDWIDTH_HEADING: &str =
    "Test PAT Cache HO DO WinSZ SZ Time(cyc) Time Bytes Trans BW (GB/s) Trans/s";

/// A heading, where there is one, says which column is which: none may be renamed, new or elsewhere.
fn check_headings(path: &Path, text: &str) -> Result<(), DataError> {
    for (index, line) in text.lines().enumerate() {
        let columns: Vec<&str> = line
            .trim_start_matches([' ', '#'])
            .split_whitespace()
            .collect();
        if !line.trim_start().starts_with('#') || columns.first() != Some(&"Test") {
            continue;
        }
        let heading = Line {
            path,
            line: index + 1,
            columns,
        };
        let wrong = |known: &'static str| {
            let known: Vec<&'static str> = known.split_whitespace().collect();
            let end = heading.columns.len().max(known.len());
            let at = (0..end).find(|&i| heading.columns.get(i) != known.get(i))?;
            Some((at, known.get(at).copied().unwrap_or("no such column")))
        };
        if let (Some(a), Some(b)) = (wrong(LATENCY_HEADING), wrong(BANDWIDTH_HEADING)) {
            let (column, expected) = if a.0 > b.0 { a } else { b };
            return Err(heading.wrong(column, "heading", expected));
        }
    }
    Ok(())
}

fn measurement(line: Line<'_>) -> Result<Measurement, DataError> {
    let tests = "LAT_DMA_RD, LAT_DMA_WRRD, BW_DMA_RD, BW_DMA_WR or BW_DMA_RW";
    let test = line.word(0, "test", &TESTS, tests)?;
    let is_latency = test.starts_with("LAT_DMA");
    let columns = if is_latency { 17..=23 } else { 12..=13 };
    let line = line.need(columns, "a measurement")?;
    // Some windows are printed as 1572864.0.
    let sizes = 1.0..=(256_u64 << 30) as f64;
    let window = line.number(5, "window", sizes, "1 to 274877906944 bytes (256 GiB)")?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let window_bytes = window as u64;
    let value = |column, name| {
        if is_latency {
            line.number(column, name, 1.0..=1e9, "1 to 1e9 ns")
        } else {
            line.number(column, name, 1e-3..=1e5, "0.001 to 100000 Gb/s")
        }
    };
    let (mean, median) = if is_latency { (15, 16) } else { (11, 11) };
    let caches = ["Cold", "DThrash", "DWarm", "HWarm"];
    let bytes: u32 = line.parse(6, "size", "1 to 16777216 bytes")?;
    check_transfer(bytes).map_err(|_| line.wrong(6, "size", "1 to 16777216 bytes"))?;
    Ok(Measurement {
        pattern: line.word(1, "pattern", &["Seq", "Rand"], "Seq or Rand")?,
        cache: line.word(2, "cache", &caches, "Cold, DThrash, DWarm or HWarm")?,
        window_bytes,
        size_bytes: bytes,
        mean: value(mean, "mean")?,
        median: value(median, "median")?,
        test,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(name: &str, text: &str) -> Result<Vec<Measurement>, DataError> {
        let path =
            std::env::temp_dir().join(format!("crosslane-data-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let result = read_measurements(&path);
        std::fs::remove_file(&path).unwrap();
        result
    }

    const BANDWIDTH: &str = "BW_DMA_RD Rand HWarm 0 0 1572864.0 64 1 1.0 5 8 32.5 63.5\n";

    #[test]
    fn a_bandwidth_row() {
        let row = measured("good", &format!("# heading\n\n{BANDWIDTH}"))
            .unwrap()
            .remove(0);
        assert_eq!((row.window_bytes, row.size_bytes), (1_572_864, 64));
        assert!((row.mean - 32.5).abs() < 1e-12);
    }

    #[test]
    fn errors_name_file_line_column_and_value() {
        let error = measured("value", &BANDWIDTH.replace(" 64 ", " x64 "))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("value:1: column 7 (size) is \"x64\", expected 1 to 16777216 bytes"),
            "{error}"
        );
        let error = measured("short", "\nBW_DMA_RD Rand HWarm 0 0\n")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("short:2: 5 columns, expected at least 12"),
            "{error}"
        );
        assert!(
            measured("test", "nonsense\n")
                .unwrap_err()
                .to_string()
                .contains("column 1 (test)")
        );
        assert!(
            measured("empty", "# only\n")
                .unwrap_err()
                .to_string()
                .contains("no measurement in it")
        );
        let missing = read_measurements(Path::new("/nonexistent.dat"))
            .unwrap_err()
            .to_string();
        assert!(missing.starts_with("/nonexistent.dat: "), "{missing}");
    }

    #[test]
    fn what_is_no_measurement_is_refused() {
        for (from, to, part) in [
            (
                " 32.5 ",
                " NaN ",
                "(mean) is \"NaN\", expected 0.001 to 100000 Gb/s",
            ),
            (" 32.5 ", " inf ", "(mean) is \"inf\""),
            (" 32.5 ", " -3 ", "(mean) is \"-3\""),
            (" 32.5 ", " 0 ", "(mean) is \"0\""),
            (" 32.5 ", " 1e20 ", "(mean) is \"1e20\""),
            (
                " 64 ",
                " 0 ",
                "(size) is \"0\", expected 1 to 16777216 bytes",
            ),
            (" 1572864.0 ", " -1 ", "(window) is \"-1\""),
            (
                " HWarm ",
                " Tepid ",
                "(cache) is \"Tepid\", expected Cold, DThrash, DWarm or HWarm",
            ),
            (" Rand ", " Zigzag ", "(pattern) is \"Zigzag\""),
            ("BW_DMA_RD", "BW_DMA_XY", "(test) is \"BW_DMA_XY\""),
            (" 63.5", " 63.5 1 2", "15 columns, expected at most 13"),
        ] {
            let error = measured("wrong", &BANDWIDTH.replace(from, to))
                .unwrap_err()
                .to_string();
            assert!(error.contains(part), "{part} is not in: {error}");
        }
    }

    #[test]
    fn headings_say_which_column_is_which() {
        let headed = |heading: &str| measured("headed", &format!("# {heading}\n{BANDWIDTH}"));
        assert!(headed(BANDWIDTH_HEADING).is_ok() && headed("notes").is_ok());
        let error = headed(&BANDWIDTH_HEADING.replace("BW", "Rate"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("headed:1: column 12 (heading) is \"Rate\", expected BW"),
            "{error}"
        );
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "[ -~\n]{0,300}|BW_DMA_RD( [0-9.e-]{0,6}){0,14}") {
            drop(measured("any", &text));
        }
    }
}
