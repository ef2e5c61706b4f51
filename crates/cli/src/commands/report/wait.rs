//! The section of `bench wait`.

use crosslane_benchkit::show;
use crosslane_page::lines::{self, Axes, Spot};
use crosslane_page::{dash, nanoseconds, ratio};
use maud::{Markup, html};

use super::page::{accelerated, table};
use super::rows::{Data, Row};

const BENCH: &str = "wait";
/// What takes less processor time than this is drawn as if it took so much: an axis of ratios has
/// no place for nothing.
const LEAST_CPU: f64 = 0.001;

/// The section; nothing where the bench was not run.
pub fn section(data: &Data) -> Markup {
    if data.of(BENCH).next().is_none() {
        return Markup::default();
    }
    let counts_client = data
        .runs
        .iter()
        .any(|run| run.bench == BENCH && run.pace == "poll");
    html! {
        section {
            h2 { "Latency against processor time" }
            p {
                "A server waits in different ways for requests that come at random moments. Lower and further left is "
                "better. A full dot is the median of a way on the efficient frontier, a hollow one that of a way that another "
                "one beats; the line above it ends at the 99th percentile. Latency counts from when a request was due."
            }
            div.charts {
                @for rate in rates(data) { (frontier(data, rate, counts_client)) }
            }
            (figures(data))
        }
    }
}

/// The rates in order, idle left out.
fn rates(data: &Data) -> Vec<u32> {
    let mut rates: Vec<_> = (data.of(BENCH))
        .filter_map(|row| row.key.per_second)
        .filter(|rate| *rate > 0)
        .collect();
    rates.sort_unstable();
    rates.dedup();
    rates
}

fn frontier(data: &Data, rate: u32, counts_client: bool) -> Markup {
    let axes = Axes {
        title: &format!("{} requests per second", show::round(f64::from(rate))),
        x_label: if counts_client {
            "CPU of both programs, seconds per second"
        } else {
            "CPU of the server, seconds per second"
        },
        y_label: "latency",
        show_x: show::three_digits,
        show_y: nanoseconds,
    };
    let rows = data
        .of(BENCH)
        .filter(|row| row.key.per_second == Some(rate));
    let spots: Vec<_> = rows.filter_map(|row| spot(row, counts_client)).collect();
    lines::spots(&axes, &spots)
}

fn spot(row: &Row, counts_client: bool) -> Option<Spot> {
    let client = row.figure("client_cpu").filter(|_| counts_client);
    let overloaded = row.is("keeps_up") == Some(false);
    Some(Spot {
        label: row.key.way.clone() + if overloaded { " (overloaded)" } else { "" },
        class: class(&row.key.way),
        x: (row.figure("server_cpu")? + client.unwrap_or(0.0)).max(LEAST_CPU),
        y: row.figure("p50_ns")?,
        up_to: row.figure("p99_ns"),
        is_full: row.is("frontier_p50") == Some(true),
    })
}

fn class(way: &str) -> &'static str {
    match way {
        "sleep" => "unix",
        "adaptive" => "crosslane",
        "spin" | "monitor" => "limit",
        _ => "tcp",
    }
}

fn figures(data: &Data) -> Markup {
    let time = |row: &Row, name| row.figure(name).map_or_else(dash, nanoseconds);
    let plain = |row: &Row, name| row.figure(name).map_or_else(dash, show::three_digits);
    let rows: Vec<_> = (data.of(BENCH))
        .map(|row| {
            let rate = row.key.per_second.unwrap_or(0);
            vec![
                if rate == 0 {
                    "idle".into()
                } else {
                    show::round(f64::from(rate))
                },
                row.key.way.clone(),
                time(row, "p50_ns"),
                time(row, "p99_ns"),
                time(row, "p999_ns"),
                row.figure("server_cpu").map_or_else(dash, cpu),
                row.figure("client_cpu").map_or_else(dash, cpu),
                plain(row, "watts"),
                vs_tcp(data, row).map_or_else(dash, ratio),
                frontier_words(row),
                accelerated(row),
            ]
        })
        .collect();
    let header = [
        "requests/s",
        "waiting",
        "p50",
        "p99",
        "p99.9",
        "server CPU",
        "client CPU",
        "watts",
        "p50 to TCP",
        "on the frontier",
        "accelerated",
    ];
    table(&header, 2, &rows)
}

fn cpu(value: f64) -> String {
    format!("{value:.3}")
}

fn frontier_words(row: &Row) -> String {
    let on = |name| row.is(name) == Some(true);
    match (on("frontier_p50"), on("frontier_p99")) {
        (true, true) => "p50, p99",
        (true, false) => "p50",
        (false, true) => "p99",
        (false, false) => "",
    }
    .into()
}

/// How many times shorter the median is than blocking TCP's at the same rate, where that keeps up.
fn vs_tcp(data: &Data, row: &Row) -> Option<f64> {
    let mut rows = data.of(BENCH);
    let tcp =
        rows.find(|other| other.key.way == "tcp" && other.key.per_second == row.key.per_second)?;
    let comparable = row.key.way != "tcp" && tcp.is("keeps_up") == Some(true);
    let tcp = tcp.figure("p50_ns").filter(|_| comparable)?;
    Some(tcp / row.figure("p50_ns")?)
}
