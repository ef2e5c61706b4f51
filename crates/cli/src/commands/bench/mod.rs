//! `crosslane bench`: one module per bench.

use std::process::ExitCode;

mod api;
mod breakdown;
mod connections;
mod daemon;
mod effort;
mod files;
mod hosts;
mod monitor;
mod output;
mod over;
mod peers;
mod placement;
mod programs;
mod rounds;
mod sides;
mod sockets;
mod stores;
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
    /// Say where the time of a message goes, stage by stage, by a traced build of the library
    Breakdown(breakdown::Args),
    /// Measure what 1, 100 and 10,000 connections cost in memory, and one active among them in latency
    Connections(connections::Args),
    /// Have nginx serve files from 8 KiB to 32 MiB, and small ones to many, over TCP and over Crosslane
    Files(files::Args),
    /// Compare TCP, AF_UNIX, pipes, libfabric, UCX and Crosslane, in one run
    Peers(peers::Args),
    /// Compare TCP, AF_UNIX and Crosslane under an ordinary blocking program, in one run
    Sockets(sockets::Args),
    /// Put mixes of reads and writes to Redis and memcached, over TCP and over Crosslane
    Stores(stores::Args),
    /// Compare ways of waiting: latency against processor time, at several rates of requests
    Wait(wait::Args),
    /// Measure a memory window: latency and bandwidth of writes and reads, and what lanes add to it
    Window(window::Args),
}

/// Run a bench.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.bench {
        Bench::Api(args) => api::run(args),
        Bench::Breakdown(args) => breakdown::run(args),
        Bench::Connections(args) => connections::run(args),
        Bench::Files(args) => files::run(args),
        Bench::Peers(args) => peers::run(args),
        Bench::Sockets(args) => sockets::run(args),
        Bench::Stores(args) => stores::run(args),
        Bench::Wait(args) => wait::run(args),
        Bench::Window(args) => window::run(args),
    }
}
