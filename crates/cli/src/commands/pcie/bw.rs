//! `crosslane pcie bw`: bandwidth by transfer size.

use crosslane_pcie::model::bandwidth::{rate, raw_gbps, tlp_gbps};
use crosslane_pcie::model::{Ethernet, LinkConfig, Mix};
use serde::Serialize;

use super::args::{LinkArgs, Sizes};
use super::output::{OutputArgs, PlotArgs};
use super::plot::{Plot, Scale, Series};

/// Arguments of `crosslane pcie bw`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    link: LinkArgs,
    /// Transfer sizes: 64, 1-1500, 64-1500:4, or a list of these
    #[arg(
        long,
        default_value = "64,128,256,257,512,1024,1500,4096",
        value_name = "LIST",
        allow_hyphen_values = true
    )]
    sizes: Sizes,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    plot: PlotArgs,
}

/// One row; the 40 Gb/s columns are those of the published table.
#[derive(Serialize)]
struct Row {
    bytes: u32,
    write_gbps: f64,
    write_per_s: f64,
    read_gbps: f64,
    read_per_s: f64,
    read_write_gbps: f64,
    read_write_per_s: f64,
    ethernet_40g_gbps: f64,
    ethernet_40g_per_s: f64,
}

const PORT: Ethernet = Ethernet { line_gbps: 40.0 };

fn row(link: &LinkConfig, bytes: u32) -> Row {
    let [write, read, both] =
        [Mix::Write, Mix::Read, Mix::ReadWrite].map(|mix| rate(link, mix, bytes));
    Row {
        bytes,
        write_gbps: write.gbps,
        write_per_s: write.per_s,
        read_gbps: read.gbps,
        read_per_s: read.per_s,
        read_write_gbps: both.gbps,
        read_write_per_s: both.per_s,
        ethernet_40g_gbps: PORT.gbps(bytes),
        ethernet_40g_per_s: PORT.frames_per_s(bytes),
    }
}

/// Print the table.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let link = args.link.config()?;
    args.plot.check()?;
    let rows: Vec<Row> = args
        .sizes
        .0
        .iter()
        .map(|&bytes| row(&link, bytes))
        .collect();
    let spec = link.spec();
    let title = format!(
        "{}: {:.2} Gb/s raw, {:.2} Gb/s for TLPs, each way (MPS {} B, MRRS {} B)",
        link.name(),
        raw_gbps(&link),
        tlp_gbps(&link),
        spec.mps_bytes,
        spec.mrrs_bytes
    );
    args.output.print(&title, &rows, 2)?;
    let title = format!(
        "{}, MPS {} B, MRRS {} B: {:.2} Gb/s for TLPs",
        link.name(),
        spec.mps_bytes,
        spec.mrrs_bytes,
        tlp_gbps(&link)
    );
    args.plot.draw(|| plot(&title, &rows))
}

fn plot(title: &str, rows: &[Row]) -> Plot {
    let line = |name: &str, value: fn(&Row) -> f64| {
        Series::line(
            name,
            rows.iter()
                .map(|row| (f64::from(row.bytes), value(row)))
                .collect(),
        )
    };
    Plot {
        title: title.to_owned(),
        x_label: "transfer (B)".to_owned(),
        y_label: "payload, each way (Gb/s)".to_owned(),
        x_scale: Scale::Linear,
        series: vec![
            line("write", |r| r.write_gbps),
            line("read", |r| r.read_gbps),
            line("read and write", |r| r.read_write_gbps),
            line("40G Ethernet", |r| r.ethernet_40g_gbps).reference(),
        ],
        y_max: None,
    }
}
