//! The lock of one direction of one end: a word in the slab, shared with forked children.
//!
//! Held for the time of a copy, never while sleeping, nor by a thread whose handlers run ([`crosslane_sys::busy`]). The word holds the member of the family that owns it
//! ([`crate::holders`]), not its pid, which outlives an exec and means another process in another namespace. So a waiter
//! can take over from a member that has ended, and makes whole what that one has left half done ([`crate::heir`]).

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use crosslane_sys::busy::Busy;
use crosslane_sys::{cpu, futex};

const OWNER: u32 = 0xffff;
/// The owner moves bytes by the kernel which are not counted yet.
pub(crate) const COUNTING: u32 = 1 << 16;
/// The owner changes several words that mean something together only.
pub(crate) const PASSAGE: u32 = 1 << 17;
const MARKS: u32 = COUNTING | PASSAGE;
const WAITERS: u32 = 1 << 31;
const SPINS: u32 = 200;
/// How long to sleep before looking whether the owner still lives.
const PATIENCE: Duration = Duration::from_millis(20);

/// A held lock; released when dropped.
#[derive(Debug)]
pub struct Guard<'a> {
    word: &'a AtomicU32,
    is_alone: bool,
    _busy: Busy,
}

/// Take the lock in `word`, if nobody holds it, for an owner whose only thread is the caller, and which shares the
/// word with no other process: then nobody can compete.
#[inline]
pub fn lock_alone(word: &AtomicU32, owner: u16) -> Option<Guard<'_>> {
    let busy = Busy::begin();
    if word.load(Ordering::Relaxed) != 0 {
        return None;
    }
    word.store(owner.into(), Ordering::Relaxed);
    Some(Guard {
        word,
        is_alone: true,
        _busy: busy,
    })
}

/// Take the lock if nobody holds it.
#[inline]
pub fn try_lock(word: &AtomicU32, owner: u16) -> Option<Guard<'_>> {
    let busy = Busy::begin();
    // SYNC: direction
    let taken = word.compare_exchange(0, owner.into(), Ordering::Acquire, Ordering::Relaxed);
    // Not made before: a guard that is dropped lets go.
    taken.is_ok().then(|| Guard {
        word,
        is_alone: false,
        _busy: busy,
    })
}

/// Wait for the lock. With it comes what an owner that has ended was in the middle of, if it was inherited: the marks stay
/// until they are taken off.
#[cold]
pub fn wait(word: &AtomicU32, owner: u16, lives: impl Fn(u16) -> bool) -> (Guard<'_>, Option<u32>) {
    // Who sleeps for it holds nothing, so that handlers need not wait.
    let take = |from, to| {
        let busy = Busy::begin();
        try_take(word, from, to).then(|| Guard {
            word,
            is_alone: false,
            _busy: busy,
        })
    };
    for _ in 0..SPINS {
        if let Some(guard) = take(0, owner.into()) {
            return (guard, None);
        }
        cpu::relax();
    }
    loop {
        let found = word.load(Ordering::Relaxed);
        if found == 0 {
            // Others may sleep, so the mark of waiters is kept.
            if let Some(guard) = take(0, u32::from(owner) | WAITERS) {
                return (guard, None);
            }
            continue;
        }
        let marked = found | WAITERS;
        if found != marked && !try_take(word, found, marked) {
            continue;
        }
        futex::wait(word, marked, PATIENCE);
        let found = word.load(Ordering::Relaxed);
        if found != 0 && !lives(owner_in(found)) {
            let marks = found & MARKS;
            if let Some(guard) = take(found, u32::from(owner) | marks | WAITERS) {
                return (guard, Some(marks));
            }
        }
    }
}

fn try_take(word: &AtomicU32, from: u32, to: u32) -> bool {
    word.load(Ordering::Relaxed) == from
        && word
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
            .is_ok() // SYNC: direction
}

fn owner_in(found: u32) -> u16 {
    u16::try_from(found & OWNER).unwrap_or(u16::MAX)
}

/// Who holds the lock, perhaps after its end.
pub fn owner(word: &AtomicU32) -> Option<u16> {
    match word.load(Ordering::Relaxed) {
        0 => None,
        found => Some(owner_in(found)),
    }
}

/// While it lives, an heir of the lock is told what its owner was in the middle of.
pub(crate) struct Mark<'a> {
    word: &'a AtomicU32,
    mark: u32,
}

/// Mark a lock that the caller holds.
pub(crate) fn mark(word: &AtomicU32, mark: u32) -> Mark<'_> {
    let before = word.fetch_or(mark, Ordering::AcqRel);
    Mark {
        word,
        mark: mark & !before,
    }
}

/// All is whole again. The caller holds the lock.
pub(crate) fn unmark(word: &AtomicU32) {
    word.fetch_and(!MARKS, Ordering::AcqRel);
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        self.word.fetch_and(!self.mark, Ordering::AcqRel);
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.is_alone {
            self.word.store(0, Ordering::Release);
            return;
        }
        // SYNC: direction
        if self.word.swap(0, Ordering::Release) & WAITERS != 0 {
            futex::wake(self.word, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(word: &AtomicU32) -> Guard<'_> {
        try_lock(word, 1).unwrap_or_else(|| wait(word, 1, |_| true).0)
    }

    #[test]
    fn threads_exclude_each_other() {
        let (word, inside) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let _guard = lock(&word);
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        inside.fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(word.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn who_does_not_get_it_leaves_it_to_its_owner() {
        let word = AtomicU32::new(7);
        assert!(try_lock(&word, 1).is_none());
        assert!(lock_alone(&word, 1).is_none());
        assert_eq!(owner(&word), Some(7));
    }

    #[test]
    fn the_lock_of_a_dead_member_is_inherited_with_its_marks() {
        let word = AtomicU32::new(7);
        let died = mark(&word, PASSAGE);
        core::mem::forget(died);
        let (guard, inherited) = wait(&word, 1, |member| member != 7);
        assert_eq!(inherited, Some(PASSAGE));
        assert_eq!(owner(&word), Some(1));
        // An heir that dies before it has made all whole leaves that to the next.
        core::mem::forget(guard);
        let (guard, inherited) = wait(&word, 2, |_| false);
        assert_eq!(inherited, Some(PASSAGE));
        drop(guard);
        assert_eq!(word.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn marks_in_marks_end_with_the_outer_one() {
        let word = AtomicU32::new(0);
        let guard = lock(&word);
        let outer = mark(&word, PASSAGE);
        drop(mark(&word, PASSAGE));
        assert_eq!(word.load(Ordering::Relaxed), 1 | PASSAGE);
        drop(outer);
        assert_eq!(word.load(Ordering::Relaxed), 1);
        drop(guard);
    }
}
