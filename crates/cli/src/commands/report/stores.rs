//! The section of `bench stores`.

use crosslane_benchkit::show;
use crosslane_page::chart::{self, Bar};
use crosslane_page::{dash, nanoseconds, ratio};
use maud::{Markup, html};

use super::page::{accelerated, table};
use super::rows::{Data, Row};
use super::sockets::title;

const BENCH: &str = "stores";

/// The section; nothing where the bench was not run.
pub fn section(data: &Data) -> Markup {
    if data.of(BENCH).next().is_none() {
        return Markup::default();
    }
    html! {
        section {
            h2 { "Stores" }
            p {
                "Redis and memcached under mixes of reads (R), inserts (I) and updates (U), by so many clients with one request "
                "each at a time. The charts have the smallest values; the table has all."
            }
            div.charts {
                @for store in ["redis", "memcached"] {
                    (chart::bars(&format!("{store}: requests/s, times TCP\u{2019}s"), &bars(data, store)))
                }
            }
            (figures(data))
        }
    }
}

/// How many times more a row has than TCP's, or less; none of TCP itself.
fn vs_tcp(data: &Data, row: &Row, name: &str) -> Option<f64> {
    let mut key = row.key.clone();
    key.transport = "tcp".into();
    let tcp = data.of(BENCH).find(|other| other.key == key)?;
    if tcp.key == row.key {
        return None;
    }
    Some(row.figure(name)? / tcp.figure(name)?)
}

fn bars(data: &Data, store: &str) -> Vec<Bar> {
    let rows = || data.of(BENCH).filter(|row| row.key.case == store);
    let smallest = rows().filter_map(|row| row.key.bytes).min();
    let bar = |row: &Row| {
        let clients = row.key.connections.unwrap_or(1);
        let plural = if clients == 1 { "" } else { "s" };
        Some(Bar {
            label: format!("{}, {clients} client{plural}", row.key.way),
            ratio: vs_tcp(data, row, "per_s")?,
            is_accelerated: row.accelerated != Some(false),
        })
    };
    let smallest = rows().filter(|row| row.key.bytes == smallest);
    smallest.filter_map(bar).collect()
}

fn figures(data: &Data) -> Markup {
    let shown = |row: &Row, name, show: fn(f64) -> String| row.figure(name).map_or_else(dash, show);
    let row = |row: &Row| {
        let shorter = |name| vs_tcp(data, row, name).map_or_else(dash, |times| ratio(1.0 / times));
        vec![
            row.key.case.clone(),
            row.key.way.clone(),
            row.key.bytes.map_or_else(dash, show::bytes),
            row.key.connections.unwrap_or(1).to_string(),
            title(&row.key.transport).to_owned(),
            shown(row, "per_s", show::count),
            vs_tcp(data, row, "per_s").map_or_else(dash, ratio),
            shown(row, "p50_ns", nanoseconds),
            shorter("p50_ns"),
            shown(row, "p99_ns", nanoseconds),
            shorter("p99_ns"),
            shown(row, "p999_ns", nanoseconds),
            accelerated(row),
        ]
    };
    let header = [
        "store",
        "mix",
        "values",
        "clients",
        "over",
        "requests/s",
        "to TCP",
        "p50",
        "to TCP",
        "p99",
        "to TCP",
        "p99.9",
        "accelerated",
    ];
    table(&header, 5, &data.of(BENCH).map(row).collect::<Vec<_>>())
}
