//! Ends whose sockets change the process: passed by SCM_RIGHTS, or inherited through exec.
//!
//! Who gives a socket away brings its connection back to TCP ([`crate::rest`]), as far as the peer
//! lets it, and lends the end, through the monitor. A process that gets a TCP socket asks for its
//! end, and adopts it: it maps the lender's slab, where the cursors are, and reads the ring to its
//! end, if anything is left there. Both then share the end as parent and child do after a fork.
//!
//! Only processes of one user and one pid namespace do that, because a slab shows more than the one
//! connection, and names by pid who is about to become a member.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd, RawFd};

use crosslane_ctl::message::{ANY_LANES, Grant, Loan};
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndPhase, SLAB_ENTRIES, end_flags};
use crosslane_sys::kernel;
use crosslane_window::arena::Arena;
use crosslane_window::slab::SlabMap;

use crate::control::{self, OwnFd};
use crate::family::Family;
use crate::process::{Member, Process};
use crate::table::{Home, Identity, Table};
use crate::{End, close, config, entering, put_off, register, rest, standard, stranded, switch};

/// A copy of an end's socket that has been given away.
pub struct Given {
    table: &'static Table,
    index: u32,
    generation: u32,
    loan: Option<Loaned>,
}

/// As whom the end may be adopted.
struct Loaned {
    member: Member,
    token: u64,
}

impl Given {
    /// The process that will have it, or would if it ran under Crosslane.
    pub fn to_process(&self, pid: u32) {
        if let Some(loan) = &self.loan {
            self.table.family().name(loan.member, pid);
        }
    }

    /// Whoever gets it is not known, or gets it never.
    pub fn to_somebody(&self) {
        if let Some(loan) = &self.loan {
            self.table.family().limit(loan.member);
        }
    }

    /// It has not left after all.
    pub fn take_back(self) {
        let entry = self.table.entry(self.index);
        if entry.id.generation.load(Ordering::Relaxed) == self.generation {
            entry.wait.away.fetch_sub(1, Ordering::SeqCst); // SYNC: away
        }
        self.expire();
    }

    /// Who was to have it has ended. Whether it has left a copy to others is not known, unless it
    /// has adopted the end.
    pub fn expire(self) {
        if let Some(loan) = self.loan {
            control::take_back(loan.token, loan.member);
            self.table.take_back(self.index, loan.member);
        }
    }
}

/// A copy of the end's socket is about to leave this process, for whoever gets it: bring its
/// connection back to TCP, waiting at most for `patience`, and lend it.
pub fn give_away(end: &End, reason: Reason, patience: Duration) -> Given {
    rest::give_away(end, reason, patience);
    let (table, index) = end.process().home(end.index);
    Given {
        table,
        index,
        generation: table.entry(index).id.generation.load(Ordering::Relaxed),
        loan: lend(end, table, index),
    }
}

/// Lend an end to whoever gets its socket, if it is in the rings or may get there again.
fn lend(end: &End, table: &Table, index: u32) -> Option<Loaned> {
    let namespace = table.header().pid_namespace.load(Ordering::Relaxed);
    let is_useful = end.phase() == EndPhase::Granted || end.has_flags(end_flags::RESTING);
    // A child of vfork may have closed its copy, by system calls of its own.
    let has_slab = || kernel::status_flags(table.fd()).is_ok();
    if !is_useful || namespace == 0 || end.has_flags(end_flags::LOST) || !has_slab() {
        return None;
    }
    // The monitor lends what it knows, after it has seen the socket. A child of vfork must not
    // write to its parent's tables so much.
    let is_known = end.has_flags(end_flags::KNOWN)
        || end.process().is_current() && control::register(end).is_ok();
    if !is_known {
        return None;
    }
    let member = table.expect();
    if !table.lend_by_name(index, member) {
        table.family().forget(member);
        return None;
    }
    end.add_flags(end_flags::FORKED);
    end.forget_waiting();
    let token = end.token();
    if control::lend(end, member, table.fd()) {
        return Some(Loaned { member, token });
    }
    control::take_back(token, member);
    table.take_back(index, member);
    None
}

/// A connection has come from elsewhere: adopt its end if it is lent.
pub fn adopt(fd: RawFd) {
    let Some(family) =
        Family::of(fd).filter(|family| !config::get().disabled && may_have(*family, fd))
    else {
        return;
    };
    let Ok(process) = register::started() else {
        return;
    };
    register::forget(fd);
    let Some(index) = process.allocate() else {
        return;
    };
    register::reset(process, index, fd, false);
    let end = End::at(process, index, fd);
    if family == Family::Unix {
        end.add_flags(end_flags::UNIX);
    }
    let found = control::adopt(&end);
    let known = match found {
        true => same_end(process, index),
        false => None,
    };
    match known {
        Some(known) => {
            let end = End::at(process, known, fd);
            close::add_name(&end, fd);
            standard::keep_on_tcp(&end);
            put_off::note_adopted(&end);
        }
        None if found => {
            process.name(fd, Some(index));
            let end = End::at(process, index, fd);
            // Its lanes were taken before it had a number to ask about.
            end.note_size();
            standard::keep_on_tcp(&end);
            rest::look_now(&end);
            put_off::note_adopted(&end);
            return;
        }
        None => {}
    }
    // The place is not needed. Who has it next has no lanes yet, and is not to find these.
    let token = end.token();
    end.clear_lanes();
    process.local(index).home.store(0, Ordering::Release);
    process.let_go(index, true);
    if found {
        control::release(token, ANY_LANES);
    } else if kernel::has_peer(fd)
        && let Some(end) = register::track(fd, family, false, None)
    {
        // Who else has it, or has had it, is not known.
        switch::pin(&end, Reason::Foreign);
    }
}

/// Whether a socket may have an end. A TCP socket that has been reset has no peer any more, but
/// perhaps bytes in its ring.
fn may_have(family: Family, fd: RawFd) -> bool {
    let listens = || kernel::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Ok(1);
    kernel::has_peer(fd) || family == Family::Tcp && !listens()
}

/// Adopt what the program that became this one has left open.
pub fn adopt_inherited() {
    let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    // All first: looking at one may open others.
    let numbers: Vec<RawFd> = descriptors.flatten().filter_map(number).collect();
    let mut seen: BTreeMap<u64, RawFd> = BTreeMap::new();
    for fd in numbers {
        let cookie = kernel::getsockopt(fd, libc::SOL_SOCKET, libc::SO_COOKIE);
        let Ok(cookie) = cookie else { continue };
        match seen.get(&cookie).copied() {
            // The end was lent once for all of its names.
            Some(first) => {
                if let Some(end) = End::of(first) {
                    close::add_name(&end, fd);
                    standard::keep_on_tcp(&end.by_name(fd));
                }
            }
            None => {
                adopt(fd);
                seen.insert(cookie, fd);
            }
        }
    }
}

/// Another index of this process under which it has the end at `index` already.
fn same_end(process: &'static Process, index: u32) -> Option<u32> {
    let (table, at) = process.home(index);
    let is_same = |end: &End| {
        let (other, other_at) = process.home(end.index);
        core::ptr::eq(table, other) && at == other_at
    };
    process.ends().find(is_same).map(|end| end.index)
}

/// Map the slab of another family and become one of it, unless that has been done before. Returns
/// its number in this process.
pub(crate) fn keep_slab(process: &Process, fd: OwnedFd) -> Option<usize> {
    let (identity, fd) = identity_of(fd)?;
    if let Some(known) = process.table_of(identity) {
        process.table(known)?.absorb(fd);
        return Some(known);
    }
    let map = SlabMap::join(fd.as_fd()).ok()?;
    let theirs = map.header().pid_namespace.load(Ordering::Relaxed);
    if theirs == 0 || theirs != crosslane_sys::process::pid_namespace() || !process.has_room() {
        return None;
    }
    process.welcome(Table::join(map, OwnFd::new(fd.into_raw_fd()), identity))
}

/// A memory object as the kernel tells it from others.
pub(crate) fn identity_of(fd: OwnedFd) -> Option<(Identity, OwnedFd)> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::File::from(fd);
    let found = file.metadata().ok()?;
    Some(((found.dev(), found.ino()), file.into()))
}

/// An end is lent to us, with the rings that have come, if any: take its place in the lender's slab.
pub(crate) fn complete(
    process: &'static Process,
    table: usize,
    loan: &Loan,
    rings: Option<(&Grant, &'static Arena)>,
) -> bool {
    let (Some(own), Some(slab)) = (register::find(process, loan.token), process.table(table))
    else {
        return false;
    };
    let home = Home {
        table,
        index: u32::try_from(loan.original & 0xffff_ffff).unwrap_or(u32::MAX),
    };
    if home.index >= SLAB_ENTRIES {
        return false;
    }
    let lanes = rings.map(|(grant, arena)| Some((grant, arena, register::lanes(grant, arena)?)));
    let id = &slab.entry(home.index).id;
    let has_slot = |(grant, _): (&Grant, _)| {
        id.slot.load(Ordering::Relaxed) == grant.slot
            && id.role.load(Ordering::Relaxed) == grant.role
    };
    let is_the_one = u64::from(id.generation.load(Ordering::Relaxed)) == loan.original >> 32
        && rings.is_none_or(has_slot)
        && lanes.as_ref().is_none_or(Option::is_some);
    let lent_to = Member::of(loan.member);
    if !is_the_one {
        return false;
    }
    let lanes = lanes.flatten();
    if lanes.is_some_and(|(grant, arena, lanes)| !register::occupy(&own, arena, lanes, grant.pair))
        || !slab.take_over(home.index, lent_to)
    {
        own.clear_lanes();
        return false;
    }
    own.local.home.store(home.word(), Ordering::Release);
    let end = End::at(process, own.index, own.fd);
    // Before: a copy of which others have is known from here on.
    end.entry.wait.away.fetch_sub(1, Ordering::SeqCst); // SYNC: away
    if lanes.is_some() {
        stranded::rescue(&end);
        end.local.adopted.store(1, Ordering::Release);
        rest::unfreeze(&end);
        entering::expect(&end);
    }
    // Whoever had registered it is told nothing any more.
    register::unregister(&end);
    true
}
