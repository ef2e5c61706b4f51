//! How long a call may wait: a receive (SO_RCVTIMEO) or a send (SO_SNDTIMEO). The kernel reads that when a call begins, while
//! here a call may sleep several times: the limit is for all of them together, and a change in between is for the next call.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::time::Instant;

use crosslane_sys::{Errno, kernel};

use crate::family::Family;
use crate::{End, send, stay};

/// What a process remembers of changes under sleeping calls.
#[derive(Default)]
pub(crate) struct Changes {
    count: AtomicU32,
    /// What it was before the last one, in microseconds; 0 for no limit.
    before: AtomicU64,
}

/// The limit of a call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience {
    /// Changes before the call began.
    changes: u32,
    first_sleep: Option<Instant>,
}

impl Patience {
    pub fn of(end: &End) -> Self {
        let changes = end.local.limits.count.load(Ordering::Acquire);
        Self {
            changes,
            first_sleep: None,
        }
    }

    /// A sleep begins. Returns whether it is the call's first.
    pub fn begin_sleep(&mut self) -> bool {
        let is_first = self.first_sleep.is_none();
        self.first_sleep.get_or_insert_with(Instant::now);
        is_first
    }

    /// Whether the kernel's own limit is not the call's.
    pub fn is_outdated(self, end: &End) -> bool {
        self.has_changed(end) && time_limit(end) != limit_before(end)
    }

    fn has_changed(self, end: &End) -> bool {
        end.local.limits.count.load(Ordering::Acquire) != self.changes
    }

    /// How long a sleep of the call may last.
    pub fn left(self, end: &End) -> Option<Duration> {
        let slept = self
            .first_sleep
            .map_or(Duration::ZERO, |first| first.elapsed());
        Some(self.limit(end)?.saturating_sub(slept))
    }

    /// How long all its sleeps may last.
    fn limit(self, end: &End) -> Option<Duration> {
        match self.has_changed(end) {
            true => limit_before(end),
            false => time_limit(end),
        }
    }
}

/// What the limit was before the last change under a call.
fn limit_before(end: &End) -> Option<Duration> {
    let before = end.local.limits.before.load(Ordering::Relaxed);
    (before != 0).then(|| Duration::from_micros(before))
}

/// Until when a send may wait (SO_SNDTIMEO), from its first sleep on.
#[derive(Debug, Default)]
pub(crate) struct Deadline(Option<Option<Instant>>);

impl Deadline {
    /// Another wait for room begins. Over AF_UNIX the kernel begins anew with every piece that it takes.
    pub fn begin_wait(&mut self, end: &End) {
        if end.family() == Family::Unix {
            self.0 = None;
        }
    }

    /// How long a sleep that need not last longer than `most` may last.
    ///
    /// # Errors
    /// EAGAIN when the time is over.
    pub fn left(&mut self, end: &End, most: Duration) -> Result<Duration, Errno> {
        let left = self.remaining(end)?;
        Ok(left.map_or(most, |left| left.min(most)))
    }

    /// How long a sleep may last; `None`: for ever.
    ///
    /// # Errors
    /// EAGAIN when the time is over.
    pub fn remaining(&mut self, end: &End) -> Result<Option<Duration>, Errno> {
        let begin = || Instant::now().checked_add(send::time_limit(end)?);
        let Some(deadline) = self.0.get_or_insert_with(begin) else {
            return Ok(None);
        };
        match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(Errno::AGAIN),
            left => Ok(Some(left)),
        }
    }

    /// Whether there is a limit: of the sleeps that have begun, or of one that begins now.
    pub fn is_set(&self, end: &End) -> bool {
        match self.0 {
            Some(deadline) => deadline.is_some(),
            None => send::time_limit(end).is_some(),
        }
    }
}

/// The program is about to set SO_RCVTIMEO.
pub fn before_change(end: &End) {
    if !stay::is_asleep(end) {
        return;
    }
    let limits = &end.local.limits;
    let now = time_limit(end).map_or(0, |limit| limit.as_micros());
    let now = u64::try_from(now).unwrap_or(u64::MAX);
    limits.before.store(now, Ordering::Relaxed);
    limits.count.fetch_add(1, Ordering::Release);
}

/// SO_RCVTIMEO as it is now.
pub fn time_limit(end: &End) -> Option<Duration> {
    let limit = kernel::getsockopt::<[u64; 2]>(end.fd(), libc::SOL_SOCKET, libc::SO_RCVTIMEO);
    let [seconds, micros] = limit.unwrap_or_default();
    let limit = Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros));
    (!limit.is_zero()).then_some(limit)
}
