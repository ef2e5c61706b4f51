//! `crosslane pcie latency`: the terms of one DMA's latency.

use std::fmt::Write as _;

use crosslane_pcie::model::latency::{Path, Term, read_terms, total_ns, write_read_terms};
use crosslane_pcie::profile::{Device, Host};
use crosslane_pcie::sim::fabric::MAX_HOPS;
use serde::Serialize;

use super::args::Sizes;
use super::number::{real, whole};
use super::output::{OutputArgs, PlotArgs, emit, table};
use super::plot::{Plot, Scale, Series};

/// As many as a simulated way has.
#[allow(clippy::cast_possible_truncation)]
const MOST_HOPS: u32 = MAX_HOPS as u32;

/// Arguments of `crosslane pcie latency`.
#[derive(clap::Args)]
pub struct Args {
    /// Machine: e5-2630v4, e5-2637v3, e5-2620v3, e3-1226v3, or a JSON profile
    #[arg(long, default_value = "e5-2630v4", value_name = "PROFILE")]
    host: String,
    /// Device: nfp-6000, which took the published measurements, ideal, which adds nothing, or a JSON profile
    #[arg(long, default_value = "nfp-6000", value_name = "PROFILE")]
    device: String,
    /// Transfer sizes
    #[arg(
        long,
        visible_alias = "size",
        default_value = "64,256,512,1024,2048",
        value_name = "LIST",
        allow_hyphen_values = true
    )]
    sizes: Sizes,
    /// Share of transfers that miss the cache
    #[arg(long, default_value_t = 0.0, value_name = "0..1", value_parser = real(0.0..=1.0, ""), allow_hyphen_values = true)]
    cold: f64,
    /// Share of transfers that need a page walk
    #[arg(long, default_value_t = 0.0, value_name = "0..1", value_parser = real(0.0..=1.0, ""), allow_hyphen_values = true)]
    walks: f64,
    /// Memory on the other node
    #[arg(long)]
    remote: bool,
    /// Switches on the way
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = whole(0..=MOST_HOPS), allow_hyphen_values = true)]
    hops: u32,
    /// Forwarding time of a switch
    #[arg(long, default_value_t = 115.0, value_name = "NS", requires = "hops", value_parser = real(0.0..=1e6, " ns"), allow_hyphen_values = true)]
    hop_ns: f64,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    plot: PlotArgs,
}

#[derive(Serialize)]
struct Row {
    bytes: u32,
    read_ns: f64,
    write_read_ns: f64,
    read_terms: Vec<Term>,
    write_read_terms: Vec<Term>,
}

/// One term on a line of its own, for CSV, which has no lists.
#[derive(Serialize)]
struct FlatTerm {
    bytes: u32,
    transfer: &'static str,
    term: &'static str,
    ns: f64,
}

fn flat(rows: &[Row]) -> Vec<FlatTerm> {
    let all = rows.iter().flat_map(|row| {
        [
            ("read", &row.read_terms),
            ("write_read", &row.write_read_terms),
        ]
        .into_iter()
        .flat_map(move |(transfer, terms)| terms.iter().map(move |t| (row.bytes, transfer, t)))
    });
    all.map(|(bytes, transfer, t)| FlatTerm {
        bytes,
        transfer,
        term: t.name,
        ns: t.ns,
    })
    .collect()
}

/// Print the terms.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let host = Host::load(&args.host)?;
    check(args, &host)?;
    args.plot.check()?;
    let (device, link) = (Device::load(&args.device)?, host.link.config()?);
    let path = Path {
        hops: args.hops,
        hop_ns: args.hop_ns,
        wire_ns: 0.0,
        cold_share: args.cold,
        walk_share: args.walks,
        remote_node: args.remote,
    };
    let rows: Vec<Row> = args
        .sizes
        .0
        .iter()
        .map(|&bytes| {
            let read = read_terms(&link, &device, &host, &path, bytes);
            let both = write_read_terms(&link, &device, &host, &path, bytes);
            Row {
                bytes,
                read_ns: total_ns(&read),
                write_read_ns: total_ns(&both),
                read_terms: read,
                write_read_terms: both,
            }
        })
        .collect();
    if args.output.is_json() {
        args.output.print("", &rows, 1)?;
    } else if args.output.is_for_people() {
        emit(&text(&host, &device, &rows))?;
    } else {
        args.output.print("", &flat(&rows), 1)?;
    }
    args.plot.draw(|| {
        let line = |name: &str, value: fn(&Row) -> f64| {
            Series::line(
                name,
                rows.iter()
                    .map(|r| (f64::from(r.bytes), value(r)))
                    .collect(),
            )
        };
        Plot {
            title: format!("DMA latency on {}", host.name),
            x_label: "transfer (B)".to_owned(),
            y_label: "latency (ns)".to_owned(),
            x_scale: Scale::Linear,
            series: vec![
                line("read", |r| r.read_ns),
                line("write, then read", |r| r.write_read_ns),
            ],
            y_max: None,
        }
    })
}

fn check(args: &Args, host: &Host) -> anyhow::Result<()> {
    anyhow::ensure!(
        !args.remote || host.nodes > 1,
        "host {} has one NUMA node: leave out --remote, or take a host with two",
        host.name
    );
    Ok(())
}

fn text(host: &Host, device: &Device, rows: &[Row]) -> String {
    let mut text = format!(
        "{} ({}), an idle system, median, ns; device {}\n\nDMA read:\n",
        host.name, host.source, device.name
    );
    text.push_str(&terms_table(rows, |row| &row.read_terms, |row| row.read_ns));
    let _ = writeln!(text, "\nDMA write, then a read behind it:");
    text.push_str(&terms_table(
        rows,
        |row| &row.write_read_terms,
        |row| row.write_read_ns,
    ));
    text
}

fn terms_table(rows: &[Row], terms: fn(&Row) -> &Vec<Term>, total: fn(&Row) -> f64) -> String {
    let Some(first) = rows.first() else {
        return String::new();
    };
    let mut header = vec![format!("{:<28}", "bytes")];
    header.extend(rows.iter().map(|row| row.bytes.to_string()));
    let line = |name: &str, values: Vec<f64>| {
        let mut cells = vec![format!("{name:<28}")];
        cells.extend(values.iter().map(|ns| format!("{ns:.1}")));
        cells
    };
    let mut lines: Vec<Vec<String>> = (0..terms(first).len())
        .filter(|&i| rows.iter().any(|row| terms(row)[i].ns > 0.0))
        .map(|i| {
            line(
                terms(first)[i].name,
                rows.iter().map(|row| terms(row)[i].ns).collect(),
            )
        })
        .collect();
    lines.push(line("total", rows.iter().map(total).collect()));
    table(header, lines)
}
