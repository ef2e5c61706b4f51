//! `crosslane pcie bench`: this machine's memory windows and PCI devices, measured and read.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use crosslane_benchkit::Machine;
use crosslane_membench::chain::{Chain, Layout, Order, RUN};
use crosslane_membench::kernel::{CAN_FLUSH, Store};
use crosslane_membench::knee::{Knee, knees};
use crosslane_membench::map::{Mapping, Pages};
use crosslane_membench::stream::{Move, gbps};
use crosslane_membench::topology::{Cache, caches, cpu_folder, name_cache, name_tlb};
use crosslane_pcie::devices::{self, PciDevice};
use rustix::thread::CpuSet;
use serde::Serialize;

use super::number::{bytes, whole};
use super::output::{OutputArgs, PlotArgs, emit};
use super::plot::{Plot, Scale, Series};
use crate::output::note;

/// Arguments of `crosslane pcie bench`.
#[derive(clap::Args)]
pub struct Args {
    /// A window to measure instead of plain memory: a file on tmpfs, hugetlbfs or DAX, or a BAR in sysfs
    #[arg(long, value_name = "FILE", requires = "overwrite")]
    path: Option<PathBuf>,
    /// Confirm that the file's contents may be destroyed
    #[arg(long)]
    overwrite: bool,
    /// Largest window, 4K to 1G [default: 128M, with --path the file's size]
    #[arg(long, value_name = "BYTES", value_parser = bytes(PAGE as u64..=MOST), allow_hyphen_values = true)]
    max_window: Option<u64>,
    /// Pages of plain memory; a file has its own
    #[arg(long, default_value = "small", conflicts_with = "path")]
    pages: PageKind,
    /// NUMA node of plain memory; a file has its own
    #[arg(long, value_name = "N", conflicts_with = "path", value_parser = whole(0..=1023_u32), allow_hyphen_values = true)]
    node: Option<u32>,
    /// CPU to measure from
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole(0..=CpuSet::MAX_CPU - 1), allow_hyphen_values = true)]
    cpu: usize,
    /// Loads per point; more is slower and steadier
    #[arg(long, default_value_t = 400_000, value_parser = whole(1000..=1_000_000_000_u32), allow_hyphen_values = true)]
    steps: u32,
    /// List the PCI devices only
    #[arg(long)]
    devices_only: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    plot: PlotArgs,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum PageKind {
    /// Base pages
    Small,
    /// Transparent huge pages
    Transparent,
    /// Reserved huge pages of 2 MiB
    Huge,
}

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// What was measured.
    pub bench: &'static str,
    /// Order, or offset, or kind of access.
    pub variant: String,
    /// Window.
    pub window_bytes: usize,
    /// Latency per access.
    pub ns: Option<f64>,
    /// Latency that 99 and 99.9 % of short runs do not exceed.
    pub p99_ns: Option<f64>,
    /// See `p99_ns`.
    pub p999_ns: Option<f64>,
    /// Bandwidth.
    pub gbps: Option<f64>,
}

/// A knee and its name.
#[derive(Debug, Clone, Serialize)]
pub struct NamedKnee {
    /// Always `knee`, so that readers of the lines can tell them apart.
    pub bench: &'static str,
    /// Which sweep.
    pub sweep: String,
    /// The knee.
    #[serde(flatten)]
    pub knee: Knee,
    /// What it is.
    pub name: String,
}

/// All that was found.
pub struct Findings {
    /// Measurements.
    pub points: Vec<Point>,
    /// Knees.
    pub knees: Vec<NamedKnee>,
    /// Devices.
    pub devices: Vec<PciDevice>,
    /// Distributions of random loads, by window, sorted.
    pub distributions: Vec<(usize, Vec<f64>)>,
    /// What was not measured, and why.
    pub skipped: Vec<String>,
}

/// Where a JSON reader learns what machine the lines are from.
#[derive(Serialize)]
struct MachineLine {
    bench: &'static str,
    #[serde(flatten)]
    machine: Machine,
}

/// The smallest window.
const PAGE: usize = 4096;
const MOST: u64 = 1 << 30;
const DEFAULT: u64 = 128 << 20;
/// The fewest pages of a TLB sweep.
const PAGES: usize = 8;

/// Measure and print.
pub fn run(args: &Args) -> anyhow::Result<()> {
    args.plot.check()?;
    // Before this process is bound to one CPU, which would be counted as the machine's only one.
    let machine = Machine::here();
    let findings = if args.devices_only {
        listed()?
    } else {
        args.measure()?
    };
    for line in &findings.skipped {
        note(&format!("crosslane: SKIPPED: {line}"));
    }
    print(args, machine, &findings)?;
    args.plot.draw(|| latency_plot(&findings))
}

/// JSON and CSV have the same rows; CSV has an empty line before each other kind of row.
fn print(args: &Args, machine: Machine, findings: &Findings) -> anyhow::Result<()> {
    let output = &args.output;
    let for_people = output.is_for_people();
    if output.is_json() {
        let bench = "machine";
        output.print("", &[MachineLine { bench, machine }], 2)?;
    }
    let gap = || if output.is_json() { Ok(()) } else { emit("\n") };
    if !args.devices_only {
        output.print("memory window", &findings.points, 2)?;
        gap()?;
        if for_people {
            emit(&knee_text(&findings.knees))?;
        } else {
            output.print("", &findings.knees, 2)?;
        }
        gap()?;
    }
    let title = "PCI devices (model: TLPs each way, 64 B writes, 512 B reads; Gb/s)";
    output.print(title, &findings.devices, 2)
}

fn listed() -> anyhow::Result<Findings> {
    let mut findings = Findings {
        points: Vec::new(),
        knees: Vec::new(),
        devices: Vec::new(),
        distributions: Vec::new(),
        skipped: Vec::new(),
    };
    findings.list_devices()?;
    Ok(findings)
}

/// What the report measures: a short run over plain memory.
pub fn quick() -> anyhow::Result<Findings> {
    let args = Args {
        path: None,
        overwrite: false,
        max_window: Some(64 << 20),
        pages: PageKind::Small,
        node: None,
        cpu: 0,
        steps: 200_000,
        devices_only: false,
        output: OutputArgs::default(),
        plot: PlotArgs::default(),
    };
    args.measure()
}

impl Args {
    fn measure(&self) -> anyhow::Result<Findings> {
        let largest = self.largest()?;
        pin(self.cpu)?;
        let window = self.map(largest)?;
        let mut findings = listed()?;
        let caches = caches(&cpu_folder(self.cpu));
        let steps = self.steps as usize;
        findings.latencies(&window, steps, &caches);
        findings.tlb(&window, steps, &caches);
        findings.distributions(&window, steps);
        findings.offsets(&window, steps);
        findings.streams(&window);
        Ok(findings)
    }

    /// The largest window that was asked for, or that the file has room for.
    fn largest(&self) -> anyhow::Result<usize> {
        let whole = |bytes: u64| (bytes - bytes % PAGE as u64).clamp(PAGE as u64, MOST);
        let bytes = match (self.max_window, &self.path) {
            (Some(bytes), _) => bytes,
            (None, Some(path)) => Mapping::file_bytes(path)?.map_or(DEFAULT, whole),
            (None, None) => DEFAULT,
        };
        anyhow::ensure!(
            (PAGE as u64..=MOST).contains(&bytes) && bytes.is_multiple_of(PAGE as u64),
            "largest window {bytes} is outside 4K to 1G, or no whole pages"
        );
        Ok(usize::try_from(bytes)?)
    }

    fn map(&self, bytes: usize) -> anyhow::Result<Mapping> {
        if let Some(path) = &self.path {
            return Ok(Mapping::file(path, bytes)?);
        }
        let pages = match self.pages {
            PageKind::Small => Pages::Small,
            PageKind::Transparent => Pages::Transparent,
            PageKind::Huge => Pages::Huge,
        };
        let window = Mapping::anonymous(bytes, pages)?;
        if let Some(node) = self.node {
            window.bind(node)?;
        }
        Ok(window)
    }
}

fn pin(cpu: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).with_context(|| {
        format!("cannot run on CPU {cpu}: --cpu takes one that is online and allowed")
    })
}

/// Powers of two and the steps of a half between them.
fn windows(largest: usize) -> Vec<usize> {
    let powers = (12..=30).flat_map(|p| [1_usize << p, 3_usize << (p - 1)]);
    powers
        .filter(|&bytes| bytes <= largest && bytes % PAGE == 0)
        .collect()
}

impl Findings {
    fn list_devices(&mut self) -> anyhow::Result<()> {
        match devices::list(Path::new(devices::SYSFS)) {
            Ok(found) => self.devices = found,
            Err(error) => self.skipped.push(format!(
                "PCI devices: {} cannot be listed: {error}",
                devices::SYSFS
            )),
        }
        if self
            .devices
            .iter()
            .any(|d| d.generation.is_some() && d.mps_bytes.is_none())
        {
            self.skipped.push(
                "MPS and MRRS of some devices: reading configuration space takes root".to_owned(),
            );
        }
        Ok(())
    }

    fn add_ns(&mut self, bench: &'static str, variant: &str, window_bytes: usize, ns: f64) {
        self.points.push(Point {
            bench,
            variant: variant.to_owned(),
            window_bytes,
            ns: Some(ns),
            p99_ns: None,
            p999_ns: None,
            gbps: None,
        });
    }

    fn latencies(&mut self, window: &Mapping, steps: usize, caches: &[Cache]) {
        for (order, name) in [(Order::Random, "random"), (Order::Sequential, "sequential")] {
            let mut sweep = Vec::new();
            for window_bytes in windows(window.bytes()) {
                let layout = Layout {
                    window_bytes,
                    stride_bytes: 64,
                    offset_bytes: 0,
                    order,
                };
                let ns = Chain::lay(window, layout).warm_ns(steps);
                self.add_ns("load", name, window_bytes, ns);
                sweep.push((window_bytes, ns));
            }
            if order == Order::Random {
                self.name_knees("random loads", &sweep, |knee| name_cache(knee, caches));
            }
        }
        let layout = Layout {
            window_bytes: 8192.min(window.bytes()),
            stride_bytes: 64,
            offset_bytes: 0,
            order: Order::Random,
        };
        let chain = Chain::lay(window, layout);
        self.add_ns(
            "write_read",
            "random",
            layout.window_bytes,
            chain.write_read_ns(steps),
        );
        if CAN_FLUSH {
            let layout = Layout {
                window_bytes: window.bytes().min(4 << 20),
                ..layout
            };
            let ns = Chain::lay(window, layout).flushed_ns(steps);
            self.add_ns("load", "flushed", layout.window_bytes, ns);
        } else {
            self.skipped
                .push("flushed loads: no flush instruction that programs may use here".to_owned());
        }
    }

    /// One line of each page: the caches hold the lines long after the TLBs have lost the pages.
    fn tlb(&mut self, window: &Mapping, steps: usize, caches: &[Cache]) {
        let mut skip = |why: String| self.skipped.push(format!("one line per page: {why}"));
        let Some(page) = window.page_bytes() else {
            skip(
                "the window has pages of several sizes, or the kernel does not show them"
                    .to_owned(),
            );
            return;
        };
        let mut windows = windows(window.bytes());
        windows.retain(|bytes| *bytes >= PAGES * page && bytes.is_multiple_of(page));
        if windows.is_empty() {
            let (least, page) = ((PAGES * page) >> 10, page >> 10);
            skip(format!(
                "{PAGES} pages of {page} KiB take a window of {least} KiB"
            ));
        }
        let mut sweep = Vec::new();
        for window_bytes in windows {
            let layout = Layout {
                window_bytes,
                stride_bytes: page,
                offset_bytes: 0,
                order: Order::Random,
            };
            let ns = Chain::lay(window, layout).warm_ns(steps);
            self.add_ns("load", "one line per page", window_bytes, ns);
            sweep.push((window_bytes, ns));
        }
        self.name_knees("one line per page", &sweep, |knee| {
            name_tlb(knee, page, caches)
        });
    }

    fn name_knees(&mut self, sweep: &str, points: &[(usize, f64)], name: impl Fn(&Knee) -> String) {
        for knee in knees(points) {
            let name = name(&knee);
            self.knees.push(NamedKnee {
                bench: "knee",
                sweep: sweep.to_owned(),
                knee,
                name,
            });
        }
    }

    /// Of these windows those that there is room for; the others are named.
    fn with_room(&mut self, bench: &str, windows: &[usize], largest: usize) -> Vec<usize> {
        let (fit, larger): (Vec<usize>, Vec<usize>) =
            windows.iter().partition(|bytes| **bytes <= largest);
        if !larger.is_empty() {
            let larger: Vec<String> = larger
                .iter()
                .map(|bytes| (bytes >> 10).to_string())
                .collect();
            self.skipped.push(format!(
                "{bench} in {} KiB: the largest window is {} KiB",
                larger.join(", "),
                largest >> 10
            ));
        }
        fit
    }

    fn distributions(&mut self, window: &Mapping, steps: usize) {
        let windows = [16 << 10, 512 << 10, 64 << 20];
        for window_bytes in self.with_room("load_distribution", &windows, window.bytes()) {
            let order = Order::Random;
            let layout = Layout {
                window_bytes,
                stride_bytes: 64,
                offset_bytes: 0,
                order,
            };
            let sorted = Chain::lay(window, layout).distribution_ns(steps / RUN + 1000);
            let at =
                |permille: usize| sorted[(sorted.len() * permille / 1000).min(sorted.len() - 1)];
            self.points.push(Point {
                bench: "load_distribution",
                variant: "random".to_owned(),
                window_bytes,
                ns: Some(at(500)),
                p99_ns: Some(at(990)),
                p999_ns: Some(at(999)),
                gbps: None,
            });
            self.distributions.push((window_bytes, sorted));
        }
    }

    fn offsets(&mut self, window: &Mapping, steps: usize) {
        for offset_bytes in [0, 8, 32, 56, 57, 60, 63] {
            let window_bytes = 16384.min(window.bytes());
            let layout = Layout {
                window_bytes,
                stride_bytes: 64,
                offset_bytes,
                order: Order::Random,
            };
            // Words that lie in two lines would overlap their neighbours' first bytes.
            let layout = if offset_bytes > 56 {
                Layout {
                    stride_bytes: 128,
                    ..layout
                }
            } else {
                layout
            };
            let ns = Chain::lay(window, layout).warm_ns(steps);
            self.add_ns("load", &format!("offset {offset_bytes}"), window_bytes, ns);
        }
    }

    fn streams(&mut self, window: &Mapping) {
        let kinds = [
            ("load", Move::Load),
            ("store", Move::Store(Store::Cached)),
            ("non-temporal store", Move::Store(Store::NonTemporal)),
        ];
        let windows = [16 << 10, 256 << 10, 4 << 20, 64 << 20, 1 << 30];
        for window_bytes in self.with_room("stream", &windows, window.bytes()) {
            for (kind, what) in kinds {
                for (order, name) in [
                    (Order::Sequential, "sequential"),
                    (Order::Random, "scattered"),
                ] {
                    let rate = gbps(window, window_bytes, what, order, STREAM_BYTES);
                    self.points.push(Point {
                        bench: "stream",
                        variant: format!("{name} {kind}"),
                        window_bytes,
                        ns: None,
                        p99_ns: None,
                        p999_ns: None,
                        gbps: Some(rate),
                    });
                }
            }
        }
    }
}

/// Bytes moved for one bandwidth.
const STREAM_BYTES: usize = 96 << 20;

fn knee_text(knees: &[NamedKnee]) -> String {
    let lines: Vec<String> = knees
        .iter()
        .map(|k| {
            format!(
                "knee at {} KiB of {}: {:.2} -> {:.2} ns: {}\n",
                k.knee.window_bytes >> 10,
                k.sweep,
                k.knee.before_ns,
                k.knee.after_ns,
                k.name
            )
        })
        .collect();
    if lines.is_empty() {
        "no knee found\n".to_owned()
    } else {
        lines.concat()
    }
}

/// Latency against window size, one line per order.
pub fn latency_plot(findings: &Findings) -> Plot {
    let series = ["random", "sequential", "one line per page"].map(|variant| {
        let mine = findings
            .points
            .iter()
            .filter(|p| p.bench == "load" && p.variant == variant);
        #[allow(clippy::cast_precision_loss)]
        let points = mine
            .filter_map(|p| p.ns.map(|ns| (p.window_bytes as f64, ns)))
            .collect();
        Series::line(variant, points)
    });
    Plot {
        title: "dependent loads on this machine".to_owned(),
        x_label: "window (B)".to_owned(),
        y_label: "per load (ns)".to_owned(),
        x_scale: Scale::Log2,
        series: series.into(),
        y_max: None,
    }
}
