//! The table: a row for each transport and number of connections.

use crosslane_benchkit::show;

use super::super::output::number;
use super::results::{Cell, Medians, Results, Transport, medians};

const HEADER: [&str; 13] = [
    "connections",
    "over",
    "p50",
    "p99",
    "vs tcp",
    "vs one",
    "programs each",
    "monitor each",
    "shared each",
    "all",
    "kernel each",
    "server CPU",
    "client CPU",
];

/// The results as a table.
pub fn table(results: &Results) -> String {
    let header = HEADER.map(str::to_owned).to_vec();
    let rows = results.0.cells().iter().map(|cell| row(results, cell));
    show::table(2, header, rows.collect())
}

fn row(results: &Results, cell: &Cell) -> Vec<String> {
    let key = cell.key;
    let mut row = vec![key.connections.to_string(), key.over.to_string()];
    let Some(own) = medians(cell) else {
        row.resize(HEADER.len(), "-".to_owned());
        return row;
    };
    let each = |bytes: u64| show::memory(number(bytes) / f64::from(key.connections));
    let cpu = |cpu: f64| format!("{cpu:.3}");
    row.extend([
        show::nanoseconds(number(own.p50_ns)) + cell.mark(),
        own.p99_ns
            .map_or_else(|| "-".to_owned(), |ns| show::nanoseconds(number(ns))),
        ratio(vs_tcp(results, cell, &own)) + cell.mark(),
        ratio(vs_one(results, cell, &own)),
        each(own.program_bytes),
        each(own.monitor_bytes),
        each(own.shared_bytes),
        show::memory(number(own.total_bytes)),
        each(own.kernel_bytes),
        cpu(own.idle_server_cpu),
        cpu(own.idle_client_cpu),
    ]);
    row
}

/// How many times shorter the median is than TCP's with as many connections.
fn vs_tcp(results: &Results, cell: &Cell, own: &Medians) -> Option<f64> {
    if cell.key.over == Transport::Tcp {
        return None;
    }
    let tcp = results.medians(cell.key.connections, Transport::Tcp)?;
    Some(number(tcp.p50_ns) / number(own.p50_ns))
}

/// How many times the median of a single connection it takes.
fn vs_one(results: &Results, cell: &Cell, own: &Medians) -> Option<f64> {
    if cell.key.connections == 1 {
        return None;
    }
    let one = results.medians(1, cell.key.over)?;
    Some(number(own.p50_ns) / number(one.p50_ns))
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), show::ratio)
}
