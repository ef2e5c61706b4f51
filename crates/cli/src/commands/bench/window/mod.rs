//! `crosslane bench window`: what a window does, alone and under lanes.

mod bare;
pub mod between;
pub mod carrier;
mod copies;
pub mod stream;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use crosslane_benchkit::{Folder, Machine, stop_children_on_signals};
use crosslane_ctl::lane::MIN_RING_LINES;
use crosslane_membench::map::Mapping;
use crosslane_window::backend::{BarWindow, Place, Window, half_bytes, open};
use crosslane_window::discover::{Roots, pci};
use serde::Serialize;

use crate::commands::pcie::args::parse_bytes;
use crate::commands::pcie::output::OutputArgs;

/// Arguments of `crosslane bench window`.
#[derive(clap::Args)]
pub struct Args {
    /// A file in memory, a PCI device such as 0000:00:05.0, or /dev/dax0.0; what is in it is lost. By
    /// default, a file made in /dev/shm
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
    /// NUMA node of the file that is made
    #[arg(long, value_name = "N", conflicts_with = "place")]
    node: Option<u32>,
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
    stop_children_on_signals()?;
    let target = Target::of(args, bytes)?;
    // As all windows of lanes, it stays mapped as long as the process lives.
    let window: &'static dyn Window = Box::leak(target.window);
    let bytes = bytes.min(2 * half_bytes(window));
    let mapping = Mapping::file(&target.path, bytes)?;
    if let Some(node) = args.node {
        mapping.bind(node)?;
    }
    let mut rows = bare::measure(&mapping, args.quick);
    rows.extend(bare::writes(window, args.quick));
    match messages(window, args.quick)? {
        Ok(found) => rows.extend(found),
        Err(why) => crate::output::note(&format!("crosslane: SKIPPED: messages: {why}")),
    }
    let description = window.description();
    if args.output.is_json() {
        let bench = "machine";
        let preamble = Preamble {
            bench,
            window: &description,
            machine,
        };
        args.output.print("", &[preamble], 2)?;
    }
    args.output
        .print(&format!("window: {description}"), &rows, 1)?;
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

/// A window, and the file that is mapped for it.
struct Target {
    window: Box<dyn Window>,
    path: PathBuf,
    /// Removed at the end.
    _folder: Option<Folder>,
}

impl Target {
    fn of(args: &Args, bytes: usize) -> anyhow::Result<Self> {
        let Some(words) = &args.place else {
            return Self::made(bytes);
        };
        let place = Place::of(words);
        let roots = Roots::system();
        let (window, path): (Box<dyn Window>, _) = match &place {
            Place::Vfio { .. } => {
                bail!("{words}: the bench maps windows by sysfs; leave out vfio:")
            }
            Place::Ntb { .. } => bail!(
                "{words}: the bench plays both sides, and a bridge has one at each host; \
                 `crosslane window test {words}` on both measures latency"
            ),
            Place::Path(path) => (open(&place, &roots, args.coherent)?, path.clone()),
            Place::Pci { address, bar } => {
                let device =
                    pci::device(&roots.pci.join(address)).with_context(|| address.clone())?;
                let bar = bar
                    .or_else(|| device.window_bar())
                    .context("it has no memory region")?;
                let window = BarWindow::open(&device, bar)?;
                let path = window.path().to_owned();
                (Box::new(window), path)
            }
        };
        Ok(Self {
            window,
            path,
            _folder: None,
        })
    }

    fn made(bytes: usize) -> anyhow::Result<Self> {
        let folder = Folder::within(Path::new("/dev/shm"), "crosslane-window-");
        let folder = folder.context("cannot make a file in /dev/shm; name a window instead")?;
        let path = folder.path().join("window");
        std::fs::File::create(&path)?.set_len(bytes as u64)?;
        let place = Place::Path(path.clone());
        Ok(Self {
            window: open(&place, &Roots::system(), false)?,
            path,
            _folder: Some(folder),
        })
    }
}
