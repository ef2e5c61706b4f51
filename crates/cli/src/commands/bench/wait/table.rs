//! The table: a row for each way at each rate.

use crosslane_benchkit::show;

use super::super::output::number;
use super::results::{Cell, Figures, Key, Medians, Results, keeps_up, medians};
use super::way::Way;

/// The results as a table.
pub fn table(results: &Results) -> String {
    let cells = results.rounds.cells();
    let has_watts = cells
        .iter()
        .any(|cell| medians(cell).is_some_and(|medians| medians.watts.is_some()));
    let mut header = ["requests/s", "waiting", "p50", "p99", "server CPU"]
        .map(str::to_owned)
        .to_vec();
    header.extend(results.counts_client.then(|| "client CPU".to_owned()));
    header.extend(has_watts.then(|| "watts".to_owned()));
    header.extend(["p50 vs tcp".to_owned(), "answers/s".to_owned()]);
    let mut rows = Vec::new();
    for rate in results.rates() {
        for (index, cell) in results.at(rate).enumerate() {
            let name = match rate {
                _ if index > 0 => String::new(),
                0 => "idle".to_owned(),
                rate => show::round(f64::from(rate)),
            };
            let mut row = vec![name, cell.key.way.to_string()];
            row.extend(figures(results, cell, has_watts));
            rows.push(row);
        }
    }
    show::table(2, header, rows)
}

fn figures(results: &Results, cell: &Cell, has_watts: bool) -> Vec<String> {
    let (key, medians) = (cell.key, medians(cell));
    let of = |figure: fn(&Medians) -> Option<f64>| medians.as_ref().and_then(figure);
    let cpu = |value: Option<f64>| shown(value, |value| format!("{value:.3}"));
    let latency = |figure: fn(&Figures) -> Option<f64>| {
        let value = cell.median(figure);
        let star = match results.is_on_frontier(key, figure) {
            Some(true) => " *",
            _ => "  ",
        };
        shown(value, show::nanoseconds) + cell.mark() + star
    };
    let mut row = vec![
        latency(Figures::p50_ns),
        latency(Figures::p99_ns),
        cpu(of(|m| Some(m.server_cpu))),
    ];
    row.extend(
        results
            .counts_client
            .then(|| cpu(of(|m| Some(m.client_cpu)))),
    );
    row.extend(has_watts.then(|| shown(of(|m| m.watts), show::three_digits)));
    row.push(shown(vs_tcp(results, key, medians.as_ref()), show::ratio) + cell.mark());
    let answers = of(|m| Some(m.answered_per_s)).filter(|_| key.per_second > 0);
    row.push(shown(answers, show::count));
    row
}

/// How many times shorter the median is than blocking TCP's at the same rate.
fn vs_tcp(results: &Results, key: Key, own: Option<&Medians>) -> Option<f64> {
    let way = Way::Tcp;
    if key.way == way {
        return None;
    }
    let cell = results.rounds.cell(Key { way, ..key })?;
    let tcp = medians(cell).filter(|medians| keeps_up(cell.key, medians) == Some(true))?;
    Some(number(tcp.p50_ns?) / number(own?.p50_ns?))
}

fn shown(value: Option<f64>, show: fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}
