//! What a person reads: on the terminal, and in docs/suites.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::test::Outcome;

use super::acceleration::Acceleration;
use super::exclusions::Exclusion;
use super::floor::Floor;
use super::side::Mode;
use super::verdict::{Difference, Tally};

/// With so many connections' ends that live long, a part of which none is accelerated has failed.
const MANY: u64 = 10;

/// A suite in one mode, compared with its native run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub suite: String,
    pub version: String,
    pub mode: Mode,
    pub tests: usize,
    /// How the tests ended natively; rows of earlier runs do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub natively: Option<Tally>,
    pub different: Vec<Difference>,
    /// Parts that tell of no test natively; rows of earlier runs do not say it.
    #[serde(default)]
    pub without_results: Vec<String>,
    pub excluded: Vec<Exclusion>,
    pub acceleration: Acceleration,
    /// By part; rows of earlier runs do not say it.
    #[serde(default)]
    pub accelerations: BTreeMap<String, Acceleration>,
    /// What it was judged by; rows of earlier runs were not.
    #[serde(default)]
    pub floors: Vec<Floor>,
    /// Whether every part was to be run.
    #[serde(default)]
    pub is_whole: bool,
    /// Parts that were to be run; rows of earlier runs do not say it.
    #[serde(default)]
    pub parts: Vec<String>,
    pub seconds: u64,
    pub native_seconds: u64,
    pub date: String,
    /// The commit from which Crosslane was built.
    #[serde(default)]
    pub commit: String,
}

impl Row {
    /// Whether nothing differs, and it was Crosslane that was tested.
    pub fn is_success(&self) -> bool {
        self.tests > 0 && self.different.is_empty() && self.faults().is_empty()
    }

    /// What keeps the comparison from meaning anything.
    fn faults(&self) -> Vec<String> {
        let silent = self.without_results.iter();
        let silent = silent.map(|part| format!("{part} has no results natively"));
        let left = self.left_on_tcp().into_iter();
        let left = left.map(|part| format!("nothing was accelerated in {part}"));
        let below = self.floors.iter().filter_map(|floor| self.fault(floor));
        silent
            .chain(left)
            .chain(self.unsound())
            .chain(below)
            .collect()
    }

    /// What is wrong by a floor. A part that was to be run, of which nothing is known, has not reached its own.
    fn fault(&self, floor: &Floor) -> Option<String> {
        match (self.found(floor), &floor.part) {
            (Some(found), _) => floor.fault(found, self.is_whole),
            (None, Some(part)) if self.parts.iter().any(|of| of == part) => Some(format!(
                "{part} was not run, of which {} % had to be accelerated",
                floor.percent
            )),
            (None, _) => None,
        }
    }

    /// What a floor is about, if that was run.
    fn found(&self, floor: &Floor) -> Option<&Acceleration> {
        match &floor.part {
            None => Some(&self.acceleration),
            Some(part) => self.accelerations.get(part.as_ref()),
        }
    }

    fn floors(&self) -> Vec<String> {
        let floors = self.floors.iter();
        floors.map(|floor| floor.cell(self.found(floor))).collect()
    }

    /// Where the figures of acceleration themselves are not to be believed.
    fn unsound(&self) -> impl Iterator<Item = String> {
        self.accelerations.iter().flat_map(|(part, of)| {
            let unknown = format!("of the {} ends of {part}, nothing is known", of.left_out);
            let unknown = of.is_unknown().then_some(unknown);
            let impossible = of.impossible.iter();
            let impossible =
                impossible.map(move |what| format!("{part}: it cannot be that {what}"));
            impossible.chain(unknown)
        })
    }

    /// What should have been accelerated and was not: parts, or the whole suite.
    fn left_on_tcp(&self) -> Vec<&str> {
        let has_many = |of: &Acceleration| self.mode == Mode::Eager && of.long_lived() >= MANY;
        let parts = self.accelerations.iter();
        let parts = parts.filter(|(_, of)| has_many(of) && !of.is_proven());
        let whole = (!self.was_accelerated()).then_some("the suite");
        whole
            .into_iter()
            .chain(parts.map(|(part, _)| part.as_str()))
            .collect()
    }

    /// The parts with connections that live long, and how many of their ends were accelerated.
    fn by_part(&self) -> Option<String> {
        let parts = self.accelerations.iter();
        let parts = parts
            .filter(|(_, of)| of.long_lived() > 0)
            .map(|(part, of)| {
                format!(
                    "{part} {} of {} ({} %)",
                    of.accelerated,
                    of.long_lived(),
                    of.percent()
                )
            });
        let parts: Vec<_> = parts.collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Where upgrading waits for some round trips there may be no connection that lives so long.
    fn was_accelerated(&self) -> bool {
        match self.mode {
            Mode::Default => self.acceleration.is_proven() || self.acceleration.long_lived() == 0,
            Mode::Unix => self.acceleration.is_proven_over_unix(),
            _ => self.acceleration.is_proven(),
        }
    }

    /// Count it among the tests of `cargo xtask test`.
    pub fn add_to(&self, outcome: &mut Outcome) {
        outcome.passed += self.tests - self.different.len();
        outcome.failed += self.different.len();
        outcome.skipped += self.excluded.len();
        let name = &self.suite;
        for fault in self.faults() {
            outcome.failed += 1;
            outcome.notes.push(format!("FAILED: {name}: {fault}"));
        }
        let different = self.different.iter();
        let different = different.map(|difference| format!("FAILED: {name}: {difference}"));
        outcome.notes.extend(different);
        let excluded = self.excluded.iter();
        let excluded = excluded.map(|e| format!("SKIPPED: {name}: {}: {}", e.test, e.reason));
        outcome.notes.extend(excluded);
    }

    fn cells(&self) -> [String; 12] {
        let acceleration = &self.acceleration;
        let natively = |count: fn(&Tally) -> usize| {
            let count = self.natively.as_ref().map(count);
            count.map_or(String::new(), |count| count.to_string())
        };
        [
            self.suite.clone(),
            self.mode.name().to_owned(),
            self.tests.to_string(),
            natively(|tally| tally.passed),
            natively(|tally| tally.skipped),
            natively(|tally| tally.failed),
            (self.tests - self.different.len()).to_string(),
            self.different.len().to_string(),
            self.excluded.len().to_string(),
            format!("{} of {}", acceleration.long_lived(), acceleration.ends),
            format!("{} %", acceleration.percent()),
            self.floors().join("; "),
        ]
    }
}

const HEADER: [&str; 12] = [
    "suite",
    "mode",
    "tests",
    "natively passed",
    "skipped",
    "failed",
    "same",
    "different",
    "excluded",
    "long-lived ends",
    "of these accelerated",
    "at least",
];

/// What is printed at the end.
pub fn text(rows: &[Row], json: bool) -> anyhow::Result<String> {
    if json {
        let lines: Result<Vec<_>, _> = rows.iter().map(serde_json::to_string).collect();
        return Ok(lines?.join("\n"));
    }
    let mut text = String::new();
    for row in rows {
        let verdict = if row.is_success() { "ok" } else { "FAILED" };
        let (same, tests) = (row.tests - row.different.len(), row.tests);
        writeln!(
            text,
            "{} {}: {verdict}, {same} of {tests} tests the same, {} excluded\n  {}",
            row.suite,
            row.mode.name(),
            row.excluded.len(),
            row.acceleration.line()
        )?;
        if let Some(of) = row.natively {
            let (passed, skipped, failed) = (of.passed, of.skipped, of.failed);
            writeln!(
                text,
                "  natively {passed} passed, {skipped} skipped, {failed} failed"
            )?;
        }
        if let Some(parts) = row.by_part() {
            writeln!(text, "  by part: {parts}")?;
        }
        for floor in row.floors() {
            writeln!(text, "  at least {floor}")?;
        }
        for fault in row.faults() {
            writeln!(text, "  FAILED: {fault}")?;
        }
        for difference in &row.different {
            writeln!(text, "  DIFFERENT: {difference}")?;
        }
        for Exclusion { test, reason, .. } in &row.excluded {
            writeln!(text, "  EXCLUDED: {test}: {reason}")?;
        }
    }
    Ok(text)
}

/// Keep these rows, and write docs/suites.md from all that are kept.
pub fn record(rows: &[Row]) -> anyhow::Result<()> {
    let mut kept = kept()?;
    for row in rows {
        kept.retain(|old| (&old.suite, old.mode) != (&row.suite, row.mode));
    }
    kept.extend_from_slice(rows);
    let order = |row: &Row| {
        let is_it = |suite: &&dyn super::Suite| suite.name() == row.suite;
        (super::ALL.iter().position(is_it), row.mode)
    };
    kept.sort_by_key(order);
    std::fs::write(kept_path(), serde_json::to_string_pretty(&kept)? + "\n")?;
    let path = crate::workspace_root().join("docs/suites.md");
    std::fs::write(&path, document(&kept)?).with_context(|| path.display().to_string())
}

/// The rows that are kept.
pub fn kept() -> anyhow::Result<Vec<Row>> {
    match std::fs::read_to_string(kept_path()) {
        Ok(text) => Ok(serde_json::from_str(&text)?),
        Err(_) => Ok(Vec::new()),
    }
}

/// Raw results that a document quotes are kept beside it.
fn kept_path() -> PathBuf {
    crate::workspace_root().join("docs/benchmarks/suites.json")
}

/// The commit that is checked out, `-dirty` where something is changed that Crosslane is built from. Documents
/// are not, and an earlier record has changed them.
pub fn commit(root: &Path) -> anyhow::Result<String> {
    let git = |args: &[&str]| said(Command::new("git").current_dir(root).args(args));
    let head = git(&["rev-parse", "--short", "HEAD"])?;
    let status = ["status", "--porcelain", "--untracked-files=no"];
    let changed = git(&[&status[..], &["--", ".", ":(exclude)docs"]].concat())?;
    let dirty = if changed.is_empty() { "" } else { "-dirty" };
    Ok(format!("{head}{dirty}"))
}

/// Today, in the form 2026-01-31.
pub fn today() -> anyhow::Result<String> {
    said(Command::new("date").args(["--utc", "+%Y-%m-%d"]))
}

/// The day on which a file was written last.
pub fn day_of(file: &Path) -> anyhow::Result<String> {
    let mut date = Command::new("date");
    said(date.args(["--utc", "+%Y-%m-%d", "--reference"]).arg(file))
}

/// What the command prints, which is nothing where it fails: sources without git are of no commit.
fn said(command: &mut Command) -> anyhow::Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

const BEGINNING: &str = "\
# Other people's test suites

Written by `cargo xtask suites --record`; the rows are in [benchmarks/suites.json](benchmarks/suites.json).

Each suite is run natively and under Crosslane, in network namespaces of its own, and compared test by test. A test is
different when it ends under Crosslane as it does not end natively, be that passed, skipped or failed; where any does, its part is
run natively once more, so that a test that varies natively is not held against Crosslane. How many passed, were skipped and failed
is said of the first native run; an empty cell is of a run that did not keep it. How a part itself ends, by itself or by a signal or
its limit, and with 0 or not, is compared as two tests more; rows of before 2026-11-27 do not count these,
nor the 27 tests of test_socketserver, which asks for a network to be allowed and ran none. Exclusions, with reasons, are in
[tests/suites/exclusions.csv](../tests/suites/exclusions.csv) and are compared on neither side. `cargo xtask test` runs the core
of CPython's and Redis'.

nginx' tests are [nginx-tests](https://github.com/nginx/nginx-tests), at a commit that is written in `xtask/src/suites/nginx.rs`, run
script by script against Debian's nginx. Debian has no package of them: they are cloned, or taken from a copy that `--source DIR` names, and where
neither can be had, a run says at its end that they were skipped. Scripts for what Debian's nginx has not, or of
modules of Perl's that it has not, are skipped on all sides, and count as one test each.

Mode `default` is `crosslane run`, which accelerates a connection after some round trips; `eager` is
`crosslane run --eager 1-65535`, which begins with the first byte; `unix` is that with `--unix`, which accelerates AF_UNIX streams,
too, and is compared where programs of a suite use these.

A connection has two ends. What became of each is told by `crosslane run --explain=json`, of each part by itself. An end is
accelerated if nothing brought it back to TCP, or kept it there, by its end, or by that of the other end: where one was in rings both ways until
it was closed, so was the other, whatever it says of the closing (`peer-asked`, `half-closed`, `switching`). It is short-lived, and not counted, if it was closed before both
ends had taken part in an upgrade (`too-young`, `half-closed`, `switching`) and had carried less than 256 KiB, as much as makes
the library ask for a ring at once; or if it waited (`no-peer`) for an end of that kind. All others are long-lived and, whatever
kept them on TCP, not accelerated: `no-peer` where the other end is unknown, and `overflow` where the reader was slow, too.
The ends that are told of, and those accelerated, are held against the numbers of connections and of pairs that the monitor of the
run has counted; figures that contradict each other fail the run. A process remembers 8,192 of its ends, and a part 16,384 of processes that have ended:
how many more there were is said, and no share is made of them.

Of the long-lived ends of Redis' three suites, and of those of CPython's test_asyncio, at least 90 % have to be accelerated in each mode
but `unix`, where many are of pairs within one process, which stay with the kernel (`own-pair`). A run with less fails, and so does a
whole run in which fewer than 20 lived long. The core is held to it where 20 did.

Rows of before 2026-11-27 were subtracted from the counters of `crosslane stats`, in which a reason may stand for an end more than once, or
not at all: an end of two processes counts for each of them, one of a process that was killed for none. Before
commit 1c83499, an end of an eager run that was closed within its first few calls counted as `no-peer`, not as `too-young`; rows
that name no commit, or an older one, were counted so. `refused` is what builds up to 61a5a47 told where later ones tell `quota`, `unconnected`,
`not-stream`, `too-often`, `old-kernel`, `no-diag` or `monitor-full`.
";

/// Rows of the first runs do not say it.
fn built_from(row: &Row) -> String {
    match row.commit.as_str() {
        "" => String::new(),
        commit => format!(", Crosslane of commit {commit}"),
    }
}

fn document(rows: &[Row]) -> anyhow::Result<String> {
    let mut text = BEGINNING.to_owned();
    writeln!(text, "\n| {} |", HEADER.join(" | "))?;
    writeln!(text, "|{}", "---|".repeat(HEADER.len()))?;
    for row in rows {
        writeln!(text, "| {} |", row.cells().join(" | "))?;
    }
    writeln!(text, "\n## Of each run\n")?;
    for row in rows {
        writeln!(
            text,
            "- **{}, {}**: {}, on {}{}; {} s, natively {} s. {}.",
            row.suite,
            row.mode.name(),
            row.version,
            row.date,
            built_from(row),
            row.seconds,
            row.native_seconds,
            row.acceleration.line()
        )?;
        if let Some(parts) = row.by_part() {
            writeln!(text, "  - accelerated, by part: {parts}")?;
        }
        for difference in &row.different {
            writeln!(text, "  - different: {difference}")?;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(accelerations: &[(&str, Acceleration)]) -> Row {
        let accelerations: BTreeMap<_, _> = accelerations
            .iter()
            .map(|(part, of)| ((*part).to_owned(), of.clone()))
            .collect();
        Row {
            suite: "redis".into(),
            version: "Redis 7".into(),
            mode: Mode::Eager,
            tests: 10,
            natively: None,
            different: Vec::new(),
            without_results: Vec::new(),
            excluded: Vec::new(),
            acceleration: Acceleration::sum(accelerations.values()),
            accelerations,
            floors: Vec::new(),
            is_whole: true,
            parts: vec!["a".into(), "b".into(), "left out".into()],
            seconds: 1,
            native_seconds: 1,
            date: "2026-11-27".into(),
            commit: "1234567".into(),
        }
    }

    fn acceleration(accelerated: u64, not: u64) -> Acceleration {
        Acceleration {
            ends: accelerated + not,
            accelerated,
            paired: accelerated,
            others: BTreeMap::from([("option".to_owned(), not)]),
            ..Acceleration::default()
        }
    }

    #[test]
    fn figures_that_cannot_be_fail_the_row() {
        let sound = acceleration(100, 0);
        assert!(row(&[("a", sound.clone())]).is_success());
        let impossible = Acceleration {
            impossible: vec!["there are more".into()],
            ..sound.clone()
        };
        let found = row(&[("a", sound.clone()), ("b", impossible)]);
        assert_eq!(found.faults(), ["b: it cannot be that there are more"]);
        let unknown = Acceleration {
            left_out: 7,
            ..Acceleration::default()
        };
        let found = row(&[("a", sound), ("b", unknown)]);
        assert_eq!(found.faults(), ["of the 7 ends of b, nothing is known"]);
    }

    #[test]
    fn a_row_below_its_floor_fails() {
        let parts = [("a", acceleration(95, 5)), ("b", acceleration(80, 20))];
        let judged = |floor| {
            let floors = vec![floor];
            let row = row(&parts);
            Row { floors, ..row }
        };
        assert!(judged(Floor::of_part("a", 90)).is_success());
        assert!(!judged(Floor::of_part("b", 90)).is_success());
        assert!(!judged(Floor::of_suite(90)).is_success());
        assert!(judged(Floor::of_suite(87)).is_success());
        assert!(judged(Floor::of_part("not asked for", 90)).is_success());
        let found = judged(Floor::of_part("left out", 90));
        let fault = "left out was not run, of which 90 % had to be accelerated";
        assert_eq!(found.faults(), [fault]);
        let cells = judged(Floor::of_part("b", 90)).cells();
        assert_eq!(cells.last().unwrap(), "90 % in b, which has 80 %");
    }

    #[test]
    fn a_changed_document_makes_no_commit_dirty() {
        let root = std::env::temp_dir().join(format!("crosslane-suites-{}", std::process::id()));
        std::fs::create_dir_all(root.join("docs")).unwrap();
        let git = |args: &[&str]| {
            let who = ["-c", "user.name=a", "-c", "user.email=a@localhost"];
            let mut git = Command::new("git");
            let git = git.current_dir(&root).args(who).args(args);
            assert!(git.output().unwrap().status.success(), "{args:?}");
        };
        let write = |name: &str, text: &str| std::fs::write(root.join(name), text).unwrap();
        git(&["init", "--quiet"]);
        write("code", "1");
        write("docs/rows", "1");
        git(&["add", "."]);
        git(&["commit", "--quiet", "-m", "a"]);
        let clean = commit(&root).unwrap();
        write("docs/rows", "2");
        let recorded = commit(&root).unwrap();
        write("code", "2");
        let dirty = commit(&root).unwrap();
        std::fs::remove_dir_all(&root).unwrap();
        assert!(clean.len() >= 7, "{clean}");
        assert_eq!((recorded, dirty), (clean.clone(), format!("{clean}-dirty")));
    }

    #[test]
    fn the_document_is_what_is_kept() {
        let path = crate::workspace_root().join("docs/suites.md");
        let written = std::fs::read_to_string(path).unwrap();
        assert_eq!(written, document(&kept().unwrap()).unwrap());
    }
}
