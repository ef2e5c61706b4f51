//! Lanes that nobody here is in: who asks for what stood there must be told so.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use crosslane_ctl::slab::WaitState;

use crate::rack::message::{HostMessage, Tuple};

/// Lanes that are remembered. Who asks for others is told after a while that they have been left.
pub(super) const MOST: usize = 1 << 14;

/// Why nobody here is in some lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// Nobody ever was, or who was has said what it had sent there.
    Alone,
    /// Nobody is there any more, and something may have been sent there that is not said.
    Left,
}

impl Absence {
    /// What to tell the end that has asked.
    pub fn message(self, tuple: Tuple, pair: u64) -> HostMessage {
        match self {
            Self::Alone => HostMessage::Alone { tuple, pair },
            Self::Left => HostMessage::Left { tuple, pair },
        }
    }
}

/// Why an end does not use these lanes, if it does not: it has not taken them yet, or it has left them, which it
/// does when the other end has what it had not read.
pub fn absence_in(coming: &AtomicU64, wait: &WaitState, pair: u64) -> Option<Absence> {
    // In this order: an end is there before it comes no more, and sends something before it leaves.
    let is_coming = coming.load(SeqCst) == pair;
    let is_there = is_coming || wait.pair.load(SeqCst) == pair;
    let has_sent = wait.shipped.load(SeqCst) == pair;
    match (is_there, has_sent) {
        (true, _) => None,
        (false, true) => Some(Absence::Left),
        (false, false) => Some(Absence::Alone),
    }
}

/// The latest of them, by the names of the lanes.
#[derive(Default)]
pub struct Absences {
    known: HashMap<u64, Absence>,
    order: VecDeque<u64>,
}

impl Absences {
    /// From now on nobody is there.
    pub fn note(&mut self, pair: u64, absence: Absence) {
        if self.known.insert(pair, absence).is_some() {
            return;
        }
        if self.order.len() >= MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.order.push_back(pair);
    }

    /// Somebody is there after all.
    pub fn forget(&mut self, pair: u64) {
        if self.known.remove(&pair).is_some() {
            self.order.retain(|known| *known != pair);
        }
    }

    /// Why nobody is there, if that is known.
    pub fn of(&self, pair: u64) -> Option<Absence> {
        self.known.get(&pair).copied()
    }
}
