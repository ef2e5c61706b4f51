//! A thread of the library, in processes with connections to other hosts. When a window is lost, an end
//! has to answer its peer at once, also while the program sleeps or computes; and a program that
//! does not touch its window does not notice.
//!
//! The thread handles no signal, holds no lock while it waits, and ends with the process, or before
//! the program restricts what its threads may call.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use std::sync::Mutex;
use std::thread::JoinHandle;

use crosslane_ctl::slab::end_flags;
use crosslane_sys::kernel::{self, SignalsHeld};
use crosslane_sys::process as system;

use crate::control::{self, OwnFd};
use crate::lost;
use crate::process::Process;

/// How long it waits for a word of the monitor's before it looks by itself.
const IDLE: Duration = Duration::from_secs(1);
/// The same while an end waits for an answer.
const BUSY: Duration = Duration::from_millis(5);

const STACK_BYTES: usize = 128 << 10;

/// The process in which it runs.
static RUNS_IN: AtomicU32 = AtomicU32::new(0);
/// It, and what wakes it; of the process that [`RUNS_IN`] names.
static THREAD: Mutex<Option<(JoinHandle<()>, OwnFd)>> = Mutex::new(None);
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Have it in this process. Called again after a fork, which leaves threads behind.
pub(crate) fn start(process: &'static Process) {
    let pid = system::pid();
    if RUNS_IN.load(Ordering::Relaxed) == pid || !process.is_current() {
        return;
    }
    // Where it is taken, another thread starts it, or the process is being left.
    let Ok(mut thread) = THREAD.try_lock() else {
        return;
    };
    if IS_OVER.load(Ordering::SeqCst) || RUNS_IN.swap(pid, Ordering::SeqCst) == pid {
        return;
    }
    // A fork has left it behind: its number may be another thread's by now.
    core::mem::forget(thread.take());
    *thread = spawn(process);
    if thread.is_none() {
        // Then ends answer at their program's next call.
        RUNS_IN.store(0, Ordering::SeqCst);
    }
}

fn spawn(process: &'static Process) -> Option<(JoinHandle<()>, OwnFd)> {
    let waker = OwnFd::new(kernel::event_descriptor().ok()?);
    let number = waker.number();
    // What is sent to the process is for the program's own threads.
    let _held = SignalsHeld::hold();
    let thread = std::thread::Builder::new()
        .name("crosslane".to_owned())
        .stack_size(STACK_BYTES);
    let thread = thread.spawn(move || watch(process, number)).ok()?;
    Some((thread, waker))
}

/// End it, for good.
pub fn stop() {
    IS_OVER.store(true, Ordering::SeqCst);
    let is_ours = RUNS_IN.load(Ordering::SeqCst) == system::pid();
    let thread = THREAD.lock().ok().and_then(|mut thread| thread.take());
    let Some((thread, waker)) = thread.filter(|_| is_ours) else {
        return;
    };
    let _ = kernel::raise_event(waker.number());
    let _ = thread.join();
}

fn watch(process: &'static Process, waker: i32) {
    while !IS_OVER.load(Ordering::SeqCst) {
        let mut is_busy = false;
        for end in process.ends() {
            if end.has_flags(end_flags::FAR) {
                // A window that is missing is missed by those who touch it.
                let _ = end.has_record();
                lost::look(&end);
                is_busy |= lost::is_unsettled(&end);
            }
        }
        // A child has no connection to the monitor until it needs one, and may sleep when it is to be told.
        control::introduce(process);
        control::await_word(if is_busy { BUSY } else { IDLE }, waker);
        control::poll(process);
    }
}
