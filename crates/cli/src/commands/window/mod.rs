//! `crosslane window ...`: windows of memory between hosts.

mod hold;
pub mod meet;
mod probe;
mod teller;
mod test;

use std::process::ExitCode;

/// Arguments of `crosslane window`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the windows of this machine, and what is missing to use them
    Probe(probe::Args),
    /// Test a window: every byte, the order of writes, and lanes, between two processes or two hosts
    ///
    /// Without --side, the command plays both sides, in two processes. With it, run the same on the
    /// other host with the other side. What was in the window is lost.
    Test(test::Args),
    /// Hold a bridge open for a rack, until told to stop
    ///
    /// What the other host writes into its bridge arrives in a file in tmpfs, which monitors and programs map as the window's
    /// memory of this host (kind = "posted" in rack.toml).
    Hold(hold::Args),
}

/// Run the subcommand.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Probe(args) => probe::run(args),
        Command::Test(args) => test::run(args),
        Command::Hold(args) => hold::run(args),
    }
}
