//! `crosslane bench wait`: what the ways of waiting cost in processor time and in latency, beside
//! TCP's.
//!
//! A server waits in one of the ways and answers; the client is the same for all of them and sends
//! requests at random moments, open loop. This is the comparison of NIQ's figures 8 and 12.

mod energy;
mod frontier;
mod host;
mod results;
mod table;
mod way;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use crosslane_benchkit::{Machine, stop_children_on_signals};
use crosslane_sockbench::load::Pace;
use crosslane_sockbench::span::Span;
use serde::Serialize;

use super::effort::Effort;
use super::output::{as_notes, finish, heading, json};
use super::placement::Placement;
use super::rounds::Rounds;
use energy::Meter;
use host::Host;
use results::{Key, Results};
use way::Way;

const ROUNDS: u8 = 5;
const QUICK_ROUNDS: u8 = 3;
const SPAN: Span = Span {
    warmup: Duration::from_millis(100),
    measure: Duration::from_millis(2000),
};
/// 6 ways at 4 rates, 3 rounds: about 25 s with starting and stopping.
const QUICK_SPAN: Span = Span {
    warmup: Duration::from_millis(20),
    measure: Duration::from_millis(200),
};

/// Arguments of `crosslane bench wait`.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    #[command(flatten)]
    effort: Effort,
    /// Requests per second; 0 is idle
    #[arg(
        long,
        value_name = "RATES",
        value_delimiter = ',',
        default_value = "0,1000,10000,100000"
    )]
    rates: Vec<u32>,
    /// How the server waits
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Way::ALL)]
    ways: Vec<Way>,
    /// What the client does between requests
    #[arg(long, value_enum, default_value_t)]
    pace: Pace,
    /// Where the two programs run
    #[arg(long, value_enum, default_value_t = Placement::Apart)]
    place: Placement,
    /// Decides on the moments of the requests; each round takes the next number
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const HELP: &str = "\
The client sends 64 B requests at the moments of a Poisson process and counts latency from when a \
request was due, whether or not it could be sent then: a server that stalls is charged for every \
request that it kept waiting. CPU is seconds of processor time per second, of the server, in the \
program and in the kernel. With --pace spin the client looks at the clock all the time on a CPU of \
its own; with --pace poll it waits as an ordinary program, in the same way as the server, and its \
time is counted, too.

An asterisk marks the efficient frontier: no other way in the same run at the same rate is clearly \
better in latency or processor time without being clearly worse in the other.

Examples:
  crosslane bench wait --quick
  crosslane bench wait --rates 10000 --ways tcp,adaptive
  crosslane bench wait --pace poll --place free
  crosslane bench wait --json > docs/benchmarks/wait.jsonl";

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
    placement: Placement,
    pace: &'static str,
    seed: u64,
    /// What was not measured, or means less than it seems, and why.
    notes: Vec<String>,
}

/// Measure, and print what was measured; fails when something could not be.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    stop_children_on_signals()?;
    let (rounds, span) = (
        args.effort.rounds(ROUNDS, QUICK_ROUNDS),
        args.effort.choose(SPAN, QUICK_SPAN),
    );
    let machine = Machine::here();
    let host = Host::new(span, args.place, args.pace)?;
    let mut notes = Vec::new();
    let meter = Meter::find().map_err(|reason| notes.push(reason)).ok();
    let plan = plan(args, &host, &mut notes)?;
    let results = measure(&host, &plan, meter.as_ref(), rounds, args.seed);
    notes.extend(results.notes());
    let preamble = Preamble {
        bench: "wait",
        case: "machine",
        machine,
        rounds,
        warmup_ms: span.warmup.as_millis(),
        measure_ms: span.measure.as_millis(),
        placement: args.place,
        pace: pace_name(args.pace),
        seed: args.seed,
        notes,
    };
    let text = if args.effort.json {
        json(&preamble, &results.rows())?
    } else {
        for_people(&preamble, &results)
    };
    finish(&text, &results.complaints(), results.rounds.is_complete())
}

fn pace_name(pace: Pace) -> &'static str {
    match pace {
        Pace::Spin => "spin",
        Pace::Poll => "poll",
    }
}

/// At which rates which ways are measured, in order; a way that this machine refuses is noted.
fn plan(args: &Args, host: &Host, notes: &mut Vec<String>) -> anyhow::Result<Vec<Key>> {
    let mut ways = args.ways.clone();
    ways.sort_unstable();
    ways.dedup();
    ways.retain(|&way| {
        let refusal = host.refusal(way);
        notes.extend(
            refusal
                .iter()
                .map(|why| format!("{way} is left out: {why}")),
        );
        refusal.is_none()
    });
    let mut rates = args.rates.clone();
    rates.sort_unstable();
    rates.dedup();
    let at = |per_second: u32| ways.iter().map(move |&way| Key { per_second, way });
    let plan: Vec<_> = rates.into_iter().flat_map(at).collect();
    ensure!(!plan.is_empty(), "nothing to measure: {}", notes.join("; "));
    Ok(plan)
}

fn measure(host: &Host, plan: &[Key], meter: Option<&Meter>, rounds: u8, seed: u64) -> Results {
    let begin = |round| (host.servers(), seed + u64::from(round));
    let results = Rounds::measure(plan, rounds, begin, |(servers, seed), key| {
        servers.measure(key, *seed, meter)
    });
    Results {
        rounds: results,
        counts_client: host.counts_client(),
    }
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
        "{}medians of {rounds} rounds of {measure_ms} ms each; CPU in seconds per second\n\n{}\n{}\n{notes}",
        heading(machine),
        table::table(results),
        results.rounds.legend()
    )
}
