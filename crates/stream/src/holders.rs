//! Which processes hold an end: those that opened it or were forked while it was open.
//!
//! A process and its forked children are *members* of a family, which shares a slab. Each has a
//! number and holds a record lock on the byte of that number in the slab's memory object
//! (fcntl(2)). The kernel drops the lock when the process exits, is killed, or becomes another
//! program, so that asking for the lock tells exactly who is still there, without pids, which are
//! used again, and without `/proc`.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::os::fd::RawFd;

use crosslane_ctl::slab::{PENDING_SLOTS, SlabHeader};
use crosslane_sys::{kernel, process};

/// A member of a family, by its number, which is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member(u16);

impl Member {
    /// The member of this number.
    pub fn of(number: u16) -> Self {
        Self(number)
    }

    /// Its number.
    pub fn number(self) -> u16 {
        self.0
    }
}

/// Numbers there are; the last one stands for "and others". Long after all have been used, those of
/// the dead are used again: what such a one has left behind may then seem to be held a while longer.
const MEMBERS: u32 = u16::MAX as u32 - 1;
const OTHERS: u16 = u16::MAX;

/// How long a member is expected who may never come: a socket on its way to nobody, the child of a parent that was killed in its
/// fork.
const PATIENCE_SECONDS: u64 = 90;

/// A member that is about to end holds a lock on its number plus this, too.
const LEAVING: i64 = 1 << 16;

/// In a word of `pending`: what is above the number is a time.
const UNTIL: u64 = 1 << 63;

/// Holders that an entry can name.
const NAMED: usize = 4;

/// The members of the family whose slab this is.
#[derive(Clone, Copy)]
pub struct Family<'a> {
    made: &'a AtomicU32,
    pending: &'a [AtomicU64; PENDING_SLOTS],
    slab_fd: RawFd,
}

impl<'a> Family<'a> {
    /// The family of this slab.
    pub fn of(header: &'a SlabHeader, slab_fd: RawFd) -> Self {
        Self {
            made: &header.members,
            pending: &header.pending,
            slab_fd,
        }
    }

    /// A member that lives from now on, although nobody is it yet: the child of the next fork. `own` is the caller.
    pub fn expect(&self, own: Option<Member>) -> Member {
        let next = || {
            let number = self.made.fetch_add(1, Ordering::Relaxed) % MEMBERS + 1;
            Member(u16::try_from(number).unwrap_or(1))
        };
        let tries = core::iter::repeat_with(next).take(PENDING_SLOTS);
        let mut may = tries.into_iter().filter(|member| Some(*member) != own);
        may.find(|member| self.is_nobody(*member) && self.list(*member))
            .unwrap_or_else(|| {
                // More are on their way than can be listed.
                let is_free = |member: &Member| Some(*member) != own && self.is_nobody(*member);
                let mut members = core::iter::repeat_with(next).take(MEMBERS as usize);
                let member = members.find(is_free);
                let member = member.unwrap_or_else(next);
                self.slot(member)
                    .store(until_later(member), Ordering::SeqCst); // SYNC: member
                member
            })
    }

    /// The member may never come: it is expected for a while only.
    pub fn limit(&self, member: Member) {
        self.change_expected(member, |_| until_later(member));
    }

    /// A member that lives although it is about to lose its lock for a moment. False where somebody else who is expected is
    /// listed in its place.
    pub fn expect_again(&self, member: Member) -> bool {
        self.list(member)
    }

    /// Whether no other process than the caller is this member.
    fn is_nobody(&self, member: Member) -> bool {
        !kernel::is_byte_locked(self.slab_fd, member.0.into())
    }

    /// Expect the member, unless somebody alive is expected in whose place it would be listed.
    fn list(&self, member: Member) -> bool {
        let own = until_later(member);
        let is_vacant = |slot| slot == 0 || !is_expected(slot);
        self.slot(member)
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |slot| {
                is_vacant(slot).then_some(own)
            }) // SYNC: member
            .is_ok()
    }

    /// The caller is this member. Where locks cannot be had, it is thought to live for ever.
    pub fn join(&self, member: Member) {
        match kernel::lock_byte(self.slab_fd, member.0.into()) {
            Ok(()) => self.forget(member),
            Err(_) => self.change_expected(member, |_| member.0.into()),
        }
    }

    /// The member is not expected any more: it has joined, or the fork has failed.
    pub fn forget(&self, member: Member) {
        self.change_expected(member, |_| 0);
    }

    /// The fork has made this process, which is about to join, unless it is killed before.
    pub fn name(&self, member: Member, pid: u32) {
        self.change_expected(member, |_| u64::from(member.0) | u64::from(pid) << 16);
    }

    fn change_expected(&self, member: Member, change: impl Fn(u64) -> u64) {
        let change = |slot| is_about(slot, member).then(|| change(slot));
        // Fails if the member is not expected any more.
        let _ = self
            .slot(member)
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, change); // SYNC: member
    }

    /// Whether another member than the caller lives.
    pub fn is_alive(&self, member: Member) -> bool {
        let look = || {
            // A child takes its lock before it is not expected any more.
            let slot = self.slot(member).load(Ordering::SeqCst); // SYNC: member
            match is_about(slot, member) {
                true => is_expected(slot),
                false => kernel::is_byte_locked(self.slab_fd, member.0.into()),
            }
        };
        // One that is expected again may have lost its lock since it was looked for on the list.
        look() || look()
    }

    /// Whether the member may come yet, and is nobody so far.
    pub fn is_awaited(&self, member: Member) -> bool {
        let slot = self.slot(member).load(Ordering::SeqCst); // SYNC: member
        is_about(slot, member) && is_expected(slot)
    }

    /// The caller is this member, and is about to end.
    pub fn note_leaving(&self, member: Member) {
        let _ = kernel::lock_byte(self.slab_fd, LEAVING + i64::from(member.0));
    }

    /// Whether another member than the caller, who may live, is about to end.
    pub fn is_leaving(&self, member: Member) -> bool {
        kernel::is_byte_locked(self.slab_fd, LEAVING + i64::from(member.0))
    }

    fn slot(&self, member: Member) -> &AtomicU64 {
        &self.pending[usize::from(member.0) % PENDING_SLOTS]
    }
}

/// The word of `pending` for a member that comes soon or never.
fn until_later(member: Member) -> u64 {
    let until = process::uptime_seconds() + PATIENCE_SECONDS;
    u64::from(member.0) | until << 16 | UNTIL
}

/// Whether the member that this word of `pending` is about may still come.
fn is_expected(slot: u64) -> bool {
    let above = (slot & !UNTIL) >> 16;
    match u32::try_from(above).unwrap_or(0) {
        until if slot & UNTIL != 0 => process::uptime_seconds() < until.into(),
        0 => true,
        pid => process::is_alive(pid),
    }
}

/// Whether this word of `pending` is about the member.
fn is_about(slot: u64, member: Member) -> bool {
    slot & u64::from(u16::MAX) == u64::from(member.0)
}

/// The holders of one entry, as its word names them; the word 0 is nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holders([u16; NAMED]);

impl Holders {
    /// Nobody.
    pub const NOBODY: Self = Self([0; NAMED]);

    /// From an entry's word.
    pub fn from_word(word: u64) -> Self {
        let bytes = word.to_le_bytes();
        Self(core::array::from_fn(|at| {
            u16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]])
        }))
    }

    /// The word that names them.
    pub fn word(self) -> u64 {
        let place = |(at, number): (usize, u16)| u64::from(number) << (16 * at);
        self.0.into_iter().enumerate().map(place).sum()
    }

    /// Whether one more can be named.
    pub fn has_room(self) -> bool {
        self.0.contains(&0)
    }

    /// Whether this member is named.
    pub fn contains(self, member: Member) -> bool {
        self.0.contains(&member.0)
    }

    /// One more. A fifth is not named: from then on there are others, for good.
    #[must_use]
    pub fn with(mut self, member: Member) -> Self {
        if !self.contains(member) {
            let free = self.0.iter().position(|number| *number == 0);
            match free {
                Some(at) => self.0[at] = member.0,
                None => self.0[NAMED - 1] = OTHERS,
            }
        }
        self
    }

    /// Those for whom `stays` is true.
    #[must_use]
    pub fn retain(mut self, mut stays: impl FnMut(Member) -> bool) -> Self {
        for number in &mut self.0 {
            if *number != 0 && *number != OTHERS && !stays(Member(*number)) {
                *number = 0;
            }
        }
        self
    }

    /// All but this member.
    #[must_use]
    pub fn without(self, member: Member) -> Self {
        self.retain(|other| other != member)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use crosslane_sys::memory::create_sealed;

    use super::*;

    #[test]
    fn members_come_and_go() {
        let [a, b] = [Member(1), Member(0xfffe)];
        let both = Holders::NOBODY.with(a).with(b).with(a);
        assert_eq!(Holders::from_word(both.word()), both);
        assert!(both.contains(a) && both.contains(b));
        assert_eq!(both.without(a).without(b), Holders::NOBODY);
        assert_eq!(Holders::NOBODY.word(), 0);
    }

    #[test]
    fn numbers_of_the_living_are_not_given_out_again() {
        let slab = File::from(create_sealed(c"members", 4096).unwrap());
        let made = AtomicU32::new(MEMBERS - 1);
        let pending = [const { AtomicU64::new(0) }; PENDING_SLOTS];
        let family = Family {
            made: &made,
            pending: &pending,
            slab_fd: slab.as_raw_fd(),
        };
        // A lock of another open file is as one of another process.
        let other = File::options()
            .write(true)
            .open(format!("/proc/self/fd/{}", slab.as_raw_fd()))
            .unwrap();
        lock_of_the_file(&other, 2);
        let numbers = [(); 3].map(|()| family.expect(Some(Member(1))).number());
        assert_eq!(numbers, [u16::try_from(MEMBERS).unwrap(), 3, 4]);
    }

    #[test]
    fn who_is_expected_is_not_struck_off_the_list() {
        let slab = File::from(create_sealed(c"members", 4096).unwrap());
        let made = AtomicU32::new(0);
        let pending = [const { AtomicU64::new(0) }; PENDING_SLOTS];
        let family = Family {
            made: &made,
            pending: &pending,
            slab_fd: slab.as_raw_fd(),
        };
        let (first, places) = (family.expect(None), u16::try_from(PENDING_SLOTS).unwrap());
        let same_place = Member(first.number() + places);
        assert!(!family.expect_again(same_place));
        assert!(family.is_alive(first));
        made.store(u32::from(places), Ordering::Relaxed);
        assert_eq!(family.expect(None).number(), same_place.number() + 1);
        family.forget(first);
        assert!(family.expect_again(same_place));
    }

    /// As for a child of vfork that has closed it.
    #[test]
    fn without_the_slabs_descriptor_a_member_is_not_looked_for_for_ever() {
        let made = AtomicU32::new(0);
        let pending = [const { AtomicU64::new(0) }; PENDING_SLOTS];
        let family = Family {
            made: &made,
            pending: &pending,
            slab_fd: -1,
        };
        let member = family.expect(Some(Member(1)));
        assert!(family.is_awaited(member));
    }

    #[test]
    fn a_child_whose_parent_was_killed_before_it_had_a_name_is_not_expected_for_ever() {
        let slab = File::from(create_sealed(c"members", 4096).unwrap());
        let made = AtomicU32::new(0);
        let pending = [const { AtomicU64::new(0) }; PENDING_SLOTS];
        let family = Family {
            made: &made,
            pending: &pending,
            slab_fd: slab.as_raw_fd(),
        };
        let child = family.expect(None);
        assert!(family.is_alive(child));
        let slot = family.slot(child);
        assert_ne!(slot.load(Ordering::SeqCst) & UNTIL, 0);
        let later = PATIENCE_SECONDS + 1;
        slot.fetch_sub(later << 16, Ordering::SeqCst);
        assert!(!family.is_alive(child));
    }

    pub(crate) fn lock_of_the_file(file: &File, byte: i64) {
        let lock = libc::flock {
            l_type: 1,
            l_whence: 0,
            l_start: byte,
            l_len: 1,
            l_pid: 0,
        };
        // SAFETY: the lock is readable.
        let locked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
        assert_eq!(locked, 0);
    }

    #[test]
    fn who_is_not_named_is_never_thought_gone() {
        let crowd = (1..=5).fold(Holders::NOBODY, |held, n| held.with(Member(n)));
        assert_ne!(crowd.retain(|_| false), Holders::NOBODY);
    }
}
