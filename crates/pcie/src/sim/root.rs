//! The root complex: ordering, translation, cache, memory, sleep.

use super::cache::{Cache, CacheState};
use super::iommu::{Counts, Iommu};
use super::rng::Rng;
use super::{Ps, ps};
use crate::model::TlpKind;
use crate::profile::{Host, Sleep};

/// A pair of lines: what one translation serves of a read that is answered line by line, and what
/// such reads may ask for without a gap between their answers.
const PAIR_BYTES: u32 = 128;

/// When and how a read is answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    /// When its data is ready to be sent.
    pub(crate) ready: Ps,
    /// Whether its completions are of a line each.
    pub(crate) by_line: bool,
    /// Whether the link is idle for a while after them.
    pub(crate) gap: bool,
}

#[derive(Debug)]
pub(crate) struct Root {
    host: Host,
    iommu: Option<Iommu>,
    cache: Cache,
    remote: bool,
    last_read_end: u64,
    last_read_was_pair: bool,
    /// Whether no write has come since the last read.
    last_was_read: bool,
    line_mode: u32,
    /// The last posted write's visibility: later writes and reads come after it
    /// (PCIe Base Specification 2.4.1).
    posted_done: Ps,
    awake_until: Ps,
    awake_from: Ps,
    /// Reads that have arrived and not been answered.
    reads: u32,
    /// When the completions of those that have been answered will have left.
    reads_until: Ps,
    /// How long both ways of the link were idle, other than for a deep sleep.
    idle: Ps,
    /// What is left of a deep sleep: the link is idle because of it.
    asleep: Ps,
    /// The idle time at which the next deep sleep comes.
    deep_at: Ps,
    rng: Rng,
}

/// What the benchmark asks of the host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) iommu: bool,
    pub(crate) remote: bool,
    pub(crate) cache: CacheState,
    pub(crate) window_bytes: u64,
    pub(crate) deep_sleeps: bool,
}

impl Root {
    pub(crate) fn new(host: &Host, setup: Setup, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let deep_at = match &host.sleep {
            Some(sleep) if setup.deep_sleeps => ps(rng.exponential(sleep.deep_every_ns)),
            _ => Ps::MAX,
        };
        Self {
            iommu: setup.iommu.then(|| Iommu::new(&host.iommu, !seed)),
            cache: Cache::new(
                host.llc_bytes,
                host.ddio_bytes,
                setup.cache,
                setup.window_bytes,
            ),
            remote: setup.remote,
            last_read_end: u64::MAX,
            last_read_was_pair: true,
            last_was_read: false,
            line_mode: 0,
            posted_done: 0,
            awake_until: 0,
            awake_from: 0,
            reads: 0,
            reads_until: 0,
            idle: 0,
            asleep: 0,
            deep_at,
            rng,
            host: host.clone(),
        }
    }

    /// A posted write arrives: when its buffer is free again, and when it is visible.
    pub(crate) fn write(&mut self, now: Ps, address: u64, bytes: u32) -> (Ps, Ps) {
        self.last_was_read = false;
        let start = self.wake(now, true);
        let mut at = self.translate(start, address, true, 1);
        if !self.cache.write(address, bytes) {
            at += ps(self.host.cold_ns);
        }
        let lines = bytes.div_ceil(64);
        self.posted_done =
            self.posted_done.max(at) + ps(f64::from(lines) * self.host.write_line_ns);
        (self.posted_done, self.posted_done + ps(self.host.write_ns))
    }

    /// A read request arrives.
    pub(crate) fn read(&mut self, now: Ps, address: u64, bytes: u32) -> Answer {
        self.reads += 1;
        let continues = self.last_read_end == address;
        self.last_read_end = address + u64::from(bytes);
        let short = bytes <= self.host.line_by_line_bytes && !(self.host.streams && continues);
        let by_line = short || self.line_mode > 0;
        self.line_mode = if short {
            self.host.line_mode_lasts
        } else {
            self.line_mode.saturating_sub(1)
        };
        let is_pair = bytes <= PAIR_BYTES;
        let gap = by_line && self.last_was_read && !(is_pair && self.last_read_was_pair);
        self.last_read_was_pair = is_pair;
        self.last_was_read = true;
        let start = self.wake(now, false).max(self.posted_done);
        let lookups = if by_line {
            bytes.div_ceil(PAIR_BYTES)
        } else {
            1
        };
        let mut at = self.translate(start, address, false, lookups);
        let warm = self.cache.holds(address, bytes);
        let mut service = self.host.read_ns + self.rng.triangular(self.host.jitter_ns);
        if !warm {
            service += self.host.cold_ns;
        }
        if self.remote {
            service += self.host.remote_node_ns;
        }
        at += ps(service);
        self.stays_awake(at);
        Answer {
            ready: at,
            by_line,
            gap,
        }
    }

    /// A read's completions will have left by then.
    pub(crate) fn read_ends(&mut self, until: Ps) {
        self.reads -= 1;
        self.reads_until = until;
        self.stays_awake(until);
    }

    /// Reads keep the root complex awake until their last completion has left, and a little longer.
    fn stays_awake(&mut self, until: Ps) {
        if let Some(sleep) = &self.host.sleep {
            self.awake_until = self.awake_until.max(until + ps(sleep.after_idle_ns));
        }
    }

    /// Both ways of the link were idle, then a packet took the wire.
    pub(crate) fn link_was_used(&mut self, idle: Ps, by: TlpKind, start: Ps, end: Ps) {
        let Some(sleep) = &self.host.sleep else {
            return;
        };
        let asleep = idle.min(self.asleep);
        self.asleep -= asleep;
        self.idle += idle - asleep;
        let no_reads = self.reads == 0 && self.reads_until < start;
        if by == TlpKind::MemoryWrite && no_reads {
            self.idle += (end - start) / 100 * u64::from(sleep.writes_idle_percent);
        }
    }

    /// What deep sleeps take on average, given how idle the link was.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )]
    pub(crate) fn deep_sleep(&self) -> Ps {
        self.host.sleep.as_ref().map_or(0, |sleep| {
            (self.idle as f64 * sleep.mean_deep_ns() / sleep.deep_every_ns) as Ps
        })
    }

    /// What long use by writes like this one leaves in the cache; takes no time.
    pub(crate) fn settle(&mut self, address: u64, bytes: u32) {
        self.cache.write(address, bytes);
    }

    pub(crate) fn translations(&self) -> Counts {
        self.iommu.as_ref().map(Iommu::counts).unwrap_or_default()
    }

    fn translate(&mut self, now: Ps, address: u64, is_write: bool, lookups: u32) -> Ps {
        self.iommu
            .as_mut()
            .map_or(now, |unit| unit.translate(now, address, is_write, lookups))
    }

    /// When a request that arrives now is served: at once, or after a wake-up.
    fn wake(&mut self, now: Ps, is_write: bool) -> Ps {
        let Some(sleep) = &self.host.sleep else {
            return now;
        };
        if self.idle >= self.deep_at {
            self.deep_at = self.idle + ps(self.rng.exponential(sleep.deep_every_ns));
            self.asleep = deep_time(sleep, &mut self.rng);
            self.awake_from = now + self.asleep;
            self.awake_until = self.awake_from + ps(sleep.after_idle_ns);
        } else if now > self.awake_until {
            self.awake_from = now + wake_time(sleep, &mut self.rng);
            let stays = if is_write {
                sleep.after_write_ns
            } else {
                sleep.after_idle_ns
            };
            self.awake_until = self.awake_from + ps(stays);
        }
        self.awake_from.max(now)
    }
}

fn deep_time(sleep: &Sleep, rng: &mut Rng) -> Ps {
    let mut total = sleep.deep_ns + rng.exponential(sleep.deep_mean_extra_ns);
    while rng.chance(sleep.deep_again_share) {
        total += rng.unit() * sleep.deep_ns / 2.0;
    }
    ps(total)
}

fn wake_time(sleep: &Sleep, rng: &mut Rng) -> Ps {
    if rng.chance(sleep.awake_share) {
        return 0;
    }
    let mut total = sleep.period_ns + rng.unit() * sleep.spread_ns;
    let mut success = sleep.first_success;
    while !rng.chance(success) {
        total += sleep.period_ns + rng.unit() * sleep.spread_ns;
        success = sleep.later_success;
    }
    ps(total)
}
