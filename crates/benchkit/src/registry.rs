//! The process groups that this program has started and not yet reaped.
//!
//! One lock covers starting a child, reaping it and ending the program on a signal, so a group is
//! never signalled after its number could have been given to somebody else, and no child is born
//! after the last one was killed.

use std::collections::BTreeSet;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};

static GROUPS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// The shell's convention for "ended by SIGINT".
const EXIT_INTERRUPTED: i32 = 130;

/// Kills every child of this program, and then ends it, when SIGINT, SIGTERM or SIGHUP arrives.
///
/// # Errors
/// When the handler cannot be installed, most likely because there is one already.
pub fn stop_children_on_signals() -> Result<(), ctrlc::Error> {
    ctrlc::set_handler(|| {
        let groups = lock();
        groups
            .iter()
            .for_each(|&group| signal_group(group, Signal::KILL));
        std::process::exit(EXIT_INTERRUPTED)
    })
}

/// Starts `command`, which must make its own process group, and remembers the group.
pub(crate) fn spawn(command: &mut Command) -> std::io::Result<Child> {
    let mut groups = lock();
    let child = command.spawn()?;
    groups.insert(child.id().cast_signed());
    Ok(child)
}

/// Sends `signal` to everything in the group of `child`, which has not been reaped.
pub(crate) fn signal(child: &Child, signal: Signal) {
    let groups = lock();
    let group = child.id().cast_signed();
    if groups.contains(&group) {
        signal_group(group, signal);
    }
}

/// Kills what is left of the group of `child` and reaps `child`, which has exited or is killed by
/// this.
pub(crate) fn reap(child: &mut Child) -> std::io::Result<std::process::ExitStatus> {
    let mut groups = lock();
    let group = child.id().cast_signed();
    if groups.remove(&group) {
        signal_group(group, Signal::KILL);
    }
    child.wait()
}

fn signal_group(group: i32, signal: Signal) {
    if let Some(group) = Pid::from_raw(group) {
        // The only failure left is a group that has ended by itself, which is what is wanted.
        let _ = kill_process_group(group, signal);
    }
}

fn lock() -> MutexGuard<'static, BTreeSet<i32>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}
