//! `crosslane-sockbench`: see the library's documentation.
#![forbid(unsafe_code)]

use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, Subcommand};
use crosslane_sockbench::address::Address;
use crosslane_sockbench::client::{self, Case};
use crosslane_sockbench::connection::Listener;
use crosslane_sockbench::outcome::{Line, Listening};
use crosslane_sockbench::span::Span;
use crosslane_sockbench::{cpus, limit, server};
use rustix::process::{Signal, set_parent_process_death_signal};

/// An ordinary blocking socket program that measures what it is run over.
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
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Answer clients until killed
    Server {
        /// Where to listen: tcp:IP:PORT (port 0: any), unix:PATH or unix:@NAME
        #[arg(long, default_value = "tcp:127.0.0.1:0")]
        listen: Address,
    },
    /// Measure one case against a server
    Client {
        /// The address that the server printed
        #[arg(long)]
        connect: Address,
        /// What to measure
        #[arg(long, value_enum)]
        case: Case,
        /// Message size: 8, or 16 and more
        #[arg(long, default_value_t = 64)]
        bytes: u64,
        #[command(flatten)]
        span: SpanArgs,
        /// After printing the result, keep the connection open until standard input ends
        #[arg(long)]
        hold: bool,
    },
    /// Measure the cache-line ping-pong between two CPUs
    Limit {
        #[command(flatten)]
        span: SpanArgs,
    },
}

#[derive(clap::Args)]
struct SpanArgs {
    /// Time before anything counts
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 200)]
    warmup: u64,
    /// Time that counts
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1000)]
    measure: u64,
}

impl SpanArgs {
    fn span(&self) -> Span {
        let [warmup, measure] = [self.warmup, self.measure].map(Duration::from_millis);
        Span { warmup, measure }
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crosslane-sockbench: {error:#}");
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
    match &cli.role {
        Role::Server { listen } => serve(listen),
        Role::Limit { span } => print(&limit::run(span.span())?),
        Role::Client {
            connect,
            case,
            bytes,
            span,
            hold,
        } => {
            let measured = client::run(*case, connect, *bytes, span.span());
            let (line, connection) = measured.with_context(|| format!("{connect}"))?;
            print(&line)?;
            if *hold {
                std::io::stdin().read_to_end(&mut Vec::new())?;
            }
            drop(connection);
            Ok(())
        }
    }
}

fn serve(address: &Address) -> anyhow::Result<()> {
    let (listener, address) =
        Listener::open(address).with_context(|| format!("cannot listen on {address}"))?;
    println!(
        "{}",
        serde_json::to_string(&Listening {
            listening: address.to_string()
        })?
    );
    Ok(server::serve(&listener)?)
}

fn print(line: &Line) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(line)?);
    Ok(())
}
