//! Passes a token to and fro through memory that two programs map, each on a host of its own.
//!
//! Each side has a slot that only it writes: a payload, and behind it the number of the round. A
//! side that finds the other's number raised must find that round's payload, whole. Then both add
//! to one number at the same time, and nothing that was added may be missing.

mod mapping;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use mapping::{Mapping, PAYLOAD_WORDS};

/// How long the other side may take for one round.
const PATIENCE: Duration = Duration::from_secs(30);

/// Looks before others may have the CPU.
const LOOKS: u32 = 10_000;

/// Pass a token to and fro through memory that two programs map
#[derive(Parser)]
#[command(name = "crosslane-token")]
struct Cli {
    /// File to map: a device's BAR (resource2), or a file in tmpfs
    #[arg(long)]
    path: PathBuf,
    /// Write zeros, where an earlier run has left its numbers, and stop
    #[arg(long)]
    clear: bool,
    /// 0 passes first
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    side: u8,
    /// Rounds
    #[arg(long, default_value_t = 2000)]
    rounds: u64,
    /// How often each side adds
    #[arg(long, default_value_t = 200_000)]
    adds: u64,
}

#[derive(Debug, serde::Serialize)]
struct Report {
    bench: &'static str,
    rounds: u64,
    adds: u64,
    payload_bytes: usize,
    p50_ns: u64,
    p99_ns: u64,
}

#[derive(Debug, thiserror::Error)]
enum TokenError {
    #[error("cannot map {path}: {cause}")]
    Map { path: String, cause: std::io::Error },
    #[error("round {round}: the other side did not answer within {} s", PATIENCE.as_secs())]
    Silent { round: u64 },
    #[error("round {round}: word {word} is {found:#x}, should be {expected:#x}")]
    Changed {
        round: u64,
        word: usize,
        found: u64,
        expected: u64,
    },
    #[error("both sides added 1 {adds} times each, and the sum is {sum}: adding is not atomic")]
    Lost { adds: u64, sum: u64 },
}

fn main() -> ExitCode {
    if let Err(error) = run(&Cli::parse()) {
        eprintln!("crosslane-token: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run(cli: &Cli) -> Result<(), TokenError> {
    if cli.clear {
        open(cli)?.clear();
        return Ok(());
    }
    let line = serde_json::to_string(&pass(cli)?).expect("numbers and names");
    println!("{line}");
    Ok(())
}

fn open(cli: &Cli) -> Result<Mapping, TokenError> {
    Mapping::open(&cli.path).map_err(|cause| TokenError::Map {
        path: cli.path.display().to_string(),
        cause,
    })
}

fn pass(cli: &Cli) -> Result<Report, TokenError> {
    let mapping = open(cli)?;
    let (own, other) = (usize::from(cli.side), usize::from(1 - cli.side));
    let mut times = Vec::new();
    for round in 1..=cli.rounds {
        let begun = Instant::now();
        if cli.side == 0 {
            mapping.publish(own, round, |word| content(own, round, word));
        }
        await_round(&mapping, other, round)?;
        check(&mapping, other, round)?;
        if cli.side == 1 {
            mapping.publish(own, round, |word| content(own, round, word));
        }
        times.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    add_together(&mapping, cli)?;
    times.sort_unstable();
    let quantile = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or(0);
    Ok(Report {
        bench: "token",
        rounds: cli.rounds,
        adds: cli.adds,
        payload_bytes: PAYLOAD_WORDS * 8,
        p50_ns: quantile(50),
        p99_ns: quantile(99),
    })
}

fn await_round(mapping: &Mapping, slot: usize, round: u64) -> Result<(), TokenError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        for _ in 0..LOOKS {
            if mapping.round(slot) == round {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        if Instant::now() > deadline {
            return Err(TokenError::Silent { round });
        }
        // The other side may need this CPU.
        std::thread::yield_now();
    }
}

fn check(mapping: &Mapping, slot: usize, round: u64) -> Result<(), TokenError> {
    for word in 0..PAYLOAD_WORDS {
        let (found, expected) = (mapping.word(slot, word), content(slot, round, word));
        if found != expected {
            return Err(TokenError::Changed {
                round,
                word,
                found,
                expected,
            });
        }
    }
    Ok(())
}

/// Both sides begin once they have seen the last round, so at the same time.
fn add_together(mapping: &Mapping, cli: &Cli) -> Result<(), TokenError> {
    for _ in 0..cli.adds {
        mapping.add();
    }
    let (own, other) = (usize::from(cli.side), usize::from(1 - cli.side));
    mapping.publish(own, cli.rounds + 1, |_| 0);
    await_round(mapping, other, cli.rounds + 1)?;
    let (adds, sum) = (cli.adds, mapping.sum());
    if sum == 2 * adds {
        Ok(())
    } else {
        Err(TokenError::Lost { adds, sum })
    }
}

/// A different word for each slot, round and place.
fn content(slot: usize, round: u64, word: usize) -> u64 {
    let place = (slot * PAYLOAD_WORDS + word) as u64;
    (round << 16 | place).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cli(path: &std::path::Path, side: u8) -> Cli {
        Cli {
            path: path.to_owned(),
            clear: false,
            side,
            rounds: 500,
            adds: 100_000,
        }
    }

    #[test]
    fn both_sides_see_every_round() {
        let path = std::env::temp_dir().join(format!("crosslane-token-{}", std::process::id()));
        std::fs::write(&path, vec![0; 8192]).unwrap();
        let (first, second) = std::thread::scope(|scope| {
            let first = scope.spawn(|| pass(&cli(&path, 0)));
            let second = scope.spawn(|| pass(&cli(&path, 1)));
            (first.join().unwrap(), second.join().unwrap())
        });
        std::fs::remove_file(&path).unwrap();
        assert_eq!(first.unwrap().rounds, 500);
        assert_eq!(second.unwrap().rounds, 500);
    }

    #[test]
    fn a_changed_payload_is_told() {
        let path = std::env::temp_dir().join(format!("crosslane-token-x{}", std::process::id()));
        std::fs::write(&path, vec![0; 8192]).unwrap();
        let mapping = Mapping::open(&path).unwrap();
        mapping.publish(0, 1, |word| content(0, 1, word) ^ u64::from(word == 7));
        let told = pass(&cli(&path, 1)).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert!(told.contains("round 1: word 7"), "{told}");
    }
}
