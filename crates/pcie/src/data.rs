//! The published files: pcie-bench's `.dat` tables.

use std::path::{Path, PathBuf};

use thiserror::Error;

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
    /// A line has too few columns.
    #[error("{}:{line}: {found} columns, expected at least {expected} ({kind})", path.display())]
    Columns {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Columns found.
        found: usize,
        /// Columns needed.
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
        self.columns[column].parse().map_err(|_| DataError::Value {
            path: self.path.to_owned(),
            line: self.line,
            column: column + 1,
            name,
            value: self.columns[column].to_owned(),
            expected,
        })
    }

    fn need(self, expected: usize, kind: &'static str) -> Result<Self, DataError> {
        let found = self.columns.len();
        if found < expected {
            return Err(DataError::Columns {
                path: self.path.to_owned(),
                line: self.line,
                found,
                expected,
                kind,
            });
        }
        Ok(self)
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
        let line = line.need(9, "a row of the published model")?;
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

fn measurement(line: Line<'_>) -> Result<Measurement, DataError> {
    let is_latency = line.columns[0].starts_with("LAT_DMA");
    if !is_latency && !line.columns[0].starts_with("BW_DMA") {
        line.parse::<Benchmark>(0, "test", "LAT_DMA_... or BW_DMA_...")?;
    }
    let line = line.need(if is_latency { 17 } else { 12 }, "a measurement")?;
    // Some windows are printed as 1572864.0.
    let window: f64 = line.parse(5, "window", "a number of bytes")?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let window_bytes = window as u64;
    let (mean, median) = if is_latency { (15, 16) } else { (11, 11) };
    Ok(Measurement {
        test: line.columns[0].to_owned(),
        pattern: line.columns[1].to_owned(),
        cache: line.columns[2].to_owned(),
        window_bytes,
        size_bytes: line.parse(6, "size", "a number of bytes")?,
        mean: line.parse(mean, "mean", "a number")?,
        median: line.parse(median, "median", "a number")?,
    })
}

/// Never parses: for the error of a line that is no benchmark's.
struct Benchmark;

impl std::str::FromStr for Benchmark {
    type Err = ();

    fn from_str(_: &str) -> Result<Self, ()> {
        Err(())
    }
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
            error.contains("value:1: column 7 (size) is \"x64\", expected a number of bytes"),
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

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "[ -~\n]{0,300}|BW_DMA_RD( [0-9.e-]{0,6}){0,14}") {
            drop(measured("any", &text));
        }
    }
}
