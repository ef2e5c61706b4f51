//! `crosslane pcie sim`: the micro-benchmarks on a simulated machine.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::ValueEnum;
use crosslane_pcie::profile::{Host, nfp6000};
use crosslane_pcie::sim::bench::{self, BRIDGE, Latencies, Outcome, Pattern, Report, Run, SWITCH};
use crosslane_pcie::sim::cache::CacheState;
use crosslane_pcie::sim::fabric::{Hop, Options};
use crosslane_pcie::sim::ns;
use serde::Serialize;

use super::args::{Sizes, parse_bytes};
use super::output::{OutputArgs, emit, write_file};

/// Arguments of `crosslane pcie sim`.
#[derive(clap::Args)]
pub struct Args {
    /// Benchmark
    #[arg(long, default_value = "lat_rd", value_name = "NAME")]
    bench: Bench,
    /// Machine: e5-2630v4, e5-2637v3, e5-2620v3, e3-1226v3, or a JSON profile
    #[arg(long, default_value = "e5-2630v4", value_name = "PROFILE")]
    host: String,
    /// Transfer sizes
    #[arg(
        long,
        visible_alias = "sizes",
        default_value = "64",
        value_name = "LIST"
    )]
    size: Sizes,
    /// Window that transfers fall into
    #[arg(long, default_value = "8K", value_name = "BYTES", value_parser = parse_bytes)]
    window: u64,
    /// Offset of each transfer in its line, 0 to 63
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
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
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "iommu")]
    page: Option<u64>,
    /// Memory on the other node
    #[arg(long)]
    remote: bool,
    /// Switches and bridges from the device to the host, for example switch,ntb
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    hops: Vec<HopKind>,
    /// Read tags of the device
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1024))]
    tags: u32,
    /// Transfers to simulate
    #[arg(long, default_value_t = 20_000)]
    transfers: u32,
    /// Seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the first packets into this file, one line each
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write them for chrome://tracing or Perfetto
    #[arg(long, value_name = "FILE")]
    chrome_trace: Option<PathBuf>,
    /// How many packets to trace
    #[arg(long, default_value_t = 1000, value_name = "N")]
    trace_packets: usize,
    /// Print the profile as JSON and stop: a start for one of your own
    #[arg(long)]
    print_profile: bool,
    #[command(flatten)]
    output: OutputArgs,
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

#[derive(Serialize)]
struct LatencyRow {
    bench: &'static str,
    p50_ns: f64,
    p99_ns: f64,
    size_bytes: u32,
    min_ns: f64,
    mean_ns: f64,
    p999_ns: f64,
    max_ns: f64,
}

#[derive(Serialize)]
struct BandwidthRow {
    bench: &'static str,
    gbps: f64,
    size_bytes: u32,
    per_s: f64,
    tlps: u64,
    iotlb_misses: u64,
    /// One run in twenty is below, where the host's runs differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    gbps_p5: Option<f64>,
    /// One run in twenty is above.
    #[serde(skip_serializing_if = "Option::is_none")]
    gbps_p95: Option<f64>,
}

/// Simulate and print.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut host = Host::load(&args.host)?;
    if let Some(page) = args.page {
        host.iommu.page_bytes = page;
    }
    if args.print_profile {
        return emit(&format!("{}\n", serde_json::to_string_pretty(&host)?));
    }
    let (mut latencies, mut bandwidths) = (Vec::new(), Vec::new());
    for &size_bytes in &args.size.0 {
        let run = args.run(size_bytes);
        let report = run.execute(&host, &nfp6000())?;
        match &report.outcome {
            Outcome::Latency(found) => latencies.push(latency_row(&run, found)),
            Outcome::Bandwidth { gbps, per_s } => {
                let range = run.range_gbps(&host, &nfp6000())?;
                bandwidths.push(bandwidth_row(&run, &report, (*gbps, *per_s), range));
            }
        }
        args.write_traces(&report)?;
    }
    let title = format!("{} ({}), window {} B", host.name, host.source, args.window);
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
) -> BandwidthRow {
    BandwidthRow {
        bench: run.bench.name(),
        gbps,
        size_bytes: run.size_bytes,
        per_s,
        tlps: report.tlps,
        iotlb_misses: report.translations.walker_hits + report.translations.walks,
        gbps_p5: range.map(|[low, _]| low),
        gbps_p95: range.map(|[_, high]| high),
    }
}

fn latency_row(run: &Run, found: &Latencies) -> LatencyRow {
    LatencyRow {
        bench: run.bench.name(),
        p50_ns: found.quantile_ns(0.5),
        p99_ns: found.quantile_ns(0.99),
        size_bytes: run.size_bytes,
        min_ns: found.quantile_ns(0.0),
        mean_ns: found.mean_ns(),
        p999_ns: found.quantile_ns(0.999),
        max_ns: found.quantile_ns(1.0),
    }
}

impl Args {
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
            remote_node: self.remote,
            cache: if self.cold {
                CacheState::Cold
            } else {
                self.cache.into()
            },
            window_bytes: self.window,
            hops,
            trace_limit: if traced { self.trace_packets } else { 0 },
            tags: self.tags,
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
            transfers: self.transfers,
            options,
        }
    }

    fn write_traces(&self, report: &Report) -> anyhow::Result<()> {
        if let Some(path) = &self.trace {
            let mut text = report.trace.text();
            text.push_str(&format!(
                "# end of the run: {:.3} ns, {} TLPs\n",
                ns(report.elapsed),
                report.tlps
            ));
            write_file(path, &text).context("trace")?;
        }
        if let Some(path) = &self.chrome_trace {
            write_file(path, &report.trace.chrome_json()).context("trace")?;
        }
        Ok(())
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
