//! `crosslane bench stores`: Redis and memcached under mixes of reads and writes like YCSB's, over TCP
//! and over Crosslane in turn, on one host or between two that are made of it. The comparison of NTSocks' figure 15.

mod host;
mod results;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use crosslane_benchkit::{Machine, stop_children_on_signals};
use crosslane_sockbench::span::Span;
use serde::Serialize;

use super::effort::Effort;
use super::output::{as_notes, finish, heading, json};
use super::over::Over;
use super::rounds::Rounds;
use super::sides::{BETWEEN, Sides};
use host::Host;
use results::{Key, Mix, Results, Store};

const ROUNDS: u8 = 3;
const QUICK_ROUNDS: u8 = 2;
const SPAN: Span = Span {
    warmup: Duration::from_millis(50),
    measure: Duration::from_millis(400),
};
const QUICK_SPAN: Span = Span {
    warmup: Duration::from_millis(20),
    measure: Duration::from_millis(80),
};

/// Between two hosts. Connections keep their room for some seconds after their client has ended, until it is known that
/// nobody maps it, and the next clients come at once: room for 2000, where there are up to 1000 at a time.
const WINDOW_BYTES: u64 = 1 << 30;

/// Arguments of `crosslane bench stores`.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    #[command(flatten)]
    effort: Effort,
    /// Which servers
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Store::ALL)]
    stores: Vec<Store>,
    /// What they are asked [default: all, with --quick R100 and R50U50]
    #[arg(long, value_enum, value_delimiter = ',', ignore_case = true)]
    mixes: Vec<Mix>,
    /// Sizes of values, 12 B and more [default: 16,256,1024,4096, with --quick 16,4096]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(12..=1 << 20))]
    bytes: Vec<u64>,
    /// How many connections ask at a time [default: 1,10,50, with --quick 1,50]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: Vec<u32>,
    /// What they go over
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Over::ALL)]
    transports: Vec<Over>,
    /// Put the servers on one host and the client on another: network namespaces, which take root
    #[arg(long)]
    two_hosts: bool,
    /// Decides on keys and on reads or writes
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const HELP: &str = "\
One thread has all connections in an epoll set, and one request at a time on each: closed loop. Every \
answer is compared with what was stored. Keys are drawn with equal chances from 10,000, whose values are \
written before. R100 only reads; of R95I5's requests 5 % write new keys; of R90U10's 10 %, and of \
R50U50's half, write keys that are there.

The servers are Debian's; one that is missing is named, and left out. Redis saves nothing to disk.

With --two-hosts, two network namespaces are made, with a veth pair between them, a monitor in each and a \
window file in /dev/shm: TCP goes over the pair, Crosslane over the window.

Examples:
  crosslane bench stores --quick
  sudo crosslane bench stores --quick --two-hosts
  crosslane bench stores --stores redis --mixes R90U10 --clients 1,10,50 --bytes 1024";

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
    seed: u64,
    /// How many, where it is not one.
    #[serde(skip_serializing_if = "Option::is_none")]
    hosts: Option<u8>,
    /// Who was left out, and why.
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
        bench: "stores",
        case: "machine",
        machine: Machine::here(),
        rounds,
        warmup_ms: span.warmup.as_millis(),
        measure_ms: span.measure.as_millis(),
        seed: args.seed,
        hosts: args.two_hosts.then_some(2),
        notes,
    };
    let sides = match args.two_hosts {
        true => Sides::on_two_hosts(WINDOW_BYTES)?,
        false => Sides::on_one_host()?,
    };
    let results = measure(&Host::new(sides, span, args.seed)?, &plan, rounds);
    let text = if args.effort.json {
        json(&preamble, &results.rows())?
    } else {
        for_people(&preamble, &results)
    };
    finish(&text, &results.0.complaints(), results.0.is_complete())
}

/// What the person named, or what is usual.
fn chosen<T: Clone>(named: &[T], usual: &[T]) -> Vec<T> {
    let chosen = if named.is_empty() { usual } else { named };
    chosen.to_vec()
}

/// Every mix of every store that is there, by size and clients, over each transport in turn.
fn plan(args: &Args, notes: &mut Vec<String>) -> anyhow::Result<Vec<Key>> {
    let choose = |thorough, quick| args.effort.choose(thorough, quick);
    let mixes = choose(&Mix::ALL[..], &[Mix::R100, Mix::R50U50]);
    let mixes = chosen(&args.mixes, mixes);
    let sizes: &[u64] = args.effort.choose(&[16, 256, 1024, 4096], &[16, 4096]);
    let sizes = chosen(&args.bytes, sizes);
    let clients: &[u32] = args.effort.choose(&[1, 10, 50], &[1, 50]);
    let clients = chosen(&args.clients, clients);
    let mut plan = Vec::new();
    for &store in &args.stores {
        if let Some(why) = store.missing() {
            notes.push(format!("{store} is left out: {why}"));
            continue;
        }
        for (&mix, &bytes) in mixes
            .iter()
            .flat_map(|mix| sizes.iter().map(move |bytes| (mix, bytes)))
        {
            for &clients in &clients {
                let over = |&over: &Over| Key {
                    store,
                    mix,
                    bytes,
                    clients,
                    over,
                };
                plan.extend(args.transports.iter().map(over));
            }
        }
    }
    ensure!(!plan.is_empty(), "nothing to measure: {}", notes.join("; "));
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
        hosts,
        notes,
        ..
    } = preamble;
    let between = hosts.map_or("", |_| BETWEEN);
    let notes = as_notes(notes);
    format!(
        "{}medians of {rounds} rounds of {measure_ms} ms each{between}; ratios say how many times better Crosslane is\n\n{}\n{}{notes}",
        heading(machine),
        results.table(),
        results.0.legend()
    )
}
