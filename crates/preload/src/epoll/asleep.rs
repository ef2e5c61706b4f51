//! Threads that sleep in the kernel on an epoll set: they are told when something in it changes.

use core::sync::atomic::{AtomicU32, Ordering};

use super::set::Set;

/// Those on sets that the library did not know when they began: the process had no connection.
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
        self.0.fetch_sub(1, Ordering::SeqCst);
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
