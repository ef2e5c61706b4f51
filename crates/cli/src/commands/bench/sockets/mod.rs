//! `crosslane bench sockets`: the same ordinary program over TCP, AF_UNIX and Crosslane, and the
//! limit that the machine sets; on one host, or between two that are made of it.
//!
//! A bench of one machine against itself minutes later says little, so the transports take turns
//! case by case, the whole is repeated for some rounds with new processes, and a figure is the
//! median of its rounds.

pub mod case;
pub mod ground;
pub mod host;
mod results;
mod table;
pub mod transport;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{bail, ensure};
use crosslane_benchkit::{Machine, stop_children_on_signals};
use crosslane_sockbench::span::Span;
use serde::Serialize;

use super::effort::Effort;
use super::hosts::Kind;
use super::output::{as_notes, finish, heading, json};
use super::placement::Placement;
use super::rounds::Rounds;
use super::sides::BETWEEN;
use case::{Case, Selector};
use ground::Ground;
use host::Host;
use results::{Key, Results};
use transport::Transport;

const ROUNDS: u8 = 5;
const QUICK_ROUNDS: u8 = 2;
const SPAN: Span = Span {
    warmup: Duration::from_millis(200),
    measure: Duration::from_millis(1000),
};
/// 11 cases over 3 transports, the lanes and the limit, 3 rounds: about 25 s with starting and stopping.
const QUICK_SPAN: Span = Span {
    warmup: Duration::from_millis(50),
    measure: Duration::from_millis(120),
};

/// Arguments of `crosslane bench sockets`.
#[derive(clap::Args)]
#[command(after_help = "\
The table shows medians over the rounds. \"vs tcp\" is how many times better Crosslane is than TCP in \
the same run, \"vs limit\" how many times the least time it takes: that of a bare cache-line ping-pong for a \
round trip, of copies into memory and out again, without headers, checks or sleep, for a stream. \"lane\" is \
the lanes alone, without sockets above them.

Programs are placed by the scheduler unless --place says otherwise; TCP's round trip depends much on \
it, being several times shorter when both programs share a CPU.

With --two-hosts, two network namespaces are made, with a veth pair between them, a monitor in each and a \
window file in /dev/shm: TCP goes over the pair, Crosslane over the window. \"lane\" is the lanes in such a \
window, \"window\" the window alone. With --kind posted each host has a file of its own, which the other one only \
writes, as over a PCIe bridge.

Examples:
  crosslane bench sockets --quick
  sudo crosslane bench sockets --quick --two-hosts
  sudo crosslane bench sockets --quick --two-hosts --kind posted
  crosslane bench sockets --cases rtt:64,stream --transports tcp,crosslane
  crosslane bench sockets --json > docs/benchmarks/sockets.jsonl")]
pub struct Args {
    #[command(flatten)]
    effort: Effort,
    /// What to measure: rtt, stream, connect, brief (connections of four requests), or one size of it as in rtt:64
    #[arg(long, value_name = "CASES", value_delimiter = ',')]
    cases: Vec<Selector>,
    /// What to measure it over, instead of all that there is
    #[arg(long, value_enum, value_delimiter = ',')]
    transports: Vec<Transport>,
    /// Put the server on one host and the client on another: network namespaces, which take root
    #[arg(long)]
    two_hosts: bool,
    /// Of what kind the window between two hosts is
    #[arg(long, value_enum, default_value_t = Kind::Shared, requires = "two_hosts")]
    kind: Kind,
    /// Where the two programs run
    #[arg(long, value_enum, default_value_t = Placement::Free)]
    place: Placement,
    /// Add points of each round trip's distribution to the JSON, as `crosslane report` draws it
    #[arg(long, requires = "json")]
    cdf: bool,
}

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
    hosts: u8,
    /// Of what kind the window between two hosts is.
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<Kind>,
}

/// Measure, and print what was measured; fails when something could not be.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    stop_children_on_signals()?;
    let (rounds, span) = (
        args.effort.rounds(ROUNDS, QUICK_ROUNDS),
        args.effort.choose(SPAN, QUICK_SPAN),
    );
    let plan = plan(args)?;
    let preamble = Preamble {
        bench: "sockets",
        case: "machine",
        machine: Machine::here(),
        rounds,
        warmup_ms: span.warmup.as_millis(),
        measure_ms: span.measure.as_millis(),
        placement: args.place,
        hosts: if args.two_hosts { 2 } else { 1 },
        window: args.two_hosts.then_some(args.kind),
    };
    let ground = match args.two_hosts {
        true => Ground::between_hosts(args.kind)?,
        false => Ground::here()?,
    };
    let results = measure(&Host::new(ground, span, args.place)?, &plan, rounds);
    let text = if args.effort.json {
        json(&preamble, &results.rows(args.cdf))?
    } else {
        for_people(&preamble, &results)
    };
    let rounds = &results.0;
    finish(&text, &rounds.complaints(), rounds.is_complete())
}

/// Which cases are measured over which transports, in order.
fn plan(args: &Args) -> anyhow::Result<Vec<Key>> {
    let cases = case::select(&args.cases);
    let transports = transports(args)?;
    let over = |case: Case| transports.iter().map(move |&over| Key { case, over });
    let plan: Vec<_> = cases
        .into_iter()
        .flat_map(over)
        .filter(|key| key.over.has(key.case))
        .collect();
    ensure!(
        !plan.is_empty(),
        "nothing to measure: no limit and no lane is known for this"
    );
    Ok(plan)
}

/// What is measured over: what there is, or the part of it that was asked for.
fn transports(args: &Args) -> anyhow::Result<Vec<Transport>> {
    let (all, place): (&[Transport], _) = match args.two_hosts {
        true => (&Transport::BETWEEN_HOSTS, "between two hosts"),
        false => (&Transport::ON_ONE_HOST, "on one host (see --two-hosts)"),
    };
    if let Some(other) = args.transports.iter().find(|over| !all.contains(over)) {
        let names: Vec<_> = all.iter().map(ToString::to_string).collect();
        let names = names.join(", ");
        bail!("{other} is not there {place}: choose among {names}");
    }
    let asked = |over: &Transport| args.transports.is_empty() || args.transports.contains(over);
    Ok(all.iter().copied().filter(asked).collect())
}

fn measure(host: &Host, plan: &[Key], rounds: u8) -> Results {
    let begin = |_| host.servers();
    let results = Rounds::measure(plan, rounds, begin, |servers, key| {
        servers.measure(key.case, key.over)
    });
    Results(results)
}

fn for_people(preamble: &Preamble, results: &Results) -> String {
    let Preamble {
        machine,
        rounds,
        measure_ms,
        window,
        ..
    } = preamble;
    let (between, which) = match window {
        None => ("", ""),
        Some(Kind::Shared) => (BETWEEN, ""),
        Some(Kind::Posted) => (BETWEEN, " that only write each other's memory"),
    };
    format!(
        "{}medians of {rounds} rounds of {measure_ms} ms each{between}{which}\n\n{}\n{}{}",
        heading(machine),
        table::table(results),
        results.0.legend(),
        as_notes(&table::notes(results))
    )
}
