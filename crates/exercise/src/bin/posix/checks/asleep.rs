//! What comes to a thread that sleeps in a call. Another thread looks until it does: on a busy machine any pause instead may
//! be over before the call has begun.

use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use crosslane_exercise::calls::thread_id;
use libc::SIGUSR1;

use super::signals::{catch, caught, times_caught};
use crate::Stage;

const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
/// Looks, one after the other, that have to find a thread asleep, and for how long. A send whose reader stands still for
/// 20 ms goes another way then, and sleeps again.
const CALM_LOOKS: u32 = 20;
const CALM: Duration = Duration::from_millis(40);
/// Looks at one that again and again is awake for a moment. It is in its call long before the last of them.
const MOST_LOOKS: u32 = 2000;

/// Wait until a thread sleeps in a call, and not only for a moment.
pub(super) fn until_asleep(thread: i32) {
    let path = format!("/proc/self/task/{thread}/stat");
    let is_asleep = || {
        let stat = std::fs::read_to_string(&path).unwrap_or_default();
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('S'))
    };
    let (mut calm, mut since) = (0, Instant::now());
    for _ in 0..MOST_LOOKS {
        sleep(BETWEEN_LOOKS);
        if is_asleep() {
            calm += 1;
        } else {
            (calm, since) = (0, Instant::now());
        }
        if calm >= CALM_LOOKS && since.elapsed() >= CALM {
            break;
        }
    }
}

/// Whatever `call` returns. Another thread does `act` once this one sleeps in it, and is told which one this is.
pub(super) fn once_asleep<T>(call: impl FnOnce() -> T, act: impl FnOnce(i32) + Send) -> T {
    let thread = thread_id();
    scope(|scope| {
        scope.spawn(move || {
            until_asleep(thread);
            act(thread);
        });
        call()
    })
}

/// Send SIGUSR1 to a thread of this process.
pub(super) fn interrupt(thread: i32) {
    // SAFETY: no memory is passed.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, SIGUSR1) };
}

/// Whatever `call` returns when a signal comes while it sleeps.
pub(super) fn interrupted<T>(s: &mut Stage, flags: i32, call: impl FnOnce() -> T) -> T {
    catch(SIGUSR1, flags);
    let returned = once_asleep(call, interrupt);
    caught(s);
    returned
}

/// As [`interrupted`]. The far side goes on when the signal has been handled, and the call has ended or sleeps again.
pub(super) fn interrupted_before_far<T>(s: &mut Stage, flags: i32, call: impl FnOnce() -> T) -> T {
    catch(SIGUSR1, flags);
    let before = times_caught();
    let returned = once_asleep(call, |thread| {
        interrupt(thread);
        while times_caught() == before {
            sleep(BETWEEN_LOOKS);
        }
        until_asleep(thread);
        s.go();
    });
    caught(s);
    returned
}
