//! `cargo xtask demo`: real, unmodified programs over TCP and under Crosslane, side by side.

mod comparison;
mod iperf3;
mod lane;
mod measure;
mod memcached;
mod page;
mod redis;
mod sockperf;
mod workload;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, ensure};
use crosslane_benchkit::{Crosslane, Machine, stop_children_on_signals};
use serde::Serialize;

use crate::build;
use crate::setup::{
    self, IPERF3, MEMCACHED, MEMCSLAP, Program, REDIS_BENCHMARK, REDIS_CLI, REDIS_SERVER, SOCKPERF,
};
use comparison::Comparison;
use measure::Effort;

const PROGRAMS: [Program; 7] = [
    REDIS_SERVER,
    REDIS_BENCHMARK,
    REDIS_CLI,
    MEMCACHED,
    MEMCSLAP,
    SOCKPERF,
    IPERF3,
];

/// About two minutes of measuring.
const FULL: Effort = Effort {
    rounds: 3,
    time: Duration::from_millis(1000),
    calibration: Duration::from_millis(200),
};
/// Less than a minute.
const QUICK: Effort = Effort {
    rounds: 1,
    time: Duration::from_millis(400),
    calibration: Duration::from_millis(50),
};

/// What a person must know who reads redis-benchmark's latencies.
const RESOLUTION: &str = "redis-benchmark counts latencies in steps of 8 us, so its 7 us are \"at most 7 us\" and \
                          ratios with them are lower bounds.";

/// Arguments of `cargo xtask demo`.
#[derive(clap::Args)]
pub struct Args {
    /// One short round: to see whether it works, not how fast it is
    #[arg(long)]
    quick: bool,
    /// Measure with this crosslane executable instead of building one
    #[arg(long, value_name = "PATH")]
    crosslane: Option<PathBuf>,
}

/// Everything that is known at the end.
#[derive(Serialize)]
struct Report {
    machine: Machine,
    /// The programs that were run, with their versions.
    programs: Vec<(String, String)>,
    rounds: usize,
    seconds_per_round: f64,
    workloads: Vec<Comparison>,
}

/// Runs the demo; fails when a workload failed or was not accelerated.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    stop_children_on_signals()?;
    println!("[1/4] programs");
    let missing = setup::ensure_installed(&PROGRAMS)?;
    ensure!(
        missing.is_empty(),
        "programs are missing; {}",
        setup::how_to_install(&missing)
    );
    println!("[2/4] build");
    let crosslane = match &args.crosslane {
        Some(path) => path
            .canonicalize()
            .with_context(|| path.display().to_string())?,
        None => build::crosslane()?,
    };
    let effort = if args.quick { QUICK } else { FULL };
    println!(
        "[3/4] measure: over TCP and under Crosslane in turn, rounds: {}, {:.1} s each",
        effort.rounds,
        effort.time.as_secs_f64()
    );
    let programs = [
        redis::program(),
        memcached::program(),
        sockperf::program(),
        iperf3::program(),
    ];
    let workloads = measure::measure(&programs, &Crosslane::at(crosslane), effort);
    let report = Report {
        machine: Machine::here(),
        programs: versions(),
        rounds: effort.rounds,
        seconds_per_round: effort.time.as_secs_f64(),
        workloads,
    };
    println!("[4/4] report\n");
    println!("{}\n", comparison::table(&report.workloads));
    println!("Medians over {}. {RESOLUTION}", report.rounds_in_words());
    write_files(&report)?;
    let complaints: Vec<_> = report
        .workloads
        .iter()
        .filter_map(Comparison::complaint)
        .collect();
    complaints
        .iter()
        .for_each(|complaint| eprintln!("demo: {complaint}"));
    Ok(if complaints.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Report {
    fn rounds_in_words(&self) -> String {
        match self.rounds {
            1 => "1 round".into(),
            rounds => format!("{rounds} rounds"),
        }
    }
}

fn write_files(report: &Report) -> anyhow::Result<()> {
    let folder = crate::workspace_root().join("target");
    let write = |name: &str, text: String| -> anyhow::Result<()> {
        let path: &Path = &folder.join(name);
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {}", path.display());
        Ok(())
    };
    let rows: Vec<_> = report.workloads.iter().flat_map(Comparison::rows).collect();
    write("demo.json", serde_json::to_string_pretty(&rows)? + "\n")?;
    write(
        "demo-rounds.json",
        serde_json::to_string_pretty(report)? + "\n",
    )?;
    write("demo.html", page::page(report).into_string())
}

/// The first thing that looks like a version in what each program says about itself.
fn versions() -> Vec<(String, String)> {
    let version = |name: &str| -> Option<String> {
        let output = Command::new(name).arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut words = text
            .split_whitespace()
            .map(|word| word.trim_start_matches(|c: char| !c.is_ascii_digit()));
        words.find(|word| word.contains('.')).map(str::to_owned)
    };
    let named = ["redis-server", "memcached", "sockperf", "iperf3"];
    named
        .map(|name| {
            (
                name.to_owned(),
                version(name).unwrap_or_else(|| "unknown".into()),
            )
        })
        .to_vec()
}
