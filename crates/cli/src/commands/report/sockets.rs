//! The section of `bench sockets`.

use crosslane_benchkit::show;
use crosslane_benchkit::stats::Better;
use crosslane_page::chart::{self, Bar};
use crosslane_page::lines::{self, Axes, Curve};
use crosslane_page::{dash, nanoseconds, ratio};
use maud::{Markup, html};

use super::page::table;
use super::rows::{Data, Row};

const BENCH: &str = "sockets";
const TRANSPORTS: [&str; 4] = ["tcp", "unix", "crosslane", "limit"];

/// A figure of a case.
struct Figure {
    case: &'static str,
    name: &'static str,
    title: &'static str,
    show: fn(f64) -> String,
    better: Better,
}

const FIGURES: [Figure; 7] = [
    figure("rtt", "p50_ns", "p50", nanoseconds, Better::Lower),
    figure("rtt", "p99_ns", "p99", nanoseconds, Better::Lower),
    figure("rtt", "p999_ns", "p99.9", nanoseconds, Better::Lower),
    figure(
        "stream",
        "msgs_per_s",
        "messages/s",
        show::count,
        Better::Higher,
    ),
    figure("stream", "gbps", "Gb/s", show::three_digits, Better::Higher),
    figure(
        "connect",
        "per_s",
        "per second",
        show::count,
        Better::Higher,
    ),
    figure("brief", "per_s", "per second", show::count, Better::Higher),
];

const fn figure(
    case: &'static str,
    name: &'static str,
    title: &'static str,
    show: fn(f64) -> String,
    better: Better,
) -> Figure {
    Figure {
        case,
        name,
        title,
        show,
        better,
    }
}

/// The section; nothing where the bench was not run.
pub fn section(data: &Data) -> Markup {
    if data.of(BENCH).next().is_none() {
        return Markup::default();
    }
    html! {
        section {
            h2 { "Latency and throughput by size" }
            p {
                "The limit is what the machine takes without any of them: of round trips, one cache line each way between "
                "two processors; of streams, copies into memory and out again, with no headers and no checks."
            }
            div.charts {
                (chart::bars("Times better than TCP: median round trips, streams, connections", &bars(data)))
                (lines::curves(&LATENCY, &latency(data)))
                (lines::curves(&THROUGHPUT, &throughput(data)))
                (lines::curves(&DISTRIBUTION, &distribution(data)))
            }
            (figures(data))
        }
    }
}

const LATENCY: Axes<'static> = Axes {
    title: "Round trip by message size",
    x_label: "message",
    y_label: "round trip",
    show_x: size,
    show_y: nanoseconds,
};

const THROUGHPUT: Axes<'static> = Axes {
    title: "Stream by message size",
    x_label: "message",
    y_label: "Gb/s",
    show_x: size,
    show_y: show::three_digits,
};

/// The cumulative distribution, turned so that rare latencies have as much room as usual ones: each
/// step to the right leaves out nine tenths of the round trips.
const DISTRIBUTION: Axes<'static> = Axes {
    title: "Distribution of round trips of 64 B",
    x_label: "share of round trips that take no longer",
    y_label: "round trip",
    show_x: percentile,
    show_y: nanoseconds,
};

const DISTRIBUTION_BYTES: u64 = 64;

/// One in so many is beyond the percentile.
fn percentile(one_in: f64) -> String {
    let percent = 100.0 - 100.0 / one_in;
    format!("{} %", (percent * 100.0).round() / 100.0)
}

fn distribution(data: &Data) -> Vec<Curve> {
    let curve = |class: &'static str| {
        let mut rows = data.of(BENCH).filter(|row| is_of(row, "rtt", class));
        let row = rows.find(|row| row.key.bytes == Some(DISTRIBUTION_BYTES))?;
        let points = row.pairs("cdf_ns").into_iter();
        Some(Curve {
            label: title(class).to_owned(),
            class,
            dashed: false,
            points: points
                .map(|(share, time)| (1.0 / (1.0 - share), time))
                .collect(),
        })
    };
    let curves = TRANSPORTS.into_iter().filter_map(curve);
    curves.filter(|curve| !curve.points.is_empty()).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes of messages, which are whole"
)]
pub fn size(bytes: f64) -> String {
    show::bytes(bytes.round() as u64)
}

#[expect(clippy::cast_precision_loss, reason = "sizes of messages")]
fn by_size(data: &Data, case: &str, transport: &str, name: &str) -> Vec<(f64, f64)> {
    let rows = data.of(BENCH).filter(|row| is_of(row, case, transport));
    let point = |row: &Row| Some((row.key.bytes? as f64, row.figure(name)?));
    let mut points: Vec<_> = rows.filter_map(point).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}

fn is_of(row: &Row, case: &str, transport: &str) -> bool {
    row.key.case == case && row.key.transport == transport
}

/// How a transport is called on the page.
pub fn title(transport: &str) -> &str {
    match transport {
        "tcp" => "TCP",
        "unix" => "AF_UNIX",
        "crosslane" => "Crosslane",
        "limit" => "the limit",
        other => other,
    }
}

fn latency(data: &Data) -> Vec<Curve> {
    let curve = |class: &'static str, name, figure, dashed| Curve {
        label: format!("{}, {figure}", title(class)),
        class,
        dashed,
        points: by_size(data, "rtt", class, name),
    };
    let both = |class| {
        [
            curve(class, "p50_ns", "median", false),
            curve(class, "p99_ns", "p99", true),
        ]
    };
    let curves = TRANSPORTS.into_iter().flat_map(both);
    curves.filter(|curve| !curve.points.is_empty()).collect()
}

fn throughput(data: &Data) -> Vec<Curve> {
    let curve = |class: &'static str| Curve {
        label: title(class).to_owned(),
        class,
        dashed: false,
        points: by_size(data, "stream", class, "gbps"),
    };
    let curves = TRANSPORTS.into_iter().map(curve);
    curves.filter(|curve| !curve.points.is_empty()).collect()
}

/// The transports' rows of each case and size, in order.
fn cases(data: &Data) -> Vec<(&str, Option<u64>)> {
    let mut cases: Vec<_> = data
        .of(BENCH)
        .map(|row| (row.key.case.as_str(), row.key.bytes))
        .collect();
    cases.dedup();
    cases
}

fn row_of<'a>(data: &'a Data, case: (&str, Option<u64>), transport: &str) -> Option<&'a Row> {
    data.rows.iter().find(|row| {
        row.key.bench == BENCH && is_of(row, case.0, transport) && row.key.bytes == case.1
    })
}

fn case_name((case, bytes): (&str, Option<u64>)) -> String {
    let bytes = bytes.map(|bytes| format!(" {}", show::bytes(bytes)));
    format!("{case}{}", bytes.unwrap_or_default())
}

/// How many times better Crosslane is than TCP.
fn vs_tcp(data: &Data, case: (&str, Option<u64>), figure: &Figure) -> Option<f64> {
    let value = |transport| row_of(data, case, transport)?.figure(figure.name);
    Some(figure.better.ratio(value("tcp")?, value("crosslane")?))
}

/// The first figure of each case.
fn bars(data: &Data) -> Vec<Bar> {
    let bar = |case: (&str, Option<u64>)| {
        let figure = FIGURES.iter().find(|figure| figure.case == case.0)?;
        Some(Bar {
            label: case_name(case),
            ratio: vs_tcp(data, case, figure)?,
            // Short connections stay on TCP by design, and are not judged.
            is_accelerated: row_of(data, case, "crosslane")?.accelerated != Some(false),
        })
    };
    cases(data).into_iter().filter_map(bar).collect()
}

fn figures(data: &Data) -> Markup {
    let mut rows = Vec::new();
    for case in cases(data) {
        for figure in FIGURES.iter().filter(|figure| figure.case == case.0) {
            let value = |transport| {
                let value = row_of(data, case, transport).and_then(|row| row.figure(figure.name));
                value.map_or_else(dash, figure.show)
            };
            let mut row = vec![case_name(case), figure.title.to_owned()];
            row.extend(TRANSPORTS.map(value));
            row.push(vs_tcp(data, case, figure).map_or_else(dash, ratio));
            rows.push(row);
        }
    }
    let header = [
        "case",
        "figure",
        "TCP",
        "AF_UNIX",
        "Crosslane",
        "limit",
        "to TCP",
    ];
    table(&header, 2, &rows)
}
