//! `crosslane pcie nic`: designs compared, or what a port asks of them.

use std::fmt::Write as _;

use crosslane_pcie::model::nic::{self, Design, Reading, without_crc};
use crosslane_pcie::model::outstanding::{demand, in_flight, whole};
use crosslane_pcie::model::{Ethernet, LinkConfig};
use serde::Serialize;

use super::args::{LinkArgs, Sizes, parse_rate};
use super::number::real;
use super::output::{OutputArgs, PlotArgs, emit};
use super::plot::{Plot, Scale, Series};

/// Arguments of `crosslane pcie nic`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    link: LinkArgs,
    /// Designs: simple, kernel, dpdk, niq, window, or all
    #[arg(long, default_value = "all", value_name = "NAME")]
    model: String,
    /// Compute as the published program does, which drops receive descriptor fetches; simple, kernel and dpdk only
    #[arg(long)]
    as_published: bool,
    /// Frame sizes, CRC included (which stays on the NIC): 64, 64-1518, or a list of these
    #[arg(
        long,
        visible_alias = "size",
        default_value = "64,128,256,512,1024,1500",
        value_name = "LIST",
        allow_hyphen_values = true
    )]
    sizes: Sizes,
    /// Say what a port of this rate asks of a design, for example 100G
    #[arg(long, value_name = "RATE", value_parser = parse_rate, allow_hyphen_values = true)]
    rate: Option<f64>,
    /// With --rate: time from a DMA read's command to its data
    #[arg(long, default_value_t = 900.0, value_name = "NS", requires = "rate", value_parser = real(1.0..=1e7, " ns"), allow_hyphen_values = true)]
    latency: f64,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    plot: PlotArgs,
}

#[derive(Serialize)]
struct Row {
    bytes: u32,
    model: &'static str,
    bidirectional_gbps: f64,
    tx_gbps: f64,
    rx_gbps: f64,
}

/// Print the comparison or the demand.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let link = args.link.config()?;
    args.plot.check()?;
    let reading = if args.as_published {
        Reading::AsPublished
    } else {
        Reading::Corrected
    };
    let designs = designs(args)?;
    match args.rate {
        Some(line_gbps) => sustain(args, &link, &designs, reading, Ethernet { line_gbps }),
        None => compare(args, &link, &designs, reading),
    }
}

fn designs(args: &Args) -> anyhow::Result<Vec<&'static Design>> {
    if args.model == "all" {
        let mut all = nic::ALL.to_vec();
        all.retain(|design| design.is_published() || !args.as_published);
        return Ok(all);
    }
    let design = nic::by_name(&args.model)?;
    anyhow::ensure!(
        design.is_published() || !args.as_published,
        "--as-published with --model {}, which the published program does not have: it has simple, kernel and dpdk",
        design.name
    );
    Ok(vec![design])
}

fn compare(
    args: &Args,
    link: &LinkConfig,
    designs: &[&Design],
    reading: Reading,
) -> anyhow::Result<()> {
    let row = |design: &Design, bytes: u32| {
        let rate = design.rate(link, bytes, reading);
        Row {
            bytes,
            model: design.name,
            bidirectional_gbps: rate.bidirectional_gbps,
            tx_gbps: rate.tx_gbps,
            rx_gbps: rate.rx_gbps,
        }
    };
    let rows: Vec<Row> = args
        .sizes
        .0
        .iter()
        .flat_map(|&bytes| designs.iter().map(move |design| row(design, bytes)))
        .collect();
    let title = format!(
        "NIC designs on {}, frame bytes without CRC, Gb/s",
        link.name()
    );
    args.output.print(&title, &rows, 3)?;
    args.plot.draw(|| Plot {
        title,
        x_label: "frame (B)".to_owned(),
        y_label: "both directions at once, each (Gb/s)".to_owned(),
        x_scale: Scale::Linear,
        series: designs
            .iter()
            .map(|design| {
                let mine = rows.iter().filter(|row| row.model == design.name);
                Series::line(
                    design.name,
                    mine.map(|r| (f64::from(r.bytes), r.bidirectional_gbps))
                        .collect(),
                )
            })
            .collect(),
        y_max: None,
    })
}

#[derive(Serialize)]
struct Sustain {
    rate_gbps: f64,
    bytes: u32,
    frames_per_s: f64,
    interval_ns: f64,
    latency_ns: f64,
    /// Of payload alone, as a design needs them that sends by DMA.
    payload_reads_in_flight: f64,
    model: &'static str,
    /// Of this design, payload and descriptors.
    reads_in_flight: f64,
    tags: u64,
    read_buffer_bytes: u64,
    up_load: f64,
    down_load: f64,
    keeps_up: bool,
    keeps_up_from_bytes: Option<u32>,
}

fn sustain(
    args: &Args,
    link: &LinkConfig,
    designs: &[&Design],
    reading: Reading,
    port: Ethernet,
) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for &bytes in &args.sizes.0 {
        for design in designs {
            rows.push(sustain_row(args, link, design, reading, port, bytes));
        }
    }
    args.plot.draw(|| load_plot(link, port, designs, &rows))?;
    if !args.output.is_for_people() {
        return args.output.print("", &rows, 2);
    }
    let mut text = String::new();
    for of_size in rows.chunk_by(|a, b| a.bytes == b.bytes) {
        describe(link, port, of_size, &mut text);
    }
    emit(&text)
}

fn load_plot(link: &LinkConfig, port: Ethernet, designs: &[&Design], rows: &[Sustain]) -> Plot {
    let of = |design: &&Design| {
        let mine = rows.iter().filter(|row| row.model == design.name);
        let points = mine.map(|r| (f64::from(r.bytes), r.up_load.max(r.down_load) * 100.0));
        Series::line(design.name, points.collect())
    };
    let mut series: Vec<Series> = designs.iter().map(of).collect();
    let full = rows.iter().map(|row| (f64::from(row.bytes), 100.0));
    series.push(Series::line("full", full.collect()).reference());
    Plot {
        title: format!("{} Gb/s both ways over {}", port.line_gbps, link.name()),
        x_label: "frame (B)".to_owned(),
        y_label: "load of the fuller way (%)".to_owned(),
        x_scale: Scale::Linear,
        series,
        y_max: None,
    }
}

fn sustain_row(
    args: &Args,
    link: &LinkConfig,
    design: &Design,
    reading: Reading,
    port: Ethernet,
    bytes: u32,
) -> Sustain {
    let moved = without_crc(bytes);
    let demand = demand(link, port, bytes, args.latency);
    let wire = design.tx_bytes(link, moved, reading) + design.rx_bytes(link, moved, reading);
    let byte_rate = crosslane_pcie::model::bandwidth::tlp_gbps(link) * 1e9 / 8.0;
    let load = wire * (demand.frames_per_s / byte_rate);
    let reads = design.reads(link, moved);
    let under_way = |per_frame| in_flight(demand.frames_per_s * per_frame, args.latency);
    Sustain {
        rate_gbps: port.line_gbps,
        bytes,
        frames_per_s: demand.frames_per_s,
        interval_ns: demand.interval_ns,
        latency_ns: args.latency,
        payload_reads_in_flight: demand.reads_in_flight,
        model: design.name,
        reads_in_flight: under_way(reads.transfers),
        tags: whole(under_way(reads.requests)),
        read_buffer_bytes: whole(under_way(reads.bytes)),
        up_load: load.up,
        down_load: load.down,
        keeps_up: load.tighter() <= 1.0,
        keeps_up_from_bytes: design.keeps_up_from(link, port, 9018, reading),
    }
}

fn describe(link: &LinkConfig, port: Ethernet, rows: &[Sustain], text: &mut String) {
    let Some(first) = rows.first() else { return };
    let _ = writeln!(
        text,
        "{} Gb/s of {} B frames over {}:\n  a frame every {:.2} ns each way, {:.2} million per second\n  \
         {:.1} payload reads under way at {:.0} ns each, where a design reads the payload; as many writes the other way",
        port.line_gbps,
        first.bytes,
        link.name(),
        first.interval_ns,
        first.frames_per_s / 1e6,
        first.payload_reads_in_flight,
        first.latency_ns
    );
    for row in rows {
        let verdict = match (row.keeps_up, row.keeps_up_from_bytes) {
            (true, _) => "keeps up".to_owned(),
            (false, Some(bytes)) => format!("keeps up from {bytes} B"),
            (false, None) => "never keeps up on this link".to_owned(),
        };
        let _ = writeln!(
            text,
            "  {:<7} {:<51} link {:>4.0} % full up, {:>4.0} % down: {verdict}",
            row.model,
            reads_text(row),
            row.up_load * 100.0,
            row.down_load * 100.0
        );
    }
}

fn reads_text(row: &Sustain) -> String {
    if row.tags == 0 {
        return "reads nothing,".to_owned();
    }
    format!(
        "{:>5.1} reads under way, {:>4} tags, {:>6} B of buffer,",
        row.reads_in_flight, row.tags, row.read_buffer_bytes
    )
}
