//! The table: a row for each figure, a column for each transport, and the ratios.

use crosslane_benchkit::show;
use crosslane_benchkit::stats::Better;
use crosslane_sockbench::client;

use super::case::Case;
use super::results::{Figure, Key, Results};
use super::transport::Transport;

/// The largest message whose round trip is compared with that of one cache line.
const LINE_BYTES: u64 = 64;

/// How a figure is shown.
struct Style {
    figure: Figure,
    name: &'static str,
    show: fn(f64) -> String,
    better: Better,
}

const RTT: [Style; 3] = [
    Style {
        figure: Figure::P50,
        name: "p50",
        show: show::nanoseconds,
        better: Better::Lower,
    },
    Style {
        figure: Figure::P99,
        name: "p99",
        show: show::nanoseconds,
        better: Better::Lower,
    },
    Style {
        figure: Figure::P999,
        name: "p99.9",
        show: show::nanoseconds,
        better: Better::Lower,
    },
];
const MESSAGES: [Style; 1] = [Style {
    figure: Figure::MessagesPerSecond,
    name: "messages/s",
    show: show::count,
    better: Better::Higher,
}];
const GBPS: [Style; 1] = [Style {
    figure: Figure::Gbps,
    name: "Gb/s",
    show: show::three_digits,
    better: Better::Higher,
}];
const CONNECTIONS: [Style; 1] = [Style {
    figure: Figure::ConnectionsPerSecond,
    name: "per second",
    show: show::count,
    better: Better::Higher,
}];

/// The results as a table.
pub fn table(results: &Results) -> String {
    let transports = results.transports();
    let has = |transport| transports.contains(&transport);
    let compares = has(Transport::Tcp) && has(Transport::Crosslane);
    let bounds = has(Transport::Limit) && has(Transport::Crosslane);
    let spans = has(Transport::Window) && has(Transport::Crosslane);

    let mut header = vec!["case".to_owned(), String::new()];
    header.extend(transports.iter().map(ToString::to_string));
    header.extend(compares.then(|| "vs tcp".to_owned()));
    header.extend(bounds.then(|| "vs limit".to_owned()));
    header.extend(spans.then(|| "vs window".to_owned()));
    let mut rows = Vec::new();
    for case in results.cases() {
        let mark = |over| results.0.mark(Key { case, over });
        for (index, style) in styles(case).iter().enumerate() {
            let mut row = vec![if index == 0 {
                case.to_string()
            } else {
                String::new()
            }];
            row.push(style.name.to_owned());
            row.extend(
                transports
                    .iter()
                    .map(|&over| shown(value(results, case, over, style), style.show) + mark(over)),
            );
            let to_tcp = || shown(vs_tcp(results, case, style), show::ratio);
            row.extend(compares.then(|| to_tcp() + mark(Transport::Crosslane)));
            row.extend(bounds.then(|| shown(vs_limit(results, case, style), show::ratio)));
            row.extend(spans.then(|| shown(vs_window(results, case, style), show::ratio)));
            rows.push(row);
        }
    }
    show::table(2, header, rows)
}

fn styles(case: Case) -> &'static [Style] {
    match (case.kind, case.bytes) {
        (client::Case::Rtt, _) => &RTT,
        (client::Case::Stream, bytes) if bytes < 1024 => &MESSAGES,
        (client::Case::Stream, _) => &GBPS,
        (client::Case::Connect | client::Case::Brief, _) => &CONNECTIONS,
    }
}

fn value(results: &Results, case: Case, over: Transport, style: &Style) -> Option<f64> {
    results.median(case, over, style.figure)
}

fn vs_tcp(results: &Results, case: Case, style: &Style) -> Option<f64> {
    let old = value(results, case, Transport::Tcp, style)?;
    Some(
        style
            .better
            .ratio(old, value(results, case, Transport::Crosslane, style)?),
    )
}

/// How many times the limit's time it takes; that of round trips was measured beside one message size only.
fn vs_limit(results: &Results, case: Case, style: &Style) -> Option<f64> {
    let is_line = case.kind == client::Case::Rtt && case.bytes <= LINE_BYTES;
    let bytes = if is_line { LINE_BYTES } else { case.bytes };
    let limit = value(results, Case { bytes, ..case }, Transport::Limit, style)?;
    let ours = value(results, case, Transport::Crosslane, style)?;
    Some(style.better.ratio(ours, limit))
}

/// How many times the bare window's time it takes.
fn vs_window(results: &Results, case: Case, style: &Style) -> Option<f64> {
    let window = value(results, case, Transport::Window, style)?;
    Some(value(results, case, Transport::Crosslane, style)? / window)
}

/// What must be said beside the table: what a lane adds to a window. Longer messages take it less time than
/// the window alone, as it cuts them into records.
pub fn notes(results: &Results) -> Vec<String> {
    let case = Case {
        kind: client::Case::Rtt,
        bytes: LINE_BYTES,
    };
    let overhead_ns = results.overhead_ns(case).map(show::nanoseconds);
    let note = |ns| format!("one way, a lane adds {ns} to the bare window for {LINE_BYTES} B");
    overhead_ns.map(note).into_iter().collect()
}

fn shown(value: Option<f64>, show: fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}
