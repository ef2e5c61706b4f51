//! `tests/suites/exclusions.csv`: the tests that are not run, and why.

use std::path::Path;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

/// A test, or a pattern of tests as its suite understands them, that is not run on either side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exclusion {
    pub suite: String,
    pub test: String,
    pub reason: String,
}

/// Words that say that a test fails, and not why.
const EXCUSES: [&str; 5] = [
    "flak",
    "now and then",
    "sometimes",
    "intermittent",
    "occasional",
];

/// Read them all. `suites` are the names that there are.
pub fn read(suites: &[&str]) -> anyhow::Result<Vec<Exclusion>> {
    let path = crate::workspace_root().join("tests/suites/exclusions.csv");
    parse(&path, suites).with_context(|| path.display().to_string())
}

fn parse(path: &Path, suites: &[&str]) -> anyhow::Result<Vec<Exclusion>> {
    let mut reader = csv::ReaderBuilder::new().from_path(path)?;
    let exclusions: Vec<Exclusion> = reader.deserialize().collect::<Result<_, _>>()?;
    exclusions
        .iter()
        .try_for_each(|exclusion| check(exclusion, suites))?;
    Ok(exclusions)
}

fn check(exclusion: &Exclusion, suites: &[&str]) -> anyhow::Result<()> {
    let Exclusion {
        suite,
        test,
        reason,
    } = exclusion;
    ensure!(
        suites.contains(&suite.as_str()),
        "no suite is named {suite}: choose among {}",
        suites.join(", ")
    );
    ensure!(!test.is_empty(), "an exclusion of {suite} names no test");
    let said = reason.to_lowercase();
    let is_explained = reason.len() >= 20 && !EXCUSES.iter().any(|excuse| said.contains(excuse));
    ensure!(
        is_explained,
        "{suite}, {test}: {reason:?} is no reason: say what happens, and why"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exclusion(suite: &str, test: &str, reason: &str) -> Exclusion {
        Exclusion {
            suite: suite.into(),
            test: test.into(),
            reason: reason.into(),
        }
    }

    #[test]
    fn an_exclusion_needs_a_suite_a_test_and_a_reason() {
        let reason = "the kernel has no such device here";
        assert!(check(&exclusion("redis", "a", reason), &["redis"]).is_ok());
        assert!(check(&exclusion("rediss", "a", reason), &["redis"]).is_err());
        assert!(check(&exclusion("redis", "", reason), &["redis"]).is_err());
        assert!(check(&exclusion("redis", "a", "flaky"), &["redis"]).is_err());
        for excuse in [
            "it is a Flaky test in all versions",
            "it fails now and then on a busy machine",
            "Sometimes it waits for more than it is given",
            "an intermittent failure under load",
        ] {
            assert!(check(&exclusion("redis", "a", excuse), &["redis"]).is_err());
        }
    }

    #[test]
    fn the_list_of_the_project_is_valid() {
        let names: Vec<_> = super::super::ALL.iter().map(|suite| suite.name()).collect();
        read(&names).unwrap();
    }
}
