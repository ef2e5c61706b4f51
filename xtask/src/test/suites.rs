//! The end-to-end suites, each one file in `crates/testkit/tests`, and the programs they need.

use crate::setup::{self, Program};

use super::step::Step;

/// A suite: an integration test of `crosslane-testkit`.
pub struct Suite {
    pub name: &'static str,
    pub needs: &'static [Program],
    /// Tests that are known to fail, with the reason. A whole run skips them and says so; the
    /// suite alone, by `--only`, runs them.
    pub known_failures: &'static [KnownFailure],
}

/// Tests that are known to fail.
pub struct KnownFailure {
    /// What the names of these tests contain.
    pub filter: &'static str,
    pub reason: &'static str,
}

const POSIX_UNDER_CROSSLANE: &[KnownFailure] = &[KnownFailure {
    filter: "crosslane::",
    reason: "two checks differ under Crosslane: a descriptor passed while ring bytes are unread, and \
             a close under a blocked reader",
}];

const NGINX_UNDER_CROSSLANE: &[KnownFailure] = &[
    KnownFailure {
        filter: "crosslane::bodies_are_whole",
        reason: "a large body sometimes stands still until a timeout of nginx",
    },
    KnownFailure {
        filter: "crosslane::kept_alive_connections",
        reason: "as above",
    },
    KnownFailure {
        filter: "crosslane::without_sendfile",
        reason: "as above",
    },
];

const STRESS_UNDER_CROSSLANE: &[KnownFailure] = &[
    KnownFailure {
        filter: "crosslane::",
        reason: "connections that switch to and fro under load are sometimes reset or stand still",
    },
    KnownFailure {
        filter: "every_byte_arrives_",
        reason: "as the tests above, with a killed monitor, other waiting, eager ports",
    },
];

/// All suites, in the order in which they run: first what explains failures of the later ones.
pub const ALL: [Suite; 10] = [
    Suite {
        name: "posix",
        needs: &[],
        known_failures: POSIX_UNDER_CROSSLANE,
    },
    Suite {
        name: "stress",
        needs: &[],
        known_failures: STRESS_UNDER_CROSSLANE,
    },
    Suite {
        name: "monitor",
        needs: &[],
        known_failures: &[],
    },
    Suite {
        name: "redis",
        needs: &[
            setup::REDIS_SERVER,
            setup::REDIS_CLI,
            setup::REDIS_BENCHMARK,
        ],
        known_failures: &[],
    },
    Suite {
        name: "mixed",
        needs: &[setup::REDIS_SERVER, setup::REDIS_CLI],
        known_failures: &[],
    },
    Suite {
        name: "sockperf",
        needs: &[setup::SOCKPERF],
        known_failures: &[],
    },
    Suite {
        name: "iperf3",
        needs: &[setup::IPERF3],
        known_failures: &[],
    },
    Suite {
        name: "http",
        needs: &[setup::PYTHON, setup::CURL],
        known_failures: &[],
    },
    Suite {
        name: "nginx",
        needs: &[setup::NGINX, setup::WRK, setup::CURL],
        known_failures: NGINX_UNDER_CROSSLANE,
    },
    Suite {
        name: "page",
        needs: &[setup::CHROMIUM],
        known_failures: &[],
    },
];

impl Suite {
    /// The step that runs it: one test at a time, so that timings do not disturb each other.
    /// Without `known` failures if those are not wanted.
    pub fn step(&self, with_known_failures: bool) -> Step {
        let mut words = self.words("--test-threads=1").to_vec();
        if !with_known_failures {
            words.extend(
                self.known_failures
                    .iter()
                    .flat_map(|known| ["--skip", known.filter]),
            );
        }
        Step::tests_of(self.name, &words)
    }

    /// How many tests have a name that contains `filter`.
    pub fn count_known(&self, known: &KnownFailure) -> anyhow::Result<usize> {
        let lines = Step::tests_of(self.name, &self.words("--list")).lines()?;
        let is_known = |line: &&String| line.ends_with(": test") && line.contains(known.filter);
        Ok(lines.iter().filter(is_known).count())
    }

    /// How many tests it has.
    pub fn count_tests(&self) -> anyhow::Result<usize> {
        let lines = Step::tests_of(self.name, &self.words("--list")).lines()?;
        Ok(lines.iter().filter(|line| line.ends_with(": test")).count())
    }

    /// The tests themselves need no optimisation; what they run has been built in release mode.
    fn words(&self, last: &'static str) -> [&'static str; 8] {
        [
            "cargo",
            "test",
            "--package",
            "crosslane-testkit",
            "--test",
            self.name,
            "--",
            last,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_has_its_file_and_every_file_its_suite() {
        let folder = crate::workspace_root().join("crates/testkit/tests");
        let files = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let mut found: Vec<String> = files
            .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        let mut listed: Vec<&str> = ALL.iter().map(|suite| suite.name).collect();
        found.sort();
        listed.sort_unstable();
        assert_eq!(found, listed);
    }
}
