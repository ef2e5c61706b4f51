//! `crosslane check PROGRAM`: will it be accelerated, and if not, why.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::examine::{Finding, Verdict, examine};
use crate::output;

/// Arguments of `crosslane check`.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// Programs to examine, by name or path
    #[arg(required = true, value_name = "PROGRAM")]
    programs: Vec<OsString>,

    /// Print one JSON object per program
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
A program can be accelerated if it is dynamically linked with glibc for this processor, makes its
system calls through it, and gains no rights by being run. Programs that it starts are judged by
themselves.

Exit status:
  0  every program can be accelerated
  1  at least one cannot
  2  at least one could not be judged, and none cannot

Examples:
  crosslane check redis-server
  crosslane check --json /usr/bin/* | grep -c '\"verdict\":\"yes\"'";

/// Examine the programs and print the verdicts.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let findings: Vec<_> = args.programs.iter().map(|name| examine(name)).collect();
    output::print(&match args.json {
        true => output::json_lines(&findings)?,
        false => findings.iter().map(sentence).collect(),
    })?;
    let any = |verdict| findings.iter().any(|finding| finding.verdict == verdict);
    Ok(if any(Verdict::No) {
        ExitCode::from(1)
    } else if any(Verdict::Unknown) {
        ExitCode::from(2)
    } else {
        ExitCode::SUCCESS
    })
}

/// A finding in words, the remedy on a line of its own.
fn sentence(finding: &Finding) -> String {
    let verdict = match finding.verdict {
        Verdict::Yes => "yes",
        Verdict::No => "no",
        Verdict::Unknown => "unknown",
    };
    let why = finding.error.as_deref().unwrap_or(finding.text);
    let interpreted = match (&finding.path, finding.scripts.is_empty()) {
        (Some(path), false) => format!("it is a script for {}; ", path.display()),
        _ => String::new(),
    };
    let remedy = match finding.verdict {
        Verdict::Yes => String::new(),
        _ => format!("\n  remedy: {}", finding.remedy),
    };
    format!(
        "{}: {verdict}: {interpreted}{why}{remedy}\n",
        finding.program
    )
}
