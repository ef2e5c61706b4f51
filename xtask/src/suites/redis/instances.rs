//! What the tests of Sentinel and of the cluster print.

use super::{Verdict, without_numbers};

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

/// Names of steps in which random instances take part: the loop of failovers kills any node of the
/// cluster in each round, and Sentinel makes any replica the new master. Without these numbers,
/// they are the same each time.
pub fn stable(name: &str) -> Option<String> {
    let (unit, step) = name.split_once(": ")?;
    let is_random = unit == "03-failover-loop.tcl" || step.starts_with("New master ");
    is_random.then(|| format!("{unit}: {}", without_numbers(step)))
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

    #[test]
    fn random_instances_are_no_part_of_a_name() {
        let loops = "03-failover-loop.tcl: Wait failover by #10 with old epoch 23";
        let expected = "03-failover-loop.tcl: Wait failover by #N with old epoch N";
        assert_eq!(stable(loops).as_deref(), Some(expected));
        let sentinel = "00-base.tcl: New master 127.0.0.1:30004 role matches";
        let expected = "00-base.tcl: New master N.N.N.N:N role matches";
        assert_eq!(stable(sentinel).as_deref(), Some(expected));
        assert_eq!(stable("04-resharding.tcl: Node #3"), None);
    }
}
