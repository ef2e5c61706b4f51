//! `cargo xtask test`: the quick tier (style, lints, tidy, unit tests), then the full tier
//! (real programs end to end), and a summary that ends on `N passed, N failed, N skipped`.

mod libtest;
mod step;
mod suites;
mod summary;
mod tree;

use std::process::ExitCode;

use anyhow::ensure;

use crate::setup;
pub use step::Outcome;
use suites::Suite;
use summary::Summary;

/// The core of other people's suites.
const OTHERS: &str = "suites";

/// Arguments of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Args {
    /// Run the quick tier only: fmt, clippy, tidy, unit tests
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Run both tiers (the default)
    #[arg(long)]
    full: bool,
    /// Run only this step or suite, for instance `clippy` or `redis`; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
}

impl Args {
    fn selects(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

/// Run what `args` ask for.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    check_names(&args.only)?;
    let mut summary = Summary::default();
    for step in step::quick_tier()
        .into_iter()
        .filter(|step| args.selects(step.name))
    {
        summary.add(step.name, Outcome::of(step.run()));
    }
    if !args.quick {
        for step in [step::loom(), step::schedules()] {
            if args.selects(step.name) {
                summary.add(step.name, Outcome::of(step.run()));
            }
        }
        if let Err(error) = full_tier(args, &mut summary) {
            summary.add("full", Outcome::of(Err(error)));
        }
    }
    summary.print();
    Ok(if summary.is_success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn full_tier(args: &Args, summary: &mut Summary) -> anyhow::Result<()> {
    let suites: Vec<&Suite> = suites::ALL
        .iter()
        .filter(|suite| args.selects(suite.name))
        .collect();
    if suites.is_empty() && !args.selects(step::BUILD) && !args.selects(OTHERS) {
        return Ok(());
    }
    let needed: Vec<_> = suites
        .iter()
        .flat_map(|suite| suite.needs)
        .copied()
        .collect();
    let missing = setup::ensure_installed(&needed)?;

    let build = step::build();
    let built = Outcome::of(build.run());
    let is_built = built.is_success();
    summary.add(build.name, built);
    if is_built && suites.iter().any(|suite| suite.name == "bench") {
        let traced = step::build_traced();
        summary.add(traced.name, Outcome::of(traced.run()));
    }
    for suite in suites {
        let lacks: Vec<_> = missing
            .iter()
            .filter(|p| suite.needs.contains(p))
            .copied()
            .collect();
        let outcome = if !is_built {
            Outcome::skipped(1, "the build failed")
        } else if lacks.is_empty() {
            Outcome::of(suite.step().run())
        } else {
            let names: Vec<_> = lacks.iter().map(|program| program.name).collect();
            let reason = format!(
                "{} missing; {}",
                names.join(" "),
                setup::how_to_install(&lacks)
            );
            Outcome::skipped(suite.count_tests()?, &reason)
        };
        summary.add(suite.name, outcome);
    }
    if args.selects(OTHERS) {
        let outcome = match is_built {
            true => Outcome::of(crate::suites::core()),
            false => Outcome::skipped(1, "the build failed"),
        };
        summary.add(OTHERS, outcome);
    }
    Ok(())
}

/// Refuse a name that would silently run nothing.
fn check_names(only: &[String]) -> anyhow::Result<()> {
    let steps = step::quick_tier();
    let quick = steps.iter().map(|step| step.name);
    let known: Vec<&str> = quick
        .chain([step::LOOM, step::SCHEDULES, step::BUILD, OTHERS])
        .chain(suites::ALL.iter().map(|suite| suite.name))
        .collect();
    for name in only {
        ensure!(
            known.contains(&name.as_str()),
            "no step or suite is named {name}: choose among {}",
            known.join(", ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_selects_nothing_is_refused() {
        assert!(check_names(&["clippy".into(), "redis".into()]).is_ok());
        assert!(check_names(&["clipy".into()]).is_err());
    }
}
