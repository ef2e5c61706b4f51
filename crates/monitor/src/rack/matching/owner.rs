//! The owner's part: pair its own ends with those that the guest offers.

use super::short::Short;
use super::*;
use crate::rack::message::Deal;
use crate::registry::GRANTS_PER_END;

/// Offers of one host that may wait; further ones are refused.
pub(super) const MOST_OFFERS: usize = 1 << 17;

/// What the owner remembers of a guest.
#[derive(Default)]
pub(super) struct Ledger {
    offers: HashMap<Tuple, Offer>,
    by_number: HashMap<u64, Tuple>,
    /// Sides that the guest's ends hold.
    dealt: HashMap<u64, Vec<Side>>,
    strangers: HashMap<u64, FamilyId>,
    /// Arenas that the guest knows.
    shared: HashSet<ArenaId>,
    short: Short,
}

impl Matching {
    /// One of our ends seeks its partner.
    pub(super) fn look_among_offers<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        host: HostId,
        tuple: Tuple,
    ) {
        let offers = &self.hosts[host.0].owned.offers;
        if let Some(offer) = offers.get(&tuple.mirrored()).copied() {
            self.meet(registry, host, &offer);
        }
    }

    /// One of theirs does.
    pub(super) fn offered<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        host: HostId,
        offer: &Offer,
    ) -> Result<(), Lie> {
        let is_its_own = self.is_address_of(host, offer.tuple.local.ip());
        let ledger = &mut self.hosts[host.0].owned;
        if ledger.by_number.contains_key(&offer.offer) {
            return Err(Lie("offers the same end twice"));
        }
        if ledger.by_number.len() >= MOST_OFFERS {
            self.refuse(host, offer.offer, Reason::RackQuota);
            return Ok(());
        }
        ledger.by_number.insert(offer.offer, offer.tuple);
        // Only the addresses that rack.toml gives it: it could take over others' connections. But a host has more of them
        // than rack.toml may know, and its programs connect from any.
        if !is_its_own {
            self.refuse(host, offer.offer, Reason::NoPeer);
            return Ok(());
        }
        let ledger = &mut self.hosts[host.0].owned;
        ledger.offers.insert(offer.tuple, *offer);
        self.meet(registry, host, offer);
        Ok(())
    }

    /// See whether an offer and one of our ends belong together.
    fn meet<B: Backing>(&mut self, registry: &mut Registry<B>, host: HostId, offer: &Offer) {
        let known = self.hosts[host.0].known.get(&offer.tuple.mirrored());
        let Some(known) = known.copied() else {
            return;
        };
        match (known.allowed, offer.allowed) {
            // They meet again when a window opens.
            (true, true) if self.hosts[host.0].windows.is_empty() => {}
            (true, true) => self.pair(registry, host, known, offer),
            (true, false) => self.deny(registry, known.id, Reason::PeerPolicy),
            (false, true) => {
                self.hosts[host.0].owned.short.remove(offer.offer);
                self.refuse(host, offer.offer, Reason::PeerPolicy);
            }
            (false, false) => {}
        }
    }

    /// The first window has opened.
    pub(super) fn meet_all<B: Backing>(&mut self, registry: &mut Registry<B>, host: HostId) {
        let ledger = &self.hosts[host.0].owned;
        let mut offers: Vec<Offer> = ledger.offers.values().copied().collect();
        offers.sort_unstable_by_key(|offer| offer.offer);
        for offer in offers {
            self.meet(registry, host, &offer);
        }
    }

    /// Room may have come: who waits for some meets again.
    pub fn meet_short<B: Backing>(&mut self, registry: &mut Registry<B>) {
        if !std::mem::take(&mut self.may_have_room) {
            return;
        }
        for host in (0..self.hosts.len()).map(HostId) {
            for parties in self.hosts[host.0].owned.short.all_parties() {
                while self.may_have_lanes(registry, host, parties)
                    && self.meet_first(registry, host, parties)
                {}
            }
        }
    }

    fn may_have_lanes<B: Backing>(
        &mut self,
        registry: &Registry<B>,
        host: HostId,
        (own, theirs): Parties,
    ) -> bool {
        let families = (own, self.stranger(host, theirs));
        let windows = self.hosts[host.0].windows.iter();
        registry.may_grant_in(windows.map(|window| window.id), families)
    }

    /// The first who waits between two families. False if it still does, or nobody does.
    fn meet_first<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        host: HostId,
        parties: Parties,
    ) -> bool {
        let ledger = &self.hosts[host.0].owned;
        let Some(number) = ledger.short.first(parties) else {
            return false;
        };
        let tuple = ledger.by_number.get(&number);
        let offer = tuple.and_then(|tuple| ledger.offers.get(tuple)).copied();
        match offer.filter(|offer| offer.offer == number) {
            Some(offer) => self.meet(registry, host, &offer),
            // A younger one has its names.
            None => {
                self.hosts[host.0].owned.short.remove(number);
            }
        }
        self.hosts[host.0].owned.short.first(parties) != Some(number)
    }

    /// Whether connections wait for room in the windows to this host.
    #[cfg(test)]
    pub fn is_short(&self, host: HostId) -> bool {
        !self.hosts[host.0].owned.short.is_empty()
    }

    /// One of our ends does not wait for room any more. Returns the offer that has done so with it.
    pub(super) fn waits_no_more(&mut self, host: HostId, id: EndId) -> Option<u64> {
        let (_, tuple) = self.ends.get(&id)?;
        let ledger = &mut self.hosts[host.0].owned;
        let offer = ledger.offers.get(&tuple.mirrored())?.offer;
        ledger.short.remove(offer).then_some(offer)
    }

    pub(super) fn refuse(&mut self, host: HostId, offer: u64, reason: Reason) {
        let reason = reason as u32;
        self.say(host, HostMessage::Refuse { offer, reason });
    }

    fn pair<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        host: HostId,
        known: Known,
        offer: &Offer,
    ) {
        // It could be offered ever new partners. What it has goes on.
        if registry.is_sated(known.id) || self.is_sated(host, offer.offer) {
            self.hosts[host.0].owned.short.remove(offer.offer);
            return self.refuse(host, offer.offer, Reason::RackQuota);
        }
        let waits = self.hosts[host.0].owned.short.has(offer.offer);
        let dealt = match self.is_over_quota(known.uid) {
            // Others of its user have got the room.
            true if waits => return,
            true => Err(Reason::RackQuota),
            false => self.deal(registry, host, known, offer),
        };
        let short = &mut self.hosts[host.0].owned.short;
        match (dealt, registry.seeker(known.id)) {
            (Err(Reason::WindowFull), Some(seeker)) => {
                if short.add(offer.offer, (seeker.family, offer.family)) {
                    self.defer(registry, known.id);
                    self.refuse(host, offer.offer, Reason::WindowFull);
                }
            }
            (dealt, _) => {
                short.remove(offer.offer);
                if let Err(reason) = dealt {
                    self.deny(registry, known.id, reason);
                    self.refuse(host, offer.offer, reason);
                }
            }
        }
    }

    /// Whether an end of the guest's has been dealt as much as it may: it would take more for a lie.
    fn is_sated(&self, host: HostId, offer: u64) -> bool {
        let dealt = self.hosts[host.0].owned.dealt.get(&offer);
        dealt.is_some_and(|sides| sides.len() >= GRANTS_PER_END)
    }

    fn deal<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        host: HostId,
        known: Known,
        offer: &Offer,
    ) -> Result<(), Reason> {
        let stranger = self.stranger(host, offer.family);
        let windows = self.hosts[host.0].windows.clone();
        // Connections are spread over the windows; a full one is passed over.
        let first = usize::try_from(offer.offer).unwrap_or(0) % windows.len().max(1);
        let (before, after) = windows.split_at(first);
        self.deals += 1;
        let deals = self.deals;
        // Epochs are random: no two monitors, and no two lives of one, give a pair the same name.
        let mut granted = after.iter().chain(before).filter_map(|window| {
            let pair = window.epoch.wrapping_add(deals).max(1);
            let theirs = registry.grant_in(window.id, known.id, stranger, pair)?;
            Some((window, theirs, pair))
        });
        let (window, theirs, pair) = granted.next().ok_or(Reason::WindowFull)?;
        let part = registry
            .arenas()
            .place(theirs.arena)
            .map_or(0, |place| place.1);
        if let Some(ours) = registry.side_of(known.id) {
            let uid = known.uid;
            let offer = None;
            self.hold(ours, Held { host, uid, offer });
        }
        self.given(known.id);
        let ledger = &mut self.hosts[host.0].owned;
        ledger.dealt.entry(offer.offer).or_default().push(theirs);
        ledger.shared.insert(theirs.arena);
        let deal = Deal {
            offer: offer.offer,
            epoch: window.epoch,
            arena: theirs.arena.0,
            part,
            slot: theirs.slot,
            role: theirs.role,
            pair,
        };
        self.say(host, HostMessage::Deal(deal));
        Ok(())
    }

    /// A family of the guest, as our registry knows it.
    fn stranger(&mut self, host: HostId, family: u64) -> FamilyId {
        let next = &mut self.next_stranger;
        let strangers = &mut self.hosts[host.0].owned.strangers;
        *strangers.entry(family).or_insert_with(|| {
            *next += 1;
            FamilyId::stranger(*next)
        })
    }

    pub(super) fn withdrawn<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        host: HostId,
        number: u64,
    ) {
        let ledger = &mut self.hosts[host.0].owned;
        ledger.short.remove(number);
        self.may_have_room |= ledger.dealt.contains_key(&number);
        if let Some(tuple) = ledger.by_number.remove(&number)
            && ledger
                .offers
                .get(&tuple)
                .is_some_and(|offer| offer.offer == number)
        {
            ledger.offers.remove(&tuple);
        }
        for side in ledger.dealt.remove(&number).unwrap_or_default() {
            registry.stranger_left(side);
        }
    }

    /// The guest's end does not come into these lanes: ours leaves them, as those of a lost window.
    pub(super) fn declined<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        host: HostId,
        number: u64,
        pair: u64,
    ) {
        let host_at = &self.hosts[host.0];
        let tuple = host_at.owned.by_number.get(&number);
        if let Some(known) = tuple.and_then(|tuple| host_at.known.get(&tuple.mirrored())) {
            registry.take_lanes_back(known.id, pair);
        }
    }

    pub(super) fn stranger_gone<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        host: HostId,
        family: u64,
    ) {
        if let Some(stranger) = self.hosts[host.0].owned.strangers.remove(&family) {
            registry.stranger_gone(stranger);
        }
    }

    /// An arena is no more: the guest may unmap it.
    pub(super) fn retired(&mut self, host: HostId, arena: ArenaId) {
        if self.hosts[host.0].owned.shared.remove(&arena) {
            self.say(host, HostMessage::Retire { arena: arena.0 });
        }
    }

    pub(super) fn guest_lost<B: Backing>(&mut self, registry: &mut Registry<B>, host: HostId) {
        let ledger = std::mem::take(&mut self.hosts[host.0].owned);
        // First nothing is dealt out of these arenas, and so nothing cleared, any more.
        for stranger in ledger.strangers.into_values() {
            registry.stranger_gone(stranger);
        }
        for side in ledger.dealt.into_values().flatten() {
            registry.stranger_left(side);
        }
    }
}
