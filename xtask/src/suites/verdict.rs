//! What became of each test of a suite, and how two runs differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::side::End;

/// What became of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Passed,
    Failed,
    Skipped,
    /// The other runs have it, this one does not.
    Missing,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Missing => "missing",
        })
    }
}

/// The verdicts of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts(BTreeMap<String, Verdict>);

impl Verdicts {
    /// Add a test. A name that occurs again is told apart by a number.
    pub fn add(&mut self, name: &str, verdict: Verdict) {
        let numbered = (2..).map(|number| format!("{name} #{number}"));
        let free = std::iter::once(name.to_owned())
            .chain(numbered)
            .find(|name| !self.0.contains_key(name));
        self.0.extend(free.map(|name| (name, verdict)));
    }

    /// Add a test that is run a number of times: it has passed when it has each time.
    pub fn merge(&mut self, name: &str, verdict: Verdict) {
        let kept = self.0.entry(name.to_owned()).or_insert(verdict);
        if verdict != Verdict::Passed {
            *kept = verdict;
        }
    }

    /// Add how a part itself ended, which its tests do not say of what comes after the last of them.
    pub fn add_end(&mut self, part: &str, end: End) {
        let verdict = |is_so: bool| match is_so {
            true => Verdict::Passed,
            false => Verdict::Failed,
        };
        let is_by_itself = matches!(end, End::Good | End::Bad);
        self.add(&format!("{part}: ends by itself"), verdict(is_by_itself));
        self.add(&format!("{part}: ends with 0"), verdict(end == End::Good));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Leave out the tests that are excluded by their whole names.
    pub fn without(mut self, is_excluded: impl Fn(&str) -> bool) -> Self {
        self.0.retain(|name, _| !is_excluded(name));
        self
    }

    /// How many tests there are.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    fn of(&self, name: &str) -> Verdict {
        self.0.get(name).copied().unwrap_or(Verdict::Missing)
    }
}

/// How many tests of a run ended in each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub passed: usize,
    pub skipped: usize,
    pub failed: usize,
}

impl Tally {
    /// Of all of these runs together.
    pub fn of<'a>(runs: impl IntoIterator<Item = &'a Verdicts>) -> Self {
        let mut tally = Self::default();
        for verdict in runs.into_iter().flat_map(|run| run.0.values()) {
            match verdict {
                Verdict::Passed => tally.passed += 1,
                Verdict::Skipped => tally.skipped += 1,
                Verdict::Failed => tally.failed += 1,
                Verdict::Missing => {}
            }
        }
        tally
    }
}

/// A test that ended differently under Crosslane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    pub test: String,
    pub natively: BTreeSet<Verdict>,
    pub under_crosslane: Verdict,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let natively: Vec<_> = self.natively.iter().map(Verdict::to_string).collect();
        let natively = natively.join(" or ");
        write!(
            f,
            "{}: {natively} natively, {} under Crosslane",
            self.test, self.under_crosslane
        )
    }
}

/// All names that any of the runs has.
pub fn names<'a>(runs: impl IntoIterator<Item = &'a Verdicts>) -> BTreeSet<&'a str> {
    let names = runs.into_iter().flat_map(|run| run.0.keys());
    names.map(String::as_str).collect()
}

/// Every test whose verdict under Crosslane is none of its verdicts natively. Natively a test may
/// have several, of runs that disagree among themselves.
pub fn differences(natively: &[Verdicts], under_crosslane: &Verdicts) -> Vec<Difference> {
    let all = natively.iter().chain([under_crosslane]);
    let difference = |name: &str| Difference {
        test: name.to_owned(),
        natively: natively.iter().map(|run| run.of(name)).collect(),
        under_crosslane: under_crosslane.of(name),
    };
    names(all)
        .into_iter()
        .map(difference)
        .filter(|found| !found.natively.contains(&found.under_crosslane))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Failed, Missing, Passed, Skipped};

    fn run(verdicts: &[(&str, Verdict)]) -> Verdicts {
        let mut run = Verdicts::default();
        verdicts
            .iter()
            .for_each(|(name, verdict)| run.add(name, *verdict));
        run
    }

    #[test]
    fn a_test_that_fails_on_both_sides_is_no_difference() {
        let natively = run(&[("a", Passed), ("b", Failed), ("c", Skipped)]);
        assert_eq!(differences(std::slice::from_ref(&natively), &natively), []);
    }

    #[test]
    fn tests_are_tallied_by_how_they_ended_and_a_missing_one_did_not() {
        let one = run(&[("a", Passed), ("b", Failed), ("c", Skipped)]);
        let other = run(&[("a", Passed), ("d", Missing)]);
        let tally = Tally {
            passed: 2,
            skipped: 1,
            failed: 1,
        };
        assert_eq!(Tally::of([&one, &other]), tally);
    }

    #[test]
    fn what_is_new_or_gone_differs() {
        let found = differences(&[run(&[("a", Passed)])], &run(&[("b", Passed)]));
        let verdicts: Vec<_> = found.iter().map(|found| found.under_crosslane).collect();
        assert_eq!(verdicts, [Missing, Passed]);
    }

    #[test]
    fn a_test_that_varies_natively_may_vary_under_crosslane_only_in_the_same_way() {
        let natively = [run(&[("a", Passed)]), run(&[("a", Failed)])];
        assert_eq!(differences(&natively, &run(&[("a", Failed)])), []);
        assert_eq!(differences(&natively, &run(&[("a", Skipped)])).len(), 1);
    }

    #[test]
    fn a_part_that_hangs_or_dies_after_its_tests_differs() {
        let ending = |end| {
            let mut run = run(&[("a", Passed)]);
            run.add_end("part", end);
            run
        };
        for end in [End::Good, End::Bad] {
            assert_eq!(differences(&[ending(end)], &ending(end)), []);
            for other in [End::Killed, End::Late] {
                let found = differences(&[ending(end)], &ending(other));
                assert_eq!(found[0].test, "part: ends by itself");
            }
        }
        let found = differences(&[ending(End::Good)], &ending(End::Bad));
        assert_eq!(found[0].test, "part: ends with 0");
    }

    #[test]
    fn a_name_that_occurs_twice_is_two_tests() {
        let natively = run(&[("a", Passed), ("a", Passed)]);
        assert_eq!(natively.count(), 2);
        let found = differences(&[natively], &run(&[("a", Passed), ("a", Failed)]));
        assert_eq!(found[0].test, "a #2");
    }
}
