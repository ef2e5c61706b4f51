//! A thread of the library, in processes with connections to other hosts. When a window is lost, an end
//! has to answer its peer at once, also while the program sleeps or computes; and a program that
//! does not touch its window does not notice.
//!
//! The thread handles no signal, holds no lock while it waits, and ends with the process.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use crosslane_ctl::slab::end_flags;
use crosslane_sys::kernel::SignalsHeld;
use crosslane_sys::process as system;

use crate::process::Process;
use crate::{control, lost};

/// How long it waits for a word of the monitor's before it looks by itself.
const IDLE: Duration = Duration::from_secs(1);
/// The same while an end waits for an answer.
const BUSY: Duration = Duration::from_millis(5);

const STACK_BYTES: usize = 128 << 10;

/// The process in which it runs.
static RUNS_IN: AtomicU32 = AtomicU32::new(0);

/// Have it in this process. Called again after a fork, which leaves threads behind.
pub(crate) fn start(process: &'static Process) {
    let pid = system::pid();
    if RUNS_IN.load(Ordering::Relaxed) == pid || !process.is_current() {
        return;
    }
    if RUNS_IN.swap(pid, Ordering::SeqCst) == pid {
        return;
    }
    // What is sent to the process is for the program's own threads.
    let _held = SignalsHeld::hold();
    let thread = std::thread::Builder::new()
        .name("crosslane".to_owned())
        .stack_size(STACK_BYTES);
    if thread.spawn(move || watch(process)).is_err() {
        // Then ends answer at their program's next call.
        RUNS_IN.store(0, Ordering::SeqCst);
    }
}

fn watch(process: &'static Process) {
    loop {
        let mut is_busy = false;
        for end in process.ends() {
            if end.has_flags(end_flags::FAR) {
                // A window that is missing is missed by those who touch it.
                let _ = end.has_record();
                lost::look(&end);
                is_busy |= lost::is_unsettled(&end);
            }
        }
        control::await_word(if is_busy { BUSY } else { IDLE });
        control::poll(process);
    }
}
