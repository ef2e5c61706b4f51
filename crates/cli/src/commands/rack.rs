//! `crosslane rack`: this host's key, the other hosts, and how it goes with them.

mod add;
mod init;
mod reload;
mod status;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use crosslane_monitor::client::{ClientError, MonitorClient};
use crosslane_monitor::rack::config::SYSTEM_PATH;

/// Arguments of `crosslane rack`.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  Two hosts (as root; each fingerprint is what init has printed on the other host):
      alpha# crosslane rack init --name alpha
      beta#  crosslane rack init --name beta
      alpha# crosslane rack add beta --address 10.0.0.2 --fingerprint sha256:... --window /dev/shm/lanes
      beta#  crosslane rack add alpha --address 10.0.0.1 --fingerprint sha256:... --window /dev/shm/lanes
      both#  crosslane monitor --rack /etc/crosslane/rack.toml &
      both#  crosslane rack status

  After a change of the file:
      crosslane rack reload";

#[derive(clap::Subcommand)]
enum Command {
    /// Make this host's key, certificate and rack.toml, and print its fingerprint
    Init(init::Args),
    /// Add another host to rack.toml, and a window to it
    ///
    /// The file is checked as a whole before it is written. The monitor reads it when it starts, and at
    /// crosslane rack reload.
    Add(add::Args),
    /// Have the running monitor read rack.toml again, and tell how that went
    ///
    /// The same as SIGHUP. Hosts, windows, who may use them and quotas are taken over; name, listen, certificate and
    /// key are read when the monitor starts. Connections go on: those in a window that is not in the file any more,
    /// or is other memory by now, by TCP; those to a host that is not in the file any more where they are. A file
    /// with an error changes nothing.
    Reload(reload::Args),
    /// Show the other hosts, whether they are connected, and the windows to them
    ///
    /// Asks the running monitor: of `CROSSLANE_RUNTIME_DIR`, the system's, or this user's.
    Status(status::Args),
}

/// Where the configuration is.
#[derive(clap::Args)]
struct Place {
    /// The configuration; key and certificate lie beside it
    #[arg(long, value_name = "FILE", default_value = SYSTEM_PATH)]
    rack: PathBuf,
}

/// The monitor in a directory. Where none is, `crosslane run` starts one that is in no rack.
fn monitor_in(directory: &Path) -> anyhow::Result<MonitorClient> {
    MonitorClient::connect(directory).map_err(|error| match error {
        ClientError::NoMonitor { path, error } => anyhow!(
            "no monitor answers at {}: {error}; start one: crosslane monitor --rack FILE",
            path.display()
        ),
        error => error.into(),
    })
}

/// Run a subcommand.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Init(args) => init::run(args),
        Command::Add(args) => add::run(args),
        Command::Reload(args) => reload::run(args),
        Command::Status(args) => status::run(args),
    }
    .map(|()| ExitCode::SUCCESS)
}
