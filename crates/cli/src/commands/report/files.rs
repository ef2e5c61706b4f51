//! The section of `bench files`.

use crosslane_benchkit::show;
use crosslane_benchkit::stats::Better;
use crosslane_page::chart::{self, Bar};
use crosslane_page::lines::{self, Axes, Curve};
use crosslane_page::{dash, nanoseconds, ratio};
use maud::{Markup, html};

use super::page::{accelerated, table};
use super::rows::{Data, Row};
use super::sockets::{size, title};

const BENCH: &str = "files";
const LIMIT: &str = "limit";

/// The section; nothing where the bench was not run.
pub fn section(data: &Data) -> Markup {
    if data.of(BENCH).next().is_none() {
        return Markup::default();
    }
    html! {
        section {
            h2 { "Files from nginx" }
            p {
                "An unmodified nginx and one client that gets a file again and again over one connection; by sendfile, and by "
                "reading and writing. Requests per second are wrk\u{2019}s, of a small file over 16 connections. "
                "The limit is what the copies alone take, with no server and no client."
            }
            div.charts {
                (lines::curves(&LATENCY, &latency(data)))
                (chart::bars("Times better than TCP: median latency, requests/s", &bars(data)))
            }
            (figures(data))
        }
    }
}

const LATENCY: Axes<'static> = Axes {
    title: "Latency by size of the file",
    x_label: "file",
    y_label: "median from request to last byte",
    show_x: size,
    show_y: nanoseconds,
};

#[expect(clippy::cast_precision_loss, reason = "sizes of files")]
fn latency(data: &Data) -> Vec<Curve> {
    let mut curves = Vec::new();
    for class in ["tcp", "crosslane", LIMIT] {
        for (way, dashed) in [("sendfile", false), ("write", true)] {
            let rows = data.of(BENCH).filter(|row| {
                row.key.case == "fetch" && row.key.transport == class && row.key.way == way
            });
            let point = |row: &Row| Some((row.key.bytes? as f64, row.figure("p50_ns")?));
            curves.push(Curve {
                label: format!("{}, {way}", name(class)),
                class,
                dashed,
                points: rows.filter_map(point).collect(),
            });
        }
    }
    curves.retain(|curve| !curve.points.is_empty());
    curves
}

/// The same over TCP; none of TCP itself.
fn tcp<'a>(data: &'a Data, row: &Row) -> Option<&'a Row> {
    let mut key = row.key.clone();
    key.transport = "tcp".into();
    let tcp = data.of(BENCH).find(|other| other.key == key)?;
    (tcp.key != row.key).then_some(tcp)
}

/// How many times better a row is than TCP's in a figure.
fn vs_tcp(data: &Data, row: &Row, name: &str, better: Better) -> Option<f64> {
    Some(better.ratio(tcp(data, row)?.figure(name)?, row.figure(name)?))
}

fn bars(data: &Data) -> Vec<Bar> {
    let bar = |row: &Row| {
        let ratio = vs_tcp(data, row, "p50_ns", Better::Lower);
        Some(Bar {
            label: format!("{} {}, {}", row.key.case, size_of(row), row.key.way),
            ratio: ratio.or_else(|| vs_tcp(data, row, "per_s", Better::Higher))?,
            is_accelerated: row.accelerated != Some(false),
        })
    };
    let programs = data.of(BENCH).filter(|row| row.key.transport != LIMIT);
    programs.filter_map(bar).collect()
}

fn name(transport: &str) -> &str {
    match transport {
        LIMIT => "the copies alone",
        other => title(other),
    }
}

fn size_of(row: &Row) -> String {
    row.key.bytes.map_or_else(dash, show::bytes)
}

fn figures(data: &Data) -> Markup {
    let shown = |row: &Row, name, show: fn(f64) -> String| row.figure(name).map_or_else(dash, show);
    let against =
        |row: &Row, name, better| vs_tcp(data, row, name, better).map_or_else(dash, ratio);
    let row = |row: &Row| {
        vec![
            format!("{} {}", row.key.case, size_of(row)),
            row.key.way.clone(),
            name(&row.key.transport).to_owned(),
            shown(row, "p50_ns", nanoseconds),
            against(row, "p50_ns", Better::Lower),
            shown(row, "p99_ns", nanoseconds),
            against(row, "p99_ns", Better::Lower),
            shown(row, "gbps", show::three_digits),
            against(row, "gbps", Better::Higher),
            shown(row, "per_s", show::count),
            against(row, "per_s", Better::Higher),
            accelerated(row),
        ]
    };
    let header = [
        "case",
        "sent by",
        "over",
        "p50",
        "to TCP",
        "p99",
        "to TCP",
        "Gb/s",
        "to TCP",
        "requests/s",
        "to TCP",
        "accelerated",
    ];
    table(&header, 3, &data.of(BENCH).map(row).collect::<Vec<_>>())
}
