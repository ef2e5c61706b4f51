//! A host with a bridge, as a process of its own: it opens the window, moves data through it, loses the
//! link, meets the other host again, and goes on. What it has reached, it says in a line each.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Parser;
use crosslane_ntb_model::attach::{Setup, attach};
use crosslane_window::backend::{half_bytes, lasting_halves};
use crosslane_window::inbound::Inbound;
use crosslane_window::ntb::NtbWindow;
use crosslane_window::outbound::Outbound;

const PATIENCE: Duration = Duration::from_secs(60);
const LENT_BYTES: usize = 1 << 18;
const ROUNDS: u64 = 20;

/// Doorbells: all is written; all was there.
const WRITTEN: u64 = 1 << 3;
const CHECKED: u64 = 1 << 17;

/// A scratchpad that the driver does not use itself.
const FREE_SCRATCHPAD: usize = 9;

/// A host of the model.
#[derive(Parser)]
struct Args {
    /// The model's socket
    model: PathBuf,
    /// 0 for upstream, 1 for downstream
    side: usize,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let stream = UnixStream::connect(&args.model).context("no model")?;
    let parts = attach(stream, Setup::of(args.side, LENT_BYTES))?;
    let window: &NtbWindow = Box::leak(Box::new(NtbWindow::open(parts, PATIENCE)?));
    println!("met");
    let (local, remote) = lasting_halves(window, args.side);
    ensure!(half_bytes(window) == LENT_BYTES, "{:?}", window.met());
    let host = Host {
        side: args.side as u64,
        window,
        local,
        remote,
        rung: Cell::new(0),
    };
    host.exchange_words()?;
    host.window.bridge().unmask_only(WRITTEN | CHECKED);
    (0..ROUNDS).try_for_each(|round| host.exchange_memory(round))?;
    println!("moving");
    println!("lost: {:#}", host.move_until_lost()?);
    host.rung.set(0);
    window.meet_again(PATIENCE)?;
    println!("met again");
    (ROUNDS..2 * ROUNDS).try_for_each(|round| host.exchange_memory(round))?;
    println!("done");
    Ok(())
}

struct Host {
    side: u64,
    window: &'static NtbWindow,
    local: Inbound,
    remote: Outbound,
    /// Doorbells that have been heard and not been waited for yet.
    rung: Cell<u64>,
}

/// The word that belongs at a place.
fn pattern(side: u64, round: u64, at: usize) -> u64 {
    (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round << 1 ^ side
}

impl Host {
    /// By scratchpads alone: each says a number, and finds the other's.
    fn exchange_words(&self) -> anyhow::Result<()> {
        let bridge = self.window.bridge();
        let word = |side: u64| 0x5eed_0000 | u32::try_from(side).unwrap_or(0);
        bridge.set_peer_scratchpad(FREE_SCRATCHPAD, word(self.side));
        let written = bridge.peer_scratchpad(FREE_SCRATCHPAD);
        ensure!(written == word(self.side), "written and read {written:#x}");
        let start = Instant::now();
        while bridge.scratchpad(FREE_SCRATCHPAD) != word(1 - self.side) {
            ensure!(start.elapsed() < PATIENCE, "no word came");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Fill the other's memory, ring, and find one's own filled.
    fn exchange_memory(&self, round: u64) -> anyhow::Result<()> {
        let mut words = [0; 512];
        for at in (0..LENT_BYTES).step_by(4096) {
            for (index, word) in words.iter_mut().enumerate() {
                *word = pattern(self.side, round, at + index * 8);
            }
            self.remote.put(at, &words);
        }
        self.remote.fence();
        self.window.bridge().ring(WRITTEN);
        self.wait(WRITTEN)?;
        for at in (0..LENT_BYTES).step_by(8) {
            let (found, right) = (self.local.load(at), pattern(1 - self.side, round, at));
            ensure!(
                found == right,
                "round {round}: {found:#x} at {at:#x}, not {right:#x}"
            );
        }
        self.window.bridge().ring(CHECKED);
        self.wait(CHECKED)
    }

    fn wait(&self, bell: u64) -> anyhow::Result<()> {
        let start = Instant::now();
        while self.rung.get() & bell == 0 {
            ensure!(start.elapsed() < PATIENCE, "doorbell {bell:#x} is silent");
            let bridge = self.window.bridge();
            let heard = bridge.wait_for_doorbells(Duration::from_secs(1))?;
            self.rung.set(self.rung.get() | heard);
        }
        self.rung.set(self.rung.get() & !bell);
        Ok(())
    }

    /// Write on and on, until the window says what has become of it.
    fn move_until_lost(&self) -> anyhow::Result<anyhow::Error> {
        let start = Instant::now();
        let mut round = 0;
        loop {
            for at in (0..LENT_BYTES).step_by(64) {
                self.remote.store(at, round);
            }
            self.remote.fence();
            round += 1;
            if let Err(error) = self.window.check() {
                return Ok(error.into());
            }
            ensure!(start.elapsed() < PATIENCE, "the link is still there");
        }
    }
}
