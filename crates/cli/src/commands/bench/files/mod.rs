//! `crosslane bench files`: an unmodified nginx that serves files, over TCP and over Crosslane in turn.
//!
//! The comparison of NTSocks' figure 14, whose nginx was changed for it.

mod host;
mod limit;
mod results;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use crosslane_benchkit::{Machine, stop_children_on_signals};
use crosslane_sockbench::span::Span;
use serde::Serialize;

use super::daemon::missing;
use super::effort::Effort;
use super::output::{as_notes, finish, heading, json};
use super::rounds::Rounds;
use host::{AB, Host, NGINX, WRK};
use results::{Carrier, Key, Kind, Results, Way};

const ROUNDS: u8 = 5;
const QUICK_ROUNDS: u8 = 2;
const SPAN: Span = Span {
    warmup: Duration::from_millis(100),
    measure: Duration::from_millis(1000),
};
const QUICK_SPAN: Span = Span {
    warmup: Duration::from_millis(30),
    measure: Duration::from_millis(150),
};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const SIZES: [u64; 7] = [
    8 * KIB,
    32 * KIB,
    128 * KIB,
    512 * KIB,
    2 * MIB,
    8 * MIB,
    32 * MIB,
];
const QUICK_SIZES: [u64; 4] = [8 * KIB, 128 * KIB, 2 * MIB, 32 * MIB];
/// Of the file that wrk asks for.
const SMALL_BYTES: u64 = KIB;

/// Arguments of `crosslane bench files`.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    #[command(flatten)]
    effort: Effort,
    /// Sizes of files in bytes [default: from 8 KiB to 32 MiB]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    bytes: Vec<u64>,
    /// How nginx sends them
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Way::ALL)]
    ways: Vec<Way>,
    /// How many workers nginx has
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: u8,
    /// What they go over
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Carrier::ALL)]
    transports: Vec<Carrier>,
}

const HELP: &str = "\
fetch: one client gets one file again and again over one connection, and checks it; latency is from \
the request to the last byte, and Gb/s are those of the same fetches. requests: wrk with 16 connections \
gets a file of 1 KiB. short: ab gets it with 8 clients, each time over a new connection, which Crosslane leaves on \
TCP. nginx has one worker, unless --workers says otherwise. With `sendfile` nginx has the kernel copy from the file to the \
socket, with `write` it reads and writes itself.

limit: the least that a file takes, with no server and no client: one thread has the kernel copy it from the page cache into a ring \
of 4 MiB (by `write`, into 32 KiB as nginx does, and copies from there), and another one copies it out. `tcp to it` is how \
many times better than TCP that is.

nginx is Debian's; what is missing is named, and left out.

Examples:
  crosslane bench files --quick
  crosslane bench files --bytes 8192,33554432 --ways sendfile
  crosslane bench files --workers 4 --bytes 8192";

/// The first line of the JSON output.
#[derive(Serialize)]
struct Preamble {
    bench: &'static str,
    case: &'static str,
    #[serde(flatten)]
    machine: Machine,
    rounds: u8,
    warmup_ms: u128,
    measure_ms: u128,
    workers: u8,
    /// What was left out, and why.
    notes: Vec<String>,
}

/// Measure, and print what was measured; fails when something could not be.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    stop_children_on_signals()?;
    let rounds = args.effort.rounds(ROUNDS, QUICK_ROUNDS);
    let span = args.effort.choose(SPAN, QUICK_SPAN);
    let mut notes = Vec::new();
    let plan = plan(args, &mut notes)?;
    let preamble = Preamble {
        bench: "files",
        case: "machine",
        machine: Machine::here(),
        rounds,
        warmup_ms: span.warmup.as_millis(),
        measure_ms: span.measure.as_millis(),
        workers: args.workers,
        notes,
    };
    let sizes: Vec<_> = plan.iter().map(|key| key.bytes).collect();
    let results = measure(&Host::new(span, &sizes, args.workers)?, &plan, rounds);
    let text = if args.effort.json {
        json(&preamble, &results.rows())?
    } else {
        for_people(&preamble, &results)
    };
    finish(&text, &results.0.complaints(), results.0.is_complete())
}

/// Every size each way over each transport, in order.
fn plan(args: &Args, notes: &mut Vec<String>) -> anyhow::Result<Vec<Key>> {
    if let Some(why) = missing(NGINX, "nginx") {
        anyhow::bail!("there is {why}");
    }
    let mut sizes = args.bytes.clone();
    if sizes.is_empty() {
        sizes = args.effort.choose(SIZES.to_vec(), QUICK_SIZES.to_vec());
    }
    let mut cases: Vec<_> = sizes.iter().map(|bytes| (Kind::Fetch, *bytes)).collect();
    match missing(WRK, "wrk") {
        Some(why) => notes.push(format!("requests per second are left out: {why}")),
        None => cases.push((Kind::Requests, SMALL_BYTES)),
    }
    match missing(AB, "apache2-utils") {
        Some(why) => notes.push(format!("short connections are left out: {why}")),
        None => cases.push((Kind::Short, SMALL_BYTES)),
    }
    let mut plan = Vec::new();
    for (kind, bytes) in cases {
        for &way in &args.ways {
            let key = |&carrier: &Carrier| Key {
                kind,
                bytes,
                way,
                carrier,
            };
            let mut carriers = args.transports.clone();
            carriers.retain(|carrier| kind == Kind::Fetch || carrier.over().is_some());
            plan.extend(carriers.iter().map(key));
        }
    }
    ensure!(
        !plan.is_empty(),
        "nothing to measure: no way or no transport"
    );
    Ok(plan)
}

fn measure(host: &Host, plan: &[Key], rounds: u8) -> Results {
    let begin = |_| host.servers();
    let results = Rounds::measure(plan, rounds, begin, |servers, key| servers.measure(key));
    Results(results)
}

fn for_people(preamble: &Preamble, results: &Results) -> String {
    let Preamble {
        machine,
        rounds,
        measure_ms,
        notes,
        ..
    } = preamble;
    let notes = as_notes(notes);
    format!(
        "{}medians of {rounds} rounds of {measure_ms} ms each; ratios say how many times better Crosslane is\n\n{}\n{}{notes}",
        heading(machine),
        results.table(),
        results.0.legend()
    )
}
