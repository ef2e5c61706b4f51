//! Moves random bytes by random calls over many TCP connections and checks each byte.
//!
//! Two processes, a server and a client, know from a seed what every connection is to carry, how,
//! and how it is to end; whatever comes otherwise ends the run with a report. The program uses
//! plain libc sockets; run it natively or under whatever replaces them.
//!
//! Read [`plan`] first.

mod board;
mod choice;
mod client;
mod connection;
mod crowd;
mod duel;
mod event_loop;
mod mischief;
mod pingpong;
mod plan;
mod poller;
mod server;
mod threads;
mod transfer;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use choice::Choice;
use plan::Side;

/// Move random bytes by random calls over many TCP connections and check each byte
#[derive(Parser)]
#[command(name = "crosslane-stress", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    duel: duel::Arguments,
}

/// What both processes must agree on.
#[derive(clap::Args, Clone, Copy)]
struct Rules {
    /// Repeat the run with this seed
    #[arg(long)]
    seed: u64,
    /// Whether the other process may be killed at any time
    #[arg(long)]
    peer_may_die: bool,
    /// Whether the window between two hosts may be lost at any time: what can be read may then come later, and a
    /// connection is reset whose other end was closed before
    #[arg(long)]
    window_may_go: bool,
}

#[derive(Subcommand)]
enum Role {
    /// Be the server only; ends when standard input does
    Serve {
        #[command(flatten)]
        rules: Rules,
        /// Port to listen on
        #[arg(long)]
        port: u16,
        /// Address to listen at
        #[arg(long, default_value_t = Ipv4Addr::LOCALHOST)]
        address: Ipv4Addr,
    },
    /// Be the client only
    Connect {
        #[command(flatten)]
        rules: Rules,
        /// Where the server listens
        #[arg(long)]
        to: SocketAddr,
        /// Begin connections for so long
        #[arg(long)]
        seconds: u64,
        #[command(flatten)]
        choice: Choice,
    },
}

/// Whom to kill.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Client,
    Server,
}

impl Victim {
    fn side(self) -> Side {
        match self {
            Self::Client => Side::Client,
            Self::Server => Side::Server,
        }
    }
}

fn main() -> ExitCode {
    match Cli::parse() {
        Cli {
            role:
                Some(Role::Serve {
                    rules,
                    port,
                    address,
                }),
            ..
        } => server::run(rules, (address, port).into()),
        Cli {
            role:
                Some(Role::Connect {
                    rules,
                    to,
                    seconds,
                    choice,
                }),
            ..
        } => client::run(rules, to, seconds, choice),
        Cli { role: None, duel } => return duel::run(&duel),
    }
    ExitCode::SUCCESS
}

/// What a process says of itself at its end.
fn report(side: Side) {
    use std::sync::atomic::Ordering::Relaxed;
    let (finished, checked) = (
        connection::FINISHED.load(Relaxed),
        connection::CHECKED.load(Relaxed),
    );
    let reset = connection::RESET.load(Relaxed);
    println!(
        "{side:?}: {finished} connections over, {reset} of them reset, {checked} bytes received and checked"
    );
}
