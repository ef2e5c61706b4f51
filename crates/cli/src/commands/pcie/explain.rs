//! `crosslane pcie explain`: the packets of one transfer, and where each byte goes.

use std::fmt::Write as _;

use crosslane_pcie::model::bandwidth::{
    packet_gbps, rate, raw_gbps, shares, tlp_gbps, transfer_bytes,
};
use crosslane_pcie::model::explain::{Direction, Leg, legs};
use crosslane_pcie::model::tlp::{flit_parts, overhead_parts};
use crosslane_pcie::model::{LinkConfig, Mix, TlpKind};
use serde::Serialize;

use super::args::{LinkArgs, transfer};
use super::output::{OutputArgs, PlotArgs, emit, table};
use super::picture;

/// Arguments of `crosslane pcie explain`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    link: LinkArgs,
    /// Bytes of the transfer
    #[arg(long, default_value = "64", value_name = "BYTES", value_parser = transfer, allow_hyphen_values = true)]
    size: u32,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    plot: PlotArgs,
}

/// The link: what its coding, acknowledgements and flits leave.
#[derive(Serialize)]
struct LinkRow {
    row: &'static str,
    link: String,
    gigatransfers_per_s: f64,
    coding_share: f64,
    raw_gbps: f64,
    ack_share: f64,
    flow_control_share: f64,
    skip_share: f64,
    flit_share: f64,
    tlp_gbps: f64,
}

/// One packet of a transfer.
#[derive(Serialize)]
struct PacketRow {
    row: &'static str,
    transfer: &'static str,
    #[serde(flatten)]
    leg: Leg,
    wire_ns: f64,
}

/// A transfer, all of its packets.
#[derive(Serialize)]
struct TransferRow {
    row: &'static str,
    transfer: &'static str,
    bytes: u32,
    packets: usize,
    up_bytes: f64,
    down_bytes: f64,
    payload_share: f64,
    gbps: f64,
    per_s: f64,
}

/// What a kind of packet carries besides data.
#[derive(Serialize)]
struct PartRow {
    row: &'static str,
    kind: &'static str,
    part: &'static str,
    bytes: u32,
}

/// Print the packets.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let link = args.link.config()?;
    let bytes = args.size;
    let transfers = [("DMA write", Mix::Write), ("DMA read", Mix::Read)];
    args.plot.write(|| {
        let title = format!("{}: {bytes} B, packet by packet", link.name());
        let drawn = transfers.map(|(name, mix)| (name, legs(&link, mix, bytes)));
        picture::draw(&link, &title, &drawn, SHOWN)
    })?;
    if !args.output.is_for_people() {
        return print_rows(args, &link, bytes, transfers);
    }
    let mut text = link_text(&link);
    for (name, mix) in transfers {
        transfer_text(&link, name, mix, bytes, &mut text);
    }
    for kind in KINDS {
        parts_text(&link, kind, &mut text);
    }
    emit(&text)
}

const KINDS: [TlpKind; 3] = [
    TlpKind::MemoryWrite,
    TlpKind::MemoryRead,
    TlpKind::Completion,
];

/// Everything that the text has; CSV has an empty line before each other kind of row.
fn print_rows(
    args: &Args,
    link: &LinkConfig,
    bytes: u32,
    transfers: [(&'static str, Mix); 2],
) -> anyhow::Result<()> {
    let output = &args.output;
    let gap = || if output.is_json() { Ok(()) } else { emit("\n") };
    output.print("", &[link_row(link)], 3)?;
    gap()?;
    let packet = |(transfer, leg)| PacketRow {
        row: "packet",
        transfer,
        wire_ns: wire_ns(link, &leg),
        leg,
    };
    let packets = transfers.iter().flat_map(|&(transfer, mix)| {
        let legs = legs(link, mix, bytes).into_iter();
        legs.map(move |leg| (transfer, leg))
    });
    output.print("", &packets.map(packet).collect::<Vec<_>>(), 3)?;
    gap()?;
    let sums = transfers.map(|(name, mix)| transfer_row(link, name, mix, bytes));
    output.print("", &sums, 3)?;
    gap()?;
    let parts: Vec<PartRow> = KINDS
        .into_iter()
        .flat_map(|kind| {
            let parts = overhead_parts(link, kind).into_iter();
            parts.map(move |part| PartRow {
                row: "part",
                kind: kind.name(),
                part: part.name,
                bytes: part.bytes,
            })
        })
        .collect();
    output.print("", &parts, 3)
}

fn link_row(link: &LinkConfig) -> LinkRow {
    let generation = link.spec().generation;
    let lost = shares(link);
    LinkRow {
        row: "link",
        link: link.name(),
        gigatransfers_per_s: generation.gigatransfers_per_s(),
        coding_share: generation.coding(),
        raw_gbps: raw_gbps(link),
        ack_share: lost.ack,
        flow_control_share: lost.flow_control,
        skip_share: lost.skip,
        flit_share: lost.flit,
        tlp_gbps: tlp_gbps(link),
    }
}

fn transfer_row(link: &LinkConfig, name: &'static str, mix: Mix, bytes: u32) -> TransferRow {
    let (wire, limit) = (transfer_bytes(link, mix, bytes), rate(link, mix, bytes));
    TransferRow {
        row: "transfer",
        transfer: name,
        bytes,
        packets: legs(link, mix, bytes).len(),
        up_bytes: wire.up,
        down_bytes: wire.down,
        payload_share: f64::from(bytes) / wire.tighter(),
        gbps: limit.gbps,
        per_s: limit.per_s,
    }
}

fn wire_ns(link: &LinkConfig, leg: &Leg) -> f64 {
    f64::from(leg.wire_bytes) * 8.0 / packet_gbps(link)
}

fn link_text(link: &LinkConfig) -> String {
    let spec = link.spec();
    let lost = shares(link);
    let mut text = format!(
        "{}: {} GT/s x {} lanes, {:.2} % left by line coding = {:.2} Gb/s each way\n",
        link.name(),
        spec.generation.gigatransfers_per_s(),
        spec.lanes,
        spec.generation.coding() * 100.0,
        raw_gbps(link)
    );
    let shares = [
        ("acknowledgements", lost.ack),
        ("flow control", lost.flow_control),
        ("skip ordered sets", lost.skip),
        ("flit CRC, FEC and data link bytes", lost.flit),
    ];
    for (name, share) in shares.into_iter().filter(|(_, share)| *share > 0.0) {
        let _ = writeln!(text, "  - {:.2} % {name}", share * 100.0);
    }
    if spec.generation.is_flit() {
        let parts: Vec<String> = flit_parts()
            .iter()
            .map(|p| format!("{} {}", p.bytes, p.name))
            .collect();
        let _ = writeln!(text, "  a 256 B flit: {}", parts.join(", "));
    }
    let _ = writeln!(text, "  = {:.2} Gb/s for TLPs", tlp_gbps(link));
    text
}

fn transfer_text(link: &LinkConfig, name: &str, mix: Mix, bytes: u32, text: &mut String) {
    let _ = writeln!(text, "\n{name} of {bytes} B:");
    let header = [
        "way", "packet", "offset", "data", "overhead", "wire B", "wire ns",
    ]
    .map(str::to_owned)
    .to_vec();
    let all = legs(link, mix, bytes);
    let shown = all.iter().take(SHOWN).map(|leg| {
        vec![
            if leg.direction == Direction::Up {
                "up"
            } else {
                "down"
            }
            .to_owned(),
            leg.kind.name().to_owned(),
            leg.offset_bytes.to_string(),
            leg.data_bytes.to_string(),
            leg.overhead_bytes.to_string(),
            leg.wire_bytes.to_string(),
            format!("{:.2}", wire_ns(link, leg)),
        ]
    });
    text.push_str(&table(header, shown.collect()));
    if all.len() > SHOWN {
        let _ = writeln!(
            text,
            "... and {} more packets (--json lists all)",
            all.len() - SHOWN
        );
    }
    let wire = transfer_bytes(link, mix, bytes);
    let limit = rate(link, mix, bytes);
    let _ = writeln!(
        text,
        "{} B up, {} B down; the fuller way is {:.1} % payload: {:.2} Gb/s, {:.2} million per second",
        wire.up,
        wire.down,
        f64::from(bytes) / wire.tighter() * 100.0,
        limit.gbps,
        limit.per_s / 1e6
    );
}

/// Packets of one transfer that are printed in full.
const SHOWN: usize = 32;

fn parts_text(link: &LinkConfig, kind: TlpKind, text: &mut String) {
    let parts = overhead_parts(link, kind);
    let total: u32 = parts.iter().map(|p| p.bytes).sum();
    let items: Vec<String> = parts
        .iter()
        .map(|p| format!("{} {}", p.bytes, p.name))
        .collect();
    let _ = writeln!(
        text,
        "\n{}: {total} B besides data: {}",
        kind.name(),
        items.join(", ")
    );
}
