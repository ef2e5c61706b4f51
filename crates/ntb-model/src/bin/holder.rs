//! `crosslane window hold` of a bridge of the model: it says in a line each what has become of it, and ends when its input does.

#![forbid(unsafe_code)]

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use crosslane_ntb_model::attach::attach_held;
use crosslane_window::ntb::hold::{HeldMemory, State, hold};

/// Hold a bridge of the model.
#[derive(Parser)]
struct Args {
    /// The model's socket
    model: PathBuf,
    /// 0 for upstream, 1 for downstream
    side: usize,
    /// The file that the other host writes
    memory: PathBuf,
    /// How long it is
    bytes: u64,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let stream = UnixStream::connect(&args.model).context("no model")?;
    let memory = HeldMemory::open(&args.memory, args.bytes)?;
    let held = attach_held(stream, args.side, memory)?;
    let mut tell = |state: State<'_>| match state {
        State::Open(met, link) => println!("open: {} bytes, {link}", met.bytes),
        State::Closed(why) => println!("closed: {why}"),
        State::Ending => println!("ending"),
    };
    hold(held, std::io::stdin().as_fd(), &mut tell)?;
    Ok(())
}
