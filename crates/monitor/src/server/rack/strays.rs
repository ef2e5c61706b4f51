//! Ends in lanes that no end has which the registry knows: an earlier monitor has dealt them out, or forked children have kept
//! them. The registry tells them of no loss, so they are looked for in the programs' tables. Nobody knows in which window those
//! of an earlier monitor are, so they leave theirs whichever is lost. That costs them their rings for a while, and no byte:
//! both ends leave, and tell each other what stood there.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crosslane_ctl::message::MonitorMessage;
use crosslane_ctl::slab::end_flags::LOST;

use super::{Rack, window_id};
use crate::arenas::WindowId;
use crate::backing::Memories;
use crate::connection::Member;
use crate::registry::Registry;
use crate::server::Monitor;

/// The time between two searches. Programs come as often as they like, and other hosts lose windows so.
const SEARCH: Duration = Duration::from_millis(100);

/// After so long those are looked for again who had yet to read something.
const AGAIN: Duration = Duration::from_secs(1);

/// What is to be said to such ends.
#[derive(Default)]
pub(super) struct Strays {
    /// Whether any window has been lost since the monitor was started.
    is_any_lost: bool,
    /// Those that have been since the last search.
    lost: BTreeSet<WindowId>,
    due: Option<Instant>,
    searched: Option<Instant>,
}

impl Strays {
    /// When [`Monitor::tell_strays`] has something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    fn note_loss(&mut self, window: WindowId, now: Instant) {
        self.is_any_lost = true;
        self.lost.insert(window);
        self.plan(now);
    }

    /// A program has come that may have such ends.
    fn note_arrival(&mut self, now: Instant) {
        if self.is_any_lost {
            self.plan(now);
        }
    }

    fn plan(&mut self, from: Instant) {
        let next = self.searched.map_or(from, |at| from.max(at + SEARCH));
        self.due = Some(self.due.map_or(next, |due| due.min(next)));
    }

    /// The windows that were lost, if it is time to look for who was there.
    fn take(&mut self, now: Instant) -> Option<BTreeSet<WindowId>> {
        self.due.take_if(|due| *due <= now)?;
        self.searched = Some(now);
        Some(std::mem::take(&mut self.lost))
    }
}

impl Rack {
    /// A window is lost: tell who was there.
    pub(super) fn tell_of_loss(&mut self, index: usize, registry: &mut Registry<Memories>) {
        let window = window_id(index);
        // One that has never been open was nobody's.
        if registry.backing().open(window).is_some() {
            self.strays.note_loss(window, Instant::now());
        }
        registry.tell_of_loss(window);
    }
}

impl Monitor {
    /// A program has shown its table.
    pub(in crate::server) fn welcome_strays(&mut self) {
        if let Some(rack) = &mut self.rack {
            rack.strays.note_arrival(Instant::now());
        }
    }

    /// Tell ends that the registry does not know that windows are lost.
    pub(super) fn tell_strays(&mut self, now: Instant) {
        let taken = self.rack.as_mut().and_then(|rack| rack.strays.take(now));
        let Some(lost) = taken else {
            return;
        };
        let (granted, windows) = (self.registry.granted_lanes(), self.registry.lanes());
        let is_stray = |pair: u64, flags: u32| {
            let may_be_lost = || {
                windows
                    .get(&pair)
                    .is_none_or(|window| lost.contains(window))
            };
            pair != 0 && flags & LOST == 0 && !granted.contains(&pair) && may_be_lost()
        };
        let mut is_missed = false;
        for (client, token, pair) in self.families.in_lanes(is_stray) {
            is_missed |= self.is_behind(client);
            self.remind(client, &MonitorMessage::WindowLost { token, pair });
        }
        if let Some(rack) = self.rack.as_mut().filter(|_| is_missed) {
            rack.strays.lost.extend(lost);
            rack.strays.plan(now + AGAIN);
        }
    }

    /// Tell an end in doubt that its window is lost, if it may be. Returns whether it may.
    pub(super) fn tell_doubter(&mut self, member: Member, (token, pair): (u64, u64)) -> bool {
        let is_any_lost = self
            .rack
            .as_ref()
            .is_some_and(|rack| rack.strays.is_any_lost);
        let may_be_lost = is_any_lost && self.registry.window_of(pair).is_none();
        if may_be_lost {
            self.remind(member.client, &MonitorMessage::WindowLost { token, pair });
        }
        may_be_lost
    }
}

#[cfg(test)]
mod tests;
