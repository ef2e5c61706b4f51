//! When the kernel is asked for what rings cannot show: other descriptors, connections on TCP, doorbells of idle ones.

use core::cell::Cell;
use std::time::Instant;

use crosslane_stream::{End, ready};
use crosslane_sys::cpu;
use libc::{POLLHUP, pollfd};

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

/// Whether a poll asks the kernel although rings may have something: what is ready in them must not hide the rest for ever.
pub fn is_kernels_turn() -> bool {
    let now = cpu::ticks();
    let is_due = has_passed(LOOKED.get(), now, KERNEL_LOOK_US);
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
