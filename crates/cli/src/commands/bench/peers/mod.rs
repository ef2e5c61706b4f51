//! `crosslane bench peers`: what else there is between two programs on one host, in one run.
//!
//! The ordinary program over TCP, AF_UNIX, pipes and Crosslane; UCX and libfabric by the programs
//! that they bring to measure themselves, through their own interfaces over POSIX shared memory.

mod foreign;
mod host;
mod results;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use crosslane_benchkit::{Machine, stop_children_on_signals};
use crosslane_sockbench::client;
use crosslane_sockbench::span::Span;
use serde::Serialize;

use super::effort::Effort;
use super::output::{as_notes, finish, heading, json};
use super::rounds::Rounds;
use super::sockets::case::Case;
use host::Host;
use results::{Key, Peer, Results};

const ROUNDS: u8 = 5;
const QUICK_ROUNDS: u8 = 3;
const SPAN: Span = Span {
    warmup: Duration::from_millis(200),
    measure: Duration::from_millis(1000),
};
const QUICK_SPAN: Span = Span {
    warmup: Duration::from_millis(50),
    measure: Duration::from_millis(120),
};

const CASES: [Case; 4] = [
    case(client::Case::Rtt, 64),
    case(client::Case::Stream, 64),
    case(client::Case::Stream, 4096),
    case(client::Case::Stream, 65536),
];

const fn case(kind: client::Case, bytes: u64) -> Case {
    Case { kind, bytes }
}

/// Arguments of `crosslane bench peers`.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    #[command(flatten)]
    effort: Effort,
    /// Who is measured
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Peer::ALL)]
    peers: Vec<Peer>,
}

const HELP: &str = "\
UCX is measured by ucx_perftest (tag_lat and stream_bw, UCX_TLS=posix), libfabric by fi_pingpong \
(provider shm), which has no one-way test. Pipes have room for 1 MiB each, AF_UNIX for as much as the kernel gives, \
up to 1 MiB; TCP's buffers grow by themselves. Both spin, and both report half of a round trip, which is \
doubled here; libfabric's is a mean, the others are medians, and no ratio is told of one to the other. They are programs of their own \
interfaces: nothing unmodified runs over them. A program that is missing is named with Debian's \
package, and left out.

Examples:
  crosslane bench peers --quick
  crosslane bench peers --peers crosslane,ucx";

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
    /// Who was left out, and why.
    notes: Vec<String>,
}

/// Measure, and print what was measured; fails when something could not be.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    stop_children_on_signals()?;
    let (rounds, span) = (
        args.effort.rounds(ROUNDS, QUICK_ROUNDS),
        args.effort.choose(SPAN, QUICK_SPAN),
    );
    let mut notes = Vec::new();
    let plan = plan(&args.peers, &mut notes)?;
    let preamble = Preamble {
        bench: "peers",
        case: "machine",
        machine: Machine::here(),
        rounds,
        warmup_ms: span.warmup.as_millis(),
        measure_ms: span.measure.as_millis(),
        notes,
    };
    let results = measure(&Host::new(span)?, &plan, rounds);
    let text = if args.effort.json {
        json(&preamble, &results.rows())?
    } else {
        for_people(&preamble, &results)
    };
    finish(&text, &results.0.complaints(), results.0.is_complete())
}

/// Every case of everybody who is there, in order.
fn plan(peers: &[Peer], notes: &mut Vec<String>) -> anyhow::Result<Vec<Key>> {
    let mut peers = peers.to_vec();
    peers.sort_unstable();
    peers.dedup();
    peers.retain(|peer| {
        let missing = peer.missing();
        notes.extend(
            missing
                .iter()
                .map(|why| format!("{peer} is left out: {why}")),
        );
        missing.is_none()
    });
    let of = |case: Case| peers.iter().map(move |&peer| Key { case, peer });
    let keys = CASES.into_iter().flat_map(of);
    let plan: Vec<_> = keys.filter(|key| key.peer.has(key.case)).collect();
    ensure!(!plan.is_empty(), "nothing to measure: {}", notes.join("; "));
    Ok(plan)
}

fn measure(host: &Host, plan: &[Key], rounds: u8) -> Results {
    let begin = |_| host.servers();
    let results = Rounds::measure(plan, rounds, begin, |servers, key| {
        host.measure(servers, key)
    });
    Results(results)
}

fn for_people(preamble: &Preamble, results: &Results) -> String {
    let Preamble {
        machine,
        rounds,
        notes,
        ..
    } = preamble;
    let notes = as_notes(notes);
    format!(
        "{}medians of {rounds} rounds; ratios say how many times better Crosslane is\n\n{}\n{}\n{notes}",
        heading(machine),
        results.table(),
        results.0.legend()
    )
}
