//! Pairs of ends across hosts: what is told to the other hosts' monitors, and what is believed of
//! what they say. No socket, no clock and no system call.
//!
//! The owner of the windows between two hosts knows both hosts' seeking ends, its own from the
//! registry and the guest's from offers; it deals out sides, and the guest imports them. Ends stay
//! known until they are closed, so that one whose socket is dead is replaced by its successor of
//! the same names.

mod guest;
mod owner;
mod renew;
mod short;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use crosslane_ctl::reason::Reason;
use thiserror::Error;

use self::short::Parties;
use super::config::{HostConfig, RackConfig, Subject};
use super::message::{HostMessage, Offer, Tuple};
use crate::arenas::{ArenaId, Backing, Side, WindowId};
use crate::endpoint::{EndKey, Name};
use crate::matcher::EndId;
use crate::registry::rack::{Notice, Seeker};
use crate::registry::{FamilyId, Registry};

/// A host in the order of `rack.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostId(pub usize);

/// A window that both hosts have found to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenWindow {
    /// As this monitor numbers it.
    pub id: WindowId,
    /// As both hosts know it.
    pub epoch: u64,
}

/// How the other host has broken the rules; the session ends for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the other host {0}")]
pub struct Lie(pub &'static str);

/// See the module's description.
pub struct Matching {
    config: Arc<RackConfig>,
    /// Only ends in the monitor's own network namespace have addresses of this host.
    netns: u64,
    hosts: Vec<Host>,
    by_address: HashMap<IpAddr, HostId>,
    /// Where the ends that we know are sought.
    ends: HashMap<EndId, (HostId, Tuple)>,
    /// Sides in windows that are held here.
    sides: HashMap<Side, Held>,
    of_user: HashMap<u32, usize>,
    next_stranger: u64,
    /// Dealt out so far.
    deals: u64,
    outbox: Vec<(HostId, HostMessage)>,
    spurned: Vec<u64>,
    /// Lanes have been left, or a part of a window is free, since ends that wait for room were last looked at.
    may_have_room: bool,
}

/// What is known of one host.
#[derive(Default)]
struct Host {
    is_owner: bool,
    windows: Vec<OpenWindow>,
    /// Epochs of windows that were lost in this session: what is dealt out of them comes too late.
    lost: Vec<u64>,
    /// Our ends with partners there.
    known: HashMap<Tuple, Known>,
    owned: owner::Ledger,
    visited: guest::Ledger,
}

#[derive(Clone, Copy)]
struct Known {
    id: EndId,
    uid: u32,
    /// It may use a window, as far as we are concerned.
    allowed: bool,
    /// Its program knows that there was no room. It is told once, however often hosts lose each other.
    is_told_of_room: bool,
}

struct Held {
    host: HostId,
    uid: u32,
    /// The offer that has brought it, if we are the guest.
    offer: Option<u64>,
}

/// The hosts from a place on.
fn hosts(config: &RackConfig, first: usize) -> Vec<Host> {
    let host = |other: &HostConfig| Host {
        is_owner: config.name < other.name,
        ..Host::default()
    };
    config.hosts.iter().skip(first).map(host).collect()
}

fn by_address(config: &RackConfig) -> HashMap<IpAddr, HostId> {
    let hosts = config.hosts.iter().enumerate();
    let addresses = hosts.filter(|(_, host)| !host.is_gone);
    let addresses = addresses.flat_map(|(index, host)| {
        let of_host = move |ip: &IpAddr| (*ip, HostId(index));
        host.addresses.iter().map(of_host)
    });
    addresses.collect()
}

impl Matching {
    /// Nobody is connected and nothing is known.
    pub fn new(config: Arc<RackConfig>, netns: u64) -> Self {
        Self {
            netns,
            hosts: hosts(&config, 0),
            by_address: by_address(&config),
            ends: HashMap::new(),
            sides: HashMap::new(),
            of_user: HashMap::new(),
            next_stranger: 0,
            deals: 0,
            outbox: Vec::new(),
            spurned: Vec::new(),
            may_have_room: false,
            config,
        }
    }

    /// Whether `rack.toml` gives this host that address.
    pub fn is_address_of(&self, host: HostId, address: IpAddr) -> bool {
        self.by_address.get(&address) == Some(&host)
    }

    /// Which of our ends has these names, and a partner on this host.
    pub fn end_of(&self, host: HostId, tuple: &Tuple) -> Option<EndId> {
        self.hosts[host.0].known.get(tuple).map(|known| known.id)
    }

    /// Where the partner of one of our ends is sought, and its names: also if `rack.toml` does not give the host that
    /// address any more.
    pub fn partner_of(&self, id: EndId) -> Option<(HostId, Tuple)> {
        self.ends.get(&id).copied()
    }

    /// A window is missing, or opened anew: nothing is dealt out of what it was.
    pub fn window_lost<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        host: HostId,
        window: WindowId,
    ) {
        let host_at = &mut self.hosts[host.0];
        for lost in host_at.windows.extract_if(.., |open| open.id == window) {
            host_at.lost.push(lost.epoch);
        }
        self.forget_imports(registry, host, window);
        registry.retire_window(window);
    }

    /// Whether we own the windows to this host, and connect to it.
    pub fn is_owner(&self, host: HostId) -> bool {
        self.hosts.get(host.0).is_some_and(|host| host.is_owner)
    }

    /// Connections over windows to this host.
    pub fn connections(&self, host: HostId) -> usize {
        self.sides.values().filter(|held| held.host == host).count()
    }

    /// Lanes that the owner has dealt out since the last call and that nobody here has been given.
    pub fn take_spurned(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.spurned)
    }

    /// A part of a window is free again.
    pub fn room_has_come(&mut self) {
        self.may_have_room = true;
    }

    /// What has to be said since the last call, in order.
    pub fn take_messages(&mut self) -> Vec<(HostId, HostMessage)> {
        std::mem::take(&mut self.outbox)
    }

    fn say(&mut self, host: HostId, message: HostMessage) {
        self.outbox.push((host, message));
    }

    /// Why an end of this key is not accelerated, when nobody else knows better.
    pub fn standing(&self, key: &EndKey) -> Option<Reason> {
        let (host, _) = self.host_of(key)?;
        self.hosts[host.0]
            .windows
            .is_empty()
            .then_some(Reason::NoWindow)
    }

    /// The host that an end's partner is on, and its names as hosts tell each other.
    pub fn host_of(&self, key: &EndKey) -> Option<(HostId, Tuple)> {
        let (Name::Ip(local), Name::Ip(remote)) = (key.local, key.remote) else {
            return None;
        };
        let host = *self.by_address.get(&remote.ip())?;
        let tuple = Tuple { local, remote };
        (key.netns == self.netns).then_some((host, tuple))
    }

    /// The registry has something to tell; `program` names a family's program.
    pub fn notice<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        notice: Notice,
        program: impl Fn(FamilyId) -> String,
    ) {
        match notice {
            Notice::Seeking(id) => self.seek(registry, id, program),
            Notice::Settled(id) => self.settled(id),
            Notice::Left(left) => self.left(left.side),
            Notice::Gone(family) => {
                for host in 0..self.hosts.len() {
                    self.family_gone(HostId(host), family);
                }
            }
            Notice::Retired(arena) => {
                for host in 0..self.hosts.len() {
                    self.retired(HostId(host), arena);
                }
            }
        }
    }

    fn seek<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        id: EndId,
        program: impl Fn(FamilyId) -> String,
    ) {
        let Some(seeker) = registry.seeker(id) else {
            return;
        };
        let Some((host, tuple)) = self.host_of(&seeker.key) else {
            return;
        };
        let verdict = match self.permits(host, &seeker, &tuple, program) {
            false => Some(Reason::RackPolicy),
            true if self.is_over_quota(seeker.uid) => Some(Reason::RackQuota),
            true => None,
        };
        let known = Known {
            id,
            uid: seeker.uid,
            allowed: verdict.is_none(),
            is_told_of_room: false,
        };
        self.ends.insert(id, (host, tuple));
        self.hosts[host.0].known.insert(tuple, known);
        if let Some(reason) = verdict {
            registry.deny(id, reason);
        }
        match self.hosts[host.0].is_owner {
            true => self.look_among_offers(registry, host, tuple),
            false => self.offer(host, tuple, known, seeker.family),
        }
    }

    fn permits(
        &self,
        host: HostId,
        seeker: &Seeker,
        tuple: &Tuple,
        program: impl Fn(FamilyId) -> String,
    ) -> bool {
        self.config.permits(&Subject {
            uid: seeker.uid,
            program: &program(seeker.family),
            ports: [tuple.local.port(), tuple.remote.port()],
            host: &self.config.hosts[host.0].name,
        })
    }

    /// One of our ends stays on TCP for good.
    fn deny<B: Backing>(&mut self, registry: &mut Registry<B>, id: EndId, reason: Reason) {
        if let Some((host, known)) = self.known(id) {
            known.allowed = false;
            if let Some(offer) = self.waits_no_more(host, id) {
                self.refuse(host, offer, Reason::PeerPolicy);
            }
        }
        registry.deny(id, reason);
    }

    /// One of our ends has a partner, and has to wait for room.
    fn defer<B: Backing>(&mut self, registry: &mut Registry<B>, id: EndId) {
        if let Some((_, known)) = self.known(id)
            && !std::mem::replace(&mut known.is_told_of_room, true)
        {
            registry.defer(id, Reason::WindowFull);
        }
    }

    /// One of our ends has been given lanes.
    fn given(&mut self, id: EndId) {
        if let Some((_, known)) = self.known(id) {
            known.is_told_of_room = false;
        }
    }

    /// What is known of one of our ends, unless another has its names by now.
    fn known(&mut self, id: EndId) -> Option<(HostId, &mut Known)> {
        let (host, tuple) = *self.ends.get(&id)?;
        let known = self.hosts[host.0].known.get_mut(&tuple)?;
        (known.id == id).then_some((host, known))
    }

    fn settled(&mut self, id: EndId) {
        if let Some((host, _)) = self.known(id) {
            self.waits_no_more(host, id);
        }
        let Some((host, tuple)) = self.ends.remove(&id) else {
            return;
        };
        let known = &mut self.hosts[host.0].known;
        if known.get(&tuple).is_some_and(|known| known.id == id) {
            known.remove(&tuple);
        }
        self.withdraw_if_void(host, id.0, true);
    }

    fn hold(&mut self, side: Side, held: Held) {
        *self.of_user.entry(held.uid).or_default() += 1;
        self.sides.insert(side, held);
    }

    /// Whether one of our ends has this side, and not one of the other host's.
    pub fn is_ours(&self, side: Side) -> bool {
        self.sides.contains_key(&side)
    }

    fn left(&mut self, side: Side) {
        self.may_have_room = true;
        // Sides that the other host leaves are not held here.
        let Some(held) = self.sides.remove(&side) else {
            return;
        };
        if let Some(count) = self.of_user.get_mut(&held.uid) {
            *count -= 1;
            if *count == 0 {
                self.of_user.remove(&held.uid);
            }
        }
        if let Some(offer) = held.offer {
            self.side_left(held.host, offer);
        }
    }

    fn is_over_quota(&self, uid: u32) -> bool {
        let used = self.of_user.get(&uid).copied().unwrap_or(0);
        used >= self.config.connections_per_user
    }

    /// A window to this host works from now on.
    pub fn window_opened<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        host: HostId,
        window: OpenWindow,
    ) {
        self.hosts[host.0].windows.push(window);
        self.may_have_room = true;
        match (
            self.hosts[host.0].is_owner,
            self.hosts[host.0].windows.len(),
        ) {
            (true, 1) => self.meet_all(registry, host),
            (false, 1) => self.offer_all(registry, host),
            _ => {}
        }
    }

    /// Do what another host says.
    ///
    /// # Errors
    /// When it breaks the rules.
    pub fn hear<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        host: HostId,
        message: &HostMessage,
    ) -> Result<(), Lie> {
        match (message, self.is_owner(host)) {
            (HostMessage::Offer(offer), true) => self.offered(registry, host, offer),
            (HostMessage::Withdraw { offer }, true) => {
                self.withdrawn(registry, host, *offer);
                Ok(())
            }
            (HostMessage::Decline { offer, pair }, true) => {
                self.declined(registry, host, *offer, *pair);
                Ok(())
            }
            (HostMessage::Gone { family }, true) => {
                self.stranger_gone(registry, host, *family);
                Ok(())
            }
            (HostMessage::Deal(deal), false) => self.dealt(registry, host, deal),
            (HostMessage::Refuse { offer, reason }, false) => {
                self.refused(registry, host, *offer, *reason);
                Ok(())
            }
            (HostMessage::Retire { arena }, false) => {
                self.retire_import(registry, host, *arena);
                Ok(())
            }
            _ => Err(Lie("says what is not its part")),
        }
    }

    /// The session with a host has ended. Connections over its windows go on; what they use is
    /// not dealt out again before both hosts have looked who maps it.
    pub fn session_lost<B: Backing>(&mut self, registry: &mut Registry<B>, host: HostId) {
        self.hosts[host.0].windows.clear();
        self.hosts[host.0].lost.clear();
        self.outbox.retain(|(to, _)| *to != host);
        match self.hosts[host.0].is_owner {
            true => self.guest_lost(registry, host),
            false => self.owner_lost(registry, host),
        }
    }
}

#[cfg(test)]
mod tests;
