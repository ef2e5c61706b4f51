//! A slab that this process uses: its family's own, or that of a family that has lent it an end.

use core::sync::atomic::{AtomicU16, Ordering};
use std::os::fd::{IntoRawFd, OwnedFd, RawFd};

use crosslane_ctl::ledger::EndRecord;
use crosslane_ctl::slab::{EndEntry, EndPhase, SlabHeader};
use crosslane_window::slab::SlabMap;

use crate::control::OwnFd;
use crate::holders::{Family, Holders, Member};

/// Where the shared state of an end is when that is not under its own index in the own slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    /// Number of the slab in this process, 0 for its own.
    pub table: usize,
    /// Index in that slab.
    pub index: u32,
}

impl Home {
    /// From a word of [`crate::end::Local`]; 0 is none.
    #[inline]
    pub fn from_word(word: u64) -> Option<Self> {
        let table = usize::try_from(word >> 32).ok()?.checked_sub(1)?;
        let index = u32::try_from(word & 0xffff_ffff).ok()?;
        Some(Self { table, index })
    }

    /// The word.
    pub fn word(self) -> u64 {
        (self.table as u64 + 1) << 32 | u64::from(self.index)
    }
}

/// Device and inode of a slab's memory object.
pub(crate) type Identity = (u64, u64);

/// A slab, and which member of its family this process is.
pub(crate) struct Table {
    map: SlabMap,
    /// Stays open: the kernel drops the member's lock with any descriptor of the object.
    fd: OwnFd,
    member: AtomicU16,
    identity: Identity,
}

impl Table {
    /// Become a new member of the family of this slab.
    pub fn join(map: SlabMap, fd: OwnFd, identity: Identity) -> Self {
        let family = Family::of(map.header(), fd.number());
        let member = family.expect(None);
        family.join(member);
        let member = AtomicU16::new(member.number());
        Self {
            map,
            fd,
            member,
            identity,
        }
    }

    /// Whether this is the slab.
    pub fn is(&self, identity: Identity) -> bool {
        self.identity == identity
    }

    /// Close another descriptor of the slab, with which the kernel drops the member's lock.
    pub fn absorb(&self, fd: OwnedFd) {
        let member = self.member();
        if !self.family().expect_again(member) {
            // It stays open, and where it is, for the lock's sake.
            core::mem::forget(OwnFd::unmoved(fd.into_raw_fd()));
            return;
        }
        drop(fd);
        self.family().join(member);
    }

    /// Go on as this member, in a forked child.
    pub fn become_member(&self, member: Member) {
        self.member.store(member.number(), Ordering::Relaxed);
        self.family().join(member);
    }

    /// The slab's descriptor.
    pub fn fd(&self) -> RawFd {
        self.fd.number()
    }

    /// The first page of the slab.
    pub fn header(&self) -> &SlabHeader {
        self.map.header()
    }

    /// An entry of the slab.
    #[inline]
    pub fn entry(&self, index: u32) -> &EndEntry {
        self.map
            .entry(index)
            .expect("indices come from `allocate` or are checked")
    }

    /// A record of the slab's ledger.
    pub fn record(&self, number: u32) -> Option<&EndRecord> {
        self.map.record(number)
    }

    /// The family.
    pub fn family(&self) -> Family<'_> {
        Family::of(self.map.header(), self.fd.number())
    }

    /// Which member this process is.
    #[inline]
    pub fn member(&self) -> Member {
        Member::of(self.member.load(Ordering::Relaxed))
    }

    /// A member that nobody is yet.
    pub fn expect(&self) -> Member {
        self.family().expect(Some(self.member()))
    }

    pub fn replace_holders(&self, index: u32, from: Holders, to: Holders) -> bool {
        let holders = &self.entry(index).id.holders;
        holders
            .compare_exchange(from.word(), to.word(), Ordering::AcqRel, Ordering::Acquire)
            .is_ok() // SYNC: entry
    }

    fn read_holders(&self, index: u32) -> Holders {
        let holders = &self.entry(index).id.holders;
        Holders::from_word(holders.load(Ordering::Acquire)) // SYNC: entry
    }

    fn alive_of(&self, held: Holders) -> Holders {
        held.retain(|member| self.is_alive(member))
    }

    /// Whether a member lives; this process does.
    pub fn is_alive(&self, member: Member) -> bool {
        member == self.member() || self.family().is_alive(member)
    }

    /// Whether this process holds the entry.
    pub fn is_mine(&self, index: u32) -> bool {
        self.read_holders(index).contains(self.member())
    }

    /// Become the only holder of an entry that only dead processes hold.
    pub fn inherit(&self, index: u32) -> bool {
        let held = self.read_holders(index);
        if held == Holders::NOBODY
            || held.contains(self.member())
            || self.alive_of(held) != Holders::NOBODY
        {
            return false;
        }
        self.replace_holders(index, held, Holders::NOBODY.with(self.member()))
    }

    /// Whether another living process holds the entry.
    pub fn is_shared(&self, index: u32) -> bool {
        self.alive_holders(index).without(self.member()) != Holders::NOBODY
    }

    /// Whether another process holds the entry that is not about to end.
    pub fn is_kept_by_others(&self, index: u32) -> bool {
        let others = self.alive_holders(index).without(self.member());
        let family = self.family();
        others.retain(|member| !family.is_leaving(member)) != Holders::NOBODY
    }

    /// Whether another process holds the entry that is there, and not about to end.
    pub fn is_read_by_others(&self, index: u32) -> bool {
        let others = self.alive_holders(index).without(self.member());
        let family = self.family();
        let is_there = |member| !family.is_leaving(member) && !family.is_awaited(member);
        others.retain(is_there) != Holders::NOBODY
    }

    /// This process is about to end.
    pub fn note_leaving(&self) {
        self.family().note_leaving(self.member());
    }

    /// The living holders of an entry, and no others in its word. Whoever has ended may have made others holders before.
    fn alive_holders(&self, index: u32) -> Holders {
        loop {
            let held = self.read_holders(index);
            let alive = self.alive_of(held);
            if alive == held || self.replace_holders(index, held, alive) {
                return alive;
            }
        }
    }

    /// Hold an entry no more. Returns whether nobody holds it now.
    pub fn let_go(&self, index: u32, is_ours: bool) -> bool {
        loop {
            let held = self.alive_holders(index);
            let rest = held.without(self.member());
            let phase = &self.entry(index).id.phase;
            let before = phase.load(Ordering::Relaxed);
            if rest == Holders::NOBODY {
                // Before: after it the entry may be another's.
                phase.store(EndPhase::Free as u32, Ordering::Release);
            } else if is_ours {
                // Those who stay may register it again.
                let _ = phase.compare_exchange(
                    EndPhase::Registered as u32,
                    EndPhase::Plain as u32,
                    Ordering::SeqCst,
                    Ordering::Relaxed,
                );
            }
            if self.replace_holders(index, held, rest) {
                return rest == Holders::NOBODY;
            }
            if rest == Holders::NOBODY {
                // Somebody has become a holder, or been one that had died.
                phase.store(before, Ordering::Release);
            }
        }
    }

    /// Let another member hold an entry, too, that this process holds.
    pub fn lend(&self, index: u32, to: Member) {
        self.lend_if(index, to, |_| true);
    }

    /// As [`Table::lend`], but only if there is room to name the member. Returns whether there was.
    pub fn lend_by_name(&self, index: u32, to: Member) -> bool {
        self.lend_if(index, to, Holders::has_room)
    }

    fn lend_if(&self, index: u32, to: Member, may: impl Fn(Holders) -> bool) -> bool {
        loop {
            let held = self.read_holders(index);
            let alive = self.alive_of(held);
            // Another thread may just have closed it.
            if !held.contains(self.member()) || !may(alive) {
                return false;
            }
            if self.replace_holders(index, held, alive.with(to)) {
                return true;
            }
        }
    }

    /// Take an entry over that was lent to a member whom nobody else will be. Returns whether it
    /// was.
    pub fn take_over(&self, index: u32, lent_to: Member) -> bool {
        loop {
            let held = self.read_holders(index);
            if !held.contains(lent_to) {
                return false;
            }
            let taken = held.without(lent_to).with(self.member());
            if self.replace_holders(index, held, taken) {
                self.family().forget(lent_to);
                return true;
            }
        }
    }

    /// Take a loan back that nobody can adopt.
    pub fn take_back(&self, index: u32, lent_to: Member) {
        loop {
            let held = self.read_holders(index);
            if self.replace_holders(index, held, held.without(lent_to)) {
                return self.family().forget(lent_to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_survive_words() {
        assert_eq!(Home::from_word(0), None);
        for home in [
            Home { table: 0, index: 0 },
            Home {
                table: 3,
                index: 65_535,
            },
        ] {
            assert_eq!(Home::from_word(home.word()), Some(home));
        }
    }
}
