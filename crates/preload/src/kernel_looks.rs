//! When the kernel is asked for what rings cannot show: other descriptors, connections on TCP, doorbells of idle ones.

use core::cell::Cell;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

use crosslane_stream::{End, ready};
use crosslane_sys::{cpu, kernel};
use libc::{POLLHUP, pollfd};

use crate::poll;

/// With something ready in the rings all the time, and while a call spins, the kernel is asked so often.
pub const KERNEL_LOOK_US: u64 = 20;

/// A spin that has taken so long may have missed what came by the kernel before the news that have ended it.
const LONG_SPIN_US: u64 = 4;

/// Looks between two looks at the clock, which costs as much as several of them.
const LOOKS_PER_CLOCK: u32 = 16;

/// When a poll of several descriptors has last asked the kernel, and about which.
#[derive(Clone, Copy)]
struct Looked {
    /// In ticks.
    at: u64,
    /// What [`name_of`] makes of them.
    name: u64,
}

thread_local! {
    static LOOKED: Cell<Looked> = const { Cell::new(Looked { at: 0, name: 0 }) };
}

/// Whether a poll asks the kernel although rings may have something: what is ready in them must not hide the rest for ever.
/// What has been asked about other descriptors says nothing, as polls in turn could keep one from asking.
pub fn is_kernels_turn(fds: &[pollfd]) -> bool {
    let now = cpu::ticks();
    match fds {
        [] => true,
        [one] => End::of(one.fd).is_none_or(|end| is_turn_of(&end, now)),
        several => is_turn_of_all(several, now),
    }
}

fn is_turn_of(end: &End, now: u64) -> bool {
    let before = &end.local.polled;
    let is_due = has_passed(before.load(Ordering::Relaxed), now, KERNEL_LOOK_US);
    if is_due {
        before.store(now, Ordering::Relaxed);
    }
    is_due
}

fn is_turn_of_all(fds: &[pollfd], now: u64) -> bool {
    let name = name_of(fds);
    LOOKED.with(|looked| {
        let before = looked.get();
        let is_due = before.name != name || has_passed(before.at, now, KERNEL_LOOK_US);
        if is_due {
            looked.set(Looked { at: now, name });
        }
        is_due
    })
}

/// One number for all of them in their order (FNV-1a, a word at a time).
fn name_of(fds: &[pollfd]) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x100_0000_01b3;
    let add =
        |name: u64, one: &pollfd| (name ^ u64::from(one.fd.cast_unsigned())).wrapping_mul(PRIME);
    fds.iter().fold(BASIS, add)
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
#[derive(Default)]
pub struct Told {
    /// What it was asked, and its answers; nothing where it is to be asked about each by itself.
    asked: Vec<pollfd>,
}

impl Told {
    /// Asks.
    pub fn of(fds: &[pollfd]) -> Self {
        let in_rings = |one: &pollfd| End::of(one.fd).filter(ready::is_in_rings);
        if fds.iter().filter_map(in_rings).nth(1).is_none() {
            return Self::default();
        }
        let mut asked = fds.to_vec();
        for one in &mut asked {
            match in_rings(one) {
                Some(end) => (one.fd, one.events) = (end.fd(), ready::kernels_share(one.events)),
                None => one.fd = -1,
            }
        }
        match kernel::poll(&mut asked, Some(poll::as_timespec(Duration::ZERO))) {
            Ok(_) => Self { asked },
            Err(_) => Self::default(),
        }
    }

    /// Whether there is something of the connection at this place, or it has not been asked about.
    pub fn may_have(&self, place: usize, end: &End) -> bool {
        let answer = self.asked.get(place);
        answer.is_none_or(|answer| answer.fd != end.fd() || answer.revents != 0)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn array(numbers: &[i32]) -> Vec<pollfd> {
        let one = |fd: &i32| pollfd {
            fd: *fd,
            events: 0,
            revents: 0,
        };
        numbers.iter().map(one).collect()
    }

    #[test]
    fn polls_of_other_descriptors_take_no_turn_away() {
        let [one, other, larger] = [&[3, 4, 5][..], &[3, 6, 5], &[3, 4, 5, 6]].map(array);
        for _ in 0..100 {
            assert!(
                [&one, &other, &larger]
                    .iter()
                    .all(|fds| is_kernels_turn(fds))
            );
        }
        // Unless the thread is preempted between the two.
        let is_put_off = |_| is_kernels_turn(&one) && !is_kernels_turn(&one);
        assert!((0..1000).any(is_put_off), "each look asks");
    }
}
