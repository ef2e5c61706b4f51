//! Answers to `crosslane ss` and `crosslane stats`, read from the slabs that processes show.
//!
//! A slab's owner may write anything into it at any time: every word is read once, as a number,
//! and nothing but the answer depends on it. Answers are made piece by piece, so that a large or
//! malicious slab holds up nobody.

mod connections;
mod counters;
mod families;
mod rack;
mod runs;

use crosslane_ctl::message::Query;
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndEntry, EndPhase, Mode, SLAB_ENTRIES};
use std::sync::atomic::Ordering::Relaxed;

pub use connections::ConnectionReport;
pub use counters::{CountersReport, Counts, MonitorReport};
pub use families::{Families, Family, Process};
pub use rack::{HostReport, RackReport, WindowReport};
pub use runs::{RunEnd, RunLine, RunRest};

use crate::arenas::{Backing, WindowId};
use crate::endpoint::EndKey;
use crate::registry::{FamilyId, Registry};

/// Entries that one step looks at.
const ENTRIES_PER_STEP: u32 = 4096;

/// What an answer is made from.
pub struct World<'a, B: Backing> {
    /// The slabs.
    pub families: &'a Families,
    /// The ends.
    pub registry: &'a Registry<B>,
    /// What the server counts.
    pub monitor: MonitorReport,
    /// What is known of other hosts, where there are any.
    pub rack: Option<&'a dyn OtherHosts>,
}

/// What answers need of a rack.
pub trait OtherHosts {
    /// A window's name.
    fn window_name(&self, id: WindowId) -> Option<&str>;

    /// Why an end of this key is on TCP, when nobody else knows better.
    fn standing(&self, key: &EndKey) -> Option<Reason>;

    /// The whole of it.
    fn report(&self) -> RackReport;
}

/// An answer under way.
pub enum Answer {
    /// To `crosslane ss`.
    Connections(connections::Listing),
    /// To `crosslane stats`.
    Counters(Box<counters::Sum>),
    /// To `crosslane run --explain`.
    Run(runs::RunListing),
    /// To `crosslane rack status`.
    Rack(rack::Telling),
}

/// What one step of an answer has brought.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Text to send.
    Text(Vec<u8>),
    /// Nothing yet.
    Working,
    /// That was all.
    Done,
}

impl Answer {
    /// Begin to answer what a process of this user asks.
    pub fn new(query: Query, uid: u32, families: &Families) -> Self {
        let visible = families.visible_to(uid);
        match query {
            Query::Connections => Self::Connections(connections::Listing::new(visible)),
            Query::Counters => Self::Counters(Box::new(counters::Sum::new(visible, uid))),
            Query::Run { run } => Self::Run(runs::RunListing::new(run, uid, families)),
            Query::Rack => Self::Rack(rack::Telling::default()),
        }
    }

    /// Go on for a bounded time.
    pub fn step<B: Backing>(&mut self, world: &World<'_, B>) -> Step {
        match self {
            Self::Connections(listing) => listing.step(world),
            Self::Counters(sum) => sum.step(world),
            Self::Run(listing) => listing.step(world.families),
            Self::Rack(telling) => telling.step(world.rack),
        }
    }
}

/// Goes over the entries of several slabs, a bounded number at a time.
#[derive(Debug)]
struct Walk {
    families: Vec<FamilyId>,
    index: u32,
}

impl Walk {
    fn new(families: Vec<FamilyId>) -> Self {
        Self { families, index: 0 }
    }

    /// Show the next entries of one slab to `look`, which returns false to pause after one of
    /// them. False when no slab is left.
    fn step(
        &mut self,
        all: &Families,
        mut look: impl FnMut(FamilyId, &Family, u32, &Seen) -> bool,
    ) -> bool {
        let Some(id) = self.families.last().copied() else {
            return false;
        };
        let Some(family) = all.find(id) else {
            self.families.pop();
            return true;
        };
        let used = family.slab.header().entries_used.load(Relaxed);
        let end = used.min(self.index + ENTRIES_PER_STEP);
        while self.index < end
            && let Some(entry) = family.slab.entry(self.index)
        {
            self.index += 1;
            if let Some(seen) = Seen::read(entry)
                && !look(id, family, self.index - 1, &seen)
            {
                return true;
            }
        }
        if self.index >= used.min(SLAB_ENTRIES) {
            self.families.pop();
            self.index = 0;
        }
        true
    }
}

/// How far a connection is accelerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum State {
    Accelerated,
    Partly,
    Switching,
    Tcp,
}

impl State {
    const ALL: [Self; 4] = [Self::Accelerated, Self::Partly, Self::Switching, Self::Tcp];

    fn slug(self) -> &'static str {
        match self {
            Self::Accelerated => "accelerated",
            Self::Partly => "partly",
            Self::Switching => "switching",
            Self::Tcp => "tcp",
        }
    }
}

/// An entry in use, read once.
#[derive(Debug)]
struct Seen {
    generation: u32,
    fd: i32,
    pid: u32,
    state: State,
    reason: Reason,
    /// Names its lanes between hosts, or 0.
    pair: u64,
    ring_bytes: [u64; 2],
    tcp_bytes: [u64; 2],
}

impl Seen {
    /// `None` if the entry is free, or changed hands while it was read.
    fn read(entry: &EndEntry) -> Option<Self> {
        let generation = entry.id.generation.load(Relaxed);
        let phase = EndPhase::from_code(entry.id.phase.load(Relaxed))?;
        if phase == EndPhase::Free {
            return None;
        }
        let rings = [&entry.tx.mode, &entry.rx.mode]
            .into_iter()
            .filter(|mode| mode.load(Relaxed) == Mode::Ring as u32)
            .count();
        let told = Reason::from_code(entry.id.reason.load(Relaxed)).unwrap_or(Reason::None);
        let (state, reason) = judge(phase, rings, told);
        let seen = Self {
            generation,
            fd: entry.id.fd.load(Relaxed),
            pid: entry.id.pid.load(Relaxed),
            state,
            reason,
            pair: entry.wait.pair.load(Relaxed),
            ring_bytes: [&entry.tx.ring_bytes, &entry.rx.ring_bytes]
                .map(|bytes| bytes.load(Relaxed)),
            tcp_bytes: [&entry.tx.tcp_data, &entry.rx.tcp_data].map(|bytes| bytes.load(Relaxed)),
        };
        (entry.id.generation.load(Relaxed) == generation).then_some(seen)
    }
}

/// State and reason of an end; an end that gives no reason for TCP has the one of its phase.
fn judge(phase: EndPhase, rings: usize, told: Reason) -> (State, Reason) {
    let default = match phase {
        EndPhase::Free | EndPhase::Plain => Reason::TooYoung,
        EndPhase::Registered => Reason::NoPeer,
        EndPhase::Granted => Reason::Switching,
    };
    let reason = if told == Reason::None { default } else { told };
    match (phase, rings) {
        (EndPhase::Granted, 2) => (State::Accelerated, Reason::None),
        (EndPhase::Granted, 1) => (State::Partly, reason),
        (EndPhase::Granted, _) if reason == Reason::Switching => (State::Switching, reason),
        _ => (State::Tcp, reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_on_tcp_has_a_reason() {
        for phase in [EndPhase::Plain, EndPhase::Registered, EndPhase::Granted] {
            for rings in 0..=2 {
                for told in Reason::ALL {
                    let (state, reason) = judge(phase, rings, *told);
                    assert_eq!(state == State::Accelerated, reason == Reason::None);
                }
            }
        }
    }

    #[test]
    fn a_connection_brought_back_is_not_shown_as_switching() {
        let (state, reason) = judge(EndPhase::Granted, 0, Reason::Urgent);
        assert_eq!((state, reason), (State::Tcp, Reason::Urgent));
    }
}
