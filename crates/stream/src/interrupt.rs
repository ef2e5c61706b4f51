//! Signals that come while a call waits without sleeping: while it spins, or looks between two sleeps. The kernel's call
//! would be interrupted by them. What has been handled since a call began is known ([`crosslane_sys::interrupted`]); before it sleeps they
//! are held back, so that none comes between the last look and the sleep. Nothing is held back in programs whose handlers end no
//! call, as their actions say.

use core::cell::Cell;
use core::time::Duration;

use crosslane_sys::interrupted::{self, Mark};
use crosslane_sys::kernel::SignalsHeld;
use crosslane_sys::{Errno, kernel, signals};
use libc::sigset_t;

use crate::End;
use crate::config::{self, Waiting};
use crate::patience::{self, Deadline, Patience};
use crate::receive::Options;
use crate::stay::Stay;

/// Looks of a long spin between two for signals.
const LOOKS: u32 = 256;
/// Looks of what takes no longer than an answer, some microseconds.
const BRIEF_LOOKS: u32 = 64;

/// What a send has from its first wait on.
#[derive(Default)]
pub(crate) struct Waits {
    pub stay: Option<Stay>,
    pub interrupt: Interrupt,
    pub deadline: Deadline,
    /// Its time is over: room that TCP has is used, and not waited for.
    pub is_over: bool,
    /// The call has sent something before.
    pub has_some: bool,
    /// Of this portion it has.
    pub has_some_of_this: bool,
    /// For this portion it has waited.
    pub has_waited: bool,
    /// It has been woken for room since the kernel took something last.
    pub in_vain: bool,
}

/// What several sends have in common that are portions of one call. A signal that comes between two ends the next wait, as that of
/// the kernel's own call.
#[derive(Default)]
pub struct Portions(Waits);

impl Waits {
    /// So much has been sent of what is to be sent.
    pub fn note(&mut self, bytes: usize) {
        self.has_some |= bytes > 0;
        self.has_some_of_this |= bytes > 0;
    }
}

impl Portions {
    /// For another portion, which has its own time, and an error of its own.
    pub(crate) fn begin(&mut self) -> &mut Waits {
        let Waits {
            interrupt,
            has_some,
            ..
        } = core::mem::take(&mut self.0);
        self.0 = Waits {
            interrupt,
            has_some,
            ..Waits::default()
        };
        &mut self.0
    }

    /// Nothing is held back any more, before what the kernel may sleep in.
    pub fn let_in(&mut self) {
        self.0.interrupt.end();
    }

    /// So much has been sent.
    pub fn note(&mut self, bytes: usize) {
        self.0.stay = None;
        self.0.has_some |= bytes > 0;
        if self.0.has_some {
            self.0.interrupt.begin();
        }
    }

    /// Whether anything has.
    pub fn have_some(&self) -> bool {
        self.0.has_some
    }
}

/// What a call that waits holds back.
#[derive(Debug, Default)]
pub(crate) struct Interrupt {
    held: Option<SignalsHeld>,
    /// When the call began.
    since: Option<Mark>,
    looks: u32,
    /// What has ended the last sleep would end the next one.
    rests: bool,
    /// Of a receive.
    pub patience: Patience,
}

/// When a poll, a select or an epoll_wait began, which any handler ends. Not of one with a mask of its own, which may hold back what
/// the thread's does not: signals are held back while it spins.
#[derive(Clone, Copy, Debug)]
pub struct Since(Option<Mark>);

impl Since {
    /// Now, by a call that sleeps under `mask`, null for the thread's own.
    pub fn now(mask: *const sigset_t) -> Self {
        Self(mask.is_null().then(Mark::now))
    }

    /// Before a sleep.
    ///
    /// # Errors
    /// EINTR if a signal has come.
    pub fn check(self) -> Result<(), Errno> {
        match self.is_interrupted() {
            true => Err(Errno::INTR),
            false => Ok(()),
        }
    }

    fn is_interrupted(self) -> bool {
        self.0.is_some_and(Mark::is_passed)
    }
}

/// Before such a call sleeps, `again` if it has slept before, or sleeps under a mask: no signal may come between the last look and
/// the sleep, nor one that the mask holds back between two sleeps.
pub fn hold_for_sleep(held: &mut Option<SignalsHeld>, again: bool) {
    if held.is_none() && (again || signals::may_end_calls(true)) {
        *held = Some(SignalsHeld::hold());
    }
}

/// The spin of such a call, and what is held back from then on until it sleeps, which lets the signals in, or returns.
#[derive(Debug)]
pub struct Spinning<'a> {
    held: &'a mut Option<SignalsHeld>,
    /// The mask of the sleep; null: the thread's own.
    mask: *const sigset_t,
    since: Since,
    looks: u32,
}

impl<'a> Spinning<'a> {
    /// Of a call that sleeps under `mask`, and began then. Nothing is held back at first: an answer that comes at
    /// once should not pay for it, and a signal in that moment counts as one before the call.
    ///
    /// # Safety
    /// The mask must be valid for reads, or null.
    pub unsafe fn new(
        held: &'a mut Option<SignalsHeld>,
        mask: *const sigset_t,
        since: Since,
    ) -> Self {
        Self {
            held,
            mask,
            since,
            looks: 0,
        }
    }

    /// As [`Spinning::hold`], if something takes longer.
    pub fn hold_if(&mut self, takes_long: bool) {
        if takes_long {
            self.hold();
        }
    }

    /// Before something that takes longer than looks do.
    pub fn hold(&mut self) {
        if !self.mask.is_null() {
            hold_for_sleep(self.held, false);
        }
    }

    /// Whether a spin that is longer than a handler may be late should end, asked after each look.
    pub fn is_interrupted(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        if self.looks == BRIEF_LOOKS {
            self.hold();
        }
        if config::get().waiting == Waiting::Adaptive || !self.looks.is_multiple_of(LOOKS) {
            return false;
        }
        let Some(held) = &self.held else {
            return self.since.is_interrupted();
        };
        // SAFETY: the caller's promise.
        let pending = unsafe { held.pending_under(self.mask) };
        signals::first_to_end_calls(pending).is_some()
    }
}

impl Interrupt {
    /// Of a receive.
    pub fn of_receive(end: &End, options: Options<'_>) -> Self {
        let mut interrupt = Self {
            patience: Patience::of(end),
            since: options.since.and_then(Cell::get),
            ..Self::default()
        };
        interrupt.begin();
        interrupt
    }

    /// The call begins, or its first wait.
    pub fn begin(&mut self) {
        self.since.get_or_insert_with(Mark::now);
    }

    /// A sleep of the kernel's is over, which it has begun again after all signals that have not ended it.
    pub fn pass_restarts(&mut self) {
        self.since = self.since.map(Mark::behind_restarts);
    }

    /// Before a sleep of a call that may have done some of its work, which any handler ends.
    pub fn hold(&mut self, has_some: bool) {
        if self.held.is_none() && signals::may_end_calls(has_some) {
            self.held = Some(SignalsHeld::hold());
        }
    }

    /// Before naps between which any signal may come, of handlers that are not known, too.
    pub fn hold_all(&mut self) {
        self.held.get_or_insert_with(SignalsHeld::hold);
    }

    /// Whether a spin that is longer than a handler may be late should end.
    pub fn ends_spin(&mut self) -> bool {
        if config::get().waiting == Waiting::Adaptive {
            return false;
        }
        self.looks = self.looks.wrapping_add(1);
        self.looks.is_multiple_of(LOOKS) && self.due().is_some()
    }

    /// What becomes of the call by the signals that have come, or are held back, if there are any.
    fn due(&self) -> Option<Errno> {
        let came = self.since.and_then(Mark::begins_again);
        let pending = || {
            let first = signals::first_to_end_calls(self.held.as_ref()?.pending())?;
            Some(signals::begins_again(first))
        };
        // One that is held back would end the call when it has begun again.
        let begins_again = match came {
            Some(false) => came,
            came => pending().or(came),
        }?;
        Some(match begins_again {
            true => Errno::RESTART,
            false => Errno::INTR,
        })
    }

    /// The receive ends by an error. One that is begun again goes on from here: signals that are let in before may end it.
    pub fn ends_by(&self, options: Options<'_>, errno: Errno) -> Errno {
        if let Some(since) = options.since {
            since.set(self.since.map(Mark::behind_restarts));
        }
        errno
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
    /// EINTR and [`Errno::RESTART`], as the kernel ends a call that it finds asleep.
    pub fn nap(&self, duration: Duration) -> Result<(), Errno> {
        let nap = || match &self.held {
            Some(held) => held.nap(duration),
            None => kernel::nap(duration),
        };
        let ended = || if nap() { Err(Errno::INTR) } else { Ok(()) };
        interrupted::sleep(self.mask().as_ref(), ended)
    }

    /// Rest where no sleep lasts, and no signal may be missed: they are held back from one rest to the next. Those that end no call
    /// are let in behind it.
    ///
    /// # Errors
    /// As [`Interrupt::check`]; a receive with a time limit is never begun again.
    pub fn rest(&mut self, end: &End, duration: Duration) -> Result<(), Errno> {
        self.rests = true;
        let held = self.held.get_or_insert_with(SignalsHeld::hold);
        kernel::nap(duration);
        let lets_in = held.pending() != 0;
        // As the kernel, which looks at what has come first.
        let due = self.due().filter(|_| !end.has_record());
        if due.is_none() && lets_in {
            self.held = None;
        }
        match due {
            None => Ok(()),
            Some(Errno::RESTART) if patience::time_limit(end).is_some() => Err(Errno::INTR),
            Some(errno) => Err(errno),
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

    /// Whether a sleep has to find the signals let in: no handler ends the call, and they were held back for a rest.
    pub fn must_let_in(&self, has_some: bool) -> bool {
        self.held.is_some() && !signals::may_end_calls(has_some)
    }

    /// Whether the last sleep was followed by a rest. Asked once.
    pub fn has_rested(&mut self) -> bool {
        core::mem::take(&mut self.rests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::both::{ends, handle};
    use crate::{fill, slices};

    #[test]
    fn signals_are_held_back_from_one_rest_to_the_next() {
        let ([near, _], _sockets) = ends();
        let mut interrupt = Interrupt::default();
        assert_eq!(interrupt.rest(&near, Duration::ZERO), Ok(()));
        assert!(interrupt.held.is_some() && interrupt.has_rested());
        // No handler is known that ends a call.
        assert!(interrupt.must_let_in(false) && !interrupt.has_rested());
    }

    #[test]
    fn a_signal_between_two_portions_ends_the_next_wait() {
        let ([near, _far], _sockets) = ends();
        handle(libc::SIGWINCH, Some(libc::SA_RESTART));
        while slices::send(&near, &[1; 4096], true).is_ok() {}
        let mut portions = Portions::default();
        portions.note(1);
        // SAFETY: its handler touches nothing.
        unsafe { libc::raise(libc::SIGWINCH) };
        let waited = fill::wait_for_room(&near, &mut portions);
        assert_eq!(waited, Err(Errno::RESTART));
        drop(portions);
        handle(libc::SIGWINCH, None);
    }
}
