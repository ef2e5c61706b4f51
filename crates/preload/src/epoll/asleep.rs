//! Threads that sleep in the kernel on an epoll set: they are told when something in it changes.

use core::sync::atomic::{AtomicU32, Ordering};

use super::set::Set;

/// Those on descriptors that the library did not know for sets when they began.
static UNSEEN: AtomicU32 = AtomicU32::new(0);

/// A wait in a set without rings, known to those who bring rings into it meanwhile.
pub struct Asleep(&'static AtomicU32);

impl Asleep {
    pub fn new(set: Option<&'static Set>) -> Self {
        let sleepers = set.map_or(&UNSEEN, |set| &set.sleepers);
        sleepers.fetch_add(1, Ordering::SeqCst);
        Self(sleepers)
    }
}

impl Drop for Asleep {
    fn drop(&mut self) {
        // In a child that was forked meanwhile, by a handler, nobody was counted.
        let _ = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| {
                count.checked_sub(1)
            });
    }
}

/// Whether somebody may sleep on a set.
pub fn has_sleepers(set: &Set) -> bool {
    set.sleepers.load(Ordering::SeqCst) > 0 || UNSEEN.load(Ordering::SeqCst) > 0
}

/// In a forked child nobody sleeps.
pub fn forget() {
    UNSEEN.store(0, Ordering::Relaxed);
}
