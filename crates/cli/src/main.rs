//! The `crosslane` command: argument parsing here, one module per subcommand in `commands`.
#![forbid(unsafe_code)]

mod commands;
mod examine;
mod output;
mod private;
mod tuples;

use std::io::IsTerminal;
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
    /// Pair the ends of connections and hand out rings
    Monitor(commands::monitor::Args),
    /// Model, simulate and measure PCIe and memory windows
    Pcie(commands::pcie::Args),
    /// Run a program with its TCP connections accelerated
    Run(commands::run::Args),
    /// Show every connection: accelerated, or the reason why not
    Ss(commands::ss::Args),
    /// Show counters, also for Prometheus
    Stats(commands::stats::Args),
}

fn main() -> ExitCode {
    log_to_standard_error();
    let outcome = match Cli::parse().command {
        Command::Bench(args) => commands::bench::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Monitor(args) => commands::monitor::run(&args),
        Command::Pcie(args) => commands::pcie::run(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Ss(args) => commands::ss::run(&args),
        Command::Stats(args) => commands::stats::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("crosslane: {error:#}");
        ExitCode::FAILURE
    })
}

fn log_to_standard_error() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}
