//! `crosslane bench`: one module per bench.

use std::process::ExitCode;

mod api;
mod connections;
mod monitor;
mod output;
mod peers;
mod placement;
mod programs;
mod rounds;
mod sockets;
mod wait;
mod window;

/// Arguments of `crosslane bench`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(clap::Subcommand)]
enum Bench {
    /// Compare TCP, sockets under Crosslane and the native interface, copying and in place, in one run
    Api(api::Args),
    /// Measure what 1, 100 and 10,000 connections cost in memory, and one active among them in latency
    Connections(connections::Args),
    /// Compare TCP, AF_UNIX, pipes, libfabric, UCX and Crosslane, in one run
    Peers(peers::Args),
    /// Compare TCP, AF_UNIX and Crosslane under an ordinary blocking program, in one run
    Sockets(sockets::Args),
    /// Compare ways of waiting: latency against processor time, at several rates of requests
    Wait(wait::Args),
    /// Measure a memory window: latency and bandwidth of writes and reads, and what lanes add to it
    Window(window::Args),
}

/// Run a bench.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.bench {
        Bench::Api(args) => api::run(args),
        Bench::Connections(args) => connections::run(args),
        Bench::Peers(args) => peers::run(args),
        Bench::Sockets(args) => sockets::run(args),
        Bench::Wait(args) => wait::run(args),
        Bench::Window(args) => window::run(args),
    }
}
