//! `crosslane bench`: one module per bench.

use std::process::ExitCode;

mod output;
mod placement;
mod programs;
mod rounds;
mod sockets;

/// Arguments of `crosslane bench`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(clap::Subcommand)]
enum Bench {
    /// Compare TCP, AF_UNIX and Crosslane under an ordinary blocking program, in one run
    Sockets(sockets::Args),
}

/// Run a bench.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.bench {
        Bench::Sockets(args) => sockets::run(args),
    }
}
