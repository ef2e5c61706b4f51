//! One step of a tier: a command under a time limit, its output shown and understood.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::libtest::Report;
use super::tree;

/// The step that builds what the end-to-end suites run.
pub const BUILD: &str = "build";

/// Far more than any step takes; a step that hangs must not hang the machine that tests.
const LIMIT: Duration = Duration::from_secs(1200);

/// The step that explores interleavings.
pub const LOOM: &str = "loom";

/// The step that plays lanes over posted writes.
pub const SCHEDULES: &str = "schedules";

/// What cargo exits with when tests have failed.
const TESTS_FAILED: i32 = 101;

/// A command and what its success means.
pub struct Step {
    pub name: &'static str,
    words: Vec<&'static str>,
    environment: Vec<(&'static str, &'static str)>,
    kind: Kind,
    /// The part of the toolchain that it needs beyond the compiler.
    component: Option<&'static str>,
    /// The other kind of machine that it compiles for.
    target: Option<&'static str>,
    /// The program that it needs beyond the toolchain, and how to have it.
    tool: Option<(&'static str, &'static str)>,
    /// The manifest of another workspace, whose crates it needs.
    crates_of: Option<&'static str>,
    limit: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One check: it passes when the command exits with 0.
    Check,
    /// Tests: each counts.
    Tests,
}

/// How a step went.
pub struct Outcome {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
    /// What failed or was skipped, and why; a line each.
    pub notes: Vec<String>,
    pub took: Duration,
}

impl Outcome {
    /// Nothing ran, so that `count` tests are missing.
    pub fn skipped(count: usize, reason: &str) -> Self {
        let notes = vec![format!("SKIPPED: {reason}")];
        Self {
            passed: 0,
            failed: 0,
            skipped: count,
            notes,
            took: Duration::ZERO,
        }
    }

    /// Something that could not even be tried is one failure.
    pub fn of(tried: anyhow::Result<Self>) -> Self {
        tried.unwrap_or_else(|error| Self {
            passed: 0,
            failed: 1,
            skipped: 0,
            notes: vec![format!("FAILED: {error:#}")],
            took: Duration::ZERO,
        })
    }

    pub fn is_success(&self) -> bool {
        self.failed == 0
    }
}

/// fmt, clippy, tidy, checks for the other kind of machine and of the fuzz targets, and the unit tests.
pub fn quick_tier() -> Vec<Step> {
    let clippy = "cargo clippy --workspace --all-targets -- -D warnings";
    // What links C for the other machine would need its C compiler; these do not.
    let other = "cargo check --target aarch64-unknown-linux-gnu --package crosslane-preload \
                 --package crosslane-api --package crosslane-exercise --package crosslane-membench";
    // A workspace of its own, which nothing else here compiles.
    let fuzz = "cargo check --locked --manifest-path fuzz/Cargo.toml --target-dir target/fuzz";
    let unit = "cargo test --workspace --exclude crosslane-testkit --no-fail-fast";
    vec![
        Step::check("fmt", "cargo fmt --all --check").with_component("rustfmt"),
        Step::check("clippy", clippy).with_component("clippy"),
        Step::check("tidy", "cargo xtask tidy"),
        Step::check("aarch64", other).with_target("aarch64-unknown-linux-gnu"),
        Step::check("fuzz", fuzz)
            .with_tool("c++", "apt-get install g++")
            .with_crates_of("fuzz/Cargo.toml"),
        Step::tests("unit", unit),
        Step::tests("testkit", "cargo test --package crosslane-testkit --lib"),
    ]
}

/// The programs, the libraries and the examples as users run them.
pub fn build() -> Step {
    let command = "cargo build --release --workspace --lib --bins --examples";
    Step::check(BUILD, command)
}

/// The library that notes moments, for the bench that says where a message's time goes. In a folder of
/// its own, because nothing else may be built with the feature.
pub fn build_traced() -> Step {
    let command = "cargo build --release --package crosslane-preload --features trace \
                   --target-dir target/trace";
    Step::check("traced", command)
}

/// Every interleaving of the rings' protocols. A folder of its own keeps cargo from building all
/// else anew for the other flags.
pub fn loom() -> Step {
    let command =
        "cargo test --release --package crosslane-ring --test loom --target-dir target/loom";
    let mut step = Step::tests(LOOM, command);
    step.environment.push(("RUSTFLAGS", "--cfg loom"));
    step
}

/// Far more schedules of posted lanes than the unit tests play, and of connections in them, on all processors. What it says of
/// them is shown.
pub fn schedules() -> Step {
    let command = "cargo test --release --package crosslane-ring --package crosslane-stream \
                   --test posted --lib schedules -- --nocapture --test-threads 1";
    let mut step = Step::tests(SCHEDULES, command);
    for name in [
        "CROSSLANE_POSTED_SCHEDULES",
        "CROSSLANE_POSTED_STREAM_SCHEDULES",
    ] {
        step.environment.push((name, "2000000"));
    }
    step
}

impl Step {
    /// One check: `command`, whose words stand between single spaces.
    pub fn check(name: &'static str, command: &'static str) -> Self {
        Self::new(name, command.split(' ').collect(), Kind::Check)
    }

    /// Tests that `command` runs by cargo's test runner.
    pub fn tests(name: &'static str, command: &'static str) -> Self {
        Self::new(name, command.split(' ').collect(), Kind::Tests)
    }

    /// Tests again, where the command is put together.
    pub fn tests_of(name: &'static str, words: &[&'static str]) -> Self {
        Self::new(name, words.to_vec(), Kind::Tests)
    }

    fn new(name: &'static str, words: Vec<&'static str>, kind: Kind) -> Self {
        Self {
            name,
            words,
            environment: Vec::new(),
            kind,
            component: None,
            target: None,
            tool: None,
            crates_of: None,
            limit: LIMIT,
        }
    }

    fn with_component(mut self, component: &'static str) -> Self {
        self.component = Some(component);
        self
    }

    fn with_target(mut self, target: &'static str) -> Self {
        self.target = Some(target);
        self
    }

    fn with_tool(mut self, program: &'static str, remedy: &'static str) -> Self {
        self.tool = Some((program, remedy));
        self
    }

    fn with_crates_of(mut self, manifest: &'static str) -> Self {
        self.crates_of = Some(manifest);
        self
    }

    /// The same, killed after so long.
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Run it, showing what it prints.
    pub fn run(&self) -> anyhow::Result<Outcome> {
        if let Some(component) = self.component.filter(|_| !self.has_subcommand()) {
            return Ok(Outcome::skipped(
                1,
                &format!("run: rustup component add {component}"),
            ));
        }
        if let Some(target) = self.target.filter(|target| !has_target(target)) {
            return Ok(Outcome::skipped(
                1,
                &format!("run: rustup target add {target}"),
            ));
        }
        if let Some((program, remedy)) = self.tool.filter(|(program, _)| !is_installed(program)) {
            let why = format!("{program} is missing; run: {remedy}");
            return Ok(Outcome::skipped(1, &why));
        }
        if let Some(manifest) = self.crates_of.filter(|manifest| lacks_crates(manifest)) {
            let why = format!("the crates of {manifest} cannot be fetched");
            return Ok(Outcome::skipped(1, &why));
        }
        println!("==> {}: {}", self.name, self.words.join(" "));
        let start = Instant::now();
        let mut report = Report::default();
        let status = self.stream(|line| {
            show(line);
            report.read(&String::from_utf8_lossy(line));
        })?;
        let took = start.elapsed();
        Ok(match self.kind {
            Kind::Check => check_outcome(status, took),
            Kind::Tests => tests_outcome(status, report.finish(), took),
        })
    }

    /// Run it and hand each line of its output to `each`. None: it ran past its limit.
    fn stream(&self, mut each: impl FnMut(&[u8])) -> anyhow::Result<Option<ExitStatus>> {
        let (reader, writer) = std::io::pipe()?;
        let mut command = self.command();
        command
            .current_dir(crate::workspace_root())
            .stdin(std::process::Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {}", self.words[0]))?;
        // Its copies of the pipe's writing end would keep the pipe open.
        drop(command);

        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(reader);
            let mut line = Vec::new();
            while reader
                .read_until(b'\n', &mut line)
                .is_ok_and(|read| read > 0)
            {
                if send.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        let deadline = Instant::now() + self.limit;
        loop {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => each(&line),
                Err(RecvTimeoutError::Disconnected) => return Ok(Some(child.wait()?)),
                Err(RecvTimeoutError::Timeout) => {
                    tree::kill(child.id());
                    child.wait()?;
                    return Ok(None);
                }
            }
        }
    }

    fn command(&self) -> Command {
        // The very cargo that built this, which need not be the first in PATH.
        let program = if self.words[0] == "cargo" {
            env!("CARGO")
        } else {
            self.words[0]
        };
        let mut command = Command::new(program);
        command
            .args(&self.words[1..])
            .envs(self.environment.iter().copied());
        command
    }

    /// Whether cargo knows the subcommand at all.
    fn has_subcommand(&self) -> bool {
        let output = Command::new(env!("CARGO"))
            .args([self.words[1], "--version"])
            .output();
        output.is_ok_and(|output| output.status.success())
    }

    /// Run it quietly and return the lines that it prints.
    pub fn lines(&self) -> anyhow::Result<Vec<String>> {
        let mut lines = Vec::new();
        self.stream(|line| lines.push(String::from_utf8_lossy(line).trim_end().to_owned()))?;
        Ok(lines)
    }
}

fn is_installed(program: &str) -> bool {
    let asked = Command::new(program).arg("--version").output();
    asked.is_ok_and(|output| output.status.success())
}

/// Whether the crates of another workspace can neither be fetched nor are there. A lock file that does not fit is for the step
/// to tell of.
fn lacks_crates(manifest: &str) -> bool {
    let mut fetch = Command::new("cargo");
    fetch.args(["fetch", "--locked", "--manifest-path", manifest]);
    let output = fetch.current_dir(crate::workspace_root()).output();
    output.is_ok_and(|output| {
        let told = String::from_utf8_lossy(&output.stderr);
        !output.status.success() && !told.contains("--locked")
    })
}

/// Whether the standard library for this kind of machine is there, or can be had.
fn has_target(target: &str) -> bool {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .output();
    let is_there = output.is_ok_and(|output| {
        let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        std::path::Path::new(&folder).is_dir()
    });
    let add = || {
        let status = Command::new("rustup")
            .args(["target", "add", target])
            .status();
        status.is_ok_and(|status| status.success())
    };
    is_there || add()
}

fn show(line: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    // A reader that has gone away must not end the tests.
    let _ = stdout.write_all(line).and_then(|()| stdout.flush());
}

/// Why a step without a status or with a bad one failed.
fn ended(status: Option<ExitStatus>) -> String {
    status.map_or_else(
        || "ran past its limit and was killed".into(),
        |status| status.to_string(),
    )
}

fn check_outcome(status: Option<ExitStatus>, took: Duration) -> Outcome {
    let is_success = status.is_some_and(|status| status.success());
    let notes = if is_success {
        Vec::new()
    } else {
        vec![format!("FAILED: {}", ended(status))]
    };
    let failed = usize::from(!is_success);
    Outcome {
        passed: 1 - failed,
        failed,
        skipped: 0,
        notes,
        took,
    }
}

fn tests_outcome(status: Option<ExitStatus>, report: Report, took: Duration) -> Outcome {
    let mut notes: Vec<_> = report
        .failures
        .iter()
        .map(|name| format!("FAILED: {name}"))
        .collect();
    notes.extend(
        report
            .ignored_names
            .iter()
            .map(|name| format!("SKIPPED: {name} is ignored")),
    );
    notes.extend(report.skips.iter().map(|skip| format!("SKIPPED: {skip}")));
    let wavering = report.wavering.iter().zip(1..);
    notes.extend(wavering.map(|(one, number)| format!("WAVERING: {number}: {one}")));
    let mut failed = report.failed;
    let is_success = status.is_some_and(|status| status.success());
    if !is_success {
        // cargo's own status says that a test failed, and no more; others say what no test does.
        let is_told = status.and_then(|status| status.code()) == Some(TESTS_FAILED) && failed > 0;
        failed += usize::from(!is_told);
        notes.push(format!("FAILED: {}", ended(status)));
    } else if is_success && report.passed == 0 {
        failed += 1;
        notes.push("FAILED: no test ran".into());
    }
    Outcome {
        passed: report.passed.saturating_sub(report.skipped),
        failed,
        skipped: report.ignored + report.skipped,
        notes,
        took,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_command_that_fails_is_one_failure() {
        let outcome = Step::check("no", "false").run().unwrap();
        assert_eq!((outcome.passed, outcome.failed), (0, 1));
        assert!(outcome.notes[0].starts_with("FAILED: exit status"));
    }

    #[test]
    fn a_command_that_succeeds_is_one_pass() {
        let outcome = Step::check("yes", "true").run().unwrap();
        assert_eq!((outcome.passed, outcome.failed), (1, 0));
    }

    #[test]
    fn tests_that_did_not_run_are_a_failure() {
        let outcome = Step::tests("none", "true").run().unwrap();
        assert_eq!((outcome.passed, outcome.failed), (0, 1));
        assert_eq!(outcome.notes, ["FAILED: no test ran"]);
    }

    #[test]
    fn tests_that_take_their_process_down_are_a_failure() {
        let outcome = Step::tests("dead", "false").run().unwrap();
        assert_eq!((outcome.passed, outcome.failed), (0, 1));
    }

    #[test]
    fn a_step_past_its_limit_says_so_beside_failed_tests() {
        let report = || {
            let mut report = Report::default();
            report.read("test result: FAILED. 1 passed; 1 failed; 0 ignored");
            report
        };
        let outcome = tests_outcome(None, report(), Duration::ZERO);
        assert_eq!(outcome.failed, 2);
        assert_eq!(outcome.notes, ["FAILED: ran past its limit and was killed"]);
        let status = ExitStatus::from_raw(TESTS_FAILED << 8);
        let outcome = tests_outcome(Some(status), report(), Duration::ZERO);
        assert_eq!(outcome.failed, 1);
    }

    #[test]
    fn what_cannot_be_tried_is_a_failure_that_says_why() {
        let outcome = Outcome::of(Err(anyhow::anyhow!("no such mirror")));
        assert_eq!((outcome.passed, outcome.failed), (0, 1));
        assert_eq!(outcome.notes, ["FAILED: no such mirror"]);
    }

    #[test]
    fn a_step_past_its_limit_is_killed_and_fails() {
        let mut step = Step::check("sleepy", "sleep 1000");
        step.limit = Duration::from_millis(10);
        assert_eq!(step.run().unwrap().failed, 1);
    }

    #[test]
    fn a_kind_of_machine_that_cannot_be_had_is_a_loud_skip() {
        let step = Step::check("odd", "true").with_target("no-such-machine");
        let outcome = step.run().unwrap();
        assert_eq!((outcome.failed, outcome.skipped), (0, 1));
        assert_eq!(
            outcome.notes,
            ["SKIPPED: run: rustup target add no-such-machine"]
        );
    }

    #[test]
    fn a_missing_program_is_a_loud_skip() {
        let step = Step::check("odd", "true").with_tool("no-such-program", "get it");
        let outcome = step.run().unwrap();
        assert_eq!((outcome.failed, outcome.skipped), (0, 1));
        assert_eq!(
            outcome.notes,
            ["SKIPPED: no-such-program is missing; run: get it"]
        );
    }

    #[test]
    fn crates_that_cannot_be_fetched_are_a_loud_skip() {
        let step = Step::check("odd", "true").with_crates_of("no-such/Cargo.toml");
        let outcome = step.run().unwrap();
        assert_eq!((outcome.failed, outcome.skipped), (0, 1));
        assert_eq!(
            outcome.notes,
            ["SKIPPED: the crates of no-such/Cargo.toml cannot be fetched"]
        );
    }

    #[test]
    fn a_missing_part_of_the_toolchain_is_a_loud_skip() {
        let step = Step::check("odd", "cargo no-such-subcommand").with_component("odd");
        let outcome = step.run().unwrap();
        assert_eq!((outcome.failed, outcome.skipped), (0, 1));
        assert_eq!(outcome.notes, ["SKIPPED: run: rustup component add odd"]);
    }
}
