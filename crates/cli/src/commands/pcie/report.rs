//! `crosslane pcie report`: one self-contained page.

mod figures;

use std::path::PathBuf;

use crosslane_benchkit::Machine;
use crosslane_pcie::judge::Judged;
use crosslane_pcie::model::{AddressWidth, LinkSpec};
use crosslane_pcie_wasm::MODEL_WASM;
use crosslane_pcie_wasm::api::rest_of;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use self::figures::Figure;
use super::args::LinkArgs;
use super::bench::{Findings, latency_plot, quick};
use super::judge::{Group, all, groups};
use super::number::whole;
use super::output::{emit, write_file};
use super::plot::Plot;

/// Arguments of `crosslane pcie report`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    link: LinkArgs,
    /// The page
    #[arg(long, default_value = "pcie.html", value_name = "FILE")]
    out: PathBuf,
    /// Leave this machine out: draw the model and the published machines only
    #[arg(long)]
    no_bench: bool,
    /// Transfers per simulated point
    #[arg(long, default_value_t = 4000, value_parser = whole(100..=1_000_000_u32), allow_hyphen_values = true)]
    transfers: u32,
}

/// Write the page.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let link = args.link.config()?;
    crate::output::check_writable(&args.out)?;
    let judged = all(None, None, args.transfers)?;
    let here = Machine::here();
    let machine = if args.no_bench { None } else { Some(quick()?) };
    let page = page(
        args,
        &judged,
        machine.as_ref().map(|findings| (here, findings)),
        &figures::bandwidth(&link),
    )?;
    write_file(&args.out, &page.into_string())?;
    emit(&format!("{}\n", args.out.display()))
}

/// Enough for a share of 0.1 %.
const DISTRIBUTION_READS: u32 = 200_000;
const STYLE: &str = include_str!("report/page.css");
const SCRIPT: &str = include_str!("report/page.js");

fn page(
    args: &Args,
    judged: &[Judged],
    machine: Option<(Machine, &Findings)>,
    bandwidth: &Plot,
) -> anyhow::Result<Markup> {
    let distributions = figures::distributions(args.transfers.max(DISTRIBUTION_READS))?;
    Ok(html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="color-scheme" content="light dark";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "What PCIe allows and what it costs" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "What PCIe allows and what it costs" }
                (model_section(args, bandwidth)?)
                h2 { "Latency against size" }
                p { "Lines: simulated. Dots: measured by pcie-bench, warm cache, 8 KiB window. Errors are of all dots, \
                     those included that parameters were set by." }
                (compared(&figures::latency(judged)))
                h2 { "How latency is distributed" }
                p { "64 B reads, simulated. The Xeon E3 falls asleep between transactions and wakes in whole periods; \
                     its last tenth of a per cent takes milliseconds." }
                (compared(&distributions))
                h2 { "Address translation" }
                p { "Random reads on the E5-2630v4. Beyond 256 KiB, 64 pages, the IO-TLB no longer holds the window." }
                (compared(&figures::translation(judged)))
                h2 { "Measured against predicted" }
                p { "Bandwidths of every measured configuration: on the diagonal the simulator is right. \
                     The E3's own rows do not repeat: 256 B writes have 7.6, 34.1 and 12.9 Gb/s in windows of 4, 8 and 16 KiB." }
                (compared(&figures::scatter(judged)))
                (error_table(&groups(judged)))
                @if let Some((here, machine)) = machine { (machine_section(&here, machine)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    })
}

fn figures(plots: &[Plot]) -> Markup {
    html! { div .figures { @for plot in plots { figure { (PreEscaped(plot.svg())) } } } }
}

/// Figures that compare, each with its errors below.
fn compared(figures: &[Figure]) -> Markup {
    html! {
        div .figures {
            @for Figure { plot, errors } in figures {
                figure { (PreEscaped(plot.svg())) figcaption { (errors) } }
            }
        }
    }
}

/// The part that redraws. It is drawn here too, for readers without scripts.
fn model_section(args: &Args, bandwidth: &Plot) -> anyhow::Result<Markup> {
    let link = args.link.config()?;
    let spec = link.spec();
    let place = |values: &[u32], value: u32| values.iter().position(|v| *v == value).unwrap_or(0);
    let widths = crosslane_pcie::model::config::WIDTHS;
    let sizes = crosslane_pcie::model::config::PAYLOAD_SIZES;
    Ok(html! {
        h2 { "What a link leaves" }
        div #model data-wasm=(base64(MODEL_WASM)) data-rest=(rest_of(spec)) {
            div .sliders {
                (slider("gen", "Generation", 1, 7, spec.generation.number() as usize))
                (slider("lanes", "Lanes", 0, 5, place(&widths, spec.lanes)))
                (slider("mps", "Maximum payload size", 0, 5, place(&sizes, spec.mps_bytes)))
                (slider("mrrs", "Maximum read request size", 0, 5, place(&sizes, spec.mrrs_bytes)))
            }
            p { (rest_text(spec)) }
            p #readout role="status" { "This page redraws with scripts on; below is the link that it was made for." }
            figure #bandwidth { (PreEscaped(bandwidth.svg())) }
            div .wide { table #rates { tbody {} } }
        }
    })
}

/// What the sliders leave as it was asked for.
fn rest_text(spec: &LinkSpec) -> String {
    let bits = if spec.address == AddressWidth::Bits64 {
        64
    } else {
        32
    };
    let ecrc = if spec.ecrc { "ECRC" } else { "no ECRC" };
    let split = if spec.split_at_rcb {
        "completions cut at the boundary"
    } else {
        "completions of full payloads"
    };
    format!(
        "Not on sliders: read completion boundary {} B, {bits}-bit addresses, {ecrc}, {split}. The rest of the page is of \
         the published machines and their links.",
        spec.rcb_bytes
    )
}

fn slider(id: &str, label: &str, from: u32, to: u32, value: usize) -> Markup {
    html! {
        label for=(id) {
            span { (label) } output id={ (id) "-value" } {}
            input type="range" id=(id) min=(from) max=(to) step="1" value=(value);
        }
    }
}

fn error_table(groups: &[Group]) -> Markup {
    html! {
        div .wide { table {
            caption { "Configurations that no parameter was set by; within 5 % for latency, 7 % for bandwidth" }
            thead { tr { th { "machine" } th { "benchmark" } th { "translated" } th { "rows" } th { "within" }
                th title="by the one value that suits most of the rows that are predicted alike" { "reachable" }
                th { "mean error" } th { "worst" } } }
            tbody {
                @for group in groups {
                    tr {
                        td { (group.host) } td { (group.bench) } td { (if group.iommu { "yes" } else { "no" }) }
                        td .n { (group.rows) } td .n { (group.within) }
                        td .n { (group.reachable) }
                        td .n { (format!("{:.1} %", group.mean_percent)) }
                        td .n { (format!("{:.1} %", group.worst_percent)) }
                    }
                }
            }
        } }
    }
}

fn machine_section(here: &Machine, machine: &Findings) -> Markup {
    let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |v| format!("{v:.1}"));
    html! {
        h2 { "This machine" }
        p { (here.cpu) ", " (here.cores) " CPUs, " (here.kernel) ", " (here.date) }
        (figures(&[latency_plot(machine), figures::loads(machine), figures::streams(machine)]))
        ul { @for knee in &machine.knees {
            li { (format!("{} KiB ({}): {:.1} to {:.1} ns, ", knee.knee.window_bytes >> 10, knee.sweep,
                knee.knee.before_ns, knee.knee.after_ns)) (knee.name) }
        } }
        div .wide { table {
            caption { "PCI devices, and what the model says that their links carry (Gb/s each way)" }
            thead { tr { th { "device" } th { "kind" } th { "link" } th { "MPS" } th { "MRRS" } th { "TLPs" }
                th { "64 B writes" } th { "512 B reads" } } }
            tbody {
                @for device in &machine.devices {
                    tr {
                        td { (device.address) " " (device.id) } td { (device.class) }
                        td { (device.generation.zip(device.lanes).map_or_else(|| "no PCIe link shown".to_owned(),
                            |(g, l)| format!("gen{g} x{l}"))) }
                        td .n { (number(device.mps_bytes.map(f64::from))) }
                        td .n { (number(device.mrrs_bytes.map(f64::from))) }
                        td .n { (number(device.tlp_gbps)) } td .n { (number(device.write_64_gbps)) }
                        td .n { (number(device.read_512_gbps)) }
                    }
                }
            }
        } }
        @for skipped in &machine.skipped { p .skipped { "Not measured: " (skipped) } }
    }
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
