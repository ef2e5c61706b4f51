//! Which signal has ended a sleep. The kernel ends some sleeps by every handler; what becomes of the call that sleeps is a matter of that
//! handler's SA_RESTART, as it is when the signal comes. Ours, which runs first, takes it down.

use core::cell::Cell;

use libc::{sigset_t, ucontext_t};

use crate::{Errno, fault, signals};

/// What has come to a thread: how many, and which of the last 64 begin calls again.
#[derive(Clone, Copy)]
struct Came {
    count: u32,
    restarting: u64,
}

thread_local! {
    static CAME: Cell<Came> = const { Cell::new(Came { count: 0, restarting: 0 }) };
}

/// Of several that come at a time the kernel looks at the first, whose frame the others' stand on.
pub(crate) fn note(restarts: bool, context: *const ucontext_t) {
    // SAFETY: the kernel passes a valid structure.
    if fault::is_ours_next(unsafe { &*context }) {
        return;
    }
    let Came { count, restarting } = CAME.get();
    let bit = 1 << (count % u64::BITS);
    CAME.set(Came {
        count: count.wrapping_add(1),
        restarting: match restarts {
            true => restarting | bit,
            false => restarting & !bit,
        },
    });
}

/// A moment, to ask later what has come to the thread since.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u32);

impl Mark {
    /// This moment.
    pub fn now() -> Self {
        Self(CAME.get().count)
    }

    /// Whether anything has come.
    pub fn is_passed(self) -> bool {
        CAME.get().count != self.0
    }

    /// Whether the first that has come begins calls again. `None` if nothing has, or so much that it is not known any more.
    pub fn first_begins_again(self) -> Option<bool> {
        let Came { count, restarting } = CAME.get();
        let is_known = (1..=u64::BITS).contains(&count.wrapping_sub(self.0));
        is_known.then(|| restarting & 1 << (self.0 % u64::BITS) != 0)
    }

    /// Behind those by which the kernel has begun a sleep again, which it has not ended.
    pub fn behind_restarts(mut self) -> Self {
        while self.first_begins_again() == Some(true) {
            self.0 = self.0.wrapping_add(1);
        }
        self
    }
}

/// Sleep by a call that the kernel never begins again, under `mask`, if one is given: [`Errno::RESTART`] instead of EINTR where it
/// would begin a receive or a send again.
///
/// # Errors
/// The call's.
pub fn sleep<T>(
    mask: Option<&sigset_t>,
    call: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let before = Mark::now();
    call().map_err(|errno| match errno {
        Errno::INTR if begins_again(before, mask) => Errno::RESTART,
        errno => errno,
    })
}

/// Handlers of whose signals nothing is taken down have been set by system calls of the program's own.
fn begins_again(before: Mark, mask: Option<&sigset_t>) -> bool {
    let first = before.first_begins_again();
    first.unwrap_or_else(|| signals::do_others_begin_again(mask))
}
