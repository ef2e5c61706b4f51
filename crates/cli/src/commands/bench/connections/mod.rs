//! `crosslane bench connections`: what a connection costs while it is idle, and what many idle
//! ones cost an active one.

mod host;
mod memory;
mod results;
mod table;

use std::process::ExitCode;
use std::time::Duration;

use crosslane_benchkit::{Machine, stop_children_on_signals};
use crosslane_sockbench::crowd::allow_connections;
use crosslane_sockbench::server::crowd::By;
use crosslane_sockbench::span::Span;
use serde::Serialize;

use super::effort::Effort;
use super::output::{finish, heading, json};
use super::placement::Placement;
use super::rounds::Rounds;
use host::Host;
use results::{Key, Results, Transport};

const ROUNDS: u8 = 3;
const QUICK_ROUNDS: u8 = 1;
const SPAN: Span = Span {
    warmup: Duration::from_millis(200),
    measure: Duration::from_millis(1000),
};
const QUICK_SPAN: Span = Span {
    warmup: Duration::from_millis(50),
    measure: Duration::from_millis(300),
};

/// Arguments of `crosslane bench connections`.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    #[command(flatten)]
    effort: Effort,
    /// How many connections there are between the two programs
    #[arg(
        long,
        value_name = "COUNTS",
        value_delimiter = ',',
        default_value = "1,100,10000",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    counts: Vec<u32>,
    /// What they go over
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Transport::ALL)]
    transports: Vec<Transport>,
    /// By which call the server waits
    #[arg(long, value_enum, default_value_t)]
    by: By,
    /// Where the two programs run
    #[arg(long, value_enum, default_value_t = Placement::Free)]
    place: Placement,
}

const HELP: &str = "\
One client opens the connections to one server, which serves them all in one thread, by epoll or poll. Every \
connection is used, so that its rings exist, and then left alone. Memory is what all of this has \
added, divided by the number of connections: private memory of the two programs and of the monitor, \
which is one of the bench's own, and shared memory of all three (proportional set size, so that a \
page is counted once). \"kernel\" is by how much the slabs and page tables of the whole machine have \
grown, sockets for the most part, in TCP's case as in Crosslane's; on a machine that does other \
things it says little. Latency is that of round trips of 64 B on one connection while the others are idle.

Each program needs a descriptor for each connection; limits are raised as far as they may be.

Examples:
  crosslane bench connections --quick
  crosslane bench connections --counts 1,1000
  crosslane bench connections --counts 1,8,64,512 --by poll
  crosslane bench connections --json > docs/benchmarks/connections.jsonl";

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
    by: By,
    placement: Placement,
}

/// Measure, and print what was measured; fails when something could not be.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    stop_children_on_signals()?;
    let (rounds, span) = (
        args.effort.rounds(ROUNDS, QUICK_ROUNDS),
        args.effort.choose(SPAN, QUICK_SPAN),
    );
    let preamble = Preamble {
        bench: "connections",
        case: "machine",
        machine: Machine::here(),
        rounds,
        warmup_ms: span.warmup.as_millis(),
        measure_ms: span.measure.as_millis(),
        by: args.by,
        placement: args.place,
    };
    let plan = plan(args);
    // The programs inherit the limit; what is impossible is said before anything is measured.
    let most = plan.iter().map(|key| key.connections).max().unwrap_or(1);
    allow_connections(u64::from(most))?;
    let results = measure(&Host::new((span, args.by), args.place)?, &plan, rounds);
    let text = if args.effort.json {
        json(&preamble, &results.rows())?
    } else {
        for_people(&preamble, &results)
    };
    finish(&text, &results.0.complaints(), results.0.is_complete())
}

/// How many connections are measured over which transports, in order.
fn plan(args: &Args) -> Vec<Key> {
    let mut counts = args.counts.clone();
    counts.sort_unstable();
    counts.dedup();
    let mut transports = args.transports.clone();
    transports.sort_unstable();
    transports.dedup();
    let of = |connections: u32| {
        transports
            .iter()
            .map(move |&over| Key { connections, over })
    };
    counts.into_iter().flat_map(of).collect()
}

fn measure(host: &Host, plan: &[Key], rounds: u8) -> Results {
    let results = Rounds::measure(plan, rounds, |_| (), |(), key| host.measure(key));
    Results(results)
}

fn for_people(preamble: &Preamble, results: &Results) -> String {
    let Preamble {
        machine,
        rounds,
        measure_ms,
        ..
    } = preamble;
    format!(
        "{}medians of {rounds} rounds of {measure_ms} ms each; memory and processor time while all are idle\n\n{}\n{}",
        heading(machine),
        table::table(results),
        results.0.legend()
    )
}
