//! The slabs that processes show, and what finished processes leave to the counters.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crosslane_ctl::counter::Counter;
use crosslane_ctl::slab::{COUNTER_SLOTS, REASON_SLOTS, SLAB_ENTRIES};
use crosslane_window::slab::SlabMap;

use super::runs::Runs;
use super::{ENTRIES_PER_STEP, Seen};
use crate::registry::{ClientId, FamilyId};

/// Finished slabs that are remembered, because a child of a finished process may bring one back.
const REMEMBERED: usize = 4096;

/// Users whose finished processes are counted apart; those of further users are seen by root.
const USERS: usize = 1024;

/// Families whose open connections may wait to be counted; those of further ones are not.
const LEAVING: usize = 64;

/// A memory object as the kernel tells it from others.
pub type SlabIdentity = (u64, u64);

/// Counters of slabs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// By [`crosslane_ctl::counter::Counter`].
    pub counters: [u64; COUNTER_SLOTS],
    /// By [`crosslane_ctl::reason::Reason`].
    pub reasons: [u64; REASON_SLOTS],
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            counters: [0; COUNTER_SLOTS],
            reasons: [0; REASON_SLOTS],
        }
    }
}

impl Tally {
    /// What a slab shows.
    pub fn of(slab: &SlabMap) -> Self {
        let header = slab.header();
        Self {
            counters: std::array::from_fn(|at| header.counters[at].load(Relaxed)),
            reasons: std::array::from_fn(|at| header.reasons[at].load(Relaxed)),
        }
    }

    /// Add the bytes of an open connection to those of the closed ones.
    pub(super) fn add_open(&mut self, seen: &Seen) {
        let bytes = [
            (Counter::RingBytesSent, seen.ring_bytes[0]),
            (Counter::RingBytesReceived, seen.ring_bytes[1]),
            (Counter::TcpBytesSent, seen.tcp_bytes[0]),
            (Counter::TcpBytesReceived, seen.tcp_bytes[1]),
        ];
        for (counter, bytes) in bytes {
            let sum = &mut self.counters[counter as usize];
            *sum = sum.saturating_add(bytes);
        }
    }

    /// Add another tally. A slab may claim any number, so sums stop at the greatest one.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.counters.iter_mut().zip(other.counters) {
            *sum = sum.saturating_add(more);
        }
        for (sum, more) in self.reasons.iter_mut().zip(other.reasons) {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Processes that share a slab.
#[derive(Debug)]
pub struct Family {
    /// Their table.
    pub slab: SlabMap,
    identity: SlabIdentity,
    members: BTreeMap<ClientId, Process>,
    uid: u32,
}

/// A process as seen when it said Hello.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its number, or 0 if it lives outside our pid namespace.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its program.
    pub program: String,
}

impl Family {
    /// The process that an entry with this pid belongs to, as far as we know.
    pub fn process(&self, pid: u32) -> Option<&Process> {
        let named = self.members.values().find(|member| member.pid == pid);
        named.or_else(|| self.members.values().next())
    }

    /// All of its processes.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.members.keys().copied()
    }

    /// Whether this memory object is its slab.
    pub fn is(&self, identity: SlabIdentity) -> bool {
        self.identity == identity
    }

    /// As which memory object the kernel knows the slab.
    pub fn identity(&self) -> SlabIdentity {
        self.identity
    }

    /// The user whose process made the slab known.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Our number of a process that knows itself by `pid`, perhaps in another pid namespace.
    pub fn pid_of(&self, pid: u32) -> u32 {
        let alone = self
            .members
            .values()
            .next()
            .filter(|_| self.members.len() == 1);
        let known = alone.filter(|process| process.pid != 0);
        known.map_or(pid, |process| process.pid)
    }
}

struct Finished {
    identity: SlabIdentity,
    uid: u32,
    tally: Tally,
}

/// A family without processes, whose open connections are being counted: nobody else will, if its
/// last process was killed.
struct Leaving {
    family: Family,
    tally: Tally,
    next: u32,
}

impl Leaving {
    fn new(family: Family) -> Self {
        Self {
            tally: Tally::of(&family.slab),
            family,
            next: 0,
        }
    }

    /// Look at some entries. True when all have been seen.
    fn step(&mut self) -> bool {
        let slab = &self.family.slab;
        let used = slab.header().entries_used.load(Relaxed).min(SLAB_ENTRIES);
        let end = used.min(self.next + ENTRIES_PER_STEP);
        for index in self.next..end {
            if let Some(seen) = slab.entry(index).and_then(Seen::read) {
                self.tally.add_open(&seen);
            }
        }
        self.next = end;
        end >= used
    }
}

/// All slabs.
#[derive(Default)]
pub struct Families {
    /// The runs that are watched.
    pub runs: Runs,
    families: HashMap<FamilyId, Family>,
    by_identity: HashMap<SlabIdentity, FamilyId>,
    /// Families whose processes are all gone; forked children may yet say Hello.
    orphaned: HashMap<SlabIdentity, FamilyId>,
    leaving: VecDeque<Leaving>,
    finished: VecDeque<Finished>,
    totals: HashMap<u32, Tally>,
    totals_of_others: Tally,
    next: u64,
}

impl Families {
    /// A process has shown its slab. The forked child of one that is gone is of its family.
    pub fn join(
        &mut self,
        client: ClientId,
        process: Process,
        identity: SlabIdentity,
        slab: SlabMap,
    ) -> FamilyId {
        if let Some(id) = self.by_identity.get(&identity)
            && let Some(family) = self.families.get_mut(id)
        {
            family.members.insert(client, process);
            return *id;
        }
        self.finished
            .retain(|finished| finished.identity != identity);
        self.runs.revived(identity);
        let id = self.orphaned.remove(&identity).unwrap_or_else(|| {
            self.next += 1;
            FamilyId(self.next - 1)
        });
        let family = Family {
            slab,
            identity,
            uid: process.uid,
            members: BTreeMap::from([(client, process)]),
        };
        self.families.insert(id, family);
        self.by_identity.insert(identity, id);
        id
    }

    /// A process is gone; the last one of a slab takes it along.
    pub fn part(&mut self, client: ClientId, id: FamilyId) {
        let Some(family) = self.families.get_mut(&id) else {
            return;
        };
        let Some(last) = family.members.remove(&client) else {
            return;
        };
        if !family.members.is_empty() {
            return;
        }
        if let Some(family) = self.families.remove(&id) {
            self.by_identity.remove(&family.identity);
            self.orphaned.insert(family.identity, id);
            self.runs.ended(id, &family, &last);
            self.leave(Leaving::new(family));
        }
    }

    /// Forget which families those without processes have been, but for what `is_held` for forked children.
    pub fn forget(&mut self, is_held: impl Fn(FamilyId) -> bool) {
        self.orphaned.retain(|_, id| is_held(*id));
    }

    /// Count what a family leaves, at once if it is little.
    fn leave(&mut self, mut leaving: Leaving) {
        if leaving.step() || self.leaving.len() >= LEAVING {
            self.finish(leaving);
        } else {
            self.leaving.push_back(leaving);
        }
    }

    /// Go on counting what families have left, for a bounded time. True if there is more.
    pub fn go_on(&mut self) -> bool {
        if let Some(leaving) = self.leaving.pop_front() {
            self.leave(leaving);
        }
        !self.leaving.is_empty()
    }

    fn finish(&mut self, leaving: Leaving) {
        self.finished.push_back(Finished {
            identity: leaving.family.identity,
            uid: leaving.family.uid,
            tally: leaving.tally,
        });
        if self.finished.len() > REMEMBERED {
            self.settle();
        }
    }

    fn settle(&mut self) {
        let Some(oldest) = self.finished.pop_front() else {
            return;
        };
        let known = self.totals.contains_key(&oldest.uid) || self.totals.len() < USERS;
        let totals = match known {
            true => self.totals.entry(oldest.uid).or_default(),
            false => &mut self.totals_of_others,
        };
        totals.add(&oldest.tally);
    }

    /// What the first process of a family runs; empty where that is not known.
    pub fn program_of(&self, id: FamilyId) -> String {
        let process = self.find(id).and_then(|family| family.process(0));
        process.map_or_else(String::new, |process| process.program.clone())
    }

    /// A family that lives.
    pub fn find(&self, id: FamilyId) -> Option<&Family> {
        self.families.get(&id)
    }

    /// Who may have the open ends that are sought, by their lanes between hosts and their flags: a process of the family,
    /// the end's token, and the lanes.
    pub fn in_lanes(&self, is_sought: impl Fn(u64, u32) -> bool) -> Vec<(ClientId, u64, u64)> {
        let mut found = Vec::new();
        for family in self.families.values() {
            let used = family.slab.header().entries_used.load(Relaxed);
            for index in 0..used.min(SLAB_ENTRIES) {
                let Some(entry) = family.slab.entry(index) else {
                    break;
                };
                let pair = entry.wait.pair.load(SeqCst);
                if entry.is_held() && is_sought(pair, entry.id.flags.load(SeqCst)) {
                    let generation = entry.id.generation.load(SeqCst);
                    let token = u64::from(generation) << 32 | u64::from(index);
                    let members = family.members.keys();
                    found.extend(members.map(|client| (*client, token, pair)));
                }
            }
        }
        found
    }

    /// Families that this user may see.
    pub fn visible_to(&self, uid: u32) -> Vec<FamilyId> {
        let mut ids: Vec<_> = self
            .families
            .iter()
            .filter(|(_, family)| {
                uid == 0 || family.members.values().any(|member| member.uid == uid)
            })
            .map(|(id, _)| *id)
            .collect();
        ids.sort_unstable_by(|a, b| b.cmp(a));
        ids
    }

    /// What finished processes of this user have counted; of all users for root.
    pub fn finished(&self, uid: u32) -> Tally {
        let mut sum = Tally::default();
        for (owner, totals) in &self.totals {
            if uid == 0 || *owner == uid {
                sum.add(totals);
            }
        }
        for leaving in &self.leaving {
            if uid == 0 || leaving.family.uid == uid {
                sum.add(&leaving.tally);
            }
        }
        for finished in &self.finished {
            if uid == 0 || finished.uid == uid {
                sum.add(&finished.tally);
            }
        }
        if uid == 0 {
            sum.add(&self.totals_of_others);
        }
        sum
    }
}
