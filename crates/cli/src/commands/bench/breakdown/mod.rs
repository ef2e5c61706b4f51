//! `crosslane bench breakdown`: where the time of a message goes, stage by stage.
//!
//! The comparison of NTSocks' figure 10. The program notes when its calls begin and end, and a build
//! of the library with the feature `trace` when a message passes certain points; both read the same
//! counter, which must agree between the two processors.

mod host;
mod path;
mod results;

use std::path::PathBuf;
use std::process::ExitCode;

use crosslane_benchkit::{Machine, show, stop_children_on_signals};
use crosslane_sockbench::outcome::Clocks;
use serde::Serialize;

use super::effort::Effort;
use super::output::{as_notes, finish, heading, json};
use super::rounds::Rounds;
use host::Host;
use results::{Key, Results};

const ROUNDS: u8 = 7;
const QUICK_ROUNDS: u8 = 3;
/// The first half of them warms up.
const MESSAGES: u64 = 40_000;
const QUICK_MESSAGES: u64 = 10_000;

/// Arguments of `crosslane bench breakdown`.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    #[command(flatten)]
    effort: Effort,
    /// Message sizes: 8, or 16 and more
    #[arg(
        long,
        value_name = "SIZES",
        value_delimiter = ',',
        default_value = "8,64,1024,4096,16384"
    )]
    bytes: Vec<u64>,
    /// The traced library, where it is not where cargo puts it
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

const HELP: &str = "\
Stages of one message from one program to the other, each on a processor of its own, in round trips; \
the mean of both directions, so that counters that disagree do not matter, and of each stage the \
mean of the middle half of all messages, as steady as the median and finer than the counter's steps:

  call      from the program's look at the counter into the library
  lookup    from the descriptor to the locked direction of a connection
  copy in   room, and the payload into the lane
  publish   the header
  transfer  until the receiver, which is looking all the time, sees it
  poll      out of that loop, to the receiver's lock and a checked header
  copy out  the payload into the program's buffer
  return    room given back, counters, and back to the program's look at the counter

A message of several records counts by its last one: the earlier ones are copied in while copying in, \
and copied out while the later ones are on their way. Looks at the counter are no fences: what a store has \
not finished when the next look comes counts for the next stage, and every stage contains about one \
look, which is printed. \"rest\" is what the stages, each in its own middle half, do not add up to. The same program with \
the normal library shows what the looks cost together. \"send returns\" is after publishing, \
while the message is on its way.

The traced library is built by
  cargo build --release --package crosslane-preload --features trace --target-dir target/trace

Examples:
  crosslane bench breakdown --quick
  crosslane bench breakdown --bytes 64";

/// The first line of the JSON output.
#[derive(Serialize)]
struct Preamble {
    bench: &'static str,
    case: &'static str,
    #[serde(flatten)]
    machine: Machine,
    rounds: u8,
    messages: u64,
    /// The other processor's counter.
    clocks: Clocks,
    /// What must be known of the figures.
    notes: Vec<String>,
}

/// Measure, and print what was measured; fails when something could not be.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    stop_children_on_signals()?;
    let rounds = args.effort.rounds(ROUNDS, QUICK_ROUNDS);
    let messages = args.effort.choose(MESSAGES, QUICK_MESSAGES);
    let mut notes = Vec::new();
    let host = Host::new(args.library.clone(), messages, &mut notes)?;
    let preamble = Preamble {
        bench: "breakdown",
        case: "machine",
        machine: Machine::here(),
        rounds,
        messages,
        clocks: host.clocks().clone(),
        notes,
    };
    let mut sizes = args.bytes.clone();
    sizes.sort_unstable();
    sizes.dedup();
    let plan: Vec<_> = sizes.into_iter().map(|bytes| Key { bytes }).collect();
    let results = measure(&host, &plan, rounds);
    let text = if args.effort.json {
        json(&preamble, &results.rows())?
    } else {
        for_people(&preamble, &results)
    };
    finish(&text, &results.0.complaints(), results.0.is_complete())
}

fn measure(host: &Host, plan: &[Key], rounds: u8) -> Results {
    let results = Rounds::measure(plan, rounds, |_| (), |(), key| host.measure(key));
    Results(results)
}

fn for_people(preamble: &Preamble, results: &Results) -> String {
    let Preamble {
        machine,
        rounds,
        messages,
        clocks,
        notes,
        ..
    } = preamble;
    let notes = as_notes(notes);
    format!(
        "{}medians of {rounds} rounds of {} round trips each, the first half of which is not counted\n\
         the other processor's counter is {:.1} ns ahead, give or take {:.1} ns; a look at it takes {:.1} ns\n\n{}\n{}{notes}",
        heading(machine),
        show::round(super::output::number(*messages)),
        clocks.offset_ns,
        clocks.within_ns,
        clocks.look_ns,
        results.table(),
        results.0.legend()
    )
}
