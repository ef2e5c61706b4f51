//! The program's other handlers: ours is run first, which has a signal wait where its thread is busy ([`crate::busy`]), and takes down
//! what becomes of a call that it ends ([`crate::interrupted`]).

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::{siginfo_t, ucontext_t};

use super::action;
use crate::signals::{self, Action};
use crate::{busy, interrupted};

/// What the program has asked for; all else is asked of the kernel for ours, too.
struct Handler {
    address: AtomicUsize,
    /// It is told of the signal (SA_SIGINFO).
    has_information: AtomicBool,
    /// And not again (SA_RESETHAND).
    runs_once: AtomicBool,
}

static HANDLERS: [Handler; 64] = [const {
    Handler {
        address: AtomicUsize::new(libc::SIG_DFL),
        has_information: AtomicBool::new(false),
        runs_once: AtomicBool::new(false),
    }
}; 64];

fn of(signal: c_int) -> Option<&'static Handler> {
    HANDLERS.get(usize::try_from(signal - 1).ok()?)
}

/// Have ours run for the program's handler, which the kernel runs now, but for signals of what the thread itself has done.
pub fn stand_in(signal: c_int, action: &Action) {
    let is_of_thread = signals::OWN.contains(&signal) || signal == libc::SIGSYS;
    if is_of_thread || is_ours_at(action.handler) {
        return;
    }
    if let Some(handler) = of(signal) {
        let has_information = action.has(libc::SA_SIGINFO);
        handler.address.store(action.handler, Ordering::SeqCst);
        handler
            .has_information
            .store(has_information, Ordering::SeqCst);
        let once = action.has(libc::SA_RESETHAND);
        handler.runs_once.store(once, Ordering::SeqCst);
        let ours = action.with_information(action::address());
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

/// A signal has come. Returns the program's handler if that is to be called, and 0 if the signal has to come again.
pub fn handle(signal: c_int, info: *const siginfo_t, context: *mut ucontext_t) -> usize {
    let Some(handler) = of(signal) else { return 0 };
    let runs_once = handler.runs_once.load(Ordering::SeqCst);
    if busy::defer(signal, info, context) {
        if runs_once {
            handle_again(signal);
        }
        return 0;
    }
    interrupted::note(signals::begins_again(signal), context);
    if runs_once {
        signals::forget_action(signal);
    }
    match handler.address.load(Ordering::SeqCst) {
        libc::SIG_DFL | libc::SIG_IGN => 0,
        handler => handler,
    }
}

/// The kernel has put the default in the place of a handler that runs once, which has not run yet.
fn handle_again(signal: c_int) {
    let spent = |action: &Action| action.handler == libc::SIG_DFL && action.has(libc::SA_RESETHAND);
    if let Some(action) = signals::action(signal).filter(spent) {
        let ours = action.with_information(action::address());
        signals::set_action(signal, Some(&ours));
    }
}

/// The program's handler of a signal, for what the kernel says of ours.
#[derive(Debug)]
pub struct Program {
    signal: c_int,
    address: usize,
    has_information: bool,
}

impl Program {
    /// As it is now: the program may be about to set another one.
    pub fn handler(signal: c_int) -> Self {
        let known = of(signal);
        Self {
            signal,
            address: known.map_or(libc::SIG_DFL, |known| known.address.load(Ordering::SeqCst)),
            has_information: known
                .is_some_and(|known| known.has_information.load(Ordering::SeqCst)),
        }
    }

    /// The program's action, for what the kernel has told.
    pub fn unmask(&self, action: &mut libc::sigaction) {
        let is_ours = is_ours_at(action.sa_sigaction);
        let is_spent =
            action.sa_sigaction == libc::SIG_DFL && action.sa_flags & libc::SA_RESETHAND != 0;
        if is_ours && action::unmask(self.signal, action) {
            return;
        }
        if is_ours {
            action.sa_sigaction = self.address;
        }
        if (is_ours || is_spent) && !self.has_information {
            action.sa_flags &= !libc::SA_SIGINFO;
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
