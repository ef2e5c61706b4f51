//! `crosslane monitor`: pair the ends of connections and hand out rings.

pub mod notify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::builder::RangedU64ValueParser;
use crosslane_ctl::lane::{Geometry, LINE_BYTES, MAX_RING_LINES, MIN_RING_LINES};
use crosslane_ctl::paths::SYSTEM_RUNTIME_DIR;
use crosslane_monitor::config::{Config, Quotas, Service};
use crosslane_monitor::rack::config::{RackConfig, SYSTEM_PATH};
use crosslane_monitor::server::Monitor;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::signals::readable_after;
use crate::{output, private};

/// Arguments of `crosslane monitor`.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// Directory of the socket; made if it is not there
    ///
    /// By default $CROSSLANE_RUNTIME_DIR, or /run/crosslane where that is not set. With --private
    /// and without the variable the directory that `crosslane run` uses: for root
    /// /run/crosslane-root, else $XDG_RUNTIME_DIR/crosslane or /tmp/crosslane-UID. A directory that is there must let those in who are to be served.
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,

    /// Serve this user's programs only, and end when they have
    ///
    /// Root's serves what root has run with `crosslane run`, also after it has become another user,
    /// as nginx does: such a program shows a secret that it has inherited.
    ///
    /// `crosslane run` starts one of these where no monitor answers.
    #[arg(long)]
    private: bool,

    /// How long a private monitor stays after the last program has ended
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        requires = "private"
    )]
    linger: u64,

    /// Bytes of each ring, a power of two; a connection has two rings
    #[arg(long, value_name = "BYTES", default_value_t = Geometry::default().ring_lines as usize * LINE_BYTES)]
    ring_bytes: usize,

    /// Join the rack that this file describes (see crosslane rack)
    ///
    /// By default /etc/crosslane/rack.toml for the system service if it is there, else none.
    #[arg(long, value_name = "FILE")]
    rack: Option<PathBuf>,

    /// Grant no rings while the machine has less free memory than this
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(..=MOST_MIB))]
    memory_floor: u64,

    /// Most connections of one process that may be registered
    #[arg(long, value_name = "COUNT", default_value_t = Quotas::default().ends_per_process, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    ends_per_process: usize,

    /// Most connections of one user that may be registered
    #[arg(long, value_name = "COUNT", default_value_t = Quotas::default().ends_per_user)]
    ends_per_user: usize,

    /// Most programs of one user that may be connected to the monitor
    #[arg(long, value_name = "COUNT", default_value_t = Quotas::default().connections_per_user)]
    connections_per_user: usize,

    /// Write a line to standard output when programs can connect
    #[arg(long, hide = true)]
    announce: bool,

    /// Go to the background when programs can connect
    #[arg(long, hide = true)]
    detach: bool,
}

/// More memory than any machine has.
const MOST_MIB: u64 = 1 << 40;

const EXAMPLES: &str = "\
Examples:
  Serve all users of this machine (as root):
      crosslane monitor

  Serve two shells only, in a directory of your own:
      crosslane monitor --private --runtime-dir ~/lanes &
      CROSSLANE_RUNTIME_DIR=~/lanes crosslane run redis-server

  As a service of systemd, for all users, from now on and after each start of the machine (as root):
      systemctl enable --now crosslane

The service is crosslane.service, which is installed with this command. It is active once programs can
connect, so that units with After=crosslane.service find it. By hand, the same is told to a service
manager that has set NOTIFY_SOCKET (sd_notify(3)).

Signals:
  SIGTERM and SIGINT end the monitor. SIGHUP has one that is in a rack read its file again, see crosslane
  rack reload; another one only logs it, unless it is private, and ends.

Exit status:
  0 when it was told to stop, or a private one was not needed any more; 1 if it could not start,
  because another monitor runs in the directory, or others could tamper with the directory.";

/// Run a monitor until it is told to stop.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let directory = match &args.runtime_dir {
        Some(dir) => std::path::absolute(dir)?,
        None if args.private => private::directory(),
        None => private::named_directory().unwrap_or_else(|| SYSTEM_RUNTIME_DIR.into()),
    };
    if args.detach {
        return private::detach(&directory, args.linger).map(|()| ExitCode::SUCCESS);
    }
    let config = config(args, directory)?;
    raise_descriptor_limit();
    let mut monitor = Monitor::start(&config, readable_after(&[SIGTERM, SIGINT])?)?;
    // One that is in no rack says so, and must not end by it.
    let reloaded = rack_path(args)?.or_else(|| (!args.private).then(|| SYSTEM_PATH.into()));
    if let Some(path) = reloaded {
        monitor.reload_at(readable_after(&[SIGHUP])?, path)?;
    }
    tracing::info!(directory = %config.directory.display(), "listening");
    if args.announce {
        output::print("listening\n")?;
    }
    if let Err(error) = notify::ready() {
        tracing::warn!(%error, "cannot tell the service manager in {} of it", notify::VARIABLE);
    }
    monitor.run().context("the monitor cannot go on")?;
    Ok(ExitCode::SUCCESS)
}

fn config(args: &Args, directory: PathBuf) -> anyhow::Result<Config> {
    let least = MIN_RING_LINES as usize * LINE_BYTES;
    let most = MAX_RING_LINES as usize * LINE_BYTES;
    ensure!(
        args.ring_bytes.is_power_of_two() && (least..=most).contains(&args.ring_bytes),
        "--ring-bytes {} is not a power of two between {least} and {most}",
        args.ring_bytes
    );
    let service = match args.private {
        true => Service::Private {
            linger: Duration::from_secs(args.linger),
        },
        false => Service::System,
    };
    Ok(Config {
        rack: rack_path(args)?
            .map(|path| RackConfig::read(&path))
            .transpose()?,
        directory,
        service,
        geometry: Geometry {
            ring_lines: u32::try_from(args.ring_bytes / LINE_BYTES)?,
            ..Geometry::default()
        },
        memory_floor_bytes: args.memory_floor << 20,
        quotas: Quotas {
            ends_per_process: args.ends_per_process,
            ends_per_user: args.ends_per_user,
            connections_per_user: args.connections_per_user,
            ..Quotas::default()
        },
    })
}

fn rack_path(args: &Args) -> anyhow::Result<Option<PathBuf>> {
    let system = Path::new(SYSTEM_PATH);
    let is_system = !args.private && args.runtime_dir.is_none();
    Ok(match &args.rack {
        Some(path) => Some(std::path::absolute(path)?),
        None if is_system && system.exists() => Some(system.to_owned()),
        None => None,
    })
}

/// A monitor holds a descriptor for each program and each pair of programs.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit on descriptors");
    }
}
