//! Predictions beside measurements, row by row, and how far apart they are.

mod bound;

use serde::Serialize;

pub use bound::{Bound, bounds};

use crate::profile::{Host, nfp6000};
use crate::sim::bench::{Bench, Outcome, Pattern, Run, RunError};
use crate::sim::cache::CacheState;
use crate::sim::fabric::Options;

/// The published rows that predictions are judged by: medians in ns, bandwidths in Gb/s.
const MEASURED: &str = include_str!("../fixtures/measured.csv");

/// One measured configuration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Host profile.
    pub host: String,
    /// Whether addresses were translated, with 4 KiB pages.
    pub iommu: bool,
    /// Benchmark.
    pub bench: Bench,
    /// Cache state.
    pub cache: CacheState,
    /// Access pattern.
    pub pattern: Pattern,
    /// Window.
    pub window_bytes: u64,
    /// Transfer size.
    #[serde(rename = "bytes")]
    pub size_bytes: u32,
    /// Median latency in ns, or bandwidth in Gb/s.
    pub measured: f64,
    /// Whether the profile was fitted on it.
    pub fitted: bool,
}

/// A row and what the simulator says.
#[derive(Debug, Clone, Serialize)]
pub struct Judged {
    /// The row.
    #[serde(flatten)]
    pub row: Row,
    /// Prediction, in the row's unit.
    pub predicted: f64,
    /// Relative error in per cent of the measurement.
    pub error_percent: f64,
    /// What one run in twenty is predicted to be below, and one in twenty above: apart where a host's
    /// runs differ, which is where its root complex sleeps deeply more often in some than in others.
    pub range: [f64; 2],
}

impl Judged {
    fn new(row: Row, predicted: f64, range: [f64; 2]) -> Self {
        let error_percent = error_percent(predicted, &row);
        Self {
            row,
            predicted,
            error_percent,
            range,
        }
    }

    /// Whether the error is within [`limit_percent`].
    #[must_use]
    pub fn is_within(&self) -> bool {
        self.error_percent.abs() <= limit_percent(self.row.bench)
    }

    /// Whether some value of the predicted range is within [`limit_percent`] of the measurement.
    #[must_use]
    pub fn is_in_range(&self) -> bool {
        let [low, high] = self.range;
        let nearest = self.row.measured.clamp(low, high);
        error_percent(nearest, &self.row).abs() <= limit_percent(self.row.bench)
    }
}

fn error_percent(predicted: f64, row: &Row) -> f64 {
    (predicted / row.measured - 1.0) * 100.0
}

/// What a prediction may be off by: 5 % of a median latency, 7 % of a bandwidth.
#[must_use]
pub fn limit_percent(bench: Bench) -> f64 {
    match bench {
        Bench::LatRd | Bench::LatWrrd => 5.0,
        Bench::BwRd | Bench::BwWr | Bench::BwRdwr => 7.0,
    }
}

/// All rows.
///
/// # Panics
/// If the compiled-in table is malformed, which a test rules out.
#[must_use]
pub fn rows() -> Vec<Row> {
    let lines = MEASURED
        .lines()
        .filter(|line| !line.starts_with('#'))
        .skip(1);
    lines
        .map(|line| parse(line).expect("the compiled-in table is well formed"))
        .collect()
}

fn parse(line: &str) -> Option<Row> {
    let f: Vec<&str> = line.split(',').collect();
    let mut row = Row {
        host: (*f.first()?).to_owned(),
        iommu: *f.get(1)? == "1",
        bench: Bench::ALL
            .into_iter()
            .find(|b| b.name() == f.get(2).copied().unwrap_or_default())?,
        cache: if *f.get(3)? == "cold" {
            CacheState::Cold
        } else {
            CacheState::HostWarm
        },
        pattern: if *f.get(4)? == "seq" {
            Pattern::Sequential
        } else {
            Pattern::Random
        },
        window_bytes: f.get(5)?.parse().ok()?,
        size_bytes: f.get(6)?.parse().ok()?,
        measured: f.get(7)?.parse().ok()?,
        fitted: false,
    };
    row.fitted = is_fitted(&row);
    Some(row)
}

/// The rows whose values set a parameter (docs/pcie.md has which sets which).
fn is_fitted(row: &Row) -> bool {
    let warm = row.cache == CacheState::HostWarm;
    let small = row.window_bytes == 8192;
    match row.host.as_str() {
        "e5-2630v4" if row.iommu => match row.bench {
            Bench::BwRd => {
                let kib = row.window_bytes >> 10;
                warm && (row.size_bytes == 64 && matches!(kib, 512 | 1024 | 65_536)
                    || row.size_bytes == 256 && kib == 65_536)
            }
            Bench::BwWr => {
                warm && row.size_bytes == 64 && matches!(row.window_bytes >> 10, 1024 | 65536)
            }
            Bench::LatRd => warm && row.size_bytes == 64 && row.window_bytes == 1 << 20,
            _ => false,
        },
        "e5-2630v4" => match row.bench {
            Bench::LatRd => {
                small && (matches!(row.size_bytes, 512 | 2048) && warm || row.size_bytes == 64)
            }
            Bench::LatWrrd => small && warm && matches!(row.size_bytes, 64 | 2048),
            Bench::BwRd => small && warm && matches!(row.size_bytes, 63 | 64 | 128 | 256 | 512),
            Bench::BwWr => small && warm && matches!(row.size_bytes, 64 | 128 | 192 | 512),
            Bench::BwRdwr => {
                small && warm && matches!(row.size_bytes, 128 | 129 | 256 | 1024 | 2048)
            }
        },
        "e3-1226v3" => match row.bench {
            Bench::LatRd => small && row.size_bytes == 64,
            Bench::LatWrrd => small && warm && matches!(row.size_bytes, 64 | 2048),
            Bench::BwRd => small && warm && (row.size_bytes > 256 || row.size_bytes == 64),
            // How much its runs differ was fitted on writes in other states of the cache.
            Bench::BwWr => false,
            Bench::BwRdwr => small && warm && row.size_bytes == 512,
        },
        // How Haswell answers short reads was found on both Haswells' sizes above 256 B.
        "e5-2637v3" => match row.bench {
            Bench::LatRd => small && warm && row.size_bytes == 64 && !row.iommu,
            Bench::BwRd => small && warm && row.size_bytes > 256,
            _ => false,
        },
        _ => false,
    }
}

/// How long misses wait for one another at the walker's port shows in longer runs only.
const LONGER_WITH_TRANSLATION: u32 = 5;

/// Simulates one row.
///
/// # Errors
/// [`RunError`] if its host is unknown or its parameters make no sense.
pub fn judge(row: &Row, transfers: u32) -> Result<Judged, RunError> {
    judge_host(&Host::load(&row.host)?, row, transfers)
}

/// Simulates one row on this host, whatever host was measured.
///
/// # Errors
/// [`RunError`] if its parameters make no sense.
pub fn judge_host(host: &Host, row: &Row, transfers: u32) -> Result<Judged, RunError> {
    let run = run(row, transfers);
    let (predicted, range) = match run.execute(host, &nfp6000())?.outcome {
        Outcome::Latency(latencies) => (latencies.quantile_ns(0.5), None),
        Outcome::Bandwidth { gbps, .. } => (gbps, run.range_gbps(host, &nfp6000())?),
    };
    let range = range.unwrap_or([predicted; 2]);
    Ok(Judged::new(row.clone(), predicted, range))
}

fn run(row: &Row, transfers: u32) -> Run {
    let is_latency = matches!(row.bench, Bench::LatRd | Bench::LatWrrd);
    let transfers = if row.iommu && !is_latency {
        transfers.saturating_mul(LONGER_WITH_TRANSLATION)
    } else {
        transfers
    };
    Run {
        bench: row.bench,
        size_bytes: row.size_bytes,
        pattern: row.pattern,
        transfers,
        options: Options {
            iommu: row.iommu,
            cache: row.cache,
            window_bytes: row.window_bytes,
            ..Options::default()
        },
        ..Run::default()
    }
}
