//! The five micro-benchmarks of pcie-bench, on the simulated system.

use serde::Serialize;

use super::cache::LINE_BYTES;
use super::engine::{Command, Engine, write_parts};
use super::fabric::{Event, Fabric, FabricError, Hop, Options};
use super::iommu::Counts;
use super::rng::Rng;
use super::trace::Trace;
use super::{Ps, ns, ps};
use crate::model::TlpKind;
use crate::model::config::{ConfigError, check_transfer};
use crate::profile::{Device, Host, ProfileError};

/// Which benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bench {
    /// Latency of a DMA read.
    LatRd,
    /// Latency of a DMA write and a read of the same bytes behind it.
    LatWrrd,
    /// Bandwidth of reads.
    BwRd,
    /// Bandwidth of writes.
    BwWr,
    /// Bandwidth of alternating reads and writes, of each.
    BwRdwr,
}

impl Bench {
    /// All five.
    pub const ALL: [Self; 5] = [
        Self::LatRd,
        Self::LatWrrd,
        Self::BwRd,
        Self::BwWr,
        Self::BwRdwr,
    ];

    /// The name on the command line and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LatRd => "lat_rd",
            Self::LatWrrd => "lat_wrrd",
            Self::BwRd => "bw_rd",
            Self::BwWr => "bw_wr",
            Self::BwRdwr => "bw_rdwr",
        }
    }
}

/// Where the next transfer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// One after another, and around.
    Sequential,
    /// Anywhere in the window.
    Random,
}

/// A run's parameters.
#[derive(Debug, Clone)]
pub struct Run {
    /// Which benchmark.
    pub bench: Bench,
    /// Bytes of each transfer.
    pub size_bytes: u32,
    /// Offset of each transfer in its line, 0 to 63.
    pub offset_bytes: u32,
    /// Access pattern.
    pub pattern: Pattern,
    /// How many transfers.
    pub transfers: u32,
    /// The system.
    pub options: Options,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            bench: Bench::LatRd,
            size_bytes: 64,
            offset_bytes: 0,
            pattern: Pattern::Random,
            transfers: 20_000,
            options: Options::default(),
        }
    }
}

/// How many transfers a run may have.
pub const TRANSFERS: std::ops::RangeInclusive<u32> = 100..=100_000_000;
/// The end of the address space that windows lie in: 256 GiB.
pub const MAX_ADDRESS: u64 = 256 << 30;

/// The most read requests under way at once: about a gigabyte of them.
pub const MAX_REQUESTS: u64 = 1 << 25;

/// A run that makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A transfer size outside the model.
    #[error(transparent)]
    Size(#[from] ConfigError),
    /// A profile that cannot be simulated.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A system that cannot be simulated.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// No transfer fits into the window.
    #[error(
        "a window of {window} bytes cannot hold a transfer of {unit} bytes (size and offset in whole lines): give --window {unit} or more"
    )]
    Window {
        /// Window size.
        window: u64,
        /// Bytes that one transfer takes.
        unit: u64,
    },
    /// The window is larger than addresses go.
    #[error("a window of {0} bytes is too large: --window takes up to 256G, --start included")]
    WindowTooLarge(u64),
    /// The window begins within a line.
    #[error(
        "a window from address {0} does not begin with a line: --start takes multiples of 64, --offset the rest"
    )]
    Start(u64),
    /// The host has no other node.
    #[error("host {0} has one NUMA node: leave out --remote and --node, or take a host with two")]
    OneNode(String),
    /// An offset beyond the line.
    #[error("offset {0} is outside a line: --offset takes 0 to 63")]
    Offset(u32),
    /// Too few transfers to say anything, or too many to wait for.
    #[error("{0} transfers are outside {least} to {most}: --transfers takes these", least = TRANSFERS.start(), most = TRANSFERS.end())]
    Transfers(u32),
    /// More read requests at once than memory should be filled with.
    #[error(
        "{contexts} reads of {size} B at once are {requests} requests: at most {MAX_REQUESTS}; give fewer --contexts, \
         or a smaller --size"
    )]
    TooMany {
        /// Reads under way at once.
        contexts: usize,
        /// Bytes of each.
        size: u32,
        /// Requests that they are.
        requests: u64,
    },
    /// Times so long, and so many transfers, that virtual time would overflow.
    #[error(
        "{0} transfers of {1} B take more than 53 days of simulated time: give fewer --transfers, or a profile with \
         shorter times"
    )]
    TooLong(u32, u32),
}

/// Latencies, as the device's clock shows them.
#[derive(Debug, Clone)]
pub struct Latencies {
    sorted: Vec<Ps>,
}

impl Latencies {
    fn new(mut samples: Vec<Ps>) -> Self {
        samples.sort_unstable();
        Self { sorted: samples }
    }

    /// The smallest latency that this share of the samples does not exceed.
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss
    )]
    pub fn quantile_ns(&self, share: f64) -> f64 {
        let last = self.sorted.len().saturating_sub(1);
        let index = ((share * self.sorted.len() as f64).ceil() as usize)
            .saturating_sub(1)
            .min(last);
        self.sorted.get(index).map_or(0.0, |&sample| ns(sample))
    }

    /// (ns, share of samples up to it) at each distinct value, as a plot of the distribution needs.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn cdf(&self) -> Vec<(f64, f64)> {
        let total = self.sorted.len() as f64;
        let mut seen = 0;
        let groups = self.sorted.chunk_by(|a, b| a == b);
        groups
            .map(|group| {
                seen += group.len();
                (ns(group[0]), seen as f64 / total)
            })
            .collect()
    }

    /// The mean.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn mean_ns(&self) -> f64 {
        self.sorted.iter().map(|&s| ns(s)).sum::<f64>() / self.sorted.len().max(1) as f64
    }
}

/// What a run found.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// LAT_RD and LAT_WRRD.
    Latency(Latencies),
    /// The bandwidth benchmarks.
    Bandwidth {
        /// Payload, of each direction where there are two.
        gbps: f64,
        /// Transfers per second.
        per_s: f64,
    },
}

/// A finished run.
#[derive(Debug)]
pub struct Report {
    /// What it found.
    pub outcome: Outcome,
    /// TLPs moved over links.
    pub tlps: u64,
    /// Virtual time that it took.
    pub elapsed: Ps,
    /// What the IOMMU did.
    pub translations: Counts,
    /// The first TLPs.
    pub trace: Trace,
}

impl Run {
    /// Runs it.
    ///
    /// # Errors
    /// [`RunError`] if the parameters make no sense together.
    pub fn execute(&self, host: &Host, device: &Device) -> Result<Report, RunError> {
        self.execute_watched(host, device, &mut |_| ())
    }

    /// Runs it, and tells `watcher` from time to time how many transfers are done.
    ///
    /// # Errors
    /// As [`Run::execute`].
    pub fn execute_watched(
        &self,
        host: &Host,
        device: &Device,
        watcher: &mut dyn FnMut(u64),
    ) -> Result<Report, RunError> {
        device.check()?;
        if self.options.remote_node && host.nodes < 2 {
            return Err(RunError::OneNode(host.name.clone()));
        }
        let mut addresses = self.addresses()?;
        let is_latency = matches!(self.bench, Bench::LatRd | Bench::LatWrrd);
        if matches!(self.bench, Bench::BwRd | Bench::BwRdwr) {
            self.check_requests(host, device)?;
        }
        let options = Options {
            deep_sleeps: self.options.deep_sleeps && is_latency,
            ..self.options.clone()
        };
        let mut fabric = Fabric::new(host, &options)?;
        if self.bench != Bench::LatRd && self.bench != Bench::BwRd {
            self.settle(&mut fabric, host, &mut addresses);
        }
        let mps = host.link.mps_bytes;
        let outcome = match self.bench {
            Bench::LatRd | Bench::LatWrrd => {
                self.latency(&mut fabric, device, mps, &mut addresses, watcher)
            }
            _ => self.bandwidth(&mut fabric, device, mps, &mut addresses, watcher),
        };
        if fabric.is_too_late() {
            return Err(RunError::TooLong(self.transfers, self.size_bytes));
        }
        Ok(Report {
            outcome,
            tlps: fabric.tlps(),
            elapsed: fabric.now(),
            translations: fabric.translations(),
            trace: fabric.trace().clone(),
        })
    }

    /// The bandwidths in Gb/s that one run in twenty is below, and one in twenty above. None for a
    /// latency, and for a host whose runs do not differ.
    ///
    /// # Errors
    /// As [`Run::execute`].
    pub fn range_gbps(&self, host: &Host, device: &Device) -> Result<Option<[f64; 2]>, RunError> {
        let Some(sleep) = &host.sleep else {
            return Ok(None);
        };
        let at = |score| -> Result<Option<f64>, RunError> {
            let host = Host {
                sleep: Some(sleep.in_run(score)),
                ..host.clone()
            };
            Ok(match self.execute(&host, device)?.outcome {
                Outcome::Bandwidth { gbps, .. } => Some(gbps),
                Outcome::Latency(_) => None,
            })
        };
        let ends = (at(SCORE_95)?, at(-SCORE_95)?);
        Ok(ends.0.zip(ends.1).map(|(low, high)| [low, high]))
    }

    fn addresses(&self) -> Result<Addresses, RunError> {
        check_transfer(self.size_bytes)?;
        if self.offset_bytes > 63 {
            return Err(RunError::Offset(self.offset_bytes));
        }
        if !TRANSFERS.contains(&self.transfers) {
            return Err(RunError::Transfers(self.transfers));
        }
        let (start, window) = (self.options.window_start, self.options.window_bytes);
        if !start.is_multiple_of(LINE_BYTES) {
            return Err(RunError::Start(start));
        }
        if start.saturating_add(window) > MAX_ADDRESS {
            return Err(RunError::WindowTooLarge(window));
        }
        let unit = u64::from(self.offset_bytes + self.size_bytes).div_ceil(LINE_BYTES) * LINE_BYTES;
        if window < unit {
            return Err(RunError::Window { window, unit });
        }
        Ok(Addresses {
            unit,
            slots: window / unit,
            offset: start + u64::from(self.offset_bytes),
            next: 0,
            pattern: self.pattern,
            rng: Rng::new(self.options.seed ^ 0x5eed),
        })
    }

    fn check_requests(&self, host: &Host, device: &Device) -> Result<(), RunError> {
        let of_one = self.size_bytes.div_ceil(host.link.mrrs_bytes.max(1));
        let requests = u64::from(of_one) * device.contexts as u64;
        if requests > MAX_REQUESTS {
            return Err(RunError::TooMany {
                contexts: device.contexts,
                size: self.size_bytes,
                requests,
            });
        }
        Ok(())
    }

    /// The measurements ran for millions of transfers: writes had filled their share of the cache.
    fn settle(&self, fabric: &mut Fabric, host: &Host, addresses: &mut Addresses) {
        let share = host.ddio_bytes.min(self.options.window_bytes);
        for _ in 0..3 * share / addresses.unit {
            fabric.settle(addresses.next(), self.size_bytes);
        }
    }

    fn latency(
        &self,
        fabric: &mut Fabric,
        device: &Device,
        mps: u32,
        addresses: &mut Addresses,
        watcher: &mut dyn FnMut(u64),
    ) -> Outcome {
        let tick = ps(device.tick_ns).max(1);
        let mut samples = Vec::with_capacity(self.transfers as usize);
        let mut at = 0;
        for done in 0..self.transfers {
            watcher(done.into());
            let address = addresses.next();
            let mut issue = at + ps(device.issue_ns);
            if self.bench == Bench::LatWrrd {
                let tail = device.power_of_two_tail;
                let parts = write_parts(address, self.size_bytes, mps, tail);
                issue += ps(device.write_to_read_ns);
                issue += ps(f64::from(self.size_bytes) * device.write_ns_per_byte);
                wait_until(fabric, issue - ps(device.read_after_write_ns));
                fabric.dma_write_parts(address, &parts, 0);
                issue += parts
                    .iter()
                    .map(|&part| fabric.wire_time(TlpKind::MemoryWrite, part))
                    .sum::<Ps>();
            }
            wait_until(fabric, issue);
            fabric.dma_read(address, self.size_bytes, 0);
            let end = finish_read(fabric, device) + ps(device.retire_ns);
            if fabric.is_too_late() {
                break;
            }
            samples.push((end / tick - at / tick) * tick);
            // The device's next command follows after a pause that is no multiple of its clock.
            at = end + ps(COMMAND_PAUSE_NS);
        }
        Outcome::Latency(Latencies::new(samples))
    }

    fn bandwidth(
        &self,
        fabric: &mut Fabric,
        device: &Device,
        mps: u32,
        addresses: &mut Addresses,
        watcher: &mut dyn FnMut(u64),
    ) -> Outcome {
        let mut engine = Engine::new(fabric, device, self.size_bytes, mps);
        let commands: &[Command] = match self.bench {
            Bench::BwWr => &[Command::Write],
            Bench::BwRdwr => &[Command::Read, Command::Write],
            _ => &[Command::Read],
        };
        let counted = usize::from(self.bench == Bench::BwWr);
        let total = u64::from(self.transfers);
        let warm_up = total / 10;
        let (mut turn, mut address, mut from) = (0, addresses.next(), (0, 0));
        while engine.finished()[counted] < total {
            while engine.start(commands[turn % commands.len()], address) {
                turn += 1;
                address = addresses.next();
            }
            if !engine.step() {
                break;
            }
            watcher(engine.finished()[counted]);
            if from.0 == 0 && engine.finished()[counted] >= warm_up.max(1) {
                from = (engine.time().max(1), engine.finished()[counted]);
            }
        }
        rate(
            engine.finished()[counted] - from.1,
            engine.time() - from.0,
            self.size_bytes,
        )
    }
}

/// Standard score of the 95th percentile.
const SCORE_95: f64 = 1.645;

#[allow(clippy::cast_precision_loss)]
fn rate(transfers: u64, elapsed: Ps, bytes: u32) -> Outcome {
    let per_s = transfers as f64 / elapsed.max(1) as f64 * 1e12;
    Outcome::Bandwidth {
        gbps: per_s * f64::from(bytes) * 8.0 / 1e9,
        per_s,
    }
}

/// Device time between a result and the next command.
const COMMAND_PAUSE_NS: f64 = 193.7;

fn wait_until(fabric: &mut Fabric, at: Ps) {
    fabric.timer(at, 0);
    while let Some(event) = fabric.poll() {
        if matches!(event, Event::Timer { .. }) {
            return;
        }
    }
}

/// Waits for the read under way; returns when its data has been moved in.
fn finish_read(fabric: &mut Fabric, device: &Device) -> Ps {
    let mut moved_at = 0;
    while let Some(event) = fabric.poll() {
        if let Event::ReadData { bytes, last, .. } = event {
            moved_at = fabric.now().max(moved_at) + ps(f64::from(bytes) * device.read_ns_per_byte);
            if last {
                break;
            }
        }
    }
    moved_at
}

#[derive(Debug)]
struct Addresses {
    unit: u64,
    slots: u64,
    offset: u64,
    next: u64,
    pattern: Pattern,
    rng: Rng,
}

impl Addresses {
    fn next(&mut self) -> u64 {
        let slot = match self.pattern {
            Pattern::Random => self.rng.below(self.slots),
            Pattern::Sequential => {
                self.next += 1;
                (self.next - 1) % self.slots
            }
        };
        slot * self.unit + self.offset
    }
}

/// A switch between device and host, for [`Options::hops`].
pub const SWITCH: Hop = Hop { forward_ns: 115.0 };
/// A non-transparent bridge.
pub const BRIDGE: Hop = Hop { forward_ns: 190.0 };
