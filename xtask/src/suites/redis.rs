//! Redis' own tests, against the installed Redis.

mod instances;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::setup::{DPKG_SOURCE, Program, REDIS_BENCHMARK, REDIS_CLI, REDIS_SERVER, TCLSH};

use super::floor::Floor;
use super::side::{Ended, Job};
use super::source;
use super::suite::{Extent, Place, Prepared, Suite};
use super::verdict::{Verdict, Verdicts};

/// Debian's source package `redis`, of the version of the installed one, has three suites.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Redis {
    /// One server, or a few for replication, for each unit.
    Units,
    /// Five servers and five Sentinels that watch them.
    Sentinel,
    /// Twenty servers.
    Cluster,
}

/// What makes most of connections: pipelines, large and broken requests, blocked clients,
/// messages pushed, connections closed by either side, limits.
const CORE: [&str; 8] = [
    "unit/auth",
    "unit/protocol",
    "unit/info",
    "unit/quit",
    "unit/multi",
    "unit/pubsub",
    "unit/limits",
    "integration/block-repl",
];

const PROGRAMS: [(&str, &str); 6] = [
    ("redis-server", "redis-server"),
    ("redis-sentinel", "redis-server"),
    ("redis-cli", "redis-cli"),
    ("redis-benchmark", "redis-benchmark"),
    ("redis-check-rdb", "redis-check-rdb"),
    ("redis-check-aof", "redis-check-aof"),
];

/// What runtest says at its end, its own failures and those of servers considered.
const ALL_PASSED: &str = r"\o/ All tests passed without errors!";

const UNIT_LIMIT: Duration = Duration::from_secs(900);
/// Sentinel and cluster are one part each, of many units.
const LONG_LIMIT: Duration = Duration::from_secs(2400);

impl Suite for Redis {
    fn name(&self) -> &'static str {
        match self {
            Self::Units => "redis",
            Self::Sentinel => "redis-sentinel",
            Self::Cluster => "redis-cluster",
        }
    }

    fn floors(&self) -> &'static [Floor] {
        const { &[Floor::of_suite(90)] }
    }

    fn is_patient(&self) -> bool {
        true
    }

    fn needs(&self) -> &'static [Program] {
        &[REDIS_SERVER, REDIS_CLI, REDIS_BENCHMARK, TCLSH, DPKG_SOURCE]
    }

    fn version(&self) -> anyhow::Result<String> {
        Ok(format!("Redis {}", upstream(&installed()?)))
    }

    /// Sentinel's and the cluster's tests wait for time-outs of servers most of the time.
    fn has(&self, extent: Extent) -> bool {
        *self == Self::Units || extent == Extent::Whole
    }

    fn prepare(&self, folder: &Path, _: Option<&Path>) -> anyhow::Result<Prepared> {
        source::fetch(&format!("redis={}", installed()?), folder)?;
        Ok(Prepared::Ready)
    }

    fn parts(&self, folder: &Path, extent: Extent) -> anyhow::Result<Vec<String>> {
        let tree = source::tree(folder).context("the tests have been fetched")?;
        Ok(match (self, extent) {
            (Self::Units, Extent::Core) => CORE.map(str::to_owned).to_vec(),
            (Self::Units, Extent::Whole) => units(&tree)?,
            (Self::Sentinel | Self::Cluster, _) => vec!["all".to_owned()],
        })
    }

    /// A copy of the tree, as the tests write into it.
    fn furnish(&self, place: &Place) -> anyhow::Result<()> {
        let from = source::tree(place.suite).context("the tests have been fetched")?;
        let status = Command::new("cp")
            .arg("--archive")
            .arg("--no-target-directory")
            .args([&from, &tree(place)])
            .status()?;
        ensure!(status.success(), "cannot copy {}", from.display());
        for (name, program) in PROGRAMS {
            let link = tree(place).join("src").join(name);
            if !link.exists() {
                std::os::unix::fs::symlink(Path::new("/usr/bin").join(program), link)?;
            }
        }
        Ok(())
    }

    fn job(&self, part: &str, place: &Place) -> anyhow::Result<Job> {
        // One client: Debian's own rules speak of races among several.
        let unit = ["./runtest", "--clients", "1", "--durable", "--single", part];
        let mut words = match self {
            Self::Units => unit.to_vec(),
            Self::Sentinel => vec!["./runtest-sentinel"],
            Self::Cluster => vec!["./runtest-cluster"],
        };
        for exclusion in place.exclusions {
            if let Some(test) = test_of(part, &exclusion.test) {
                words.extend(["--skiptest", test]);
            }
        }
        Ok(Job {
            name: part.replace('/', "-"),
            words: words.into_iter().map(OsString::from).collect(),
            folder: tree(place),
            limit: match self {
                Self::Units => UNIT_LIMIT,
                Self::Sentinel | Self::Cluster => LONG_LIMIT,
            },
        })
    }

    fn read(&self, part: &str, _: &Place, ended: &Ended) -> anyhow::Result<Verdicts> {
        let log = std::fs::read(&ended.log)?;
        let log = without_colours(&String::from_utf8_lossy(&log));
        let found: Vec<_> = match self {
            Self::Units => log.lines().filter_map(test).collect(),
            Self::Sentinel | Self::Cluster => instances::steps(&log),
        };
        let mut verdicts = Verdicts::default();
        for (name, verdict) in found {
            match self {
                Self::Units => match stable(&name) {
                    Some(name) => verdicts.merge(&format!("{part}: {name}"), verdict),
                    None => verdicts.add(&format!("{part}: {name}"), verdict),
                },
                Self::Sentinel | Self::Cluster => match instances::stable(&name) {
                    Some(name) => verdicts.merge(&name, verdict),
                    None => verdicts.add(&name, verdict),
                },
            }
        }
        Ok(verdicts)
    }
}

fn units(tree: &Path) -> anyhow::Result<Vec<String>> {
    let output = Command::new("./runtest")
        .arg("--list-tests")
        .current_dir(tree)
        .output()
        .context("cannot start runtest")?;
    let units = String::from_utf8_lossy(&output.stdout).into_owned();
    let units: Vec<_> = units.split_whitespace().map(str::to_owned).collect();
    ensure!(!units.is_empty(), "runtest --list-tests names no unit");
    Ok(units)
}

/// The test's own name in `UNIT: NAME`, if that is its unit.
fn test_of<'a>(unit: &str, name: &'a str) -> Option<&'a str> {
    name.strip_prefix(unit)?.strip_prefix(": ")
}

fn tree(place: &Place) -> PathBuf {
    place.side.join("redis")
}

/// The version of Debian's package.
fn installed() -> anyhow::Result<String> {
    let output = Command::new("dpkg-query")
        .args([
            "--show",
            "--showformat",
            "${source:Version}",
            "redis-server",
        ])
        .output()
        .context("cannot start dpkg-query")?;
    let version = String::from_utf8(output.stdout)?;
    ensure!(!version.is_empty(), "redis-server is no package of Debian");
    Ok(version)
}

/// `7.0.15` in `5:7.0.15-1~deb12u10`.
fn upstream(version: &str) -> &str {
    let start = version.find(':').map_or(0, |colon| colon + 1);
    let end = version.rfind('-').unwrap_or(version.len());
    &version[start..end]
}

/// A line of `runtest`: `[ok]: NAME (12 ms)`.
fn test(line: &str) -> Option<(String, Verdict)> {
    // A unit may have no other, as `unit/tls` without TLS.
    if line.trim() == ALL_PASSED {
        return Some(("all tests passed".to_owned(), Verdict::Passed));
    }
    let (status, rest) = line.strip_prefix('[')?.split_once("]: ")?;
    let verdict = match status {
        "ok" => Verdict::Passed,
        "err" | "exception" => Verdict::Failed,
        "skip" | "ignore" => Verdict::Skipped,
        _ => return None,
    };
    // Why one failed follows on the same line, or the time that it took.
    let name = match verdict {
        Verdict::Failed => rest.split(" in tests/").next(),
        _ => rest.rsplit_once(" (").map(|(name, _)| name),
    };
    Some((name.unwrap_or(rest).to_owned(), verdict))
}

/// Names of the psync2 units count random rounds of random replicas: without these numbers, they
/// are the same each time.
fn stable(name: &str) -> Option<String> {
    let rest = name.strip_prefix("PSYNC2")?;
    Some(format!("PSYNC2{}", without_numbers(rest)))
}

/// The text with N for each number.
fn without_numbers(text: &str) -> String {
    let mut plain = String::new();
    let mut is_in_number = false;
    for c in text.chars() {
        match c.is_ascii_digit() {
            true if is_in_number => {}
            true => plain.push('N'),
            false => plain.push(c),
        }
        is_in_number = c.is_ascii_digit();
    }
    plain
}

/// The text without the sequences that colour it.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| {
        plain + part.split_once('m').map_or(part, |(_, rest)| rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_runtest_are_understood() {
        let read = |line| test(&without_colours(line));
        let line = "[\x1b[0;32;49mok\x1b[0m]: KEYS (with pattern) (12 ms)";
        assert_eq!(
            read(line),
            Some(("KEYS (with pattern)".into(), Verdict::Passed))
        );
        let line = "[err]: SORT works in tests/unit/sort.tcl";
        assert_eq!(read(line), Some(("SORT works".into(), Verdict::Failed)));
        let line = "[ignore]: large one: large memory flag not provided";
        assert_eq!(read(line).map(|found| found.1), Some(Verdict::Skipped));
        assert_eq!(read("[2/2 done]: unit/multi (4 seconds)"), None);
        let line = "\x1b[1;37;49m\\o/\x1b[0m \x1b[1;32;49mAll tests passed without errors!\x1b[0m";
        assert_eq!(read(line).map(|found| found.1), Some(Verdict::Passed));
    }

    #[test]
    fn random_numbers_are_no_part_of_a_name() {
        let name = "PSYNC2: Set #3 to replicate from #12";
        let expected = "PSYNC2: Set #N to replicate from #N";
        assert_eq!(stable(name).as_deref(), Some(expected));
        assert_eq!(stable("INCR 1"), None);
    }

    #[test]
    fn a_test_is_skipped_in_its_own_unit_only() {
        let name = "unit/pubsub: after UNSUBSCRIBE: twice";
        assert_eq!(
            test_of("unit/pubsub", name),
            Some("after UNSUBSCRIBE: twice")
        );
        assert_eq!(test_of("unit/pubsubshard", name), None);
        assert_eq!(test_of("unit/pub", name), None);
    }

    #[test]
    fn the_version_is_the_programs_own() {
        assert_eq!(upstream("5:7.0.15-1~deb12u10"), "7.0.15");
        assert_eq!(upstream("7.2"), "7.2");
    }
}
