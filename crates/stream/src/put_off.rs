//! What is to be sent again and has to wait for room on TCP: the program may sleep elsewhere, or compute, so the library's thread
//! ([`watcher`]) sends it.

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering, fence};
use core::time::Duration;
use std::time::Instant;

use crosslane_ctl::slab::EndPhase;
use crosslane_sys::kernel;

use crate::process::Process;
use crate::{End, replay, watcher};

/// Until the next look while some of it goes.
const SOON: Duration = Duration::from_millis(1);
/// The same at most while nothing does. A receiver that reads nothing costs little.
const FULL: Duration = Duration::from_millis(20);
/// How long who drops a name waits for the thread, which waits for nothing while it sends.
const PATIENCE: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_micros(50);

const NOBODY: i32 = -1;

/// Whether the thread looks again soon. It alone writes this.
static LOOKS: AtomicBool = AtomicBool::new(false);
/// The number by which it sends at this moment, or -1.
static AT: AtomicI32 = AtomicI32::new(NOBODY);

/// TCP has no room for what an end is to send again.
pub(crate) fn note(end: &End) {
    // Who closes an end sends for it.
    if end.local.names() == 0 && end.local.kept_number().is_none() {
        return;
    }
    // Between the end's mode and this look; the thread, too, looks at the modes when it has said that it does not look.
    fence(Ordering::SeqCst);
    if !LOOKS.load(Ordering::SeqCst) {
        watcher::call_for_room(end.process());
    }
}

/// As [`note`], of an end that has come to this process with something to send again.
pub(crate) fn note_adopted(end: &End) {
    if is_put_off(end) {
        note(end);
    }
}

/// Whether something waits for room.
pub(crate) fn is_put_off(end: &End) -> bool {
    end.phase() == EndPhase::Granted && replay::is_under_way(end)
}

/// Whether something of the process's does.
pub(crate) fn is_any(process: &'static Process) -> bool {
    fence(Ordering::SeqCst);
    all(process).next().is_some()
}

/// The ends of the process that have something that waits.
pub(crate) fn all(process: &'static Process) -> impl Iterator<Item = End> {
    process.ends().chain(process.kept_ends()).filter(is_put_off)
}

/// A number names an end no more, which has others: nothing is sent by it from here on.
pub(crate) fn let_go(end: &End) {
    let deadline = Instant::now() + PATIENCE;
    while AT.load(Ordering::SeqCst) == end.fd && Instant::now() < deadline {
        kernel::nap(NAP);
    }
}

/// There is no thread any more.
pub(crate) fn leave_behind() {
    LOOKS.store(false, Ordering::SeqCst);
    AT.store(NOBODY, Ordering::SeqCst);
}

/// The thread's own.
#[derive(Default)]
pub(crate) struct Looks {
    /// How far all has come that waits, if something does.
    position: Option<u64>,
    /// Until the next look.
    pub(crate) patience: Duration,
}

impl Looks {
    /// Send what there is room for. Returns whether something is left.
    pub(crate) fn look(&mut self, process: &'static Process) -> bool {
        let before = self.position.take();
        for end in all(process) {
            AT.store(end.fd, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            replay::push_one(&end, || !watcher::is_over());
            AT.store(NOBODY, Ordering::SeqCst);
            if is_put_off(&end) {
                let (line, taken) = replay::position(&end);
                let so_far = self.position.unwrap_or(0);
                self.position = Some(so_far.wrapping_add(line << 16).wrapping_add(taken));
            }
        }
        if self.position.is_none() {
            LOOKS.store(false, Ordering::SeqCst);
            self.position = is_any(process).then_some(0);
        }
        let is_left = self.position.is_some();
        LOOKS.store(is_left, Ordering::SeqCst);
        self.patience = match self.position == before {
            true => (self.patience * 2).min(FULL),
            false => SOON,
        };
        is_left
    }
}
