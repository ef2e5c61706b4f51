//! The guest's part: offer its ends, and take what the owner deals out.

use super::*;
use crate::rack::message::Deal;
use crate::registry::GRANTS_PER_END;

/// What the guest remembers of an owner.
#[derive(Default)]
pub(super) struct Ledger {
    /// By their numbers, which are those of our ends.
    offers: HashMap<u64, Out>,
    imports: HashMap<u64, Import>,
    /// Families that the owner has heard of.
    told: HashSet<FamilyId>,
}

/// An offer that the owner knows.
struct Out {
    uid: u32,
    family: FamilyId,
    is_closed: bool,
    sides: usize,
}

/// An arena of the owner's.
#[derive(Clone, Copy)]
struct Import {
    id: ArenaId,
    window: WindowId,
    part: u32,
    family: FamilyId,
}

impl Matching {
    /// Tell the owner of one of our ends, if it can do something about it.
    pub(super) fn offer(&mut self, host: HostId, tuple: Tuple, known: Known, family: FamilyId) {
        let state = &mut self.hosts[host.0];
        let number = known.id.0;
        if state.windows.is_empty() || state.visited.offers.contains_key(&number) {
            return;
        }
        let out = Out {
            uid: known.uid,
            family,
            is_closed: false,
            sides: 0,
        };
        state.visited.offers.insert(number, out);
        state.visited.told.insert(family);
        let offer = Offer {
            offer: number,
            family: family.0,
            tuple,
            allowed: known.allowed,
        };
        self.say(host, HostMessage::Offer(offer));
    }

    pub(super) fn offer_all<B: Backing>(&mut self, registry: &mut Registry<B>, host: HostId) {
        let mut known: Vec<(Tuple, Known)> = self.hosts[host.0]
            .known
            .iter()
            .map(|(tuple, known)| (*tuple, *known))
            .collect();
        known.sort_unstable_by_key(|(_, known)| known.id);
        for (tuple, known) in known {
            // Those that have rings need no others.
            if let Some(seeker) = registry.seeker(known.id)
                && registry.side_of(known.id).is_none()
            {
                self.offer(host, tuple, known, seeker.family);
            }
        }
    }

    /// An offer is void when its end is closed and nobody uses what it has brought.
    pub(super) fn withdraw_if_void(&mut self, host: HostId, number: u64, is_closed: bool) {
        let offers = &mut self.hosts[host.0].visited.offers;
        let Some(out) = offers.get_mut(&number) else {
            return;
        };
        out.is_closed |= is_closed;
        if out.is_closed && out.sides == 0 {
            offers.remove(&number);
            self.say(host, HostMessage::Withdraw { offer: number });
        }
    }

    pub(super) fn side_left(&mut self, host: HostId, number: u64) {
        if let Some(out) = self.hosts[host.0].visited.offers.get_mut(&number) {
            out.sides = out.sides.saturating_sub(1);
        }
        self.withdraw_if_void(host, number, false);
    }

    pub(super) fn family_gone(&mut self, host: HostId, family: FamilyId) {
        if self.hosts[host.0].visited.told.remove(&family) {
            self.say(host, HostMessage::Gone { family: family.0 });
        }
    }

    /// The owner has found a partner.
    pub(super) fn dealt<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        host: HostId,
        deal: &Deal,
    ) -> Result<(), Lie> {
        let is_taken = self.take(registry, host, deal)?;
        if !is_taken {
            self.spurned.push(deal.pair);
        }
        Ok(())
    }

    /// Give our end what it is dealt. False if it does not get it.
    fn take<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        host: HostId,
        deal: &Deal,
    ) -> Result<bool, Lie> {
        let state = &self.hosts[host.0];
        if state.lost.contains(&deal.epoch) {
            return Ok(false);
        }
        let window = state.windows.iter().find(|open| open.epoch == deal.epoch);
        let window = window.ok_or(Lie("deals out a window that is not open"))?.id;
        // The end may have been closed meanwhile: the owner will hear of it.
        let Some(out) = state
            .visited
            .offers
            .get(&deal.offer)
            .filter(|out| !out.is_closed)
        else {
            return Ok(false);
        };
        let (uid, family) = (out.uid, out.family);
        if out.sides >= GRANTS_PER_END {
            return Err(Lie("deals out too much to one end"));
        }
        // Denied since the offer, because of another deal or of what `rack.toml` says by now, and told why.
        let known = self.ends.get(&EndId(deal.offer));
        let known = known.and_then(|(_, tuple)| state.known.get(tuple));
        if known.is_some_and(|known| known.id == EndId(deal.offer) && !known.allowed) {
            self.hand_back(host, deal);
            return Ok(false);
        }
        if self.is_over_quota(uid) {
            self.decline(registry, host, deal, Reason::RackQuota);
            return Ok(false);
        }
        let Some(arena) = self.import(registry, host, family, window, deal)? else {
            self.decline(registry, host, deal, Reason::NoMemory);
            return Ok(false);
        };
        let side = Side {
            arena,
            slot: deal.slot,
            role: deal.role,
        };
        if !registry.grant_imported(EndId(deal.offer), side, deal.pair) {
            return Err(Lie("deals out what is in use or does not exist"));
        }
        if let Some(out) = self.hosts[host.0].visited.offers.get_mut(&deal.offer) {
            out.sides += 1;
        }
        self.given(EndId(deal.offer));
        let offer = Some(deal.offer);
        self.hold(side, Held { host, uid, offer });
        Ok(true)
    }

    /// Our end stays on TCP after all.
    fn decline<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        host: HostId,
        deal: &Deal,
        reason: Reason,
    ) {
        self.deny(registry, EndId(deal.offer), reason);
        self.hand_back(host, deal);
    }

    /// The partner of an end that stays on TCP has lanes already, which it leaves when the owner hears this; and it is
    /// given no others, as our end is offered again as one that may not use them.
    fn hand_back(&mut self, host: HostId, deal: &Deal) {
        let (number, pair) = (deal.offer, deal.pair);
        self.say(
            host,
            HostMessage::Decline {
                offer: number,
                pair,
            },
        );
        let state = &self.hosts[host.0];
        let family = state.visited.offers.get(&number).map(|out| out.family);
        let known = self.ends.get(&EndId(number));
        let known = known.and_then(|(_, tuple)| Some((*tuple, *state.known.get(tuple)?)));
        self.withdraw_if_void(host, number, true);
        // Unless it still holds what it was dealt before: then the offer stands, and ends with that.
        if let (Some(family), Some((tuple, known))) = (family, known)
            && known.id == EndId(number)
        {
            self.offer(host, tuple, known, family);
        }
    }

    /// The arena of a deal; `None` if it cannot be opened.
    fn import<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        host: HostId,
        family: FamilyId,
        window: WindowId,
        deal: &Deal,
    ) -> Result<Option<ArenaId>, Lie> {
        let imports = &mut self.hosts[host.0].visited.imports;
        let part = deal.part;
        if let Some(import) = imports.get(&deal.arena) {
            let is_same = (import.window, import.part, import.family) == (window, part, family);
            return match is_same {
                true => Ok(Some(import.id)),
                false => Err(Lie("deals out one arena in two ways")),
            };
        }
        let is_taken = |import: &Import| (import.window, import.part) == (window, part);
        if imports.values().any(is_taken) {
            return Err(Lie("deals out one part of a window as two arenas"));
        }
        let Some(id) = registry.import(family, window, part) else {
            return Ok(None);
        };
        let import = Import {
            id,
            window,
            part,
            family,
        };
        imports.insert(deal.arena, import);
        Ok(Some(id))
    }

    pub(super) fn refused<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        host: HostId,
        number: u64,
        reason: u32,
    ) {
        let Some(out) = self.hosts[host.0].visited.offers.get(&number) else {
            return;
        };
        if out.is_closed {
            return;
        }
        match Reason::from_code(reason).unwrap_or(Reason::PeerPolicy) {
            Reason::WindowFull => self.defer(registry, EndId(number)),
            reason => self.deny(registry, EndId(number), reason),
        }
    }

    pub(super) fn retire_import<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        host: HostId,
        arena: u64,
    ) {
        if let Some(import) = self.hosts[host.0].visited.imports.remove(&arena) {
            registry.retire_import(import.id);
        }
    }

    /// What the owner has dealt out of this window is no more.
    pub(super) fn forget_imports<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        host: HostId,
        window: WindowId,
    ) {
        let imports = &mut self.hosts[host.0].visited.imports;
        for (_, import) in imports.extract_if(|_, import| import.window == window) {
            registry.retire_import(import.id);
        }
    }

    pub(super) fn owner_lost<B: Backing>(&mut self, registry: &mut Registry<B>, host: HostId) {
        let ledger = std::mem::take(&mut self.hosts[host.0].visited);
        for import in ledger.imports.into_values() {
            registry.retire_import(import.id);
        }
        for held in self.sides.values_mut().filter(|held| held.host == host) {
            held.offer = None;
        }
    }
}
