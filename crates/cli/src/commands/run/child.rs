//! Running the program as a child, for what is left to do when it has ended.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::thread;

use anyhow::Context;
use crosslane_sys::inherit;
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, set_dumpable_behavior,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

use crate::output::note;

/// Passed on to the program.
const PASSED_ON: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
/// But for those of a terminal, which sends them to the program, too.
const OF_TERMINALS: [i32; 2] = [SIGINT, SIGQUIT];

/// Run the command to its end. Signals to this process do not end it: the program may do so.
///
/// # Errors
/// When the program cannot be started: the kernel's answer.
pub fn run(command: &mut Command) -> std::io::Result<anyhow::Result<ExitStatus>> {
    let (mut child, signals) = inherit::spawn(command)?;
    let pid = Pid::from_child(&child);
    let passed_on = pidfd_open(pid, PidfdFlags::empty())
        .context("cannot watch the program")
        .and_then(pass_on);
    drop(signals);
    if let Err(error) = passed_on {
        // It still runs, and somebody has to wait for it.
        note(&format!("crosslane: {error:#}"));
    }
    Ok(child.wait().context("cannot wait for the program"))
}

fn pass_on(program: OwnedFd) -> anyhow::Result<()> {
    let mut signals = SignalsInfo::<WithOrigin>::new(PASSED_ON)?;
    thread::Builder::new().spawn(move || {
        for origin in signals.forever().filter(|origin| !has_it_too(origin)) {
            if let Some(signal) = Signal::from_named_raw(origin.signal) {
                // One that has ended needs none.
                let _ = pidfd_send_signal(&program, signal);
            }
        }
    })?;
    Ok(())
}

/// Whether the program has been sent this signal as we have.
fn has_it_too(origin: &Origin) -> bool {
    OF_TERMINALS.contains(&origin.signal) && matches!(origin.cause, Cause::Kernel)
}

/// End as the program did, by the same signal if it was one.
pub fn end_as(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        // The program's memory may have been dumped; ours would take its place.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        // Still here: what is left is the shell's way to tell.
        return ExitCode::from(128_u8.saturating_add(u8::try_from(signal).unwrap_or(0)));
    }
    ExitCode::from(
        status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(1),
    )
}
