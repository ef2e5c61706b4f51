//! A set that is closed under a wait: the wait goes on, as in the kernel, by a descriptor of our own.

use core::ffi::c_int;
use core::sync::atomic::{Ordering, fence};

use crosslane_sys::kernel;

use super::asleep;
use super::set::{self, Set};

/// Out of a program's way where that can be had, but not so high that looks at all sets take long.
const LOWEST: [c_int; 2] = [512, 3];

/// A call that waits in a set, from its first sleep on.
pub struct Waiting(&'static Set);

impl Waiting {
    /// Before a sleep; the first of a call counts.
    pub fn begin_once(waiting: &mut Option<Self>, set: &'static Set) {
        waiting.get_or_insert_with(|| Self::begin(set));
    }

    pub fn begin(set: &'static Set) -> Self {
        set.waits.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Self(set)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        asleep::count_down(&self.0.waits);
        finish(self.0);
    }
}

/// The last name of a set is about to be closed: it gets another if somebody waits in it.
pub fn keep(set: &'static Set, fd: c_int) {
    fence(Ordering::SeqCst);
    if set.waits.load(Ordering::SeqCst) == 0 || set.kept.load(Ordering::SeqCst) != 0 {
        return;
    }
    let twin = LOWEST
        .iter()
        .find_map(|lowest| kernel::duplicate_above(fd, *lowest).ok());
    if let Some(twin) = twin {
        set::copied(fd, twin);
        set.kept.store(twin, Ordering::SeqCst);
    }
}

/// Nobody may wait any more in a set that was kept.
pub fn finish(set: &'static Set) {
    if set.kept.load(Ordering::SeqCst) == 0 || set.waits.load(Ordering::SeqCst) > 0 {
        return;
    }
    // Of several callers one does it.
    let twin = set.kept.swap(0, Ordering::SeqCst);
    if twin != 0 {
        set::forget_set(twin);
        kernel::close(twin);
    }
}
