//! `cargo xtask suites`: other people's test suites, run natively and under Crosslane, and compared
//! test by test. Only differences fail, and so does a run in which nothing was accelerated.
//!
//! A [`Suite`] knows where its tests come from and how to read their results; a [`Side`] runs them
//! one way; [`comparison`] puts the sides beside each other.

mod acceleration;
mod comparison;
mod cpython;
mod exclusions;
mod floor;
mod junit;
mod libuv;
mod nginx;
mod redis;
mod report;
mod side;
mod source;
mod suite;
mod tap;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::ensure;

use crate::build;
use crate::setup::{self, IP, Program};
use crate::test::Outcome;
use comparison::{Bench, Compared};
use report::Row;
use side::Mode;
use suite::{Extent, Suite};

/// All suites, in the order in which they run.
const ALL: [&dyn Suite; 6] = [
    &cpython::Cpython,
    &redis::Redis::Units,
    &redis::Redis::Sentinel,
    &redis::Redis::Cluster,
    &libuv::Libuv,
    &nginx::Nginx,
];

/// Most connections of a test are short, and only this mode accelerates them.
const CORE_MODE: Mode = Mode::Eager;

/// Arguments of `cargo xtask suites`.
#[derive(clap::Args)]
pub struct Args {
    /// Run only this suite, for instance `redis`; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Run only this part, for instance `test_socket` or `unit/auth`; may be repeated
    #[arg(long, value_name = "PART")]
    part: Vec<String>,
    /// Compare only this mode with the native run; may be repeated
    #[arg(long, value_enum)]
    mode: Vec<Mode>,
    /// Run what `cargo xtask test` runs, and no more, in the same mode
    #[arg(long)]
    core: bool,
    /// Write the results into docs/suites.md, beside those of suites that are not run now
    #[arg(long, conflicts_with_all = ["core", "part"])]
    record: bool,
    /// Take nginx' tests from this folder, or repository of git, and not from the internet
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,
    /// Run nothing, but compare anew what the last run has left
    #[arg(long)]
    reread: bool,
    /// Print one JSON object for each suite and mode
    #[arg(long)]
    json: bool,
}

impl Args {
    fn selects(&self, suite: &dyn Suite) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == suite.name())
    }

    fn modes(&self) -> Vec<Mode> {
        match (self.mode.is_empty(), self.core) {
            (false, _) => self.mode.clone(),
            (true, true) => vec![CORE_MODE],
            (true, false) => vec![Mode::Default, Mode::Eager, Mode::Unix],
        }
    }
}

/// Run what `args` ask for.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    check_names(args)?;
    let extent = if args.core {
        Extent::Core
    } else {
        Extent::Whole
    };
    let is_run = |suite: &&dyn Suite| args.selects(*suite) && suite.has(extent);
    let suites: Vec<_> = ALL.into_iter().filter(is_run).collect();
    ensure!(!suites.is_empty(), "no suite that is named has a core");
    let missing = setup::ensure_installed(&needed(&suites))?;
    ensure!(
        missing.is_empty(),
        "programs are missing; {}",
        setup::how_to_install(&missing)
    );
    let bench = Bench {
        crosslane: match args.reread {
            true => build::target().join("release/crosslane"),
            false => build::crosslane()?,
        },
        modes: args.modes(),
        extent,
        parts: args.part.clone(),
        reread: args.reread,
        commit: report::commit(crate::workspace_root())?,
        source: args.source.clone(),
    };
    let (mut rows, mut skipped) = (Vec::new(), Vec::new());
    for suite in suites {
        match bench.compare(suite)? {
            Compared::Skipped(why) => skipped.push(why),
            Compared::Rows(found) => {
                if args.record {
                    report::record(&found)?;
                }
                rows.extend(found);
            }
        }
    }
    println!("\n{}", report::text(&rows, args.json)?);
    for why in &skipped {
        eprintln!("SKIPPED: {why}");
    }
    Ok(match !rows.is_empty() && rows.iter().all(Row::is_success) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The core of all suites for `cargo xtask test`, against a `crosslane` that has been built.
pub fn core() -> anyhow::Result<Outcome> {
    let start = Instant::now();
    let has_core = |suite: &&dyn Suite| suite.has(Extent::Core);
    let suites: Vec<_> = ALL.into_iter().filter(has_core).collect();
    let missing = setup::ensure_installed(&needed(&suites))?;
    if !missing.is_empty() {
        return Ok(Outcome::skipped(1, &setup::how_to_install(&missing)));
    }
    let bench = Bench {
        crosslane: build::target().join("release/crosslane"),
        modes: vec![CORE_MODE],
        extent: Extent::Core,
        parts: Vec::new(),
        reread: false,
        commit: report::commit(crate::workspace_root())?,
        source: None,
    };
    let mut outcome = Outcome::skipped(0, "");
    outcome.notes.clear();
    for suite in suites {
        match bench.compare(suite) {
            Ok(Compared::Skipped(why)) => {
                outcome.skipped += 1;
                outcome.notes.push(format!("SKIPPED: {why}"));
            }
            Ok(Compared::Rows(rows)) => {
                println!("{}", report::text(&rows, false)?);
                rows.iter().for_each(|row| row.add_to(&mut outcome));
            }
            // The other suites, and what was tested before them, say something all the same.
            Err(error) => {
                outcome.failed += 1;
                let note = format!("FAILED: {}: {error:#}", suite.name());
                outcome.notes.push(note);
            }
        }
    }
    outcome.took = start.elapsed();
    Ok(outcome)
}

fn needed(suites: &[&dyn Suite]) -> Vec<Program> {
    let needed = suites.iter().flat_map(|suite| suite.needs()).copied();
    needed.chain([IP]).collect()
}

fn check_names(args: &Args) -> anyhow::Result<()> {
    let names: Vec<_> = ALL.iter().map(|suite| suite.name()).collect();
    for name in &args.only {
        ensure!(
            names.contains(&name.as_str()),
            "no suite is named {name}: choose among {}",
            names.join(", ")
        );
    }
    ensure!(
        !args.mode.contains(&Mode::Native),
        "a native run is part of every comparison: choose among default, eager, unix"
    );
    Ok(())
}

/// Where sources, logs and results are kept between runs.
fn folder() -> PathBuf {
    build::target().join("suites")
}
