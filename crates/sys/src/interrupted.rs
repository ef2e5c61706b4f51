//! Which signal has ended a sleep. The kernel ends some sleeps by every handler; what becomes of the call that sleeps is a matter of that
//! handler's SA_RESTART, as it is when the signal comes. Ours, which runs first, takes it down.

use core::cell::Cell;
use core::ffi::c_int;

use libc::{sigset_t, ucontext_t};

use crate::held::{is_all, kernel_mask};
use crate::{Errno, fault, signals};

/// What has come to a thread.
#[derive(Clone, Copy)]
struct Came {
    count: u32,
    /// How many had when the last one came that ends calls.
    ending: u32,
    /// The last one, since a call began.
    last: c_int,
}

thread_local! {
    static CAME: Cell<Came> = const { Cell::new(Came { count: 0, ending: 0, last: 0 }) };
}

/// Of several that come at a time the kernel looks at the first, whose frame the others' stand on; and what interrupts a handler has
/// not interrupted the call.
pub(crate) fn note(signal: c_int, restarts: bool, context: *const ucontext_t) {
    // SAFETY: the kernel passes a valid structure.
    let context = unsafe { &*context };
    let before = CAME.get();
    if fault::is_ours_next(context) || is_in_handler(before.last, context) {
        return;
    }
    let count = before.count.wrapping_add(1);
    CAME.set(Came {
        count,
        ending: if restarts { before.ending } else { count },
        last: signal,
    });
}

/// Whether a handler of this signal was running, during which it is held back. In a sleep that lets signals in all are.
fn is_in_handler(signal: c_int, context: &ucontext_t) -> bool {
    let mask = kernel_mask(&context.uc_sigmask);
    mask & signals::bit(signal) != 0 && !is_all(mask)
}

/// A moment, to ask later what has come to the thread since.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u32);

impl Mark {
    /// This moment.
    pub fn now() -> Self {
        let came = CAME.get();
        CAME.set(Came { last: 0, ..came });
        Self(came.count)
    }

    /// Whether anything has come.
    pub fn is_passed(self) -> bool {
        CAME.get().count != self.0
    }

    /// Whether all that has come begins calls again. `None` if nothing has.
    pub fn begins_again(self) -> Option<bool> {
        let Came { count, ending, .. } = CAME.get();
        let came = count.wrapping_sub(self.0);
        (came > 0).then(|| !(1..=came).contains(&ending.wrapping_sub(self.0)))
    }

    /// Behind those by which the kernel has begun a sleep again, which it has not ended.
    pub fn behind_restarts(self) -> Self {
        match self.begins_again() {
            Some(true) => Self::now(),
            _ => self,
        }
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
    let known = before.begins_again();
    known.unwrap_or_else(|| signals::do_others_begin_again(mask))
}

#[cfg(test)]
mod tests {
    use core::ffi::c_int;

    use super::*;
    use crate::held::SignalsHeld;
    use crate::signals::note_action;
    use crate::signals::tests::{HANDLERS, handle};

    const LOWER: c_int = libc::SIGXCPU;
    const HIGHER: c_int = libc::SIGXFSZ;

    fn set(flags: [c_int; 2]) {
        for (signal, flags) in [LOWER, HIGHER].into_iter().zip(flags) {
            handle(signal, flags);
            note_action(signal);
        }
    }

    fn forget() {
        for signal in [LOWER, HIGHER] {
            // SAFETY: no handler is given.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
            note_action(signal);
        }
    }

    fn raise(signal: c_int) {
        // SAFETY: its handler does nothing.
        unsafe { libc::raise(signal) };
    }

    #[test]
    fn the_first_of_several_signals_decides() {
        let _alone = HANDLERS.lock();
        for flags in [[libc::SA_RESTART, 0], [0, libc::SA_RESTART]] {
            set(flags);
            let mark = Mark::now();
            assert_eq!((mark.is_passed(), mark.begins_again()), (false, None));
            // They come at a time: their frames stand on each other, and the last handler is run first.
            let held = SignalsHeld::hold();
            raise(HIGHER);
            raise(LOWER);
            drop(held);
            let is_restart = flags[0] == libc::SA_RESTART;
            assert_eq!(mark.begins_again(), Some(is_restart));
        }
        forget();
    }

    extern "C" fn nests(_: c_int) {
        (0..100).for_each(|_| raise(HIGHER));
    }

    #[test]
    fn what_interrupts_a_handler_has_not_interrupted_the_call() {
        let _alone = HANDLERS.lock();
        set([libc::SA_RESTART, 0]);
        // SAFETY: the handler raises a signal that is handled; the flags stay (BSD's signal(3) has SA_RESTART).
        unsafe { libc::signal(LOWER, nests as *const () as usize) };
        note_action(LOWER);
        let mark = Mark::now();
        raise(LOWER);
        assert_eq!(mark.begins_again(), Some(true));
        raise(HIGHER);
        assert_eq!(mark.begins_again(), Some(false));
        forget();
    }

    #[test]
    fn what_has_not_ended_a_sleep_is_passed_by() {
        let _alone = HANDLERS.lock();
        set([libc::SA_RESTART, 0]);
        let mark = Mark::now();
        raise(LOWER);
        raise(LOWER);
        assert!(mark.is_passed() && !mark.behind_restarts().is_passed());
        raise(HIGHER);
        raise(LOWER);
        assert_eq!(mark.begins_again(), Some(false));
        assert_eq!(mark.behind_restarts().begins_again(), Some(false));
        assert_eq!(Mark::now().begins_again(), None);
        forget();
    }

    #[test]
    fn a_sleep_is_begun_again_as_the_action_is_when_the_signal_comes() {
        let _alone = HANDLERS.lock();
        for (flags, becomes) in [(libc::SA_RESTART, Errno::RESTART), (0, Errno::INTR)] {
            let ended = sleep::<()>(None, || {
                set([flags, 0]);
                raise(LOWER);
                Err(Errno::INTR)
            });
            assert_eq!(ended, Err(becomes));
            assert_eq!(sleep::<()>(None, || Err(Errno::AGAIN)), Err(Errno::AGAIN));
        }
        forget();
    }
}
