//! The section of `bench peers`.

use crosslane_benchkit::show;
use crosslane_benchkit::stats::Better;
use crosslane_page::chart::{self, Bar};
use crosslane_page::{dash, nanoseconds, ratio};
use maud::{Markup, html};

use super::page::{accelerated, table};
use super::rows::{Data, Row};

const BENCH: &str = "peers";

/// The section; nothing where the bench was not run.
pub fn section(data: &Data) -> Markup {
    if data.of(BENCH).next().is_none() {
        return Markup::default();
    }
    html! {
        section {
            h2 { "Beside others" }
            p {
                "Unmodified programs over TCP, AF_UNIX, pipes and Crosslane; UCX and libfabric through their own interfaces, by "
                "the programs that they bring to measure themselves. libfabric's round trip is a mean, and is compared with no median."
            }
            div.charts {
                (chart::bars("Crosslane\u{2019}s round trip, times better than", &bars(data, "rtt")))
                (chart::bars("Crosslane\u{2019}s stream, times better than", &bars(data, "stream")))
            }
            (figures(data))
        }
    }
}

/// The figure of a row that is compared, and which way it is better.
fn figure(row: &Row) -> Option<(f64, Better)> {
    let time = row.figure("p50_ns").or_else(|| row.figure("mean_ns"));
    let rate = || row.figure("msgs_per_s").map(|rate| (rate, Better::Higher));
    time.map(|time| (time, Better::Lower)).or_else(rate)
}

/// Crosslane's row of the same case.
fn ours<'a>(data: &'a Data, row: &Row) -> Option<&'a Row> {
    let mut rows = data.of(BENCH);
    let ours = rows.find(|other| {
        let (own, key) = (&other.key, &row.key);
        own.transport == "crosslane" && own.case == key.case && own.bytes == key.bytes
    });
    ours.filter(|ours| ours.key != row.key)
}

/// How many times better Crosslane is than a row; none of itself, and none of a row with a mean only, where
/// Crosslane's is a median.
fn times(data: &Data, row: &Row) -> Option<f64> {
    if row.figure("mean_ns").is_some() {
        return None;
    }
    let (its, better) = figure(row)?;
    let (own, _) = figure(ours(data, row)?)?;
    Some(better.ratio(its, own))
}

fn bars(data: &Data, case: &str) -> Vec<Bar> {
    let rows = data.of(BENCH).filter(|row| row.key.case == case);
    let bar = |row: &Row| {
        Some(Bar {
            label: format!("{}, {}", row.key.transport, size(row)),
            ratio: times(data, row)?,
            is_accelerated: ours(data, row)?.accelerated != Some(false),
        })
    };
    rows.filter_map(bar).collect()
}

fn size(row: &Row) -> String {
    row.key.bytes.map_or_else(String::new, show::bytes)
}

fn figures(data: &Data) -> Markup {
    let shown = |row: &Row, name, show: fn(f64) -> String| row.figure(name).map_or_else(dash, show);
    let rows: Vec<_> = (data.of(BENCH))
        .map(|row| {
            vec![
                format!("{} {}", row.key.case, size(row)),
                row.key.transport.clone(),
                shown(row, "p50_ns", nanoseconds),
                shown(row, "mean_ns", nanoseconds),
                shown(row, "msgs_per_s", show::count),
                shown(row, "gbps", show::three_digits),
                times(data, row).map_or_else(dash, ratio),
                accelerated(row),
            ]
        })
        .collect();
    let header = [
        "case",
        "over",
        "p50",
        "mean",
        "messages/s",
        "Gb/s",
        "Crosslane to it",
        "accelerated",
    ];
    table(&header, 2, &rows)
}
