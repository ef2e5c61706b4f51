//! `crosslane pcie ...`: what PCIe allows, what it costs, and what this machine does.

pub(crate) mod args;
mod bench;
mod bw;
mod explain;
mod fit;
mod judge;
mod latency;
mod nic;
mod number;
pub(crate) mod output;
mod picture;
mod plot;
mod report;
mod sim;

use std::process::ExitCode;

use clap::Subcommand;

/// Arguments of `crosslane pcie`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Bandwidth that a link leaves for transfers of each size
    Bw(bw::Args),
    /// What NIC designs reach on a link, or what a port asks of them
    Nic(nic::Args),
    /// Where the time of one DMA goes
    Latency(latency::Args),
    /// The packets of one transfer, byte by byte
    Explain(explain::Args),
    /// Simulate the micro-benchmarks on a machine, packet by packet
    ///
    /// Simulated are a device's DMA engine, the links and switches on the way, and the host's root complex, with its
    /// IOMMU, cache, memory and sleep. The device is, unless --device says otherwise, the Netronome NFP-6000 that took
    /// the published measurements: it has 21 reads under way at once and leaves 21.1 ns from write to write, which limits
    /// small transfers more than most links do. The link is the host's (gen3 x8, MPS 256 and MRRS 512 of all ready
    /// profiles) with the changes that --gen to --split-at-rcb make. How busy acknowledgements keep it stays as in the
    /// profile up to generation 5; from 6 on they are a part of each flit, of which 236 of 256 bytes are left. What the
    /// host takes for requests stays as in the profile: 8.6 ns for a written line are 59.5 Gb/s, however wide the link.
    Sim(sim::Args),
    /// Put the simulator's predictions beside published measurements
    Judge(judge::Args),
    /// Make a machine's profile out of its measurements
    Fit(fit::Args),
    /// Measure this machine's memory windows and list its PCI devices
    Bench(bench::Args),
    /// Write one page with the plots, for a link and for this machine
    Report(report::Args),
}

/// Run the subcommand.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Bw(args) => bw::run(args),
        Command::Nic(args) => nic::run(args),
        Command::Latency(args) => latency::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Sim(args) => sim::run(args),
        Command::Judge(args) => judge::run(args),
        Command::Fit(args) => fit::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Report(args) => report::run(args),
    }?;
    Ok(ExitCode::SUCCESS)
}
