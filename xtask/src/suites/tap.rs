//! The Test Anything Protocol.

use super::verdict::Verdict;

/// A line of it: `ok 1 - NAME`, `not ok 2 - NAME`, `ok 3 - NAME # SKIP`. A test without a name goes by its number.
pub fn line(line: &str) -> Option<(&str, Verdict)> {
    let (is_ok, rest) = match line.strip_prefix("not ok ") {
        Some(rest) => (false, rest),
        None => (true, line.strip_prefix("ok ")?),
    };
    let (rest, remark) = rest.split_once(" # ").unwrap_or((rest, ""));
    let (number, name) = rest.split_once(" - ").unwrap_or((rest, rest));
    let verdict = match (is_ok, remark.to_lowercase().starts_with("skip")) {
        (true, true) => Verdict::Skipped,
        (true, false) => Verdict::Passed,
        (false, _) => Verdict::Failed,
    };
    let is_test = number.trim_end().bytes().all(|byte| byte.is_ascii_digit());
    is_test.then_some((name.trim_end(), verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_tap_are_understood() {
        assert_eq!(line("ok 1 - tcp_open"), Some(("tcp_open", Verdict::Passed)));
        assert_eq!(line("not ok 2 - a_b"), Some(("a_b", Verdict::Failed)));
        let skipped = "ok 3 - udp_multicast # SKIP No multicast support";
        assert_eq!(line(skipped), Some(("udp_multicast", Verdict::Skipped)));
        assert_eq!(line("ok 4 # skip no unix"), Some(("4", Verdict::Skipped)));
        assert_eq!(
            line("not ok 5 - a # TODO not yet"),
            Some(("a", Verdict::Failed))
        );
        assert_eq!(line("# exit code 134"), None);
        assert_eq!(line("ok then"), None);
    }
}
