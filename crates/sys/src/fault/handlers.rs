//! The program's other handlers: ours is run first, which has a signal wait where its thread is busy ([`crate::busy`]), and takes down
//! what becomes of a call that it ends ([`crate::interrupted`]).

use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering};

use libc::{siginfo_t, ucontext_t};

use super::action;
use crate::signals::{self, Action};
use crate::{busy, interrupted, order};

/// Flags of the program's that ours does without, or has in any case.
const KEPT: usize = (libc::SA_SIGINFO | libc::SA_RESETHAND).cast_unsigned() as usize;

/// What the program has asked for; all else is asked of the kernel for ours, too.
struct Handler {
    address: AtomicUsize,
    /// Those of [`KEPT`] that it has set.
    flags: AtomicUsize,
}

impl Handler {
    fn has(&self, flag: c_int) -> bool {
        self.flags.load(Ordering::SeqCst) & flag.cast_unsigned() as usize != 0
    }
}

static HANDLERS: [Handler; 64] = [const {
    Handler {
        address: AtomicUsize::new(libc::SIG_DFL),
        flags: AtomicUsize::new(0),
    }
}; 64];

fn of(signal: c_int) -> Option<&'static Handler> {
    HANDLERS.get(usize::try_from(signal - 1).ok()?)
}

/// Have ours run for the program's handler, which the kernel runs now, but for signals of what the thread itself has done and those
/// of the C library. The kernel would forget a handler that runs once (SA_RESETHAND) also where the signal has to come again: we do.
pub fn stand_in(signal: c_int, action: &Action) {
    let is_of_thread = signals::OWN.contains(&signal) || signal == libc::SIGSYS;
    let is_of_libc = (32..libc::SIGRTMIN()).contains(&signal);
    if is_of_thread || is_of_libc || is_ours_at(action.handler) {
        return;
    }
    if let Some(handler) = of(signal) {
        handler.address.store(action.handler, Ordering::SeqCst);
        let flags = action.flags & KEPT;
        handler.flags.store(flags, Ordering::SeqCst);
        let ours = Action {
            handler: action::address(),
            flags: action.flags & !KEPT | libc::SA_SIGINFO.cast_unsigned() as usize,
            ..*action
        };
        signals::set_action(signal, Some(&ours));
    }
}

/// Whether this is what the kernel runs for the program's handlers.
pub fn is_ours_at(address: usize) -> bool {
    address == action::address()
}

/// Whether a thread was about to run it.
pub fn is_ours_next(context: &ucontext_t) -> bool {
    #[cfg(target_arch = "x86_64")]
    let next = context.uc_mcontext.gregs[libc::REG_RIP.cast_unsigned() as usize];
    #[cfg(target_arch = "aarch64")]
    let next = context.uc_mcontext.pc;
    usize::try_from(next).is_ok_and(is_ours_at)
}

/// A signal has come, which one on top of it may have seen to. Returns the program's handler if that is to be called, and 0 if the
/// signal has to come again.
pub fn handle(
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut ucontext_t,
    is_seen: bool,
) -> usize {
    let Some(handler) = of(signal).filter(|_| !busy::defer(signal, info, context)) else {
        return 0;
    };
    if !is_seen {
        order::restore(signal, info, context);
    }
    interrupted::note(signal, signals::begins_again(signal), context);
    if handler.has(libc::SA_RESETHAND) && !forget(signal, handler, info) {
        return 0;
    }
    match handler.address.load(Ordering::SeqCst) {
        libc::SIG_DFL | libc::SIG_IGN => 0,
        handler => handler,
    }
}

/// A handler that runs once is to run now. Returns false if it has run before this signal came to it, which meets the default.
#[cold]
fn forget(signal: c_int, handler: &Handler, info: *const siginfo_t) -> bool {
    signals::forget_action(signal);
    let ours = signals::action(signal).filter(|action| is_ours_at(action.handler));
    let Some(action) = ours else {
        // SAFETY: the kernel passes a valid structure.
        let _ = signals::send_again(signal, unsafe { &*info }, false);
        return false;
    };
    let flags = action.flags & !(libc::SA_SIGINFO.cast_unsigned() as usize);
    let spent = Action {
        handler: libc::SIG_DFL,
        flags: flags | handler.flags.load(Ordering::SeqCst),
        ..action
    };
    signals::set_action(signal, Some(&spent));
    true
}

/// The program's handler of a signal, for what the kernel says of ours.
#[derive(Debug)]
pub struct Program {
    signal: c_int,
    address: usize,
    flags: c_int,
}

impl Program {
    /// As it is now: the program may be about to set another one.
    pub fn handler(signal: c_int) -> Self {
        let load = |value: &AtomicUsize| value.load(Ordering::SeqCst);
        let (address, flags) = of(signal).map_or((libc::SIG_DFL, 0), |known| {
            (load(&known.address), load(&known.flags))
        });
        Self {
            signal,
            address,
            flags: u32::try_from(flags).unwrap_or(0).cast_signed(),
        }
    }

    /// The program's action, for what the kernel has told.
    pub fn unmask(&self, action: &mut libc::sigaction) {
        if is_ours_at(action.sa_sigaction) && !action::unmask(self.signal, action) {
            action.sa_sigaction = self.address;
            action.sa_flags = action.sa_flags & !libc::SA_SIGINFO | self.flags;
        }
    }

    /// As [`Self::unmask`], of a handler alone.
    pub fn unmask_handler(&self, handler: usize) -> usize {
        // SAFETY: sigaction is plain integers, for which zero is a value.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = handler;
        self.unmask(&mut action);
        action.sa_sigaction
    }
}
