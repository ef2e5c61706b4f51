//! The root complex: ordering, translation, cache, memory, sleep.

use std::ops::Range;

use super::cache::{Cache, CacheState};
use super::iommu::{Counts, Iommu};
use super::rng::Rng;
use super::{Ps, ns, ps};
use crate::model::TlpKind;
use crate::profile::{Host, Sleep};

/// A pair of lines: what one translation serves of a read that is answered line by line, and what
/// such reads may ask for without a gap between their answers.
const PAIR_BYTES: u32 = 2 * LINE;
const LINE: u32 = 64;

/// When and how a read is answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    /// When the writes before it had committed: until then it keeps the root complex busy.
    pub(crate) behind_writes: Ps,
    /// When its data is ready to be sent.
    pub(crate) ready: Ps,
    /// Whether its completions are of a line each.
    pub(crate) by_line: bool,
    /// How long the link is idle after them.
    pub(crate) gap: Ps,
}

#[derive(Debug)]
pub(crate) struct Root {
    host: Host,
    iommu: Option<Iommu>,
    cache: Cache,
    remote: bool,
    last_read_end: u64,
    last_read_was_pair: bool,
    last_read_was_short: bool,
    /// Whether no write has come since the last read.
    last_was_read: bool,
    line_mode: u32,
    /// The last posted write's visibility: later writes and reads come after it
    /// (PCIe Base Specification 2.4.1).
    posted_done: Ps,
    /// Where the memory was between two refreshes when time began.
    refresh_phase: Ps,
    awake_until: Ps,
    awake_from: Ps,
    /// When a write began the last wake-up, if no read has come since.
    woken_by_write: Option<Ps>,
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
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) iommu: bool,
    pub(crate) remote: bool,
    pub(crate) cache: CacheState,
    pub(crate) window: Range<u64>,
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
            cache: Cache::new(host.llc_bytes, host.ddio_bytes, setup.cache, setup.window),
            remote: setup.remote,
            last_read_end: u64::MAX,
            last_read_was_pair: true,
            last_read_was_short: false,
            last_was_read: false,
            line_mode: 0,
            posted_done: 0,
            refresh_phase: ps(Rng::new(seed).unit() * host.refresh_every_ns),
            awake_until: 0,
            awake_from: 0,
            woken_by_write: None,
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
        let lines = f64::from(bytes.div_ceil(LINE));
        self.posted_done = self.posted_done.max(at) + ps(lines * self.host.write_line_ns);
        self.stays_awake(self.posted_done);
        (self.posted_done, self.posted_done + ps(self.host.write_ns))
    }

    /// A read request arrives.
    pub(crate) fn read(&mut self, now: Ps, address: u64, bytes: u32) -> Answer {
        if self.reads == 0 {
            // How it answered a read does not outlast that read's answer.
            self.line_mode = 0;
        }
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
        let gap = self.gap(bytes, short, by_line);
        // PCIe Base Specification 2.4.1: a read comes after the writes before it.
        self.interrupt(now);
        let behind_writes = self.posted_done;
        let awake = self.wake(now, false);
        let start = awake.max(behind_writes);
        let lines = f64::from(bytes.div_ceil(LINE));
        self.posted_done = start + ps(lines * self.host.read_line_ns);
        let lookups = if by_line {
            bytes.div_ceil(PAIR_BYTES)
        } else {
            1
        };
        // It is translated while it waits for them: asked for later, it would keep the port, whose turns
        // go by the order of asking, from all that arrive in between.
        let mut at = self.translate(awake, address, false, lookups).max(start);
        let warm = self.cache.holds(address, bytes);
        let mut service = self.host.read_ns + self.rng.triangular(self.host.jitter_ns);
        if !warm {
            service += self.host.cold_ns + self.refresh_left_ns(at);
        }
        if self.remote {
            service += self.host.remote_node_ns;
        }
        at += ps(service);
        self.stays_awake(at);
        Answer {
            behind_writes,
            ready: at,
            by_line,
            gap,
        }
    }

    /// How long the link is idle after this read, given the reads before it.
    fn gap(&mut self, bytes: u32, short: bool, by_line: bool) -> Ps {
        let is_pair = bytes <= PAIR_BYTES;
        let ends_in_half = bytes.div_ceil(LINE) % 2 == 1;
        let mut gap_ns: f64 = 0.0;
        if by_line && self.last_was_read && !(is_pair && self.last_read_was_pair) {
            gap_ns = self.host.line_gap_ns;
        }
        if short && self.last_read_was_short && ends_in_half && !is_pair {
            gap_ns = gap_ns.max(self.host.half_pair_gap_ns);
        }
        self.last_read_was_short = short;
        self.last_read_was_pair = is_pair;
        self.last_was_read = true;
        ps(gap_ns)
    }

    /// What is left of a refresh of the memory that is under way, in ns.
    fn refresh_left_ns(&self, now: Ps) -> f64 {
        let every = ps(self.host.refresh_every_ns).max(1);
        let into = (now + self.refresh_phase) % every;
        ns(ps(self.host.refresh_ns).saturating_sub(into))
    }

    /// A read's completions will have left by then.
    pub(crate) fn read_ends(&mut self, until: Ps) {
        self.reads -= 1;
        self.reads_until = until;
        self.stays_awake(until);
    }

    /// Work keeps the root complex awake until the last completion has left or the last write has
    /// committed, and a little longer.
    fn stays_awake(&mut self, until: Ps) {
        if let Some(sleep) = &self.host.sleep {
            self.awake_until = self.awake_until.max(until + ps(sleep.after_idle_ns));
        }
    }

    /// Both ways of the link were idle, then a packet took the wire. To what decides on deep sleeps,
    /// posted writes are idleness too, unless a read kept it awake within the last wake-up period.
    pub(crate) fn link_was_used(&mut self, idle: Ps, by: TlpKind, start: Ps, end: Ps) {
        let Some(sleep) = &self.host.sleep else {
            return;
        };
        let asleep = idle.min(self.asleep);
        self.asleep -= asleep;
        self.idle += idle - asleep;
        let lately = self.reads_until + ps(sleep.period_ns + sleep.spread_ns);
        if by == TlpKind::MemoryWrite && self.reads == 0 && lately < start {
            self.idle += end - start;
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
            self.woken_by_write = is_write.then_some(now);
            self.awake_until = self.awake_from + ps(sleep.after_idle_ns);
        }
        self.awake_from.max(now)
    }

    /// The first read behind a write that has begun a wake-up may make it fail, for itself and for
    /// what comes after it; when the write itself will be visible has been said already.
    fn interrupt(&mut self, now: Ps) {
        let (Some(begun), Some(sleep)) = (self.woken_by_write.take(), &self.host.sleep) else {
            return;
        };
        let share = sleep.interrupted_share + sleep.interrupted_per_us * ns(now - begun) / 1e3;
        if now < self.awake_from && self.rng.chance(share) {
            let more = periods(sleep, sleep.later_success, &mut self.rng);
            self.awake_from += more;
            self.awake_until += more;
            self.posted_done += more;
        }
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
    periods(sleep, sleep.first_success, rng)
}

/// Periods up to the one that is enough.
fn periods(sleep: &Sleep, first_success: f64, rng: &mut Rng) -> Ps {
    let mut total = sleep.period_ns + rng.unit() * sleep.spread_ns;
    let mut success = first_success;
    while !rng.chance(success) {
        total += sleep.period_ns + rng.unit() * sleep.spread_ns;
        success = sleep.later_success;
    }
    ps(total)
}
