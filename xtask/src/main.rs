//! Build, demo, test tiers and tidy: `cargo xtask --help`.
#![forbid(unsafe_code)]

mod build;
mod demo;
mod fuzz_posix;
mod header;
mod install;
mod setup;
mod suites;
mod test;
mod tidy;
mod wasm;

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run real programs over TCP and under Crosslane, and show how much faster they are
    Demo(demo::Args),
    /// Compare what random programs of socket calls see on the kernel alone and under Crosslane
    FuzzPosix(fuzz_posix::Args),
    /// Make the C header of the native interface from its source
    Header,
    /// Put what has been built in release mode below a prefix
    Install(install::Args),
    /// Remove what install has put below a prefix
    Uninstall(install::Place),
    /// Install the Debian packages that the tests need, or say which are missing
    Setup,
    /// Run other people's test suites natively and under Crosslane, and compare test by test
    Suites(suites::Args),
    /// Check the crate graph, long files and functions, docs and the places of unsafe code
    Tidy,
    /// Run the tests: the quick tier, then real programs end to end
    Test(test::Args),
    /// Build the PCIe model for browsers into crates/pcie-wasm/model.wasm
    Wasm,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Demo(args) => demo::run(&args),
        Task::FuzzPosix(args) => fuzz_posix::run(&args),
        Task::Header => header::run(),
        Task::Install(args) => install::run(&args),
        Task::Uninstall(place) => install::remove(&place),
        Task::Setup => setup::run(),
        Task::Suites(args) => suites::run(&args),
        Task::Tidy => tidy::run(),
        Task::Test(args) => test::run(&args),
        Task::Wasm => wasm::run(),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}

/// The root of the workspace, known from where xtask was built.
fn workspace_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace root")
}
