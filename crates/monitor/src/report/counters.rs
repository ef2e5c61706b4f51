//! The answer to `crosslane stats`: one JSON object.

use std::collections::BTreeMap;

use crosslane_ctl::counter::Counter;
use crosslane_ctl::message::TEXT_BYTES;
use crosslane_ctl::reason::Reason;
use serde::{Deserialize, Serialize};

use super::families::Tally;
use super::{State, Step, Walk, World};
use crate::arenas::Backing;
use crate::registry::FamilyId;

/// Numbers by name.
pub type Counts = BTreeMap<String, u64>;

/// Everything that `crosslane stats` shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountersReport {
    /// Sums over running and finished processes, by [`Counter::slug`]; bytes of open connections
    /// included.
    #[serde(flatten)]
    pub counters: Counts,
    /// Connections that were closed on TCP or brought back to it, by [`Reason::slug`].
    pub reasons: Counts,
    /// Open connections by state.
    pub open: Counts,
    /// Open connections that are not accelerated, by reason.
    pub open_reasons: Counts,
    /// The monitor's own state.
    pub monitor: MonitorReport,
}

/// The monitor's own state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitorReport {
    /// Its process.
    pub pid: u32,
    /// Seconds since it was started.
    pub uptime_seconds: u64,
    /// Control connections.
    pub connections: u64,
    /// Processes that have said Hello.
    pub processes: u64,
    /// Registered ends.
    pub ends: u64,
    /// Arenas.
    pub arenas: u64,
    /// Slots in use.
    pub slots: u64,
    /// Leases.
    pub leases: u64,
    /// Registrations that were accepted so far.
    pub registered: u64,
    /// Pairs that were given rings so far.
    pub paired: u64,
    /// Registrations that were refused so far.
    pub refused: u64,
    /// Clients that were disconnected for breaking the protocol.
    pub protocol_errors: u64,
    /// Connections that were turned away: wrong user, over a quota, or no descriptor left.
    pub turned_away: u64,
    /// Clients that were disconnected because they did not read.
    pub too_slow: u64,
}

/// The sum under way.
#[derive(Debug)]
pub struct Sum {
    walk: Walk,
    uid: u32,
    headers: Vec<FamilyId>,
    tally: Tally,
    open: BTreeMap<State, u64>,
    open_reasons: BTreeMap<Reason, u64>,
    text: Option<Vec<u8>>,
}

impl Sum {
    /// Begin to sum over these families and the finished ones of the same user.
    pub fn new(families: Vec<FamilyId>, uid: u32) -> Self {
        Self {
            uid,
            headers: families.clone(),
            walk: Walk::new(families),
            tally: Tally::default(),
            open: State::ALL.into_iter().map(|state| (state, 0)).collect(),
            open_reasons: BTreeMap::new(),
            text: None,
        }
    }

    /// Look at more entries, or make the next piece of the text.
    pub fn step<B: Backing>(&mut self, world: &World<'_, B>) -> Step {
        if let Some(text) = &mut self.text {
            if text.is_empty() {
                return Step::Done;
            }
            let rest = text.split_off(text.len().min(TEXT_BYTES));
            return Step::Text(std::mem::replace(text, rest));
        }
        let more = self.walk.step(world.families, |_, _, _, seen| {
            self.tally.add_open(seen);
            *self.open.entry(seen.state).or_default() += 1;
            if seen.reason != Reason::None {
                *self.open_reasons.entry(seen.reason).or_default() += 1;
            }
            true
        });
        if !more {
            self.text = Some(self.finish(world));
        }
        Step::Working
    }

    fn finish<B: Backing>(&mut self, world: &World<'_, B>) -> Vec<u8> {
        let mut tally = world.families.finished(self.uid);
        tally.add(&self.tally);
        for id in std::mem::take(&mut self.headers) {
            if let Some(family) = world.families.find(id) {
                tally.add(&Tally::of(&family.slab));
            }
        }
        let counters = Counter::ALL.iter().map(|counter| {
            let sum = tally.counters[*counter as usize];
            (counter.slug().to_owned(), sum)
        });
        let reasons = Reason::ALL
            .iter()
            .filter(|reason| **reason != Reason::None)
            .map(|reason| (reason.slug().to_owned(), tally.reasons[*reason as usize]));
        let report = CountersReport {
            monitor: world.monitor,
            counters: counters.collect(),
            reasons: reasons.collect(),
            open: by_name(&self.open, |state| state.slug()),
            open_reasons: by_name(&self.open_reasons, |reason| reason.slug()),
        };
        let mut text = serde_json::to_vec(&report).unwrap_or_default();
        text.push(b'\n');
        text
    }
}

fn by_name<K: Copy>(counts: &BTreeMap<K, u64>, name: impl Fn(K) -> &'static str) -> Counts {
    counts
        .iter()
        .map(|(key, count)| (name(*key).to_owned(), *count))
        .collect()
}
