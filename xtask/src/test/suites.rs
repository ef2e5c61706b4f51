//! The end-to-end suites, each one file in `crates/testkit/tests`, and the programs they need.

use std::time::Duration;

use crate::setup::{self, Program};

use super::step::Step;

/// A suite: an integration test of `crosslane-testkit`.
pub struct Suite {
    pub name: &'static str,
    pub needs: &'static [Program],
}

/// The suite of two virtual machines, which are emulated and can stand still in more ways than programs. Its tests take a
/// minute, and what compiles them no more.
const QEMU: &str = "qemu";
const QEMU_LIMIT: Duration = Duration::from_secs(300);

/// All suites, in the order in which they run: first what explains failures of the later ones.
pub const ALL: [Suite; 20] = [
    Suite {
        name: "posix",
        needs: &[],
    },
    Suite {
        name: "differ",
        needs: &[],
    },
    Suite {
        name: "stress",
        needs: &[],
    },
    Suite {
        name: "monitor",
        needs: &[setup::PYTHON],
    },
    Suite {
        name: "api",
        needs: &[],
    },
    Suite {
        name: "timeouts",
        needs: &[setup::PYTHON],
    },
    Suite {
        name: "redis",
        needs: &[
            setup::REDIS_SERVER,
            setup::REDIS_CLI,
            setup::REDIS_BENCHMARK,
        ],
    },
    Suite {
        name: "unix",
        needs: &[
            setup::PYTHON,
            setup::CURL,
            setup::REDIS_SERVER,
            setup::REDIS_CLI,
            setup::REDIS_BENCHMARK,
        ],
    },
    Suite {
        name: "explain",
        needs: &[
            setup::PYTHON,
            setup::REDIS_SERVER,
            setup::REDIS_CLI,
            setup::REDIS_BENCHMARK,
        ],
    },
    Suite {
        name: "mixed",
        needs: &[setup::REDIS_SERVER, setup::REDIS_CLI],
    },
    Suite {
        name: "sockperf",
        needs: &[setup::SOCKPERF],
    },
    Suite {
        name: "iperf3",
        needs: &[setup::IPERF3],
    },
    Suite {
        name: "http",
        needs: &[setup::PYTHON, setup::CURL],
    },
    Suite {
        name: "nginx",
        needs: &[setup::NGINX, setup::WRK, setup::CURL, setup::PYTHON],
    },
    Suite {
        name: "programs",
        needs: &[
            setup::AB,
            setup::CURL,
            setup::HAPROXY,
            setup::JAVAC,
            setup::MARIADB,
            setup::MARIADBD,
            setup::NGINX,
            setup::NODE,
            setup::POSTGRES,
            setup::PYTHON,
            setup::RCLONE,
            setup::RSYNC,
            setup::SSH,
            setup::SSHD,
        ],
    },
    Suite {
        name: "rack",
        needs: &[
            setup::IP,
            setup::PYTHON,
            setup::REDIS_SERVER,
            setup::REDIS_CLI,
            setup::REDIS_BENCHMARK,
        ],
    },
    Suite {
        name: QEMU,
        needs: &[
            setup::GUEST_BUSYBOX,
            setup::GUEST_KERNEL,
            setup::QEMU,
            setup::REDIS_SERVER,
            setup::REDIS_CLI,
            setup::REDIS_BENCHMARK,
        ],
    },
    Suite {
        name: "instructions",
        needs: &[setup::VALGRIND],
    },
    Suite {
        name: "bench",
        needs: &[
            setup::FI_PINGPONG,
            setup::IP,
            setup::MEMCACHED,
            setup::NGINX,
            setup::REDIS_SERVER,
            setup::UCX_PERFTEST,
            setup::WRK,
        ],
    },
    Suite {
        name: "page",
        needs: &[setup::CHROMIUM],
    },
];

impl Suite {
    /// The step that runs it: one test at a time, so that timings do not disturb each other.
    pub fn step(&self) -> Step {
        let step = Step::tests_of(self.name, &self.words("--test-threads=1"));
        match self.name {
            QEMU => step.with_limit(QEMU_LIMIT),
            _ => step,
        }
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
        let entries = std::fs::read_dir(folder).unwrap();
        let is_suite = |path: &std::path::PathBuf| {
            path.extension().is_some_and(|extension| extension == "rs")
                || path.join("main.rs").exists()
        };
        let mut found: Vec<String> = entries
            .map(|entry| entry.unwrap().path())
            .filter(is_suite)
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        let mut listed: Vec<&str> = ALL.iter().map(|suite| suite.name).collect();
        found.sort();
        listed.sort_unstable();
        assert_eq!(found, listed);
    }
}
