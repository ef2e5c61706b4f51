//! Reads the JUnit XML that CPython's test runner writes.

use std::path::Path;

use anyhow::Context;

use super::verdict::{Verdict, Verdicts};

/// The verdicts in this file; none if the runner did not live to write it.
pub fn read(path: &Path) -> anyhow::Result<Verdicts> {
    if !path.exists() {
        return Ok(Verdicts::default());
    }
    let text = std::fs::read_to_string(path)?;
    parse(&text).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> anyhow::Result<Verdicts> {
    let document = roxmltree::Document::parse(text)?;
    let mut verdicts = Verdicts::default();
    let cases = document
        .descendants()
        .filter(|n| n.has_tag_name("testcase"));
    for case in cases {
        let name = case.attribute("name").context("a test without a name")?;
        verdicts.add(name, verdict(case));
    }
    Ok(verdicts)
}

fn verdict(case: roxmltree::Node) -> Verdict {
    let has = |tag| case.children().any(|child| child.has_tag_name(tag));
    let is_completed = case.attribute("result") == Some("completed");
    if has("failure") || has("error") {
        Verdict::Failed
    } else if has("skipped") {
        Verdict::Skipped
    } else if is_completed {
        Verdict::Passed
    } else {
        Verdict::Failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_end_is_told_apart() {
        let text = r#"<testsuites><testsuite>
            <testcase name="a" status="run" result="completed"/>
            <testcase name="b" result="completed"><skipped>no</skipped></testcase>
            <testcase name="c" result="completed"><failure>no</failure></testcase>
            <testcase name="d" result="completed"><error>no</error></testcase>
            <testcase name="e" result="interrupted"/>
            </testsuite></testsuites>"#;
        let mut expected = Verdicts::default();
        expected.add("a", Verdict::Passed);
        expected.add("b", Verdict::Skipped);
        for name in ["c", "d", "e"] {
            expected.add(name, Verdict::Failed);
        }
        assert_eq!(parse(text).unwrap(), expected);
    }
}
