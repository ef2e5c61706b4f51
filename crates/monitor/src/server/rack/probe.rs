//! Parts of windows that were used before are given out again when nobody on either host can write there any more, and when
//! what was written there has been cleared, which each host does where its memory is its own:
//!
//! 1. the owner asks about parts that nobody on its host holds, behind a beat;
//! 2. the guest, where that beat shows, clears those that nobody holds there either, and answers behind a beat of its own;
//! 3. the owner, where that shows, clears them, too.
//!
//! So nothing that was under way when a part was let go comes after the clearing. One question is asked at a time: an
//! answer to an earlier one says nothing of what is asked now.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::{Phase, Rack, window_id};
use crate::backing::Memories;
use crate::rack::matching::HostId;
use crate::rack::message::HostMessage;
use crate::rack::window::Window;
use crate::registry::Registry;

/// How often the guest is asked what it uses while parts are in quarantine; doubles up to the
/// latter while that changes nothing.
const FIRST_PROBE: Duration = Duration::from_millis(500);
const LONGEST_PROBE: Duration = Duration::from_secs(16);

/// The guest looks no more often: to look at all parts, and to clear them, takes its only thread a while.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// A beat that never shows.
const NEVER: u64 = u64::MAX;

/// The questions about one window.
pub(super) struct Probes {
    due: Option<Instant>,
    wait: Duration,
    is_asking: bool,
    /// How many parts were in quarantine when it was last looked.
    quarantined: usize,
    /// Guest: the epoch in which it was asked, and when it has looked.
    looked: Option<(u64, Instant)>,
}

impl Default for Probes {
    fn default() -> Self {
        Self {
            due: None,
            wait: FIRST_PROBE,
            is_asking: false,
            quarantined: 0,
            looked: None,
        }
    }
}

impl Probes {
    /// When to ask.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Guest: whether to look at what is asked about.
    fn may_look(&mut self, epoch: u64, now: Instant) -> bool {
        let has_just = |(last, at): (u64, Instant)| last == epoch && now < at + LOOK_AGAIN;
        let may = !self.looked.is_some_and(has_just);
        if may {
            self.looked = Some((epoch, now));
        }
        may
    }

    /// So many parts are in quarantine; one that has just come is asked about soon.
    fn note(&mut self, quarantined: usize, now: Instant) {
        if quarantined > std::mem::replace(&mut self.quarantined, quarantined) {
            self.wait = FIRST_PROBE;
            self.due = self.due.map(|due| due.min(now + self.wait));
        }
    }

    /// What was asked is not answered any more.
    pub(super) fn stop(&mut self) {
        self.due = None;
        self.is_asking = false;
    }
}

impl Rack {
    /// Owner: ask about the parts that may be free.
    pub(super) fn probe(
        &mut self,
        index: usize,
        registry: &mut Registry<Memories>,
        epoll: &OwnedFd,
    ) {
        self.windows[index].probes.due = None;
        let open = registry.backing().window(window_id(index));
        let Some((window, extents)) =
            open.and_then(|open| Some((&open.window, open.extents.as_mut()?)))
        else {
            return;
        };
        // Where both hosts have the same memory it is cleared last.
        extents.ask(|part| !window.is_apart() || !window.is_held(part));
        let parts = extents.asked();
        let beat = self.write_beat(index, registry).unwrap_or(NEVER);
        let state = &mut self.windows[index];
        state.probes.is_asking = true;
        let epoch = state.epoch;
        let probe = HostMessage::Probe { epoch, beat, parts };
        self.links.say(state.host, &probe, epoll);
    }

    /// What another host says of parts; false if it is about something else.
    pub(super) fn hear_of_parts(
        &mut self,
        host: HostId,
        message: &HostMessage,
        registry: &mut Registry<Memories>,
        epoll: &OwnedFd,
    ) -> bool {
        let is_owner = self.matching.is_owner(host);
        let (epoch, beat, parts) = match message {
            HostMessage::Probe { epoch, beat, parts } if !is_owner => (*epoch, *beat, parts),
            HostMessage::InUse { epoch, beat, parts } if is_owner => (*epoch, *beat, parts),
            _ => return false,
        };
        // It may have been lost meanwhile.
        match self.epoch_of(epoch, host) {
            Some(index) if is_owner => self.told_of_use(index, (beat, parts), registry),
            Some(index) => {
                let parts = self.parts_in_use(index, (beat, parts), registry);
                let beat = self.write_beat(index, registry).unwrap_or(NEVER);
                let answer = HostMessage::InUse { epoch, beat, parts };
                self.links.say(host, &answer, epoll);
            }
            None => {}
        }
        true
    }

    /// Guest: which parts somebody here may be using, or the owner's host may still write; all of them if it has just been
    /// asked. The others that are asked about have been cleared.
    fn parts_in_use(
        &mut self,
        index: usize,
        (beat, parts): (u64, &[u8]),
        registry: &mut Registry<Memories>,
    ) -> Vec<u8> {
        let is_there = self.shows(index, beat, registry);
        let state = &mut self.windows[index];
        let looks = state.probes.may_look(state.epoch, Instant::now());
        let held = |window: &Window| match (window.is_apart(), is_there) {
            (false, _) if looks => window.parts_held(),
            (true, true) if looks => window.clear_parts(parts),
            _ => vec![u8::MAX; window.parts().div_ceil(8)],
        };
        let open = registry.backing().window(window_id(index));
        open.map(|open| held(&open.window)).unwrap_or_default()
    }

    /// Owner: these parts are in use on the guest.
    fn told_of_use(
        &mut self,
        index: usize,
        (beat, parts): (u64, &[u8]),
        registry: &mut Registry<Memories>,
    ) {
        // What is cleared in a window that is lost may come back as it was.
        if self.windows[index].phase == Phase::Lost {
            return;
        }
        let is_there = self.shows(index, beat, registry);
        let Some(open) = registry.backing().window(window_id(index)) else {
            return;
        };
        let Some(extents) = &mut open.extents else {
            return;
        };
        let before = extents.tally();
        let window = &open.window;
        let is_used = |part: usize| {
            let byte = parts.get(part / 8);
            byte.is_none_or(|byte| byte >> (part % 8) & 1 != 0)
        };
        extents.answer(
            |part| !is_there && window.is_apart() || is_used(part),
            |part| window.is_held(part),
            |part| window.clear_part(part),
        );
        let state = &mut self.windows[index];
        state.probes.is_asking = false;
        if extents.tally() != before {
            state.probes.wait = FIRST_PROBE;
            self.matching.room_has_come();
        }
        if state.phase == Phase::Probing {
            self.open(index, registry);
        }
    }

    /// Owner: see that parts in quarantine are asked about.
    pub(super) fn plan_probes(
        &mut self,
        registry: &mut Registry<Memories>,
        epoll: &OwnedFd,
        now: Instant,
    ) {
        for index in 0..self.windows.len() {
            if self.windows[index].phase != Phase::Open {
                continue;
            }
            let open = registry.backing().window(window_id(index));
            let extents = open.and_then(|open| open.extents.as_ref());
            let quarantined = extents.map_or(0, |extents| extents.tally().quarantined);
            let probes = &mut self.windows[index].probes;
            probes.note(quarantined, now);
            match probes.due {
                Some(due) if due <= now => {
                    probes.wait = (probes.wait * 2).min(LONGEST_PROBE);
                    self.probe(index, registry, epoll);
                }
                None if quarantined > 0 && !probes.is_asking => {
                    probes.due = Some(now + probes.wait);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::TestRack;
    use super::*;

    #[test]
    fn a_guest_looks_at_its_parts_now_and_then() {
        let mut probes = Probes::default();
        let now = Instant::now();
        assert!(probes.may_look(1, now));
        assert!(!probes.may_look(1, now + LOOK_AGAIN / 2));
        assert!(probes.may_look(1, now + LOOK_AGAIN));
        // A window that is offered anew is looked at at once.
        assert!(probes.may_look(2, now + LOOK_AGAIN));
        assert!(LOOK_AGAIN < FIRST_PROBE, "an owner asks no more often");
    }

    #[test]
    fn a_part_that_has_just_been_left_is_asked_about_soon() {
        let mut probes = Probes::default();
        let now = Instant::now();
        let long = Some(now + LONGEST_PROBE);
        probes.note(1, now);
        (probes.wait, probes.due) = (LONGEST_PROBE, long);
        probes.note(1, now);
        assert_eq!(probes.due, long, "nothing is new");
        probes.note(2, now);
        assert_eq!(probes.due, Some(now + FIRST_PROBE));
        probes.note(1, now);
        assert_eq!(probes.wait, FIRST_PROBE);
    }

    #[test]
    fn an_owner_that_asks_again_at_once_is_told_that_all_is_in_use() {
        let mut test = TestRack::of(["beta", "alpha"], 1);
        let mut ask = || {
            let question = (0, &[u8::MAX][..]);
            test.rack.parts_in_use(0, question, &mut test.registry)
        };
        let first = ask();
        assert_eq!(first, vec![0; first.len()]);
        assert_eq!(ask(), vec![u8::MAX; first.len()]);
    }
}
