//! The section of `bench connections`.

use crosslane_benchkit::show;
use crosslane_page::lines::{self, Axes, Curve};
use crosslane_page::{dash, nanoseconds, ratio};
use maud::{Markup, html};

use super::page::{accelerated, table};
use super::rows::{Data, Row};
use super::sockets::title;

const BENCH: &str = "connections";
const MIB: f64 = 1_048_576.0;

/// The section; nothing where the bench was not run.
pub fn section(data: &Data) -> Markup {
    if data.of(BENCH).next().is_none() {
        return Markup::default();
    }
    let latency = [
        curve(data, "tcp", "p50_ns", "median", false),
        curve(data, "tcp", "p99_ns", "p99", true),
        curve(data, "crosslane", "p50_ns", "median", false),
        curve(data, "crosslane", "p99_ns", "p99", true),
    ];
    let memory = ["tcp", "crosslane"].map(|class| {
        let mut curve = curve(data, class, "total_bytes", "all", false);
        curve.points.iter_mut().for_each(|point| point.1 /= MIB);
        curve
    });
    html! {
        section {
            h2 { "Many connections" }
            p {
                "Connections between one client and one server, all of them idle but one. Memory is that of the programs, "
                "the monitor and the rings, without the kernel's."
            }
            div.charts {
                (lines::curves(&LATENCY, &latency))
                (lines::curves(&MEMORY, &memory))
            }
            (figures(data))
        }
    }
}

const LATENCY: Axes<'static> = Axes {
    title: "Round trip of one active connection",
    x_label: "connections",
    y_label: "round trip of 64 B",
    show_x: show::round,
    show_y: nanoseconds,
};

const MEMORY: Axes<'static> = Axes {
    title: "Memory of all connections",
    x_label: "connections",
    y_label: "MiB",
    show_x: show::round,
    show_y: show::three_digits,
};

fn curve(data: &Data, class: &'static str, name: &str, figure: &str, dashed: bool) -> Curve {
    let rows = data.of(BENCH).filter(|row| row.key.transport == class);
    let point = |row: &Row| Some((f64::from(row.key.connections?), row.figure(name)?));
    Curve {
        label: format!("{}, {figure}", title(class)),
        class,
        dashed,
        // Nothing has no place on an axis of ratios.
        points: rows
            .filter_map(point)
            .filter(|point| point.1 > 0.0)
            .collect(),
    }
}

fn figures(data: &Data) -> Markup {
    let rows: Vec<_> = data
        .of(BENCH)
        .map(|row| {
            let count = f64::from(row.key.connections.unwrap_or(1));
            let time = |name| row.figure(name).map_or_else(dash, nanoseconds);
            let each = |name| {
                row.figure(name)
                    .map_or_else(dash, |all| show::memory(all / count))
            };
            vec![
                show::round(count),
                title(&row.key.transport).to_owned(),
                time("p50_ns"),
                time("p99_ns"),
                against(data, row, |other| {
                    other.key.transport == "tcp" && other.key.connections == row.key.connections
                })
                .map_or_else(dash, |times| ratio(1.0 / times)),
                against(data, row, |other| {
                    other.key.transport == row.key.transport && other.key.connections == Some(1)
                })
                .map_or_else(dash, ratio),
                each("program_bytes"),
                each("monitor_bytes"),
                each("shared_bytes"),
                row.figure("total_bytes").map_or_else(dash, show::memory),
                each("kernel_bytes"),
                accelerated(row),
            ]
        })
        .collect();
    let header = [
        "connections",
        "over",
        "p50",
        "p99",
        "p50 to TCP",
        "p50 to one alone",
        "programs, each",
        "monitor, each",
        "shared, each",
        "all",
        "kernel, each",
        "accelerated",
    ];
    table(&header, 2, &rows)
}

/// How many times the median of another row it takes; none of itself.
fn against(data: &Data, row: &Row, is_other: impl Fn(&Row) -> bool) -> Option<f64> {
    let other = data.of(BENCH).find(|other| is_other(other))?;
    if other.key == row.key {
        return None;
    }
    Some(row.figure("p50_ns")? / other.figure("p50_ns")?)
}
