//! `crosslane run PROGRAM`: run an unmodified program with its TCP connections accelerated.

mod child;
mod explain;
mod library;

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::str::FromStr;

use anyhow::{bail, ensure};
use clap::{Arg, ValueEnum};
use crosslane_ctl::paths::{RUN_VARIABLE, RUNTIME_DIR_VARIABLE, SECRET_VARIABLE};
use crosslane_ctl::reason::STRICT_STATUS;
use crosslane_monitor::secret;
use crosslane_sys::inherit;
use crosslane_sys::store_wait::StoreWait;

use crate::examine::{Cause, Verdict, examine};
use crate::output::{self, note};
use crate::private;
use explain::{Explanation, Format};

/// Arguments of `crosslane run`.
#[derive(clap::Args)]
#[command(
    after_long_help = EXAMPLES,
    override_usage = "crosslane run [OPTIONS] <PROGRAM> [ARGS]...",
    mut_args(unset_if_empty)
)]
pub struct Args {
    /// How the program waits for data
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        env = "CROSSLANE_WAIT",
        hide_env_values = true
    )]
    wait: Option<Wait>,

    /// Ports whose connections are accelerated from their first byte
    ///
    /// Others are accelerated after some round trips, so that short connections cost nothing.
    /// Numbers and ranges, separated by commas: 6379,8000-8010.
    #[arg(
        long,
        value_name = "PORTS",
        env = "CROSSLANE_EAGER",
        hide_env_values = true
    )]
    eager: Option<Ports>,

    /// Accelerate AF_UNIX streams, too: socket files, abstract names, socket pairs
    ///
    /// Both programs need it. A pair is accelerated once two processes have one end each.
    #[arg(long)]
    unix: bool,

    /// Fail if the program cannot be accelerated, instead of running it on plain TCP
    ///
    /// Not only at its start: the program, or what it has started, ends with status 125 and a line
    /// on standard error as soon as a connection to this host stays on TCP because Crosslane has
    /// failed it: no monitor answers, none of the right version, no memory or descriptors for
    /// rings, a quota, a full table. A monitor may be away for a second. Connections that stay on
    /// TCP because they are short, because the other end does not run under Crosslane, or because
    /// of what the program does with them are no failures.
    #[arg(long)]
    strict: bool,

    /// Tell at the end which connections were accelerated, and of the others why not
    ///
    /// On standard error, once the program has ended: a table with every end of a connection that
    /// it and what it started had, alike ones in one row if they are many, and for each reason what
    /// would change it. With json, one object for each end, as of crosslane ss, and a last one with
    /// the numbers. The program is a child of this command then, which passes on SIGHUP, SIGINT,
    /// SIGQUIT, SIGTERM, SIGUSR1 and SIGUSR2, but for SIGINT and SIGQUIT of a terminal, which sends
    /// them to the program itself, and ends as the program does.
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "table"
    )]
    explain: Option<Format>,

    /// Write what --explain tells into this file; alone, a table
    #[arg(long, value_name = "FILE")]
    explain_to: Option<PathBuf>,

    /// The program, and its arguments: all that follows its name is for the program
    #[arg(
        required = true,
        num_args = 1..,
        trailing_var_arg = true,
        value_names = ["PROGRAM", "ARGS"]
    )]
    command: Vec<OsString>,
}

impl Args {
    fn program(&self) -> &OsStr {
        self.command.first().map_or(OsStr::new(""), |name| name)
    }
}

/// As if it were not in the environment.
fn unset_if_empty(arg: Arg) -> Arg {
    let value = arg.get_env().and_then(std::env::var_os);
    match value.is_some_and(|value| value.is_empty()) {
        true => arg.env(None),
        false => arg,
    }
}

/// Port numbers as the library reads them: numbers and ranges, separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ports(String);

/// Most ranges that may be named: the library looks through them at every new connection.
const MOST_RANGES: usize = 256;

impl FromStr for Ports {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (port(first)?, port(last)?);
            ensure!(first <= last, "the range {part} is empty");
            ranges.push(format!("{first}-{last}"));
        }
        ensure!(
            ranges.len() <= MOST_RANGES,
            "{} ports and ranges are named, {MOST_RANGES} are the most: name wider ranges",
            ranges.len()
        );
        Ok(Self(ranges.join(",")))
    }
}

fn port(text: &str) -> anyhow::Result<u16> {
    match text.trim().parse() {
        Ok(0) | Err(_) => bail!("{text:?} is not a port between 1 and 65535"),
        Ok(port) => Ok(port),
    }
}

/// How a program waits for data.
#[derive(Clone, Copy, ValueEnum)]
enum Wait {
    /// Look at the ring for up to 50 milliseconds before each sleep: lowest latency, and a core is
    /// busy as long as data keeps coming
    Spin,
    /// As spin, but the processor rests until the peer writes (umwait or mwaitx): a little more latency, less power, and
    /// its sibling thread runs faster. Where the processor has neither, it spins
    Monitor,
    /// Look for up to 50 microseconds, less where that was in vain before, then sleep
    Adaptive,
    /// Sleep at once: least CPU use
    Sleep,
}

const EXAMPLES: &str = "\
Both ends of a connection must run under Crosslane; a connection to anything else stays on TCP.
What the program starts is accelerated, too, unless it cannot be (see crosslane check): static and
setuid programs and those of another libc than glibc run as they always do.

Examples:
  A server and its client:
      crosslane run redis-server --port 6379 &
      crosslane run redis-benchmark -p 6379 -t get

  Everything that a shell starts:
      crosslane run bash

  Fail rather than run on plain TCP:
      crosslane run --strict ./my-server

  What became of the connections, now and at the end:
      crosslane ss
      crosslane run --explain ./my-client

Exit status:
  That of the program; 125 if it was not run, or was ended, because of --strict, or was not run as
  the file of --explain-to cannot be written; 126 if it cannot be run; 127 if it is not found.";

/// Exit status when the program is not run for a reason of this command's own, as of env(1).
const NOT_RUN: u8 = 125;
/// Exit status when the program cannot be run.
const CANNOT_RUN: u8 = 126;
/// Exit status when the program is not found.
const NOT_FOUND: u8 = 127;

/// Become the program.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(Err(error)) = args.explain_to.as_deref().map(output::check_writable) {
        note(&format!("crosslane: --explain-to: {error:#}; not run"));
        return Ok(ExitCode::from(NOT_RUN));
    }
    let mut command = Command::new(args.program());
    command.args(args.command.iter().skip(1));
    inherit::signals(&mut command);
    let to_file = args.explain_to.as_ref().map(|_| Format::Table);
    let mut explanation = args.explain.or(to_file).map(|format| {
        let program = args.program().display().to_string();
        Explanation::begin(program, format, args.explain_to.clone())
    });
    if let Err(error) = prepare(args, &mut command, explanation.as_mut()) {
        if args.strict {
            note(&format!(
                "crosslane: {error:#}; not run because of --strict"
            ));
            return Ok(ExitCode::from(STRICT_STATUS));
        }
        note(&format!("crosslane: {error:#}; running it on plain TCP"));
        if let Some(explanation) = &mut explanation {
            explanation.note_obstacle(format!("{error:#}"));
        }
    }
    match explanation {
        Some(explanation) => run_and_explain(args, &mut command, &explanation),
        None => Ok(cannot_run(args, &command.exec())),
    }
}

/// Run the program as a child, tell what became of its connections, and end as it did.
fn run_and_explain(
    args: &Args,
    command: &mut Command,
    explanation: &Explanation,
) -> anyhow::Result<ExitCode> {
    let status = match child::run(command) {
        Ok(status) => status?,
        Err(error) => return Ok(cannot_run(args, &error)),
    };
    if let Err(error) = explanation.tell() {
        note(&format!("crosslane: cannot explain: {error:#}"));
    }
    Ok(child::end_as(status))
}

fn cannot_run(args: &Args, error: &std::io::Error) -> ExitCode {
    let program = args.program().display();
    note(&format!("crosslane: cannot run {program}: {error}"));
    ExitCode::from(match error.kind() {
        ErrorKind::NotFound => NOT_FOUND,
        _ => CANNOT_RUN,
    })
}

fn prepare(
    args: &Args,
    command: &mut Command,
    explanation: Option<&mut Explanation>,
) -> anyhow::Result<()> {
    let found = examine(args.program());
    let is_missing = found.path.is_none() && found.scripts.is_empty();
    if is_missing || found.cause == Cause::NotExecutable {
        // It will not run, and the kernel says best why.
        return Ok(());
    }
    if found.verdict == Verdict::No {
        bail!(
            "{} cannot be accelerated: {} ({})",
            found.program,
            found.text,
            found.remedy
        );
    }
    let preload = library::preload(&library::find()?)?;
    let directory = private::current_directory();
    if let Err(error) = private::ensure(&directory) {
        if args.strict {
            return Err(error);
        }
        note(&format!(
            "crosslane: {error:#}; connections stay on TCP until a monitor of this version answers"
        ));
    }
    command.env("LD_PRELOAD", preload);
    if let Some(secret) = secret::of(&directory) {
        command.env(SECRET_VARIABLE, format!("{secret:016x}"));
    }
    command.env(RUNTIME_DIR_VARIABLE, directory);
    if matches!(args.wait, Some(Wait::Monitor)) && StoreWait::here().is_none() {
        note(
            "crosslane: --wait monitor: this processor, or the hypervisor below it, lets programs use neither umwait \
             nor mwaitx; the program spins instead",
        );
    }
    if let Some(wait) = args.wait.and_then(|wait| wait.to_possible_value()) {
        command.env("CROSSLANE_WAIT", wait.get_name());
    }
    if let Some(Ports(ports)) = &args.eager {
        command.env("CROSSLANE_EAGER", ports);
    }
    if args.unix {
        command.env("CROSSLANE_UNIX", "1");
    }
    if args.strict {
        command.env("CROSSLANE_STRICT", "1");
    }
    if let Some(explanation) = explanation {
        match explanation.watch() {
            Ok(run) => _ = command.env(RUN_VARIABLE, run),
            Err(error) => explanation.note_obstacle(format!("no monitor watched it: {error:#}")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_become_ranges() {
        let ports = |text: &str| text.parse::<Ports>().map(|ports| ports.0).ok();
        assert_eq!(ports("6379"), Some("6379-6379".into()));
        assert_eq!(ports("80, 8000-8002"), Some("80-80,8000-8002".into()));
        assert_eq!(ports("1-65535"), Some("1-65535".into()));
        for wrong in ["", "0", "65536", "x", "9-8", "1-", "80,,81"] {
            assert_eq!(ports(wrong), None, "{wrong}");
        }
    }
}
