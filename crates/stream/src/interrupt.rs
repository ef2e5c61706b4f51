//! Signals that come while a call waits without sleeping: while it spins, or looks between two sleeps. The kernel's call
//! would be interrupted by them, so they are held back until the call sleeps or ends. Nothing is done in programs
//! whose handlers end no call, as their actions say.

use core::time::Duration;

use crosslane_sys::kernel::SignalsHeld;
use crosslane_sys::{Errno, kernel, signals};
use libc::sigset_t;

use crate::End;
use crate::config::{self, Waiting};
use crate::patience::Patience;
use crate::receive::Options;
use crate::stay::Stay;

/// Looks of a long spin between two for signals.
const LOOKS: u32 = 256;

/// What a send has from its first wait on.
#[derive(Default)]
pub(crate) struct Waits {
    pub stay: Option<Stay>,
    pub interrupt: Interrupt,
    /// The call has sent something before.
    pub has_some: bool,
}

/// What a call that waits holds back.
#[derive(Debug, Default)]
pub(crate) struct Interrupt {
    held: Option<SignalsHeld>,
    looks: u32,
    /// Of a receive.
    pub patience: Patience,
}

impl Interrupt {
    /// Of a receive that has `taken` so much, before it looks for more.
    pub fn of_receive(end: &End, options: Options<'_>, taken: usize) -> Self {
        let mut interrupt = Self {
            patience: Patience::of(end),
            ..Self::default()
        };
        if !options.dont_wait && end.is_blocking() {
            interrupt.hold(options.has_some || taken > 0);
        }
        interrupt
    }

    /// Before a wait of a call that may have done some of its work, which any handler ends.
    pub fn hold(&mut self, has_some: bool) {
        if self.held.is_none() && signals::may_end_calls(has_some) {
            self.held = Some(SignalsHeld::hold());
        }
    }

    /// Whether a spin that is longer than a handler may be late should end.
    pub fn ends_spin(&mut self) -> bool {
        if self.held.is_none() || config::get().waiting == Waiting::Adaptive {
            return false;
        }
        self.looks = self.looks.wrapping_add(1);
        self.looks.is_multiple_of(LOOKS) && self.due().is_some()
    }

    /// What becomes of the call by the signals that are held back, if there are any.
    fn due(&self) -> Option<Errno> {
        let first = signals::first_to_end_calls(self.held.as_ref()?.pending())?;
        Some(match signals::begins_again(first) {
            true => Errno::RESTART,
            false => Errno::INTR,
        })
    }

    /// The caller cannot sleep yet.
    ///
    /// # Errors
    /// EINTR and [`Errno::RESTART`], by the signals that have come.
    pub fn check(&self) -> Result<(), Errno> {
        self.due().map_or(Ok(()), Err)
    }

    /// Before the kernel sleeps for the caller, under the thread's own mask. It lets the signals in by another mask if
    /// [`Interrupt::mask`] gives one; otherwise nothing is held back any more.
    ///
    /// # Errors
    /// As [`Interrupt::check`].
    pub fn let_in(&mut self) -> Result<(), Errno> {
        self.check()?;
        self.held = None;
        Ok(())
    }

    /// Nap, unless a signal comes.
    ///
    /// # Errors
    /// EINTR, as the kernel ends a call that it finds asleep.
    pub fn nap(&self, duration: Duration) -> Result<(), Errno> {
        let is_interrupted = match &self.held {
            Some(held) => held.nap(duration),
            None => kernel::nap(duration),
        };
        match is_interrupted {
            true => Err(Errno::INTR),
            false => Ok(()),
        }
    }

    /// Nothing is held back any more, because the call ends, or is begun again.
    pub fn end(&mut self) {
        self.held = None;
    }

    /// The mask for a sleep that lets the signals in. None: nothing is held back.
    pub fn mask(&self) -> Option<sigset_t> {
        self.held.as_ref().map(SignalsHeld::mask)
    }

    /// Whether a signal that ends a sleep must be asked for, because handlers differ in what becomes of the call.
    pub fn is_mixed(&self, has_some: bool) -> bool {
        self.held.is_some() && !has_some && signals::do_some_begin_again()
    }
}
