//! `crosslane check PROGRAM`: will it be accelerated, and if not, why.

use std::process::ExitCode;

/// Arguments of `crosslane check`.
#[derive(clap::Args)]
pub struct Args {
    /// The program to examine
    program: String,
}

/// Examine the program and print the verdict.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("cannot examine {}", args.program)
}
