//! `crosslane ss`: every connection, accelerated or the reason why not.

use std::process::ExitCode;

use crosslane_monitor::client::MonitorClient;

use crate::private::{self, PATIENCE};

/// Arguments of `crosslane ss`.
#[derive(clap::Args)]
pub struct Args {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Ask the monitor and print its answer.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = MonitorClient::connect(&private::current_directory())?;
    for connection in client.connections(PATIENCE)? {
        println!("{}", serde_json::to_string(&connection)?);
    }
    let _ = args.json;
    Ok(ExitCode::SUCCESS)
}
