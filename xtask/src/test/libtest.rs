//! Understands what cargo's test runner prints.

/// What a test writes that cannot run here, and then why.
const SKIPPED: &str = "SKIPPED: ";
/// What it writes of a difference that it forgives, and then which.
const WAVERING: &str = "WAVERING: ";

/// What the lines read so far say.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Report {
    pub passed: usize,
    pub failed: usize,
    pub ignored: usize,
    /// `binary: test` for each failure.
    pub failures: Vec<String>,
    pub ignored_names: Vec<String>,
    /// Tests that passed because they, or parts of them, did not run.
    pub skipped: usize,
    /// `binary: why` for each that says so.
    pub skips: Vec<String>,
    /// What was forgiven.
    pub wavering: Vec<String>,
    binary: String,
    /// The binary has not told its result.
    is_running: bool,
    /// The test that runs has said that it is skipped.
    is_in_skip: bool,
    is_in_failures: bool,
}

impl Report {
    /// Take in one line of output.
    pub fn read(&mut self, line: &str) {
        let line = line.trim_end();
        if let Some(binary) = binary_of(line) {
            self.end_binary();
            self.is_running = true;
            self.binary = binary.to_owned();
        } else if let Some(krate) = line.trim_start().strip_prefix("Doc-tests ") {
            self.end_binary();
            self.is_running = true;
            self.binary = format!("doc-tests of {krate}");
        } else if let Some(result) = line.strip_prefix("test result: ") {
            (self.is_running, self.is_in_skip, self.is_in_failures) = (false, false, false);
            self.passed += number_before(result, " passed");
            self.failed += number_before(result, " failed");
            self.ignored += number_before(result, " ignored");
        } else if let Some((before, why)) = line.split_once(SKIPPED) {
            self.read_skip(before, why);
        } else if let Some((before, what)) = line.split_once(WAVERING)
            && is_tests_own(before)
        {
            self.wavering.push(what.to_owned());
        } else if line == "failures:" {
            // Printed twice: before the captured output, then before the list of names.
            self.is_in_failures = true;
        } else if self.is_in_failures {
            self.read_failure(line);
        } else if let Some(name) = ignored_test(line) {
            self.ignored_names.push(format!("{}: {name}", self.binary));
        } else if line == "ok" || line.starts_with("test ") {
            self.is_in_skip = false;
        }
    }

    /// The runner has ended, and what it has told is complete.
    #[must_use]
    pub fn finish(mut self) -> Self {
        self.end_binary();
        self
    }

    /// A test that takes its process down leaves no result, whatever other binaries say.
    fn end_binary(&mut self) {
        if std::mem::take(&mut self.is_running) {
            self.failed += 1;
            let failure = format!("{}: ended without a result", self.binary);
            self.failures.push(failure);
        }
    }

    /// Where one test runs at a time, it writes this behind its own name, which the runner has printed, or once more
    /// below that; where several do, on lines of their own, as the runner prints names with results then.
    fn read_skip(&mut self, before: &str, why: &str) {
        if !is_tests_own(before) {
            return;
        }
        let is_first = !before.is_empty() || !self.is_in_skip;
        self.skipped += usize::from(is_first);
        self.is_in_skip |= !before.is_empty();
        self.skips.push(format!("{}: {before}{why}", self.binary));
    }

    fn read_failure(&mut self, line: &str) {
        match line.strip_prefix("    ") {
            Some(name) if !name.contains(' ') => {
                self.failures.push(format!("{}: {name}", self.binary));
            }
            // Captured output stands between the two headings.
            _ if line.starts_with("----") => self.is_in_failures = false,
            _ => {}
        }
    }
}

/// Whether what stands before it on its line is nothing, or the name of a test that runs alone.
fn is_tests_own(before: &str) -> bool {
    before.is_empty() || (before.starts_with("test ") && before.ends_with(" ... "))
}

/// The tests that cargo is about to run: `     Running tests/redis.rs (target/debug/deps/redis-1)`.
/// Programs under test announce what they run as well.
fn binary_of(line: &str) -> Option<&str> {
    let (binary, executable) = line.strip_prefix("     Running ")?.split_once(" (")?;
    executable.contains("/deps/").then_some(binary)
}

fn ignored_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?
        .split_once(" ... ignored")
        .map(|(name, _)| name)
}

fn number_before(text: &str, word: &str) -> usize {
    text.split_once(word)
        .and_then(|(before, _)| before.rsplit(' ').next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
     Running unittests src/lib.rs (target/debug/deps/a-1)

running 3 tests
test one ... ok
test slow ... ignored, takes hours
test two::three ... FAILED

failures:

---- two::three stdout ----
thread 'two::three' panicked at src/lib.rs:1:
    indented
failures:
    two::three

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s

     Running tests/redis.rs (target/debug/deps/redis-1)

running 1 test
test tcp::values ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s
";

    #[test]
    fn counts_and_names_are_found() {
        let mut report = Report::default();
        OUTPUT.lines().for_each(|line| report.read(line));
        assert_eq!((report.passed, report.failed, report.ignored), (2, 1, 1));
        assert_eq!(report.failures, ["unittests src/lib.rs: two::three"]);
        assert_eq!(report.ignored_names, ["unittests src/lib.rs: slow"]);
    }

    #[test]
    fn a_test_that_says_that_it_did_not_run_is_skipped_once() {
        let mut report = Report::default();
        let lines = [
            "     Running tests/rack.rs (target/debug/deps/rack-1)",
            "test two ... SKIPPED: only root can",
            "SKIPPED: nor can others",
            "ok",
            "test three ... ok",
            "it said SKIPPED: nothing",
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
        ];
        lines.into_iter().for_each(|line| report.read(line));
        assert_eq!((report.passed, report.skipped), (2, 1));
        assert_eq!(
            report.skips,
            [
                "tests/rack.rs: test two ... only root can",
                "tests/rack.rs: nor can others"
            ]
        );
    }

    #[test]
    fn tests_that_run_side_by_side_are_skipped_each_for_itself() {
        let mut report = Report::default();
        let lines = [
            "running 3 tests",
            "SKIPPED: no such device",
            "SKIPPED: nor such a user",
            "test one ... ok",
            "test two ... ok",
            "test three ... ok",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
        ];
        lines.into_iter().for_each(|line| report.read(line));
        assert_eq!((report.passed, report.skipped), (3, 2));
    }

    #[test]
    fn what_is_forgiven_is_kept() {
        let mut report = Report::default();
        let lines = [
            "test one ... WAVERING: seed 4, 1 of 3 runs: a | b",
            "WAVERING: seed 5, 2 of 3 runs: a | b",
            "ok",
            "nothing WAVERING: at all",
        ];
        lines.into_iter().for_each(|line| report.read(line));
        assert_eq!(report.wavering.len(), 2);
        assert_eq!(report.wavering[0], "seed 4, 1 of 3 runs: a | b");
    }

    #[test]
    fn a_binary_without_a_result_has_failed() {
        let mut report = Report::default();
        OUTPUT.lines().for_each(|line| report.read(line));
        report.read("     Running tests/dead.rs (target/debug/deps/dead-1)");
        report.read("running 1 test");
        report.read("     Running tests/last.rs (target/debug/deps/last-1)");
        let report = report.finish();
        assert_eq!(report.failed, 3);
        assert_eq!(
            report.failures[1..],
            [
                "tests/dead.rs: ended without a result",
                "tests/last.rs: ended without a result"
            ]
        );
    }

    #[test]
    fn a_program_that_says_it_is_running_is_no_binary() {
        let mut report = Report::default();
        report.read("     Running tests/nginx.rs (target/debug/deps/nginx-1)");
        report.read("Running 2s test @ http://127.0.0.1:23732/large");
        assert_eq!(report.binary, "tests/nginx.rs");
    }

    #[test]
    fn a_word_in_the_tests_own_output_is_not_a_result() {
        let mut report = Report::default();
        report.read("the test result: ok. 7 passed; 0 failed");
        assert_eq!(report, Report::default());
    }
}
