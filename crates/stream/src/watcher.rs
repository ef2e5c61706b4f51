//! A thread of the library, in processes with connections to other hosts. When a window is lost, an end
//! has to answer its peer at once, also while the program sleeps or computes; and a program that
//! does not touch its window does not notice. A forked child has its own from the first call on in which it
//! could sleep on a connection.
//!
//! Other processes have it while something that is to be sent again waits for room on TCP, as the program may make no call for
//! long.
//!
//! The thread handles no signal, holds no lock while it waits, and ends with the process, or before
//! the program restricts what its threads may call.

#[cfg(test)]
use core::sync::atomic::AtomicU32;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering, fence};
use core::time::Duration;
use std::os::fd::RawFd;
use std::sync::{OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use crosslane_ctl::slab::end_flags;
use crosslane_sys::busy::{Mutex, MutexGuard};
use crosslane_sys::kernel::{self, SignalsHeld};
use crosslane_sys::{cancel, cpu};

use crate::control::{self, OwnFd};
use crate::process::{self, Process};
use crate::{End, entering, lost, posted, put_off, replay, unheard};

/// How long it waits for a word of the monitor's before it looks by itself.
const IDLE: Duration = Duration::from_secs(1);
/// The same while an end waits for an answer.
const BUSY: Duration = Duration::from_millis(5);
/// The same while something that was posted may be crossed by something that the other host has posted.
const SOON: Duration = Duration::from_millis(1);
/// Between two looks at whether it has ended.
const EXIT_NAP: Duration = Duration::from_micros(50);
/// To look after one end takes less. A handler may have interrupted who holds a direction that the thread waits for.
const TEND_PATIENCE: Duration = Duration::from_millis(10);
/// What was posted longer ago has arrived, or beats have found the window lost.
const IN_DOUBT_US: u64 = 1_000_000;

const NOBODY: i32 = -1;

const STACK_BYTES: usize = 128 << 10;

/// It, and what wakes it.
pub(crate) type Thread = (JoinHandle<()>, OwnFd);

static THREAD: Mutex<Option<Thread>> = Mutex::new(None);
/// Whether it runs in this process.
static RUNS: AtomicBool = AtomicBool::new(false);
/// Whether this process, or one that it was forked from, has had connections to other hosts.
static IS_NEEDED: AtomicBool = AtomicBool::new(false);
static IS_OVER: AtomicBool = AtomicBool::new(false);
/// When something was posted last, in ticks, by any thread.
static POSTED: AtomicU64 = AtomicU64::new(0);
/// Whether the thread knows that something was.
static LOOKS: AtomicBool = AtomicBool::new(false);
/// Whether it could not be called for.
static IS_MISSED: AtomicBool = AtomicBool::new(false);
/// The number of the end that the thread looks after at this moment, or -1.
static AT: AtomicI32 = AtomicI32::new(NOBODY);
/// What to call when windows have been lost.
static ON_LOSS: OnceLock<fn()> = OnceLock::new();

/// Have `wake` called by the thread when windows have been lost, for those to look again who sleep: a peer that
/// has ended its stream rings no more.
pub fn on_loss(wake: fn()) {
    ON_LOSS.get_or_init(|| wake);
}

/// A call may sleep: a forked child that has such connections has the thread from here on.
#[inline]
pub fn tend() {
    if IS_NEEDED.load(Ordering::Relaxed) && !RUNS.load(Ordering::Relaxed) {
        tend_now();
    }
}

#[cold]
fn tend_now() {
    if let Some(process) = process::get() {
        start(process);
    }
}

/// Whether it is there.
pub(crate) fn runs() -> bool {
    #[cfg(test)]
    if crate::posted::tests::schedules::is_played() {
        return true;
    }
    RUNS.load(Ordering::Relaxed)
}

/// Whether it is to end.
pub(crate) fn is_over() -> bool {
    IS_OVER.load(Ordering::Relaxed)
}

/// Something has been posted: look often for a while.
#[inline]
pub(crate) fn stir() {
    POSTED.store(cpu::ticks(), Ordering::SeqCst);
    if !LOOKS.load(Ordering::SeqCst) {
        call();
    }
}

#[cold]
fn call() {
    // Where it is being started, it looks at once; without the thread there is nobody to call.
    if let Ok(thread) = THREAD.try_lock()
        && let Some((_, waker)) = &*thread
        && !LOOKS.swap(true, Ordering::SeqCst)
    {
        let _ = kernel::raise_event(waker.number());
    }
}

/// Whether it looks after the ends of this process.
#[inline]
pub(crate) fn is_at_work() -> bool {
    runs() && IS_NEEDED.load(Ordering::Relaxed)
}

/// Have it in this process.
#[inline]
pub(crate) fn start(process: &'static Process) {
    if !is_at_work() {
        start_now(process);
    }
}

#[cold]
fn start_now(process: &'static Process) {
    // In a child of vfork the parent's is at work.
    if process.is_current() {
        // As SEQ_CST as the thread's own look before it ends: one of both sees the other.
        IS_NEEDED.store(true, Ordering::SeqCst);
        run(process);
    }
}

/// Something that is to be sent again waits for room: have the thread look, until it has been sent.
#[cold]
pub(crate) fn call_for_room(process: &'static Process) {
    // Unit tests show what calls do without it.
    if cfg!(test) || !process.is_current() {
        return;
    }
    if !runs() {
        return run(process);
    }
    match THREAD.try_lock() {
        Ok(thread) => {
            let waker = thread.as_ref().map(|(_, waker)| waker.number());
            let _ = waker.map(kernel::raise_event);
        }
        Err(_) => IS_MISSED.store(true, Ordering::SeqCst),
    }
}

/// Somebody may have called for the thread in vain meanwhile.
pub(crate) fn make_up(process: &'static Process) {
    if IS_MISSED.load(Ordering::Relaxed) && IS_MISSED.swap(false, Ordering::SeqCst) {
        call_for_room(process);
    }
}

#[cold]
fn run(process: &'static Process) {
    // Where it is taken, another thread starts it, forks, or the process is being left.
    let Ok(mut thread) = THREAD.try_lock() else {
        return IS_MISSED.store(true, Ordering::SeqCst);
    };
    if IS_OVER.load(Ordering::SeqCst) {
        return IS_MISSED.store(true, Ordering::SeqCst);
    }
    // Before: it may end at once.
    if RUNS.swap(true, Ordering::SeqCst) {
        return;
    }
    *thread = spawn(process);
    if thread.is_none() {
        // Ends answer at their program's next call.
        RUNS.store(false, Ordering::Relaxed);
    }
}

/// Held while the process forks, so that the child can begin anew.
pub(crate) fn hold() -> MutexGuard<'static, Option<Thread>> {
    THREAD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The child that has been forked has no such thread, whose number may be another one's by now.
pub(crate) fn leave_behind(thread: &mut Option<Thread>) {
    if let Some((thread, _waker)) = thread.take() {
        core::mem::forget(thread);
    }
    RUNS.store(false, Ordering::Relaxed);
    LOOKS.store(false, Ordering::Relaxed);
    AT.store(NOBODY, Ordering::Relaxed);
    IS_MISSED.store(false, Ordering::Relaxed);
    put_off::leave_behind();
    // Of an exec by another thread of the parent's.
    IS_OVER.store(false, Ordering::Relaxed);
}

fn spawn(process: &'static Process) -> Option<Thread> {
    let waker = OwnFd::new(kernel::event_semaphore().ok()?);
    let number = waker.number();
    // What is sent to the process is for the program's own threads.
    let _held = SignalsHeld::hold();
    let thread = std::thread::Builder::new()
        .name("crosslane".to_owned())
        .stack_size(STACK_BYTES);
    let thread = thread.spawn(move || watch(process, number)).ok()?;
    Some((thread, waker))
}

/// A number names an end no more, which has others: the thread does nothing by it from here on.
pub(crate) fn let_go(end: &End) {
    let deadline = Instant::now() + TEND_PATIENCE;
    while AT.load(Ordering::SeqCst) == end.fd && Instant::now() < deadline {
        kernel::nap(EXIT_NAP);
    }
    put_off::let_go(end);
    replay::let_go(end);
}

/// End it, for good.
pub fn stop() {
    IS_OVER.store(true, Ordering::SeqCst);
    let Some((thread, waker)) = hold().take() else {
        return;
    };
    let _ = kernel::raise_event(waker.number());
    let _ = cancel::never(|| thread.join());
}

/// The process ends, or is about to become another program: a direction that the thread was moving would be left to relatives as
/// it stands, who could not know what has been posted. It may be that a handler calls, so nothing is waited for without limit.
/// Returns whether there was a thread.
pub fn stop_before_exit(deadline: Instant) -> bool {
    IS_OVER.store(true, Ordering::SeqCst);
    let Ok(mut thread) = THREAD.try_lock() else {
        return runs();
    };
    let Some((thread, waker)) = &mut *thread else {
        return false;
    };
    let _ = kernel::raise_event(waker.number());
    while !thread.is_finished() && Instant::now() < deadline {
        kernel::nap(EXIT_NAP);
    }
    true
}

/// The process is no other program after all, before which the thread was stopped as for an exit. One that has not ended by
/// now, as it waits for what the caller, a handler, has interrupted, may go on, or ends and is started by a later call.
pub fn go_on(process: &'static Process, had_thread: bool) {
    IS_OVER.store(false, Ordering::SeqCst);
    if had_thread && process.is_current() {
        // As SEQ_CST as the thread's own look: one of both sees the other.
        run(process);
    }
    make_up(process);
}

fn watch(process: &'static Process, waker: i32) {
    let mut losses = lost::all_losses();
    let mut room = put_off::Looks::default();
    let mut is_last_due = Instant::now() + IDLE;
    loop {
        kernel::lower_event(waker);
        // In this order: the event is raised after it is said.
        if IS_OVER.load(Ordering::SeqCst) && ends_unless(|| !IS_OVER.load(Ordering::SeqCst)) {
            return;
        }
        if Instant::now() >= is_last_due {
            if crosslane_sys::process::is_last_thread() {
                return;
            }
            is_last_due = Instant::now() + IDLE;
        }
        let is_put_off = room.look(process);
        if !IS_NEEDED.load(Ordering::SeqCst) {
            if is_put_off {
                sleep(NOBODY, waker, room.patience);
            } else if ends_unless(|| is_wanted(process)) {
                return;
            }
            continue;
        }
        LOOKS.store(true, Ordering::SeqCst);
        let (mut is_busy, mut looks_soon) = (false, !has_been_idle());
        for end in process.ends().chain(process.kept_ends()) {
            #[cfg(test)]
            if posted::tests::schedules::is_others(&end) {
                continue;
            }
            if end.has_flags(end_flags::FAR) && begin_at(&end) {
                // Anew for each: the program may have begun to wait in its lane since.
                looks_soon |= tend_end(&end, has_been_idle());
                is_busy |= lost::is_unsettled(&end) || lost::is_owing(&end);
                unheard::tend(&end);
            }
            AT.store(NOBODY, Ordering::SeqCst);
        }
        let now = lost::all_losses();
        if core::mem::replace(&mut losses, now) != now
            && let Some(wake) = ON_LOSS.get()
        {
            wake();
        }
        // A child has no connection to the monitor until it needs one, and may sleep when it is to be told.
        control::introduce(process);
        let mut patience = patience(is_busy, looks_soon);
        if is_put_off {
            patience = patience.min(room.patience);
        }
        sleep(control::number(), waker, patience);
        control::poll(process);
    }
}

/// The thread ends, unless there is a reason to go on by now, which is looked for when all others can see that it does not run.
/// Returns whether it ends.
fn ends_unless(goes_on: impl FnOnce() -> bool) -> bool {
    RUNS.store(false, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    !goes_on() || RUNS.swap(true, Ordering::SeqCst)
}

fn is_wanted(process: &'static Process) -> bool {
    IS_NEEDED.load(Ordering::SeqCst) || put_off::is_any(process)
}

/// Until something comes by one of the numbers.
fn sleep(word: RawFd, waker: RawFd, patience: Duration) {
    // The kernel passes over a negative number.
    let mut both = [word, waker].map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    let time = libc::timespec {
        tv_sec: i64::try_from(patience.as_secs()).unwrap_or(1),
        tv_nsec: i64::from(patience.subsec_nanos()),
    };
    let _ = kernel::poll(&mut both, Some(time));
}

/// Whether the end still has the number by which it was found: whoever drops a name waits from here on.
fn begin_at(end: &End) -> bool {
    AT.store(end.fd, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    let is_kept = || end.local.names() == 0;
    end.process().index_of(end.fd) == Some(end.index) || is_kept()
}

/// What the thread does at each look for an end whose peer is on another host. Returns whether to look again soon.
pub(crate) fn tend_end(end: &End, is_idle: bool) -> bool {
    // A window that is missing is missed by those who touch it.
    let _ = end.has_record();
    lost::look(end);
    posted::tend(end) | entering::tend(end, is_idle)
}

/// Tests for which the thread is awake, however long ago something was posted.
#[cfg(test)]
pub(crate) static AWAKE: AtomicU32 = AtomicU32::new(0);

fn has_been_idle() -> bool {
    #[cfg(test)]
    if AWAKE.load(Ordering::SeqCst) != 0 {
        return false;
    }
    let passed = cpu::ticks().saturating_sub(POSTED.load(Ordering::SeqCst));
    passed / cpu::ticks_per_us() > IN_DOUBT_US
}

fn patience(is_busy: bool, looks_soon: bool) -> Duration {
    if looks_soon {
        return SOON;
    }
    LOOKS.store(false, Ordering::SeqCst);
    // Who posts from here on calls.
    match has_been_idle() {
        false => SOON,
        true if is_busy => BUSY,
        true => IDLE,
    }
}
