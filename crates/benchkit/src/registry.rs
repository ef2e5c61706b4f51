//! The process groups that this program has started and not yet reaped, and the folders that it has made.
//!
//! One lock covers starting a child, reaping it and ending the program on a signal, so a group is
//! never signalled after its number could have been given to somebody else, and no child is born
//! and no folder made after the last one has been dealt with.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tempfile::Builder;

use crate::process::GRACE;

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    groups: BTreeSet::new(),
    folders: BTreeSet::new(),
});

struct Registry {
    groups: BTreeSet<i32>,
    folders: BTreeSet<PathBuf>,
}

/// How long children that stop children of their own may take: longer than those are given.
const GRACE_OF_BENCHES: Duration = GRACE.saturating_mul(4);
/// Between two looks whether all have ended.
const PAUSE: Duration = Duration::from_millis(2);
/// The shell's convention for "ended by SIGINT".
const EXIT_INTERRUPTED: i32 = 130;

/// Ends every child of this program, removes every [`crate::Folder`], and then ends the program, when SIGINT,
/// SIGTERM or SIGHUP arrives.
///
/// # Errors
/// When the handler cannot be installed, most likely because there is one already.
pub fn stop_children_on_signals() -> Result<(), ctrlc::Error> {
    stop_on_signals(GRACE)
}

/// The same where children do so themselves: theirs are in groups of their own, which only they know, so that
/// they need the time for it.
///
/// # Errors
/// Likewise.
pub fn stop_benches_on_signals() -> Result<(), ctrlc::Error> {
    stop_on_signals(GRACE_OF_BENCHES)
}

fn stop_on_signals(grace: Duration) -> Result<(), ctrlc::Error> {
    ctrlc::set_handler(move || {
        let registry = lock();
        registry.signal(Signal::TERM);
        registry.wait_for_leaders(grace);
        registry.signal(Signal::KILL);
        registry.wait_for_leaders(GRACE);
        for folder in &registry.folders {
            // What cannot be removed now has nobody left who could.
            let _ = std::fs::remove_dir_all(folder);
        }
        std::process::exit(EXIT_INTERRUPTED)
    })
}

impl Registry {
    fn signal(&self, signal: Signal) {
        self.groups
            .iter()
            .for_each(|&group| signal_group(group, signal));
    }

    /// Waits for each group's first process, which stays unreaped, so that its number stays its own.
    fn wait_for_leaders(&self, grace: Duration) {
        let deadline = Instant::now() + grace;
        while self.groups.iter().any(|&group| runs(group)) && Instant::now() < deadline {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Starts `command`, which must make its own process group, and remembers the group.
pub(crate) fn spawn(command: &mut Command) -> std::io::Result<Child> {
    let mut registry = lock();
    let child = command.spawn()?;
    registry.groups.insert(child.id().cast_signed());
    Ok(child)
}

/// Sends `signal` to everything in the group of `child`, which has not been reaped.
pub(crate) fn signal(child: &Child, signal: Signal) {
    let registry = lock();
    let group = child.id().cast_signed();
    if registry.groups.contains(&group) {
        signal_group(group, signal);
    }
}

/// Kills what is left of the group of `child` and reaps `child`, which has exited or is killed by
/// this.
pub(crate) fn reap(child: &mut Child) -> std::io::Result<std::process::ExitStatus> {
    let mut registry = lock();
    let group = child.id().cast_signed();
    if registry.groups.remove(&group) {
        signal_group(group, Signal::KILL);
    }
    child.wait()
}

/// Makes a folder and remembers it.
pub(crate) fn make(folder: &Builder, place: &Path) -> std::io::Result<PathBuf> {
    let mut registry = lock();
    let folder = folder.tempdir_in(place)?.keep();
    registry.folders.insert(folder.clone());
    Ok(folder)
}

/// Removes a folder.
pub(crate) fn remove(folder: &Path) -> std::io::Result<()> {
    let mut registry = lock();
    registry.folders.remove(folder);
    std::fs::remove_dir_all(folder)
}

fn signal_group(group: i32, signal: Signal) {
    if let Some(group) = Pid::from_raw(group) {
        // The only failure left is a group that has ended by itself, which is what is wanted.
        let _ = kill_process_group(group, signal);
    }
}

fn runs(leader: i32) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Pid::from_raw(leader).is_some_and(|pid| matches!(waitid(WaitId::Pid(pid), look), Ok(None)))
}

fn lock() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}
