//! What signals do to a call that sleeps.

use core::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;

use crate::raw::syscall;
use crate::{Errno, fault};

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
#[derive(Clone, Copy, Default)]
pub(crate) struct Action {
    pub handler: usize,
    pub flags: usize,
    /// Not on every architecture; what follows is a set of signals then.
    pub restorer: usize,
    pub mask: u64,
}

/// Signals whose handlers end a call that they interrupt, and those after which it is begun again (SA_RESTART), as far
/// as the program's actions have been noted.
static ENDING: AtomicU64 = AtomicU64::new(0);
static RESTARTING: AtomicU64 = AtomicU64::new(0);

/// The program has set this signal's action. Ours is run for its handler from now on.
#[cold]
pub fn note_action(signal: c_int) {
    let bit = bit(signal);
    let handled = action(signal).filter(Action::is_handled);
    let restarts = handled.is_some_and(|action| action.has(libc::SA_RESTART));
    if let Some(action) = &handled {
        fault::stand_in(signal, action);
    }
    let is_in = [handled.is_some() && !restarts, restarts];
    for (set, is_in) in [&ENDING, &RESTARTING].into_iter().zip(is_in) {
        match is_in && !OWN.contains(&signal) {
            true => set.fetch_or(bit, Ordering::Relaxed),
            false => set.fetch_and(!bit, Ordering::Relaxed),
        };
    }
}

/// Whether a signal may end a call of this program: where the call has done some of its work, any that is handled.
#[inline]
pub fn may_end_calls(has_some: bool) -> bool {
    ENDING.load(Ordering::Relaxed) != 0 || has_some && do_some_begin_again()
}

/// Whether some handlers have a call begun again.
#[inline]
pub fn do_some_begin_again() -> bool {
    RESTARTING.load(Ordering::Relaxed) != 0
}

/// Signals that have handlers, in the kernel's order.
pub(crate) fn handled() -> u64 {
    ENDING.load(Ordering::Relaxed) | RESTARTING.load(Ordering::Relaxed)
}

/// Of a set of signals, the one that is handled first.
pub fn first_to_end_calls(pending: u64) -> Option<c_int> {
    let first = (pending & handled()).trailing_zeros();
    (first < u64::BITS).then_some(first.cast_signed() + 1)
}

/// The signal has been handled for the last time (SA_RESETHAND).
pub(crate) fn forget_action(signal: c_int) {
    for set in [&ENDING, &RESTARTING] {
        set.fetch_and(!bit(signal), Ordering::Relaxed);
    }
}

/// Whether a call that this signal interrupts is begun again.
pub fn begins_again(signal: c_int) -> bool {
    RESTARTING.load(Ordering::Relaxed) & bit(signal) != 0
}

/// What is told of a signal (`siginfo_t`).
#[repr(C)]
struct Info {
    signal: c_int,
    errno: c_int,
    code: c_int,
    padding: c_int,
    pid: u32,
    uid: u32,
    rest: [u32; 26],
}

/// `SI_USER`, which the kernel also tells of signals that it sends because of a call.
const BY_USER: c_int = 0;

/// Send this thread a signal, as the kernel does because of its call.
///
/// # Errors
/// The kernel does not let programs send such a one.
#[cold]
pub fn send_to_caller(signal: c_int) -> Result<(), Errno> {
    let small = |number: usize| u32::try_from(number).unwrap_or(0);
    let info = Info {
        signal,
        errno: 0,
        code: BY_USER,
        padding: 0,
        pid: small(own(libc::SYS_getpid)?),
        uid: small(own(libc::SYS_getuid)?),
        rest: [0; 26],
    };
    send(signal, &info)
}

/// Of a signal that stands for one that has come before: `si_errno`, of which nobody else makes use.
const AGAIN: c_int = 0x6372_6f73;

/// Send this thread a signal that has come. What it was told `is_kept` by the caller, if not all of it can come again.
///
/// # Errors
/// As [`send_to_caller`].
#[cold]
pub(crate) fn send_again(
    signal: c_int,
    told: &libc::siginfo_t,
    is_kept: bool,
) -> Result<(), Errno> {
    // SAFETY: a siginfo_t has the size and the fields of the kernel's, which are integers.
    let told = unsafe { core::mem::transmute::<libc::siginfo_t, Info>(*told) };
    let again = Info {
        errno: AGAIN,
        ..told
    };
    let is_apart = is_kept && is_real_time(signal);
    match send(signal, if is_apart { &again } else { &told }) {
        // As many wait as may (RLIMIT_SIGPENDING), but for those of which nothing is told.
        Err(Errno::AGAIN) => send_to_caller(signal),
        sent => sent,
    }
}

/// Whether no other signal that waits has come after the one that [`send_again`] has been told of first, as this one tells.
pub(crate) fn is_last_again(signal: c_int, told: &libc::siginfo_t) -> bool {
    !is_real_time(signal) || told.si_errno == AGAIN || has_lost_its_own(told)
}

/// Whether the kernel has kept nothing of what a signal told but its number.
pub(crate) fn has_lost_its_own(told: &libc::siginfo_t) -> bool {
    // SAFETY: these are integers of every signal's.
    let sender = unsafe { told.si_pid() };
    told.si_code == BY_USER && (sender == 0 || sender.cast_unsigned() == crate::process::pid())
}

/// Each of these is handled, and in their order.
pub(crate) fn is_real_time(signal: c_int) -> bool {
    signal >= 32
}

/// The calling thread's number.
pub(crate) fn own_thread() -> u32 {
    own(libc::SYS_gettid).map_or(0, |thread| u32::try_from(thread).unwrap_or(0))
}

/// Whether the process has this thread.
pub(crate) fn is_thread_of_ours(thread: u32) -> bool {
    let args = [
        own(libc::SYS_getpid).unwrap_or(0),
        thread as usize,
        0,
        0,
        0,
        0,
    ];
    // SAFETY: signal 0 is not delivered; numbers only.
    let asked = unsafe { syscall(libc::SYS_tgkill, args) };
    asked != Err(Errno(libc::ESRCH))
}

fn send(signal: c_int, info: &Info) -> Result<(), Errno> {
    let number = usize::try_from(signal).map_err(|_| Errno::INVAL)?;
    let (process, thread) = (own(libc::SYS_getpid)?, own(libc::SYS_gettid)?);
    let info_at = core::ptr::from_ref(info).addr();
    let args = [process, thread, number, info_at, 0, 0];
    // SAFETY: the information is of the kernel's size and outlives the call.
    unsafe { syscall(libc::SYS_rt_tgsigqueueinfo, args) }.map(|_| ())
}

fn own(number: libc::c_long) -> Result<usize, Errno> {
    // SAFETY: these calls take nothing and never fail.
    unsafe { syscall(number, [0; 6]) }
}

/// A signal's place in the kernel's sets.
pub(crate) fn bit(signal: c_int) -> u64 {
    match signal {
        1..=64 => 1 << (signal - 1),
        _ => 0,
    }
}

impl Action {
    pub fn is_handled(&self) -> bool {
        self.handler != libc::SIG_DFL && self.handler != libc::SIG_IGN
    }

    pub fn has(&self, flag: c_int) -> bool {
        self.flags & flag.cast_unsigned() as usize != 0
    }
}

/// Whether a call is begun again that a signal has interrupted which is not handled by ours: which one is not told, so all that may
/// have been, those that `mask` lets in, or else the thread's own, must have SA_RESTART.
#[cold]
pub(crate) fn do_others_begin_again(mask: Option<&libc::sigset_t>) -> bool {
    let blocked = mask.map_or_else(blocked, crate::held::kernel_mask);
    let may_interrupt = |signal: &c_int| !OWN.contains(signal) && blocked & bit(*signal) == 0;
    let mut handled = (1..=c_int::try_from(u64::BITS).unwrap_or(0))
        .filter(may_interrupt)
        .filter_map(action)
        .filter(|action| action.is_handled() && !fault::is_ours_at(action.handler))
        .peekable();
    handled.peek().is_some() && handled.all(|action| action.has(libc::SA_RESTART))
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

pub(crate) fn action(signal: c_int) -> Option<Action> {
    set_action(signal, None)
}

/// Set the kernel's action, if there is a new one. Returns the one before.
pub(crate) fn set_action(signal: c_int, new: Option<&Action>) -> Option<Action> {
    let mut before = Action::default();
    let before_at = core::ptr::from_mut(&mut before).addr();
    let new_at = new.map_or(0, |new| core::ptr::from_ref(new).addr());
    let number = usize::try_from(signal).ok()?;
    let args = [number, new_at, before_at, SET_BYTES, 0, 0];
    // SAFETY: both are as the kernel has them and outlive the call; a new one is one that the kernel has told, with another handler.
    unsafe { syscall(libc::SYS_rt_sigaction, args) }
        .ok()
        .map(|_| before)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Mutex;

    use libc::sigset_t;

    use super::*;

    /// Handlers are the process's, so one test sets some at a time.
    pub(crate) static HANDLERS: Mutex<()> = Mutex::new(());

    extern "C" fn nothing(_: c_int) {}

    /// Signals that the tests of this crate use for nothing else.
    pub(crate) fn handle(signal: c_int, flags: c_int) {
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
        let _alone = HANDLERS.lock();
        handle(libc::SIGUSR1, libc::SA_RESTART);
        assert!(do_others_begin_again(None));
        handle(libc::SIGUSR2, 0);
        assert!(!do_others_begin_again(None));
        // What cannot have come does not matter.
        let but_one = crate::held::libc_mask(bit(libc::SIGUSR2));
        assert!(do_others_begin_again(Some(&but_one)));
        hold_back(libc::SIGUSR2, libc::SIG_BLOCK);
        assert!(do_others_begin_again(None));
        hold_back(libc::SIGUSR2, libc::SIG_UNBLOCK);
        assert!(!do_others_begin_again(None));
        for signal in [libc::SIGUSR1, libc::SIGUSR2] {
            // SAFETY: no handler is given.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }

    #[test]
    fn noted_actions_say_what_ends_a_call() {
        let _alone = HANDLERS.lock();
        handle(libc::SIGXCPU, 0);
        note_action(libc::SIGXCPU);
        handle(libc::SIGXFSZ, libc::SA_RESTART);
        note_action(libc::SIGXFSZ);
        assert!(may_end_calls(false) && do_some_begin_again());
        let both = bit(libc::SIGXCPU) | bit(libc::SIGXFSZ);
        assert_eq!(first_to_end_calls(both), Some(libc::SIGXCPU));
        assert!(!begins_again(libc::SIGXCPU) && begins_again(libc::SIGXFSZ));
        assert_eq!(first_to_end_calls(bit(libc::SIGHUP)), None);

        handle(libc::SIGXCPU, libc::SA_RESTART);
        note_action(libc::SIGXCPU);
        assert!(!may_end_calls(false) && may_end_calls(true));
        for signal in [libc::SIGXCPU, libc::SIGXFSZ] {
            // SAFETY: no handler is given.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
            note_action(signal);
        }
        assert!(!may_end_calls(true));
    }
}
