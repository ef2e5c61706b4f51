//! The lock of one direction of one end: a word in the slab, shared with forked children.
//!
//! Held for the time of a copy, never while sleeping. The word holds the process that owns it, so
//! that a waiter can take over from a process that was killed: cursors change last, hence what a
//! killed holder left half done was not done.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use crosslane_sys::{cpu, futex, process};

const WAITERS: u32 = 1 << 31;
const SPINS: u32 = 200;
/// How long to sleep before looking whether the owner still lives.
const PATIENCE: Duration = Duration::from_millis(20);

/// A held lock; released when dropped.
pub struct Guard<'a> {
    word: &'a AtomicU32,
    is_alone: bool,
}

/// Take the lock in `word` for process `pid`, whose only thread is the caller, and which shares the
/// word with no other process: then nobody can compete.
#[inline]
pub fn lock_alone(word: &AtomicU32, pid: u32) -> Guard<'_> {
    if word.load(Ordering::Relaxed) != 0 {
        return lock(word, pid);
    }
    word.store(pid, Ordering::Relaxed);
    Guard {
        word,
        is_alone: true,
    }
}

/// Take the lock in `word` for process `pid`.
#[inline]
pub fn lock(word: &AtomicU32, pid: u32) -> Guard<'_> {
    // SYNC: direction
    if word
        .compare_exchange(0, pid, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        contend(word, pid);
    }
    Guard {
        word,
        is_alone: false,
    }
}

/// Take the lock if nobody holds it.
pub fn try_lock(word: &AtomicU32, pid: u32) -> Option<Guard<'_>> {
    let taken = word.compare_exchange(0, pid, Ordering::Acquire, Ordering::Relaxed); // SYNC: direction
    taken.is_ok().then_some(Guard {
        word,
        is_alone: false,
    })
}

#[cold]
fn contend(word: &AtomicU32, pid: u32) {
    for _ in 0..SPINS {
        if try_take(word, pid) {
            return;
        }
        cpu::relax();
    }
    loop {
        let found = word.load(Ordering::Relaxed);
        if found == 0 {
            // Others may sleep, so the mark of waiters is kept.
            if word
                .compare_exchange(0, pid | WAITERS, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                return;
            }
            continue;
        }
        let marked = found | WAITERS;
        if found != marked
            && word
                .compare_exchange(found, marked, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            continue;
        }
        futex::wait(word, marked, PATIENCE);
        if !process::is_alive(found & !WAITERS) {
            let heir = pid | WAITERS;
            if word
                .compare_exchange(marked, heir, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                return;
            }
        }
    }
}

fn try_take(word: &AtomicU32, pid: u32) -> bool {
    word.load(Ordering::Relaxed) == 0
        && word
            .compare_exchange(0, pid, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
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

    #[test]
    fn threads_exclude_each_other() {
        let (word, inside) = (AtomicU32::new(0), AtomicU32::new(0));
        let pid = process::pid();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let _guard = lock(&word, pid);
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        inside.fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(word.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_lock_of_a_dead_process_is_inherited() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let word = AtomicU32::new(child.id());
        // Not reaped before: the one who waits for the lock may be the one who has to reap.
        drop(lock(&word, process::pid()));
        assert_eq!(word.load(Ordering::Relaxed), 0);
        child.wait().unwrap();
    }
}
