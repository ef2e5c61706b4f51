//! Calls of the program's that run inside the kernel, which knows of no rings. While there is one, its
//! direction stays on TCP; what it has moved is counted before it counts as over.
//!
//! The kernel keeps a socket for the calls inside it, however its descriptors are closed meanwhile. The entry of the
//! connection it does not keep: another may have it when such a call returns. Nor does it know of memory when a signal
//! has it begin a call again, by what the number names then: so what gets such a number stays on TCP.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use std::os::fd::RawFd;

use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndPhase, Mode};
use crosslane_sys::{Errno, cancel, errno};

use crate::family::Family;
use crate::process::Process;
use crate::{End, ending, gone, kernel_view, process, replay, room, switch, watcher};

/// A call that has gone into the kernel, or is about to.
#[derive(Clone, Copy)]
pub struct Call {
    end: End,
    calls: &'static AtomicU32,
    generation: u32,
}

impl Call {
    fn begin(end: &End, calls: &'static AtomicU32) -> Self {
        watcher::tend();
        let generation = generation(end);
        calls.fetch_add(1, Ordering::SeqCst); // SYNC: raw
        Self {
            end: *end,
            calls,
            generation,
        }
    }

    /// Begin a sleep, in the kernel alone, on an end without rings: the peer is not told that we are ready for rings
    /// before [`Call::end`]. Look at [`crate::ready::is_kernels`] again afterwards.
    pub fn begin_wait(end: &End) -> Self {
        Self::begin(end, &end.entry.rx.raw_calls)
    }

    /// Whether it is on this connection.
    pub fn is_on(&self, end: &End) -> bool {
        self.end.index == end.index && self.has_entry()
    }

    /// Whether the entry is still that of the connection the call has begun with.
    fn has_entry(&self) -> bool {
        generation(&self.end) == self.generation
    }

    /// Run what may sleep in the kernel.
    fn run<R>(&self, by_number: &ByNumber, kernel: impl FnOnce() -> R) -> R {
        cancel::undone(|| self.end(), || cancel::guarded(by_number, kernel))
    }

    /// The call is over.
    pub fn end(self) {
        if self.has_entry() {
            self.calls.fetch_sub(1, Ordering::SeqCst); // SYNC: raw
        }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Call")
            .field("fd", &self.end.fd)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

fn generation(end: &End) -> u32 {
    end.entry.id.generation.load(Ordering::Acquire)
}

/// Let the kernel send `bytes` while the direction is on TCP, and count what it took. `None` when
/// the direction has entered the ring meanwhile, or has to send again by TCP what stood there, and nothing was done.
#[inline]
pub fn send(end: &End, bytes: usize, kernel: impl FnOnce() -> isize) -> Option<isize> {
    let before = generation(end);
    let may_sleep = room::may_sleep(end, bytes);
    let result = send_waiting(end, kernel)?;
    if may_sleep {
        room::tell(end);
    }
    if generation(end) == before && end.phase() == EndPhase::Granted {
        let sent = errno::check(result);
        if sent.map_or_else(|errno| errno == Errno::AGAIN, |sent| sent < bytes) {
            end.note_blocked();
        }
        if end.family() == Family::Unix {
            gone::note_sent(end, sent, bytes);
        }
    }
    Some(result)
}

/// As [`send`], of who waits for room where there is none, and asks nobody to be told of some.
pub(crate) fn send_waiting(end: &End, kernel: impl FnOnce() -> isize) -> Option<isize> {
    let tx = &end.entry.tx;
    if end.phase() == EndPhase::Granted {
        // What the receiver wants to have again comes before these bytes.
        switch::answer_freeze(end);
    }
    if let Some(errno) = ending::take_from_send(end) {
        errno.set();
        return Some(-1);
    }
    let call = Call::begin(end, &tx.raw_calls);
    let by_number = ByNumber::begin(end);
    if tx.mode.load(Ordering::SeqCst) != Mode::Tcp as u32 {
        call.end();
        return None;
    }
    let send = || kernel_view::count_sending(end, kernel, || call.has_entry());
    let send = || cancel::undone(|| lose_count(&call), send);
    let result = call.run(&by_number, send);
    if !call.has_entry() {
        return Some(result);
    }
    if let Ok(sent) = errno::check(result) {
        tx.tcp_bytes.fetch_add(sent as u64, Ordering::Relaxed);
        tx.tcp_data.fetch_add(sent as u64, Ordering::Relaxed);
    }
    call.end();
    Some(result)
}

/// The call has been cancelled, perhaps after it has sent something. Over AF_UNIX no kernel says how much that was.
fn lose_count(call: &Call) {
    if !call.has_entry() {
        return;
    }
    lose_place(&call.end);
    if call.end.family() == Family::Unix {
        switch::pin(&call.end, Reason::Uncounted);
    }
}

/// The kernel sends bytes that nobody counts, or may have sent some. What the receiver has left in its lane cannot be sent
/// again, for it would come behind them.
pub fn lose_place(end: &End) {
    let _tx = end.lock_tx();
    let stop_at = &end.entry.wait.replayed;
    if end.tx_mode() == Mode::Tcp && stop_at.load(Ordering::Relaxed) != 0 {
        stop_at.store(u64::MAX, Ordering::Relaxed);
    }
}

/// Let the kernel receive while the end has no rings, and count what it gave. `None` when rings
/// have been granted meanwhile, and nothing was done. `peeks` says that bytes stay queued.
#[inline]
pub fn receive(end: &End, peeks: bool, kernel: impl FnOnce() -> isize) -> Option<isize> {
    let rx = &end.entry.rx;
    replay::push();
    let call = Call::begin(end, &rx.raw_calls);
    let by_number = ByNumber::begin(end);
    if end.phase() == EndPhase::Granted {
        call.end();
        return None;
    }
    let mut received = call.run(&by_number, kernel);
    if !call.has_entry() {
        return Some(received);
    }
    if received == 0 && ending::was_reset(end) {
        received = -1;
    } else if received == 0 {
        ending::note_nothing(end);
    }
    if let Ok(bytes) = u64::try_from(received)
        && !peeks
    {
        rx.tcp_bytes.fetch_add(bytes, Ordering::Relaxed);
        rx.tcp_data.fetch_add(bytes, Ordering::Relaxed);
    }
    call.end();
    Some(received)
}

/// A call that the kernel may look up again, when it begins it again or a poll wakes, counted with the number by
/// which it came.
pub struct ByNumber(Option<&'static AtomicU32>);

impl ByNumber {
    /// It is about to go into the kernel.
    pub fn begin(end: &End) -> Self {
        Self::of(end.process(), end.fd)
    }

    /// As [`ByNumber::begin`], of a connection without an end.
    pub(crate) fn of(process: &'static Process, fd: RawFd) -> Self {
        let calls = process.calls_by(fd);
        if let Some(calls) = calls {
            calls.fetch_add(1, Ordering::Relaxed);
        }
        Self(calls)
    }
}

impl Drop for ByNumber {
    fn drop(&mut self) {
        if let Some(calls) = self.0 {
            // None is left of those that have been forgotten in a forked child.
            let _ = calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |calls| {
                calls.checked_sub(1)
            });
        }
    }
}

/// Whether a call of this process is inside the kernel by this number, whatever it names.
pub fn is_in_kernel(fd: RawFd) -> bool {
    let calls = process::get().and_then(|process| process.calls_by(fd));
    calls.is_some_and(|calls| calls.load(Ordering::Relaxed) > 0)
}

/// What has just got this number stays on TCP if a call that began before is still inside the kernel by it.
pub(crate) fn keep_on_tcp(end: &End) {
    if is_in_kernel(end.fd) {
        switch::pin(end, Reason::Call);
    }
}
