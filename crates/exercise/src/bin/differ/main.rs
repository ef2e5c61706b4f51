//! Random programs of socket calls, played in two ways that must look the same.
//!
//! A *program* ([`program`]) is a list of steps by up to four processes and their threads: calls
//! on connections between them, forks, duplicates, closes, signals. It is generated from a seed or
//! read from a file, and *played* ([`player`]): a process that itself has no socket gives each
//! step to the process that is to make it, waits until the kernel is at rest, and writes down what
//! the step returned. `hunt` plays programs natively and by another command, compares the two
//! traces, and makes what differs as short as it can ([`shrink`]).

mod act;
mod actor;
mod call;
mod cast;
mod compare;
mod edges;
mod generate;
mod hunt;
mod known;
mod names;
mod player;
mod program;
mod serve;
mod shrink;
mod side;
mod word;
mod world;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Steps of a generated program.
const LENGTH: usize = 60;

/// Play random programs of socket calls in two ways and compare what they see
#[derive(Parser)]
#[command(name = "crosslane-differ")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Print the program of a seed
    Generate {
        /// The seed
        seed: u64,
        /// How many steps
        #[arg(long, default_value_t = LENGTH)]
        length: usize,
        /// With connections of AF_UNIX instead of TCP
        #[arg(long)]
        unix: bool,
    },
    /// Play the programs that come by standard input, each ended by a line `.`
    Play {
        /// Also what is known to differ
        #[arg(long)]
        known: bool,
    },
    /// Play programs natively and by other commands, and compare
    Hunt(hunt::Arguments),
}

fn main() -> ExitCode {
    match Cli::parse().task {
        Task::Generate { seed, length, unix } => {
            let over = if unix {
                generate::Over::Unix
            } else {
                generate::Over::Tcp
            };
            print!("{}", generate::generate(seed, length, over));
            ExitCode::SUCCESS
        }
        Task::Play { known } => serve::serve(!known),
        Task::Hunt(arguments) => hunt::run(&arguments),
    }
}
