//! Ends whose other end is on another host. The registry does not know hosts: it tells which ends
//! have found no partner here, and is told which of them have found one there.

use std::collections::{HashMap, HashSet};

use crosslane_ctl::message::MonitorMessage;
use crosslane_ctl::reason::Reason;

use super::{ClientId, End, FamilyId, Granted, Registry};
use crate::arenas::{ArenaId, Backing, Left, Side, WindowId};
use crate::endpoint::EndKey;
use crate::matcher::EndId;

/// What a rack has to know of ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The end has no partner on this host.
    Seeking(EndId),
    /// The end is closed.
    Settled(EndId),
    /// Nobody here uses this side of a window any more.
    Left(Left),
    /// The last process of this family is gone.
    Gone(FamilyId),
    /// An arena that was shared with another host is no more.
    Retired(ArenaId),
}

/// An end that seeks its partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeker {
    /// Which connection.
    pub key: EndKey,
    /// Whose it is.
    pub family: FamilyId,
    /// The user whose process has registered it.
    pub uid: u32,
}

impl<B: Backing> Registry<B> {
    /// Collect notices from now on.
    pub fn join_rack(&mut self) {
        self.notices = Some(Vec::new());
    }

    pub(super) fn notice(&mut self, notice: Notice) {
        if let Some(notices) = &mut self.notices {
            notices.push(notice);
        }
    }

    /// What has happened since the last call, in order.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        let left = self.arenas.take_left();
        let Some(notices) = &mut self.notices else {
            return Vec::new();
        };
        let mut taken = std::mem::take(notices);
        taken.extend(left.into_iter().map(Notice::Left));
        taken
    }

    /// Who has registered an end, and as what, if it has been granted the lanes `pair`.
    pub fn holder_of(&self, id: EndId, pair: u64) -> Option<(ClientId, u64)> {
        let end = self.ends.get(&id)?;
        self.is_granted(end, pair)
            .then_some((end.client, end.token))
    }

    /// The other host is told that nobody is in the lanes `pair` of this end: they are offered to no other member of
    /// its family.
    pub fn void(&mut self, (client, token): (ClientId, u64), pair: u64) {
        let family = self.clients.get(&client).map(|client| client.family);
        let id = family.and_then(|family| self.by_token.get(&(family, token)));
        let Some(end) = id.and_then(|id| self.ends.get_mut(id)) else {
            return;
        };
        for granted in &mut end.grants {
            granted.is_void |= self.arenas.pair_name(granted.side) == pair;
        }
    }

    /// The end that a process has registered, or one that it was forked from, if it has been granted the lanes `pair`.
    pub fn end_in(&self, (client, token): (ClientId, u64), pair: u64) -> Option<EndId> {
        let family = self.clients.get(&client)?.family;
        let id = *self.by_token.get(&(family, token))?;
        self.is_granted(self.ends.get(&id)?, pair).then_some(id)
    }

    fn is_granted(&self, end: &End, pair: u64) -> bool {
        let is_meant = |granted: &Granted| self.arenas.pair_name(granted.side) == pair;
        end.grants.iter().any(is_meant)
    }

    /// What is known of an end.
    pub fn seeker(&self, id: EndId) -> Option<Seeker> {
        let end = self.ends.get(&id)?;
        Some(Seeker {
            key: end.key,
            family: end.family,
            uid: self.clients.get(&end.client)?.uid,
        })
    }

    /// The end has a partner of the family `stranger` on the other side of a window: give it
    /// rings there. Returns the partner's side, or `None` where the window has no room.
    pub fn grant_in(
        &mut self,
        window: WindowId,
        id: EndId,
        stranger: FamilyId,
        pair: u64,
    ) -> Option<Side> {
        let own = self.ends.get(&id)?.family;
        let most = self.quotas.arenas_per_process;
        let [side, others] = self.arenas.take_in(window, own, stranger, most)?;
        self.totals.paired += 1;
        self.arenas.name_pair(side, pair);
        self.give(id, side);
        Some(others)
    }

    /// Whether [`Self::grant_in`] may find room in one of these windows for two families.
    pub fn may_grant_in(
        &self,
        windows: impl Iterator<Item = WindowId>,
        families: (FamilyId, FamilyId),
    ) -> bool {
        self.arenas.may_take_in(windows, families)
    }

    /// Ends that have found no partner on this host, and have no rings.
    pub fn seekers(&self) -> Vec<EndId> {
        let is_sought = |(id, end): &(&EndId, &End)| {
            end.grants.is_empty() && self.matcher.find(&end.key) == Some(**id)
        };
        let sought = self.ends.iter().filter(is_sought);
        let mut ids: Vec<EndId> = sought.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// The newest side of an end.
    pub fn side_of(&self, id: EndId) -> Option<Side> {
        Some(self.ends.get(&id)?.grants.last()?.side)
    }

    /// The other host has dealt out a part of a window for connections of this family.
    pub fn import(&mut self, family: FamilyId, window: WindowId, part: u32) -> Option<ArenaId> {
        let (memory, geometry) = self.arenas.backing().import(window, part)?;
        Some(self.arenas.import(family, memory, geometry))
    }

    /// The other host has found the partner of an end, and says which side is its. False if it
    /// lies.
    pub fn grant_imported(&mut self, id: EndId, side: Side, pair: u64) -> bool {
        let Some(family) = self.ends.get(&id).map(|end| end.family) else {
            return false;
        };
        let is_held = self.arenas.hold(side, family);
        if is_held {
            self.totals.paired += 1;
            self.arenas.name_pair(side, pair);
            self.give(id, side);
        }
        is_held
    }

    /// No more slots of an imported arena will be dealt out.
    pub fn retire_import(&mut self, arena: ArenaId) {
        self.arenas.retire(arena);
        self.retire_dropped();
    }

    /// The window is missing: tell the ends that have rings there, which may not find out by themselves, and have not
    /// been told yet.
    pub fn tell_of_loss(&mut self, window: WindowId) {
        let mut lost: Vec<(ClientId, u64, u64)> = Vec::new();
        for end in self.ends.values_mut() {
            for granted in &mut end.grants {
                let place = self.arenas.place(granted.side.arena);
                let is_there = place.is_some_and(|place| place.0 == window);
                if is_there && granted.told_of_loss.replace(end.client) != Some(end.client) {
                    let pair = self.arenas.pair_name(granted.side);
                    lost.push((end.client, end.token, pair));
                }
            }
        }
        lost.sort_unstable();
        lost.dedup();
        for (client, token, pair) in lost {
            self.say(client, MonitorMessage::WindowLost { token, pair });
        }
    }

    /// Lanes between hosts of ends that are known, and hear of losses so.
    pub fn granted_lanes(&self) -> HashSet<u64> {
        let granted = self.ends.values().flat_map(|end| &end.grants);
        granted
            .map(|granted| self.arenas.pair_name(granted.side))
            .collect()
    }

    /// The windows of all lanes between hosts that this monitor has granted, whoever has them.
    pub fn lanes(&self) -> HashMap<u64, WindowId> {
        self.arenas.named().collect()
    }

    /// The window of an end carries what has been written there.
    pub fn tell_of_carriage(&mut self, client: ClientId, token: u64, pair: u64) {
        self.say(client, MonitorMessage::Carried { token, pair });
    }

    /// Whether it does is being looked into.
    pub fn tell_of_look(&mut self, client: ClientId, token: u64, pair: u64) {
        self.say(client, MonitorMessage::LookedInto { token, pair });
    }

    /// Nobody comes into the lanes `pair` of this end: it leaves them as if their window were lost.
    pub fn take_lanes_back(&mut self, id: EndId, pair: u64) {
        let Some(end) = self.ends.get(&id).filter(|end| self.is_granted(end, pair)) else {
            return;
        };
        let (client, token) = (end.client, end.token);
        self.say(client, MonitorMessage::WindowLost { token, pair });
    }

    /// No more slots of any arena in this window will be dealt out.
    pub fn retire_window(&mut self, window: WindowId) {
        self.arenas.retire_window(window);
        self.retire_dropped();
    }

    /// An end may not be accelerated to another host.
    pub fn deny(&mut self, id: EndId, reason: Reason) {
        self.refuse_end(id, reason);
    }

    /// An end has to wait for its lanes, and this is why.
    pub fn defer(&mut self, id: EndId, reason: Reason) {
        if let Some(end) = self.ends.get(&id) {
            let (client, token) = (end.client, end.token);
            let reason = reason as u32;
            self.say(client, MonitorMessage::Refused { token, reason });
        }
    }

    /// The other host does not use this side any more.
    pub fn stranger_left(&mut self, side: Side) {
        self.arenas.leave(side);
        self.retire_dropped();
    }

    /// A family on another host is gone.
    pub fn stranger_gone(&mut self, family: FamilyId) {
        self.arenas.family_gone(family);
        self.retire_dropped();
    }

    /// The window with the lanes of this name, also of an end that its process has closed and a child has not.
    pub fn window_of(&self, pair: u64) -> Option<WindowId> {
        let arena = self.arenas.arena_of_pair(pair)?;
        Some(self.arenas.place(arena)?.0)
    }

    /// Lines of the lanes of this name, if this monitor has granted them.
    pub fn lines_of(&self, pair: u64) -> Option<u32> {
        let (geometry, _) = self.arenas.shape(self.arenas.arena_of_pair(pair)?)?;
        Some(geometry.ring_lines)
    }

    /// Where memory comes from.
    pub fn backing(&mut self) -> &mut B {
        self.arenas.backing()
    }
}
