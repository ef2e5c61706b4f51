//! `crosslane pcie sim`: the micro-benchmarks on a simulated machine.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::ValueEnum;
use crosslane_pcie::profile::{Device, Host, MAX_CONTEXTS};
use crosslane_pcie::sim::bench::{
    self, BRIDGE, Latencies, MAX_ADDRESS, Outcome, Pattern, Report, Run, SWITCH, TRANSFERS,
};
use crosslane_pcie::sim::cache::CacheState;
use crosslane_pcie::sim::fabric::{Hop, MAX_TAGS, Options};
use crosslane_pcie::sim::ns;
use crosslane_pcie::sim::trace::chrome_json;
use serde::Serialize;

use super::args::{LinkChanges, Sizes};
use super::number::{bytes, page, real, whole};
use super::output::{OutputArgs, write_file};
use crate::output::{check_writable, note};

/// Arguments of `crosslane pcie sim`.
#[derive(clap::Args)]
pub struct Args {
    /// Benchmark
    #[arg(long, default_value = "lat_rd", value_name = "NAME")]
    bench: Bench,
    /// Machine: e5-2630v4, e5-2637v3, e5-2620v3, e3-1226v3, or a JSON profile
    #[arg(long, default_value = "e5-2630v4", value_name = "PROFILE")]
    host: String,
    #[command(flatten)]
    link: LinkChanges,
    #[command(flatten)]
    device: DeviceArgs,
    /// Transfer sizes
    #[arg(
        long,
        visible_alias = "sizes",
        default_value = "64",
        value_name = "LIST",
        allow_hyphen_values = true
    )]
    size: Sizes,
    /// Window that transfers fall into
    #[arg(long, default_value = "8K", value_name = "BYTES", value_parser = bytes(1..=MAX_ADDRESS), allow_hyphen_values = true)]
    window: u64,
    /// Address at which the window begins, in whole lines: 2K makes it straddle one page more
    #[arg(long, default_value = "0", value_name = "BYTES", value_parser = bytes(0..=MAX_ADDRESS), allow_hyphen_values = true)]
    start: u64,
    /// Offset of each transfer in its line, 0 to 63
    #[arg(long, default_value_t = 0, value_name = "BYTES", value_parser = whole(0..=63_u32), allow_hyphen_values = true)]
    offset: u32,
    /// Access pattern
    #[arg(long, default_value = "random")]
    pattern: Access,
    /// State of the cache at the start
    #[arg(long, default_value = "warm")]
    cache: Cache,
    /// The same as --cache cold
    #[arg(long, conflicts_with = "cache")]
    cold: bool,
    /// Translate addresses
    #[arg(long)]
    iommu: bool,
    /// Page size of the translation
    #[arg(long, value_name = "BYTES", value_parser = page, requires = "iommu", allow_hyphen_values = true)]
    page: Option<u64>,
    /// NUMA node of the memory: 0 is the device's own, 1 the other
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole(0..=1_u32), allow_hyphen_values = true)]
    node: u32,
    /// The same as --node 1
    #[arg(long, conflicts_with = "node")]
    remote: bool,
    /// Switches and bridges from the device to the host, for example switch,ntb
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    hops: Vec<HopKind>,
    /// Transfers to simulate [default: 20000; of large ones as many as are 1 GiB, but at least 100]
    #[arg(long, value_name = "N", value_parser = whole(TRANSFERS), allow_hyphen_values = true)]
    transfers: Option<u32>,
    /// Seed
    #[arg(long, default_value_t = 1, value_parser = whole(0..=u64::MAX), allow_hyphen_values = true)]
    seed: u64,
    /// Write the first packets of each size into this file, one line each
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write them for chrome://tracing or Perfetto
    #[arg(long, value_name = "FILE")]
    chrome_trace: Option<PathBuf>,
    /// How many packets of each size to trace [default: 1000]
    #[arg(long, value_name = "N", value_parser = whole(1..=MAX_PACKETS), allow_hyphen_values = true)]
    trace_packets: Option<usize>,
    /// Print the profile as JSON and stop: a start for one of your own
    #[arg(long)]
    print_profile: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// The device that transfers, and what of it is to be different.
#[derive(clap::Args)]
struct DeviceArgs {
    /// Device: nfp-6000, the programmable NIC that took the published measurements; ideal, which adds
    /// nothing; or a JSON profile
    #[arg(long, default_value = "nfp-6000", value_name = "PROFILE")]
    device: String,
    /// Reads that the device has under way at once [default: the device's, 21 of nfp-6000]
    #[arg(long, value_name = "N", value_parser = whole(1..=MAX_CONTEXTS), allow_hyphen_values = true)]
    contexts: Option<usize>,
    /// Least time between the device's writes [default: the device's, 21.1 of nfp-6000]
    #[arg(long, value_name = "NS", value_parser = real(0.0..=1e6, " ns"), allow_hyphen_values = true)]
    write_gap: Option<f64>,
    /// Least time between the packets of one write [default: the device's, 14.7 of nfp-6000]
    #[arg(long, value_name = "NS", value_parser = real(0.0..=1e6, " ns"), allow_hyphen_values = true)]
    packet_gap: Option<f64>,
    /// Read tags of the device
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = whole(1..=MAX_TAGS), allow_hyphen_values = true)]
    tags: u32,
    /// Print the device's profile as JSON and stop
    #[arg(long, conflicts_with = "print_profile")]
    print_device: bool,
}

impl DeviceArgs {
    fn device(&self) -> anyhow::Result<Device> {
        let mut device = Device::load(&self.device)?;
        device.contexts = self.contexts.unwrap_or(device.contexts);
        device.write_gap_ns = self.write_gap.unwrap_or(device.write_gap_ns);
        device.packet_gap_ns = self.packet_gap.unwrap_or(device.packet_gap_ns);
        device.check()?;
        Ok(device)
    }
}

/// The five micro-benchmarks.
#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Bench {
    /// Latency of a DMA read
    LatRd,
    /// Latency of a DMA write and a read behind it
    LatWrrd,
    /// Bandwidth of DMA reads
    BwRd,
    /// Bandwidth of DMA writes
    BwWr,
    /// Bandwidth of both in turn, each
    BwRdwr,
}

#[derive(Clone, Copy, ValueEnum)]
enum Access {
    Random,
    Sequential,
}

#[derive(Clone, Copy, ValueEnum)]
enum Cache {
    /// Written by the host before
    Warm,
    /// Written by the device before
    DeviceWarm,
    /// Flushed
    Cold,
    /// Full of other dirty lines
    Thrashed,
}

#[derive(Clone, Copy, ValueEnum)]
enum HopKind {
    Switch,
    Ntb,
}

/// What was simulated, for those who read lines and not the title.
#[derive(Serialize, Clone, Default)]
struct System {
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_bytes: Option<u64>,
}

#[derive(Serialize)]
struct LatencyRow {
    bench: &'static str,
    p50_ns: f64,
    p99_ns: f64,
    bytes: u32,
    min_ns: f64,
    mean_ns: f64,
    p999_ns: f64,
    max_ns: f64,
    #[serde(flatten)]
    system: System,
}

#[derive(Serialize)]
struct BandwidthRow {
    bench: &'static str,
    gbps: f64,
    bytes: u32,
    per_s: f64,
    tlps: u64,
    iotlb_misses: u64,
    /// One run in twenty is below, where the host's runs differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    gbps_p5: Option<f64>,
    /// One run in twenty is above.
    #[serde(skip_serializing_if = "Option::is_none")]
    gbps_p95: Option<f64>,
    #[serde(flatten)]
    system: System,
}

/// Simulate and print.
pub fn run(args: &Args) -> anyhow::Result<()> {
    args.check()?;
    let (host, device) = (args.host()?, args.device.device()?);
    if args.print_profile {
        return args.output.document(&host);
    }
    if args.device.print_device {
        return args.output.document(&device);
    }
    let system = args.system(&host, &device)?;
    let (mut latencies, mut bandwidths, mut traces) = (Vec::new(), Vec::new(), Vec::new());
    for &size_bytes in &args.size.0 {
        let run = args.run(size_bytes);
        let mut progress = Progress::new(&run);
        let report = run.execute_watched(&host, &device, &mut |done| progress.tell(done))?;
        match &report.outcome {
            Outcome::Latency(found) => latencies.push(latency_row(&run, found, &system)),
            Outcome::Bandwidth { gbps, per_s } => {
                let range = run.range_gbps(&host, &device)?;
                let rate = (*gbps, *per_s);
                bandwidths.push(bandwidth_row(&run, &report, rate, range, &system));
            }
        }
        traces.push((format!("{} of {size_bytes} B", run.bench.name()), report));
    }
    args.write_traces(traces)?;
    let title = args.title(&host, &device)?;
    if bandwidths.is_empty() {
        args.output.print(&title, &latencies, 1)
    } else {
        args.output.print(&title, &bandwidths, 3)
    }
}

fn bandwidth_row(
    run: &Run,
    report: &Report,
    (gbps, per_s): (f64, f64),
    range: Option<[f64; 2]>,
    system: &System,
) -> BandwidthRow {
    BandwidthRow {
        bench: run.bench.name(),
        gbps,
        bytes: run.size_bytes,
        per_s,
        tlps: report.tlps,
        iotlb_misses: report.translations.walker_hits + report.translations.walks,
        gbps_p5: range.map(|[low, _]| low),
        gbps_p95: range.map(|[_, high]| high),
        system: system.clone(),
    }
}

fn latency_row(run: &Run, found: &Latencies, system: &System) -> LatencyRow {
    LatencyRow {
        bench: run.bench.name(),
        p50_ns: found.quantile_ns(0.5),
        p99_ns: found.quantile_ns(0.99),
        bytes: run.size_bytes,
        min_ns: found.quantile_ns(0.0),
        mean_ns: found.mean_ns(),
        p999_ns: found.quantile_ns(0.999),
        max_ns: found.quantile_ns(1.0),
        system: system.clone(),
    }
}

/// What is simulated when the size alone is large: 1 GiB of it.
const DEFAULT_BYTES: u32 = 1 << 30;
const DEFAULT_TRANSFERS: u32 = 20_000;
const DEFAULT_PACKETS: usize = 1000;
/// A trace of them is a few gigabytes.
const MAX_PACKETS: usize = 100_000_000;

impl Args {
    /// What would change nothing is refused.
    fn check(&self) -> anyhow::Result<()> {
        let traced = self.trace.is_some() || self.chrome_trace.is_some();
        anyhow::ensure!(
            self.trace_packets.is_none() || traced,
            "--trace-packets {} without a trace: give --trace FILE or --chrome-trace FILE with it",
            self.trace_packets.unwrap_or_default()
        );
        for path in [&self.trace, &self.chrome_trace].into_iter().flatten() {
            check_writable(path)?;
        }
        Ok(())
    }

    fn host(&self) -> anyhow::Result<Host> {
        let mut host = Host::load(&self.host)?;
        if let Some(page) = self.page {
            host.iommu.page_bytes = page;
        }
        self.link.apply(&mut host.link);
        host.check()?;
        Ok(host)
    }

    fn title(&self, host: &Host, device: &Device) -> anyhow::Result<String> {
        let spec = host.link.config()?;
        let (link, spec) = (spec.name(), *spec.spec());
        Ok(format!(
            "{} ({}), {link}, MPS {} B, MRRS {} B, window {} B; device {}, {} reads at once",
            host.name,
            host.source,
            spec.mps_bytes,
            spec.mrrs_bytes,
            self.window,
            device.name,
            device.contexts
        ))
    }

    fn system(&self, host: &Host, device: &Device) -> anyhow::Result<System> {
        if self.output.is_for_people() {
            return Ok(System::default());
        }
        Ok(System {
            host: Some(host.name.clone()),
            device: Some(device.name.clone()),
            link: Some(host.link.config()?.name()),
            window_bytes: Some(self.window),
        })
    }

    fn run(&self, size_bytes: u32) -> Run {
        let traced = self.trace.is_some() || self.chrome_trace.is_some();
        let hops: Vec<Hop> = self
            .hops
            .iter()
            .map(|hop| {
                if matches!(hop, HopKind::Ntb) {
                    BRIDGE
                } else {
                    SWITCH
                }
            })
            .collect();
        let options = Options {
            seed: self.seed,
            iommu: self.iommu,
            remote_node: self.remote || self.node == 1,
            cache: if self.cold {
                CacheState::Cold
            } else {
                self.cache.into()
            },
            window_start: self.start,
            window_bytes: self.window,
            hops,
            trace_limit: if traced {
                self.trace_packets.unwrap_or(DEFAULT_PACKETS)
            } else {
                0
            },
            tags: self.device.tags,
            ..Options::default()
        };
        let pattern = match self.pattern {
            Access::Random => Pattern::Random,
            Access::Sequential => Pattern::Sequential,
        };
        let bench = self.bench.into();
        Run {
            bench,
            size_bytes,
            offset_bytes: self.offset,
            pattern,
            transfers: self.transfers.unwrap_or_else(|| {
                let most = DEFAULT_BYTES / size_bytes;
                most.clamp(100, DEFAULT_TRANSFERS)
            }),
            options,
        }
    }

    fn write_traces(&self, runs: Vec<(String, Report)>) -> anyhow::Result<()> {
        if let Some(path) = &self.trace {
            let text: String = runs
                .iter()
                .map(|(name, report)| text(name, report))
                .collect();
            write_file(path, &text).context("trace")?;
        }
        if let Some(path) = &self.chrome_trace {
            let runs = runs.into_iter().map(|(name, report)| (name, report.trace));
            let runs: Vec<_> = runs.collect();
            write_file(path, &chrome_json(&runs)).context("trace")?;
        }
        Ok(())
    }
}

fn text(name: &str, report: &Report) -> String {
    format!(
        "# {name}\n{}# end of the run: {:.3} ns, {} TLPs\n",
        report.trace.text(),
        ns(report.elapsed),
        report.tlps
    )
}

/// Says on standard error how far a long run is.
struct Progress {
    started: Instant,
    told: Duration,
    size_bytes: u32,
    transfers: u32,
    /// Transfers from one look at the clock to the next: about a mebibyte.
    step: u64,
    next: u64,
}

impl Progress {
    const EVERY: Duration = Duration::from_secs(5);

    fn new(run: &Run) -> Self {
        Self {
            started: Instant::now(),
            told: Duration::ZERO,
            size_bytes: run.size_bytes,
            transfers: run.transfers,
            step: u64::from((1 << 20) / run.size_bytes).max(1),
            next: 1,
        }
    }

    fn tell(&mut self, done: u64) {
        if done < self.next {
            return;
        }
        self.next = done + self.step;
        let elapsed = self.started.elapsed();
        if elapsed >= self.told + Self::EVERY {
            self.told = elapsed;
            note(&format!(
                "crosslane: {done} of {} transfers of {} B in {} s",
                self.transfers,
                self.size_bytes,
                elapsed.as_secs()
            ));
        }
    }
}

impl From<Bench> for bench::Bench {
    fn from(bench: Bench) -> Self {
        match bench {
            Bench::LatRd => Self::LatRd,
            Bench::LatWrrd => Self::LatWrrd,
            Bench::BwRd => Self::BwRd,
            Bench::BwWr => Self::BwWr,
            Bench::BwRdwr => Self::BwRdwr,
        }
    }
}

impl From<Cache> for CacheState {
    fn from(cache: Cache) -> Self {
        match cache {
            Cache::Warm => Self::HostWarm,
            Cache::DeviceWarm => Self::DeviceWarm,
            Cache::Cold => Self::Cold,
            Cache::Thrashed => Self::Thrashed,
        }
    }
}
