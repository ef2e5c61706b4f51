//! `crosslane stats`: counters for people, for programs, and for Prometheus.

mod prometheus;

use std::process::ExitCode;

use crosslane_ctl::counter::Counter;
use crosslane_ctl::reason::Reason;
use crosslane_monitor::client::{CountersReport, Counts, MonitorClient, MonitorReport};

use crate::output;
use crate::private::{self, PATIENCE};

/// Arguments of `crosslane stats`.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// Print one JSON object
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,

    /// Print in the text format of Prometheus
    #[arg(long)]
    prometheus: bool,
}

const EXAMPLES: &str = "\
Examples:
  How many connections of all were accelerated:
      crosslane stats

  For the textfile collector of Prometheus' node exporter, from cron:
      crosslane stats --prometheus > /var/lib/node_exporter/crosslane.prom.tmp &&
          mv /var/lib/node_exporter/crosslane.prom.tmp /var/lib/node_exporter/crosslane.prom";

/// Ask the monitor and print its answer.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = MonitorClient::connect(&private::current_directory())?;
    let report = client.counters(PATIENCE)?;
    output::print(&match (args.json, args.prometheus) {
        (true, _) => output::json_lines(&[report])?,
        (_, true) => prometheus::text(&report),
        _ => sections(&report),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A number of the monitor's own, with its name and help, and whether it only ever grows.
struct Own {
    name: &'static str,
    help: &'static str,
    value: u64,
    grows: bool,
}

/// The monitor's own numbers.
fn own(monitor: &MonitorReport) -> Vec<Own> {
    let gauge = |name, help, value| Own {
        name,
        help,
        value,
        grows: false,
    };
    let counter = |name, help, value| Own {
        name,
        help,
        value,
        grows: true,
    };
    let m = monitor;
    vec![
        gauge(
            "uptime_seconds",
            "seconds since the monitor was started",
            m.uptime_seconds,
        ),
        gauge("connections", "control connections", m.connections),
        gauge(
            "processes",
            "processes that have introduced themselves",
            m.processes,
        ),
        gauge("ends", "ends of connections that are registered", m.ends),
        gauge("arenas", "memory objects for rings", m.arenas),
        gauge("slots", "pairs of rings in use", m.slots),
        gauge("leases", "leases held by forked children", m.leases),
        counter(
            "registered",
            "registrations that were accepted",
            m.registered,
        ),
        counter("paired", "pairs of ends that were given rings", m.paired),
        counter("refused", "registrations that were refused", m.refused),
        counter(
            "protocol_errors",
            "clients disconnected for breaking the protocol",
            m.protocol_errors,
        ),
        counter(
            "turned_away",
            "connections turned away: wrong user, over a quota, no descriptor left",
            m.turned_away,
        ),
        counter(
            "too_slow",
            "clients disconnected because they did not read",
            m.too_slow,
        ),
    ]
}

/// Everything for people.
fn sections(report: &CountersReport) -> String {
    let counters = Counter::ALL.iter().map(|counter| {
        let value = report.counters.get(counter.slug()).copied().unwrap_or(0);
        (counter.slug().to_owned(), value, counter.help())
    });
    let open = report
        .open
        .iter()
        .map(|(state, count)| (state.clone(), *count, "connections open now in this state"));
    let own = own(&report.monitor)
        .into_iter()
        .map(|own| (own.name.to_owned(), own.value, own.help));
    [
        section("Programs", counters.collect()),
        section("Open connections", open.collect()),
        section(
            "Open and not accelerated, by reason",
            by_reason(&report.open_reasons),
        ),
        section(
            "Closed on TCP or brought back to it, by reason",
            by_reason(&report.reasons),
        ),
        section("Monitor", own.collect()),
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>()
    .join("\n")
}

type Row = (String, u64, &'static str);

/// Reasons that have occurred, with what they mean.
fn by_reason(counts: &Counts) -> Vec<Row> {
    Reason::ALL
        .iter()
        .filter_map(|reason| {
            let count = counts.get(reason.slug()).copied()?;
            (count > 0).then(|| (reason.slug().to_owned(), count, reason.text()))
        })
        .collect()
}

/// A title and its rows; nothing if there are none.
fn section(title: &str, rows: Vec<Row>) -> Option<String> {
    let width = rows.iter().map(|row| row.0.len()).max()?;
    let mut text = format!("{title}\n");
    for (name, value, help) in rows {
        text.push_str(&format!("  {name:width$} {value:>16}  {help}\n"));
    }
    Some(text)
}
