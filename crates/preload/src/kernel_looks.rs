//! When the kernel is asked for what rings cannot show: other descriptors, connections on TCP, doorbells of idle ones.

use core::cell::Cell;
use core::time::Duration;
use std::time::Instant;

use crosslane_stream::{End, ready};
use crosslane_sys::{cpu, kernel};
use libc::{POLLHUP, pollfd};

use crate::poll::as_timespec;

/// With something ready in the rings all the time, and while a call spins, the kernel is asked so often.
pub const KERNEL_LOOK_US: u64 = 20;

/// A spin that has taken so long may have missed what came by the kernel before the news that have ended it.
const LONG_SPIN_US: u64 = 4;

/// Looks between two looks at the clock, which costs as much as several of them.
const LOOKS_PER_CLOCK: u32 = 16;

thread_local! {
    /// When this thread has last asked the kernel in a poll, in ticks.
    static LOOKED: Cell<u64> = const { Cell::new(0) };
}

/// Whether a poll of so many descriptors asks the kernel although rings may have something: what is ready in them must not hide
/// the rest for ever. The answer takes some 40 ns for each.
pub fn is_kernels_turn(count: usize) -> bool {
    let now = cpu::ticks();
    let is_due = has_passed(LOOKED.get(), now, KERNEL_LOOK_US.max(count as u64));
    if is_due {
        LOOKED.set(now);
    }
    is_due
}

/// The kernel's turns in one spin.
#[derive(Default)]
pub struct KernelLooks {
    looks: u32,
    /// In ticks; the clock is first looked at after some looks at the rings.
    began: u64,
    asked: u64,
}

impl KernelLooks {
    /// Asked after each look at the rings: whether the kernel is to be asked.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        self.looks.is_multiple_of(LOOKS_PER_CLOCK) && self.is_due_now(cpu::ticks())
    }

    fn is_due_now(&mut self, now: u64) -> bool {
        if self.began == 0 {
            (self.began, self.asked) = (now, now);
        }
        let is_due = has_passed(self.asked, now, KERNEL_LOOK_US);
        if is_due {
            self.asked = now;
        }
        is_due
    }

    /// Whether the spin has taken long.
    pub fn is_long(&self) -> bool {
        self.began != 0 && has_passed(self.began, cpu::ticks(), LONG_SPIN_US)
    }
}

fn has_passed(since: u64, now: u64, micros: u64) -> bool {
    now.wrapping_sub(since) > micros * cpu::ticks_per_us()
}

/// Of which connections in rings the kernel has something to tell, for which it is asked once.
pub struct Told(Option<Vec<pollfd>>);

impl Told {
    /// Asks.
    pub fn of(fds: &[pollfd]) -> Self {
        let in_rings = |one: &pollfd| End::of(one.fd).filter(|end| !ready::is_kernels(end));
        if fds.iter().filter_map(in_rings).nth(1).is_none() {
            // Whoever looks at it asks.
            return Self(None);
        }
        let mut asked = fds.to_vec();
        for one in &mut asked {
            match in_rings(one) {
                Some(end) => (one.fd, one.events) = (end.fd(), ready::kernels_share(one.events)),
                None => one.fd = -1,
            }
        }
        let is_answered = kernel::poll(&mut asked, Some(as_timespec(Duration::ZERO))).is_ok();
        Self(is_answered.then_some(asked))
    }

    /// Whether there is something of the connection at this place.
    pub fn has(&self, place: usize) -> bool {
        let is_told = |asked: &Vec<pollfd>| asked[place].revents != 0;
        self.0.as_ref().is_none_or(is_told)
    }
}

/// Whether a spin has lasted until the caller's deadline, asked after each look.
pub struct Overdue {
    deadline: Option<Instant>,
    looks: u32,
}

impl Overdue {
    /// Overdue from this moment on; never without one.
    pub fn after(deadline: Option<Instant>) -> Self {
        Self { deadline, looks: 0 }
    }

    /// Asks.
    pub fn is_due(&mut self) -> bool {
        let Some(deadline) = self.deadline else {
            return false;
        };
        self.looks = self.looks.wrapping_add(1);
        self.looks.is_multiple_of(LOOKS_PER_CLOCK) && Instant::now() >= deadline
    }
}

/// The kernel has answered for all. Errors that it has told the library before are added.
pub fn tell_kept_errors(fds: &mut [pollfd]) {
    for one in fds.iter_mut().filter(|one| one.revents & POLLHUP != 0) {
        if let Some(end) = End::of(one.fd) {
            one.revents = ready::with_kept_error(&end, one.revents);
        }
    }
}
