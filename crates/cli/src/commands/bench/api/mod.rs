//! `crosslane bench api`: the same traffic by sockets and by the native interface.
//!
//! NTSocks' three modes beside TCP: `origin` are sockets under the preloaded library, `shm` the
//! native interface with one copy at each end, `direct` messages built and read where they travel, and
//! `runtime` the same between two threads of one process, without a monitor.

mod host;
mod results;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use crosslane_apibench::client::Case as Kind;
use crosslane_benchkit::{Machine, stop_children_on_signals};
use crosslane_sockbench::span::Span;
use serde::Serialize;

use super::effort::Effort;
use super::output::{finish, heading, json};
use super::placement::Placement;
use super::rounds::Rounds;
use host::Host;
use results::{Case, Key, Mode, Results};

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

const CASES: [Case; 6] = [
    case(Kind::Rtt, 64),
    case(Kind::Rtt, 1024),
    case(Kind::Rtt, 16384),
    case(Kind::Stream, 64),
    case(Kind::Batch, 64),
    case(Kind::Stream, 65536),
];

const fn case(kind: Kind, bytes: u64) -> Case {
    Case { kind, bytes }
}

/// Arguments of `crosslane bench api`.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    #[command(flatten)]
    effort: Effort,
    /// What is measured
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Mode::ALL)]
    modes: Vec<Mode>,
    /// Where the two programs run
    #[arg(long, value_enum, default_value_t = Placement::Free)]
    place: Placement,
}

const HELP: &str = "\
origin, shm and direct are NTSocks' names: sockets under `crosslane run`; the native interface with \
reads and writes, a copy at each end; and messages built and read in the lanes. runtime is NTSocks' \
Runtime: direct between two threads of one process, with no monitor. In every mode, TCP's \
too, each message is built anew and each of its words is checked where it arrives.

rtt: round trips. stream: one way, message by message; the receiver takes as many small ones at a \
time as there are, up to 4 KiB. batch: the same with sixteen messages in one call, or in one \
reservation.

Examples:
  crosslane bench api --quick
  crosslane bench api --modes tcp,direct --place apart";

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
}

/// Measure, and print what was measured; fails when something could not be.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    stop_children_on_signals()?;
    let (rounds, span) = (
        args.effort.rounds(ROUNDS, QUICK_ROUNDS),
        args.effort.choose(SPAN, QUICK_SPAN),
    );
    let plan = plan(&args.modes)?;
    let preamble = Preamble {
        bench: "api",
        case: "machine",
        machine: Machine::here(),
        rounds,
        warmup_ms: span.warmup.as_millis(),
        measure_ms: span.measure.as_millis(),
        placement: args.place,
    };
    let results = measure(&Host::new(span, args.place)?, &plan, rounds);
    let text = if args.effort.json {
        json(&preamble, &results.rows())?
    } else {
        for_people(&preamble, &results)
    };
    finish(&text, &results.0.complaints(), results.0.is_complete())
}

/// Every case in every mode, in order.
fn plan(modes: &[Mode]) -> anyhow::Result<Vec<Key>> {
    let mut modes = modes.to_vec();
    modes.sort_unstable();
    modes.dedup();
    ensure!(
        !modes.is_empty(),
        "no mode to measure: name one with --modes"
    );
    let of = |case: Case| modes.iter().map(move |&mode| Key { case, mode });
    Ok(CASES.into_iter().flat_map(of).collect())
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
        ..
    } = preamble;
    format!(
        "{}medians of {rounds} rounds of {measure_ms} ms each; a second line says how many times \
         better than TCP\n\n{}\n{}",
        heading(machine),
        results.table(),
        results.0.legend()
    )
}
