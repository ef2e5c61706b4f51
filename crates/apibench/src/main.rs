//! `crosslane-apibench`: see the library's documentation.
#![forbid(unsafe_code)]

use std::io::Read;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Parser, Subcommand};
use crosslane_apibench::client::{self, Case};
use crosslane_apibench::server;
use crosslane_apibench::stream::WORD;
use crosslane_apibench::way::{Listening, Way};
use crosslane_sockbench::cpus;
use crosslane_sockbench::outcome;
use crosslane_sockbench::span::Span;
use crosslane_sockbench::ticks;
use rustix::process::{Signal, set_parent_process_death_signal};

/// The same traffic by sockets and by the native interface.
///
/// Start a server, which prints its address, and then one client per case. Results are JSON lines.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// End when the program that started this one ends
    #[arg(long, global = true)]
    die_with_parent: bool,
    /// Run on this CPU only
    #[arg(long, global = true)]
    cpu: Option<usize>,
    /// By which calls
    #[arg(long, global = true, value_enum, default_value = "sockets")]
    way: Way,
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Answer clients until killed
    Server,
    /// Measure one case against a server of the same way
    Client {
        /// The address that the server printed; without it, another thread of this program answers
        #[arg(long)]
        connect: Option<SocketAddr>,
        /// Run that thread on this CPU only
        #[arg(long, value_name = "CPU", conflicts_with = "connect")]
        server_cpu: Option<usize>,
        /// What to measure
        #[arg(long, value_enum)]
        case: Case,
        /// Message size, in whole words of 8
        #[arg(long, default_value_t = 64)]
        bytes: usize,
        /// Time before anything counts
        #[arg(long, value_name = "MILLISECONDS", default_value_t = 200)]
        warmup: u64,
        /// Time that counts
        #[arg(long, value_name = "MILLISECONDS", default_value_t = 1000)]
        measure: u64,
        /// After printing the result, keep the connection open until standard input ends
        #[arg(long)]
        hold: bool,
    },
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crosslane-apibench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    if cli.die_with_parent {
        set_parent_process_death_signal(Some(Signal::KILL))?;
    }
    if let Some(cpu) = cli.cpu {
        cpus::pin(cpu)?;
    }
    ticks::prepare();
    match &cli.role {
        Role::Server => serve(cli.way),
        Role::Client {
            connect,
            server_cpu,
            case,
            bytes,
            warmup,
            measure,
            hold,
        } => {
            let bytes = *bytes;
            ensure!(
                bytes > 0 && bytes.is_multiple_of(WORD),
                "messages of {bytes} bytes cannot be made; take a multiple of {WORD}"
            );
            let [warmup, measure] = [*warmup, *measure].map(Duration::from_millis);
            let span = Span { warmup, measure };
            let (line, wire) = match connect {
                Some(address) => {
                    let measured = client::run(cli.way, *case, *address, bytes, span);
                    let (line, wire) = measured.with_context(|| format!("{address}"))?;
                    (line, Some(wire))
                }
                None => {
                    let line = client::run_within(cli.way, *case, bytes, span, *server_cpu)?;
                    (line, None)
                }
            };
            println!("{}", serde_json::to_string(&line)?);
            if *hold {
                std::io::stdin().read_to_end(&mut Vec::new())?;
            }
            drop(wire);
            Ok(())
        }
    }
}

fn serve(way: Way) -> anyhow::Result<()> {
    let listening = Listening::open(way)?;
    let address = listening.address()?;
    let line = outcome::Listening {
        listening: address.to_string(),
    };
    println!("{}", serde_json::to_string(&line)?);
    Ok(server::serve(&listening)?)
}
