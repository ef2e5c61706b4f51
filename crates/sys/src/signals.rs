//! What signals do to a call that sleeps.

use libc::c_int;

use crate::raw::syscall;

/// Signals that a thread itself causes; the runtime handles some, and they end no sleep. They are never held back.
pub(crate) const OWN: [c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
];
/// Bytes of the kernel's signal sets.
const SET_BYTES: usize = size_of::<u64>();

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Default)]
struct Action {
    handler: usize,
    flags: usize,
    /// Not on every architecture; what follows is a set of signals then.
    restorer: usize,
    mask: u64,
}

/// Whether a call that a signal has just interrupted is begun again: which signal it was is not told, so all that may
/// have been, those that this thread handles, must have SA_RESTART.
#[cold]
pub fn begin_again() -> bool {
    let blocked = blocked();
    let may_interrupt =
        |signal: &c_int| !OWN.contains(signal) && blocked & (1 << (signal - 1)) == 0;
    let mut handled = (1..=c_int::try_from(u64::BITS).unwrap_or(0))
        .filter(may_interrupt)
        .filter_map(action)
        .filter(|action| action.handler != libc::SIG_DFL && action.handler != libc::SIG_IGN)
        .peekable();
    let restarts = |action: Action| action.flags & libc::SA_RESTART.cast_unsigned() as usize != 0;
    handled.peek().is_some() && handled.all(restarts)
}

/// The signals that this thread holds back.
fn blocked() -> u64 {
    let mut mask = 0_u64;
    let mask_at = core::ptr::from_mut(&mut mask).addr();
    let how = libc::SIG_BLOCK as usize;
    // SAFETY: the mask is of the kernel's size and outlives the call; no signal is added.
    let _ = unsafe { syscall(libc::SYS_rt_sigprocmask, [how, 0, mask_at, SET_BYTES, 0, 0]) };
    mask
}

fn action(signal: c_int) -> Option<Action> {
    let mut action = Action::default();
    let action_at = core::ptr::from_mut(&mut action).addr();
    let number = usize::try_from(signal).ok()?;
    // SAFETY: the action has room for the kernel's and outlives the call; nothing is changed.
    let asked = unsafe {
        syscall(
            libc::SYS_rt_sigaction,
            [number, 0, action_at, SET_BYTES, 0, 0],
        )
    };
    asked.ok().map(|_| action)
}

#[cfg(test)]
mod tests {
    use libc::sigset_t;

    use super::*;

    extern "C" fn nothing(_: c_int) {}

    /// Signals that the tests of this crate use for nothing else.
    fn handle(signal: c_int, flags: c_int) {
        // SAFETY: sigaction is plain integers, for which zero is a value.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = nothing as *const () as usize;
        action.sa_flags = flags;
        // SAFETY: the handler does nothing.
        let set = unsafe { libc::sigaction(signal, &raw const action, core::ptr::null_mut()) };
        assert_eq!(set, 0);
    }

    fn hold_back(signal: c_int, how: c_int) {
        // SAFETY: a set is plain integers, for which zero is a value.
        let mut set: sigset_t = unsafe { core::mem::zeroed() };
        // SAFETY: the set is valid.
        unsafe { libc::sigaddset(&raw mut set, signal) };
        // SAFETY: the set is valid; the one before is not asked for.
        unsafe { libc::pthread_sigmask(how, &raw const set, core::ptr::null_mut()) };
    }

    #[test]
    fn a_call_is_begun_again_when_all_handlers_say_so() {
        handle(libc::SIGUSR1, libc::SA_RESTART);
        assert!(begin_again());
        handle(libc::SIGUSR2, 0);
        assert!(!begin_again());
        // What cannot have come does not matter.
        hold_back(libc::SIGUSR2, libc::SIG_BLOCK);
        assert!(begin_again());
        hold_back(libc::SIGUSR2, libc::SIG_UNBLOCK);
        assert!(!begin_again());
    }
}
