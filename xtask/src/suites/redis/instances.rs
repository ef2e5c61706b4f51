//! What the tests of Sentinel and of the cluster print.

use super::Verdict;

const UNIT: &str = "Testing unit: ";

/// `12:34:56> NAME: ` begins a test. `OK` ends it, after whatever it prints meanwhile.
pub fn steps(log: &str) -> Vec<(String, Verdict)> {
    let mut found: Vec<(String, Verdict)> = Vec::new();
    let mut unit = "";
    let mut is_running = false;
    for line in log.lines() {
        if let Some(name) = line.strip_prefix(UNIT) {
            (unit, is_running) = (name, false);
        } else if let Some(name) = beginning(line) {
            // Failed unless it says otherwise.
            found.push((format!("{unit}: {name}"), Verdict::Failed));
            is_running = true;
        }
        if let Some((_, verdict)) = found.last_mut().filter(|_| is_running && is_ok(line)) {
            *verdict = Verdict::Passed;
            is_running = false;
        }
    }
    found
}

fn beginning(line: &str) -> Option<&str> {
    let (time, rest) = line.split_once("> ")?;
    let is_time = time.len() == 8 && time.bytes().all(|b| b.is_ascii_digit() || b == b':');
    let name = rest.rsplit_once(": ").map_or(rest, |(name, _)| name);
    let name = name.split(": FAILED").next().unwrap_or(name);
    is_time.then_some(name.trim_end_matches(':'))
}

fn is_ok(line: &str) -> bool {
    line.trim_end().ends_with("OK")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "Starting redis #1 at port 30001
Testing unit: 00-base.tcl
03:04:05> Cluster is up: again: OK
03:04:06> Slots: 
--- slot 1
--- slot 2
OK
03:04:07> Epoch: FAILED: Expected 1: got 2
(Jumping to next unit after error)
Testing unit: 01-next.tcl
OK
";

    #[test]
    fn a_test_has_passed_when_it_says_so_before_the_next() {
        let expected = [
            ("00-base.tcl: Cluster is up: again", Verdict::Passed),
            ("00-base.tcl: Slots", Verdict::Passed),
            ("00-base.tcl: Epoch", Verdict::Failed),
        ];
        let expected = expected.map(|(name, verdict)| (name.to_owned(), verdict));
        assert_eq!(steps(LOG), expected);
    }
}
