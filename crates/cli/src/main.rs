//! The `crosslane` command: argument parsing here, one module per subcommand in `commands`.
#![forbid(unsafe_code)]
// They panic where standard error is a full disk; `output` has what does not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod commands;
mod examine;
mod output;
mod private;
mod signals;
mod tuples;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{CommandFactory, Parser, Subcommand};
use crosslane_ctl::ABI_VERSION;
use crosslane_monitor::rack::message::RACK_VERSION;

/// Unmodified socket programs at memory speed
///
/// Programs that are started with `crosslane run` exchange the bytes of their TCP connections
/// through shared memory where both ends run under Crosslane on one host. The sockets stay the
/// kernel's; connections to anybody else, and whatever cannot be done exactly, stay on TCP.
#[derive(Parser)]
#[command(name = "crosslane", version = VERSION.as_str(), after_long_help = MORE)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// As in `0.1.0 (771c448, protocol 15, rack 7)`: all parts that meet must be of one protocol, and monitors of one of the
/// rack's. Without the commit where the sources are no checkout of git's.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let version = env!("CARGO_PKG_VERSION");
    let commit = match env!("CROSSLANE_COMMIT") {
        "" => String::new(),
        commit => format!("{commit}, "),
    };
    format!("{version} ({commit}protocol {ABI_VERSION}, rack {RACK_VERSION})")
});

const MORE: &str = "\
Environment:
  CROSSLANE_RUNTIME_DIR  directory of the monitor's socket
  CROSSLANE_LIBRARY      path of libcrosslane.so, if it is neither beside the command nor in
                         ../lib/crosslane
  CROSSLANE_WAIT         spin, monitor, adaptive or sleep; set by run --wait
  CROSSLANE_EAGER        ports and ranges, separated by commas; set by run --eager
  CROSSLANE_UNIX         if set, AF_UNIX streams are accelerated, too; set by run --unix
  CROSSLANE_STRICT       if set, failures of Crosslane end the program; set by run --strict
  CROSSLANE_SECRET       lets programs that root has run be served by root's private monitor after
                         they have become another user; set by run
  CROSSLANE_DISABLE      if set, the library leaves all connections on TCP, and shows none
  RUST_LOG               how much the monitor logs: error, warn, info or debug

Files:
  /run/crosslane/monitor.sock           the system service's socket
  /run/crosslane-root                   directory of root's private monitor
  $XDG_RUNTIME_DIR/crosslane            the same of other users
  /tmp/crosslane-UID                    the same where XDG_RUNTIME_DIR is not set
  monitor.log in a private directory    its log
  /etc/crosslane/rack.toml              other hosts, for the system service; see crosslane rack

Examples:
  crosslane run redis-server &
  crosslane run redis-benchmark -t get
  crosslane ss";

#[derive(Subcommand)]
enum Command {
    /// Measure what this machine and Crosslane do
    Bench(commands::bench::Args),
    /// Tell whether a program can be accelerated, and if not, why
    ///
    /// Reads the program's file and runs nothing. A script is judged by its interpreter.
    Check(commands::check::Args),
    /// Write the manual pages
    #[command(hide = true)]
    Man(commands::man::Args),
    /// Pair the ends of connections and hand out rings
    ///
    /// Programs under Crosslane pass their TCP sockets to the monitor, which learns from the
    /// kernel what they are connected to, finds the other end, and gives both the memory of a
    /// pair of rings. No data passes through it: connections live on when it ends, and programs
    /// introduce themselves to the next one.
    ///
    /// As root it serves all users of the machine: crosslane.service has systemd start it.
    /// Without it, `crosslane run` starts a private one for its user.
    Monitor(commands::monitor::Args),
    /// Model, simulate and measure PCIe and memory windows
    Pcie(commands::pcie::Args),
    /// Join hosts whose programs share memory windows
    ///
    /// Monitors of hosts that know each other's keys tell each other which connections their
    /// programs have, and give both ends rings in a window that both hosts can map. Who may use
    /// windows is said in rack.toml.
    Rack(commands::rack::Args),
    /// Run the benches, or read their results, and write one page with plots
    ///
    /// Each bench compares within one run: Crosslane beside TCP, in turn. The page has latency and
    /// throughput by size, latency against processor time, and many connections, with tables,
    /// ratios and the machine.
    Report(commands::report::Args),
    /// Run a program with its TCP connections accelerated
    ///
    /// Becomes the program, with libcrosslane.so preloaded into it and into what it starts. If no
    /// monitor answers, a private one is started in the background; it ends a minute after the
    /// last program that used it.
    Run(commands::run::Args),
    /// Show every connection: accelerated, or the reason why not
    ///
    /// One line for each end of each TCP connection of the programs that run under Crosslane; a
    /// connection between two of them has two lines. Root sees all programs, others their own.
    Ss(commands::ss::Args),
    /// Show counters, also for Prometheus
    ///
    /// Sums over all programs that the monitor has seen, running and finished. Root sees those
    /// of all users, others their own. Counters start with the monitor.
    Stats(commands::stats::Args),
    /// Find windows of memory between hosts, and test them
    ///
    /// A window is memory that two hosts can reach: inter-VM memory (ivshmem), memory behind a PCIe
    /// bridge, CXL or DAX memory, or a file in memory for two hosts on one machine.
    Window(commands::window::Args),
}

fn main() -> ExitCode {
    log_to_standard_error();
    let outcome = match Cli::parse().command {
        Command::Bench(args) => commands::bench::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Man(args) => commands::man::run(&args),
        Command::Monitor(args) => commands::monitor::run(&args),
        Command::Pcie(args) => commands::pcie::run(&args),
        Command::Rack(args) => commands::rack::run(&args),
        Command::Report(args) => commands::report::run(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Ss(args) => commands::ss::run(&args),
        Command::Stats(args) => commands::stats::run(&args),
        Command::Window(args) => commands::window::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        output::note(&format!("crosslane: {error:#}"));
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
        // They would be told on standard error, by what panics there.
        .log_internal_errors(false)
        .init();
}

/// The command line's whole description, for the manual pages.
fn description() -> clap::Command {
    Cli::command()
}
