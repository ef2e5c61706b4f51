//! The program's other handlers: ours is run first, which has a signal wait where its thread is busy ([`crate::busy`]).

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::{siginfo_t, ucontext_t};

use super::action;
use crate::busy;
use crate::signals::{self, Action};

/// What the program has asked for; all else is asked of the kernel for ours, too.
struct Handler {
    address: AtomicUsize,
    /// It is told of the signal (SA_SIGINFO).
    has_information: AtomicBool,
}

static HANDLERS: [Handler; 64] = [const {
    Handler {
        address: AtomicUsize::new(libc::SIG_DFL),
        has_information: AtomicBool::new(false),
    }
}; 64];

fn of(signal: c_int) -> Option<&'static Handler> {
    HANDLERS.get(usize::try_from(signal - 1).ok()?)
}

/// Have ours run for the program's handler, which the kernel runs now. Not where the kernel would forget that by running it
/// (SA_RESETHAND), nor for signals of what the thread itself has done.
pub fn stand_in(signal: c_int, action: &Action) {
    let is_of_thread = signals::OWN.contains(&signal) || signal == libc::SIGSYS;
    if is_of_thread || action.has(libc::SA_RESETHAND) || action.handler == action::address() {
        return;
    }
    if let Some(handler) = of(signal) {
        let has_information = action.has(libc::SA_SIGINFO);
        handler.address.store(action.handler, Ordering::SeqCst);
        handler
            .has_information
            .store(has_information, Ordering::SeqCst);
        let ours = action.with_information(action::address());
        signals::set_action(signal, Some(&ours));
    }
}

/// A signal has come. Returns the program's handler if that is to be called, and 0 if the signal has to come again.
pub fn handle(signal: c_int, info: *const siginfo_t, context: *mut ucontext_t) -> usize {
    if busy::defer(signal, info, context) {
        return 0;
    }
    match of(signal).map(|handler| handler.address.load(Ordering::SeqCst)) {
        Some(libc::SIG_DFL | libc::SIG_IGN) | None => 0,
        Some(handler) => handler,
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
        if action.sa_sigaction != action::address() {
            return;
        }
        action::unmask(self.signal, action);
        if action.sa_sigaction == action::address() {
            action.sa_sigaction = self.address;
            if !self.has_information {
                action.sa_flags &= !libc::SA_SIGINFO;
            }
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
