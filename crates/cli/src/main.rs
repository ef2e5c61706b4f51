//! The `crosslane` command: argument parsing here, one module per subcommand in `commands`.
#![forbid(unsafe_code)]

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "crosslane", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure what this machine and Crosslane do
    Bench(commands::bench::Args),
    /// Tell whether a program can be accelerated, and if not, why
    Check(commands::check::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Bench(args) => commands::bench::run(&args),
        Command::Check(args) => commands::check::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("crosslane: {error:#}");
        ExitCode::FAILURE
    })
}
