//! Small named checks of what TCP sockets do, on plain libc calls.
//!
//! Each check runs in two processes, the near and the far one, over a connection that has seen
//! some traffic, and prints one line: its name and what was seen. The program judges nothing:
//! run it in two ways and compare what it prints.

mod checks;
mod place;
mod stage;
mod warm;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use checks::{Check, Cue};
use place::Over;
use stage::Stage;

/// How long a check may take before it is called hung.
const LIMIT_S: u32 = 20;

/// Small named checks of what TCP sockets do; prints one line for each, to be compared
#[derive(Parser)]
#[command(name = "crosslane-posix")]
struct Options {
    /// Run only this check; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Run only the checks of one process that makes its connections itself
    #[arg(long)]
    solo: bool,
    /// Print the names of all checks
    #[arg(long)]
    list: bool,
    /// Round trips on each connection before its check begins
    #[arg(long, value_name = "COUNT", default_value_t = 40)]
    warm: u32,
    /// Let the near process connect and the far one accept, instead of the other way round
    #[arg(long)]
    near_connects: bool,
    /// Leave Nagle's algorithm on, which makes some checks depend on time
    #[arg(long)]
    nagle: bool,
    /// What connects the two processes; only checks with two are run over anything but TCP
    #[arg(long, value_enum, value_name = "KIND", default_value = "tcp")]
    over: Over,
    /// Before each check on a connection print `@ready NAME LOCAL PEER` and wait for a line; `again`
    /// has it talk some more and print that again
    #[arg(long)]
    step: bool,
    /// Be the near process of this check
    #[arg(long, value_name = "NAME", hide = true)]
    near: Option<String>,
    /// Be the far process of this check
    #[arg(long, value_name = "NAME", hide = true)]
    far: Option<String>,
    /// Where the near process listens
    #[arg(long, value_name = "ADDRESS", hide = true)]
    connect: Option<String>,
}

/// Checks with two processes that are about TCP, or whose outcome over AF_UNIX is a matter of moments.
const ONLY_TCP: &[&str] = &["no_error_queue", "addresses_are_not_told"];

fn main() -> ExitCode {
    let options = Options::parse();
    if options.list {
        checks::all().for_each(|check| println!("{}", check.name));
        return ExitCode::SUCCESS;
    }
    if let Some(name) = &options.far {
        stage::limit_to_seconds(LIMIT_S);
        warm::play_far(find(name), &options);
        return ExitCode::SUCCESS;
    }
    if let Some(name) = &options.near {
        stage::limit_to_seconds(LIMIT_S);
        println!("{}", warm::play_near(find(name), &options));
        return ExitCode::SUCCESS;
    }
    let chosen: Vec<&Check> = if options.only.is_empty() {
        checks::all()
            .filter(|check| suits(check, &options))
            .collect()
    } else {
        options.only.iter().map(|name| find(name)).collect()
    };
    for check in chosen {
        run_in_own_process(check, &options);
    }
    ExitCode::SUCCESS
}

/// Whether a check says something about what connects its processes.
fn suits(check: &Check, options: &Options) -> bool {
    let has_two = matches!(check.cue, Cue::Pair { .. });
    if options.solo && has_two {
        return false;
    }
    match options.over {
        Over::Tcp => !checks::is_about_unix(check),
        Over::Unix | Over::Pair => has_two && !ONLY_TCP.contains(&check.name),
    }
}

/// Run one check so that its hang or crash is its own.
fn run_in_own_process(check: &Check, options: &Options) {
    let mut near = warm::this_program(options);
    if options.step {
        near.arg("--step");
    }
    let status = near
        .args(["--near", check.name])
        .status()
        .expect("this program can be started");
    if !status.success() {
        println!("{}: {status}", check.name);
    }
    let _ = std::io::stdout().flush();
}

fn find(name: &str) -> &'static Check {
    checks::all()
        .find(|check| check.name == name)
        .unwrap_or_else(|| {
            eprintln!("crosslane-posix: no check is named {name}: see --list");
            std::process::exit(2)
        })
}
