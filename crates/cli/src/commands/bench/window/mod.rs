//! `crosslane bench window`: what a window does, alone and under lanes.

mod bare;
pub mod between;
pub mod carrier;
mod copies;
mod hosts;
pub mod stream;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use crosslane_benchkit::{Folder, Machine, stop_children_on_signals};
use crosslane_ctl::lane::MIN_RING_LINES;
use crosslane_membench::map::Mapping;
use crosslane_membench::node::bind_thread;
use crosslane_window::backend::{
    Memory, Place, Window, half_bytes, lasting_view, open, open_bridge,
};
use crosslane_window::discover::Roots;
use serde::Serialize;

use crate::commands::bench::output::took;
use crate::commands::pcie::args::parse_bytes;
use crate::commands::pcie::output::OutputArgs;
use hosts::Side;

/// Arguments of `crosslane bench window`.
#[derive(clap::Args)]
pub struct Args {
    /// A file in memory, a PCI device such as 0000:00:05.0, vfio:0000:00:05.0, ntb:0000:17:00.0, or /dev/dax0.0; what is in
    /// it is lost. By default, a file made in /dev/shm
    #[arg(requires = "overwrite")]
    place: Option<String>,
    /// Confirm that the window's contents may be destroyed
    #[arg(long)]
    overwrite: bool,
    /// Hosts keep DAX memory coherent: do not flush
    #[arg(long)]
    coherent: bool,
    /// Fewer points, in less than 30 s
    #[arg(long)]
    quick: bool,
    /// Largest part of the window, 128K to 1G
    #[arg(long, default_value = "16M", value_name = "BYTES", value_parser = parse_bytes)]
    max_window: u64,
    /// NUMA node on whose processors this runs, and where its own buffers are, as well as the file if one is made. A window
    /// that is named stays where it is
    #[arg(long, value_name = "N")]
    node: Option<u32>,
    /// Send messages to the other host, which runs the same with --answer. Over a bridge that is always so
    #[arg(long, requires = "place")]
    other_host: bool,
    /// Measure nothing, but send back what the other host's bench sends
    #[arg(long, requires = "place", conflicts_with_all = ["other_host", "quick", "max_window"])]
    answer: bool,
    /// Seconds to wait for the other host
    #[arg(long, default_value_t = 60, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    patience: u64,
    #[command(flatten)]
    output: OutputArgs,
}

/// One measurement.
#[derive(Debug, Clone, Serialize)]
struct Row {
    bench: &'static str,
    /// What was measured.
    kind: &'static str,
    /// Order, way, or what carries the message.
    variant: String,
    /// Of one access or message.
    bytes: usize,
    /// Part of the window.
    window_bytes: usize,
    /// Offset in the line.
    offset: usize,
    /// Time for one.
    ns: Option<f64>,
    /// That 99 and 99.9 % of short runs do not exceed.
    p99_ns: Option<f64>,
    /// See `p99_ns`.
    p999_ns: Option<f64>,
    /// Bandwidth.
    gbps: Option<f64>,
}

impl Row {
    fn new(kind: &'static str, variant: &str, bytes: usize, window_bytes: usize) -> Self {
        Self {
            bench: "window",
            kind,
            variant: variant.to_owned(),
            bytes,
            window_bytes,
            offset: 0,
            ns: None,
            p99_ns: None,
            p999_ns: None,
            gbps: None,
        }
    }

    fn ns(self, ns: f64) -> Self {
        Self {
            ns: Some(ns),
            ..self
        }
    }

    fn gbps(self, gbps: f64) -> Self {
        Self {
            gbps: Some(gbps),
            ..self
        }
    }
}

/// Where a JSON reader learns which machine and which window.
#[derive(Serialize)]
struct Preamble<'a> {
    bench: &'static str,
    window: &'a str,
    /// As the person says.
    node: Option<u32>,
    #[serde(flatten)]
    machine: Machine,
}

/// Measure and print.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // Before threads are bound to processors.
    let machine = Machine::here();
    let bytes = usize::try_from(args.max_window)?;
    ensure!(
        (128 << 10..=1 << 30).contains(&bytes) && bytes.is_multiple_of(4096),
        "largest part {bytes} is outside 128K to 1G, or no whole pages"
    );
    if let Some(node) = args.node
        && bind_thread(node)?.is_empty()
        && node != 0
    {
        let lack = format!("NUMA node {node} has no processors: only memory is taken there");
        crate::output::note(&format!("crosslane: {lack}"));
    }
    stop_children_on_signals()?;
    let target = Target::of(args, bytes)?;
    // As all windows of lanes, it stays mapped as long as the process lives.
    let window: &'static dyn Window = Box::leak(target.window);
    let description = window.description();
    if args.answer {
        return answer(args, window);
    }
    let is_shared = matches!(window.memory(), Memory::Shared(_));
    let rows = match is_shared && !args.other_host {
        true => alone(args, window, bytes)?,
        false => hosts::ask(&side(args, window, 0), args.quick, bytes)?,
    };
    let took = took(machine.took_s);
    if args.output.is_json() {
        let bench = "machine";
        let preamble = Preamble {
            bench,
            window: &description,
            node: args.node,
            machine,
        };
        args.output.print("", &[preamble], 2)?;
    }
    let node = args.node.map(|node| format!(", by NUMA node {node}"));
    let title = format!("window: {description}{}{took}", node.unwrap_or_default());
    args.output.print(&title, &rows, 1)?;
    Ok(ExitCode::SUCCESS)
}

/// All that one host can measure by itself, playing both sides.
fn alone(args: &Args, window: &'static dyn Window, most_bytes: usize) -> anyhow::Result<Vec<Row>> {
    let bytes = most_bytes.min(2 * half_bytes(window));
    let view = lasting_view(window, 0, bytes).context("both halves lie inside the window")?;
    let mapping = Mapping::of_view(view);
    if let (Some(node), None) = (args.node, &args.place) {
        mapping.bind(node)?;
    }
    let mut rows = bare::measure(&mapping, args.quick);
    rows.extend(bare::writes(window, 0, 0, args.quick));
    match messages(window, args.quick)? {
        Ok(found) => rows.extend(found),
        Err(why) => crate::output::note(&format!("crosslane: SKIPPED: messages: {why}")),
    }
    Ok(rows)
}

/// The side of this host, which a bridge knows.
fn side<'a>(args: &Args, window: &'static dyn Window, usual: u8) -> Side<'a> {
    Side {
        window,
        side: window.side().unwrap_or(usual),
        patience: Duration::from_secs(args.patience),
        remedy: match args.answer {
            true => "`crosslane bench window PLACE --overwrite --other-host`",
            false => "`crosslane bench window PLACE --overwrite --answer`",
        },
    }
}

/// What the side that answers has done.
#[derive(Serialize)]
struct Answered {
    bench: &'static str,
    kind: &'static str,
    /// Sent back.
    messages: u64,
}

fn answer(args: &Args, window: &'static dyn Window) -> anyhow::Result<ExitCode> {
    let messages = hosts::answer(&side(args, window, 1))?;
    let answered = Answered {
        bench: "window",
        kind: "answered",
        messages,
    };
    let title = format!("window: {}", window.description());
    args.output.print(&title, &[answered], 1)?;
    Ok(ExitCode::SUCCESS)
}

/// What messages take, or why they cannot be sent.
fn messages(window: &'static dyn Window, quick: bool) -> anyhow::Result<Result<Vec<Row>, String>> {
    let (half, least) = (half_bytes(window), carrier::lane_bytes(MIN_RING_LINES));
    if half < least {
        return Ok(Err(format!(
            "halves of {half} bytes have no room for a lane, {least} have"
        )));
    }
    let found = between::measure(window, quick)?;
    Ok(found.ok_or_else(|| "they take two processors".to_owned()))
}

/// A window.
struct Target {
    window: Box<dyn Window>,
    /// Removed at the end.
    _folder: Option<Folder>,
}

impl Target {
    fn of(args: &Args, bytes: usize) -> anyhow::Result<Self> {
        let Some(words) = &args.place else {
            return Self::made(bytes);
        };
        let roots = Roots::system();
        let patience = Duration::from_secs(args.patience);
        let window = match Place::of(words) {
            Place::Ntb { address, bar } => Box::new(open_bridge(&address, bar, &roots, patience)?),
            place => open(&place, &roots, args.coherent)?,
        };
        Ok(Self {
            window,
            _folder: None,
        })
    }

    fn made(bytes: usize) -> anyhow::Result<Self> {
        let folder = Folder::within(Path::new("/dev/shm"), "crosslane-window-");
        let folder = folder.context("cannot make a file in /dev/shm; name a window instead")?;
        let path = folder.path().join("window");
        std::fs::File::create(&path)?.set_len(bytes as u64)?;
        Ok(Self {
            window: open(&Place::Path(path), &Roots::system(), false)?,
            _folder: Some(folder),
        })
    }
}

#[cfg(test)]
mod tests;
