//! Counters in the text format of Prometheus, version 0.0.4.

use std::fmt::Write;

use crosslane_ctl::counter::Counter;
use crosslane_monitor::client::{CountersReport, Counts};

use super::own;

/// All counters and gauges.
pub fn text(report: &CountersReport) -> String {
    let mut page = Page::default();
    for counter in Counter::ALL {
        let value = report.counters.get(counter.slug()).copied().unwrap_or(0);
        let name = format!("crosslane_{}_total", counter.slug());
        page.family(&name, counter.help(), "counter");
        page.sample(&name, None, value);
    }
    page.labelled(
        "crosslane_not_accelerated_total",
        "connections that were closed on TCP or brought back to it",
        "counter",
        "reason",
        &report.reasons,
    );
    page.labelled(
        "crosslane_open_connections",
        "connections that are open now",
        "gauge",
        "state",
        &report.open,
    );
    page.labelled(
        "crosslane_open_not_accelerated",
        "connections that are open now and not accelerated",
        "gauge",
        "reason",
        &report.open_reasons,
    );
    for own in own(&report.monitor) {
        let (kind, suffix) = match own.grows {
            true => ("counter", "_total"),
            false => ("gauge", ""),
        };
        let name = format!("crosslane_monitor_{}{suffix}", own.name);
        page.family(&name, own.help, kind);
        page.sample(&name, None, own.value);
    }
    page.text
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn family(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, label: Option<(&str, &str)>, value: u64) {
        let _ = match label {
            Some((key, of)) => writeln!(self.text, "{name}{{{key}=\"{of}\"}} {value}"),
            None => writeln!(self.text, "{name} {value}"),
        };
    }

    fn labelled(&mut self, name: &str, help: &str, kind: &str, label: &str, counts: &Counts) {
        self.family(name, help, kind);
        for (of, value) in counts {
            self.sample(name, Some((label, of)), *value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_has_help_and_a_type_before_it() {
        let mut report = CountersReport::default();
        report.reasons.insert("no-peer".into(), 3);
        report.open.insert("accelerated".into(), 2);
        let text = text(&report);
        let mut known = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let name = rest.split(' ').next().unwrap();
                assert!(!known.contains(&name), "{name} comes twice");
                known.push(name);
            } else if !line.starts_with('#') {
                let name = line.split([' ', '{']).next().unwrap();
                assert_eq!(known.last(), Some(&name), "{line}");
                let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
                assert!(name.chars().all(legal), "{name}");
                assert!(line.rsplit(' ').next().unwrap().parse::<u64>().is_ok());
            }
        }
        assert!(text.contains("crosslane_not_accelerated_total{reason=\"no-peer\"} 3\n"));
        assert!(text.contains("crosslane_open_connections{state=\"accelerated\"} 2\n"));
    }
}
