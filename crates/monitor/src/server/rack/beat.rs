//! Windows that are there, are mapped, and carry nothing. Each host writes a number into the window's header now
//! and then, and says in the session that it stands there. What has been said and does not show is not in the
//! window; a host that is slow or stopped says nothing.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::{Phase, Rack, window_id};
use crate::backing::Memories;
use crate::rack::matching::HostId;
use crate::rack::message::HostMessage;
use crate::registry::Registry;

/// What has been said and does not show after so long is lost.
const OVERDUE: Duration = Duration::from_millis(500);

/// The beats of one window, while it is open.
#[derive(Default)]
pub(super) struct Beats {
    /// Ours so far.
    sent: u64,
    /// The first of the other host's that does not show, and when it is overdue.
    missing: Option<(u64, Instant)>,
}

impl Beats {
    /// When to look again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.missing.map(|(_, due)| due)
    }
}

impl Rack {
    /// Write a beat into an open window, and say so.
    pub(super) fn beat(
        &mut self,
        index: usize,
        registry: &mut Registry<Memories>,
        epoll: &OwnedFd,
    ) {
        let state = &mut self.windows[index];
        let is_owner = self.matching.is_owner(state.host);
        let (epoch, beat) = (state.epoch, state.beats.sent + 1);
        let open = registry.backing().open(window_id(index));
        if open.is_some_and(|open| open.window.beat(is_owner, epoch, beat).is_ok()) {
            state.beats.sent = beat;
            let message = HostMessage::Beat { epoch, beat };
            self.links.say(state.host, &message, epoll);
        }
    }

    /// The other host says that a beat stands in the window.
    pub(super) fn heard_beat(
        &mut self,
        (host, epoch, beat): (HostId, u64, u64),
        registry: &mut Registry<Memories>,
    ) {
        let index = self.epoch_of(epoch, host);
        let Some(index) = index.filter(|index| self.windows[*index].phase == Phase::Open) else {
            return;
        };
        if !self.shows(index, beat, registry) {
            let missing = &mut self.windows[index].beats.missing;
            missing.get_or_insert((beat, Instant::now() + OVERDUE));
        }
    }

    /// Look again for a beat that is missing.
    pub(super) fn look_for_beat(
        &mut self,
        index: usize,
        registry: &mut Registry<Memories>,
        epoll: &OwnedFd,
        now: Instant,
    ) {
        let state = &self.windows[index];
        let missing = state.beats.missing.filter(|(_, due)| *due <= now);
        let Some((beat, _)) = missing.filter(|_| state.phase == Phase::Open) else {
            return;
        };
        if self.shows(index, beat, registry) {
            self.windows[index].beats.missing = None;
            return;
        }
        let trouble = "it carries nothing any more: what the other host has written does not show here; \
                       connections go back to TCP";
        self.lose_window(index, trouble, registry, epoll);
    }

    fn shows(&self, index: usize, beat: u64, registry: &mut Registry<Memories>) -> bool {
        let state = &self.windows[index];
        let is_owner = self.matching.is_owner(state.host);
        let open = registry.backing().open(window_id(index));
        open.is_some_and(|open| open.window.shows_beat(!is_owner, state.epoch, beat))
    }
}
