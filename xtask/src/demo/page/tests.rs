use std::time::Duration;

use crosslane_benchkit::{Machine, Verdict};

use super::*;

fn report(accelerated: bool) -> Report {
    let mut comparison =
        Comparison::new("redis-get-c1".into(), "Redis GET, 1 client, <64 B>".into());
    for (side, rps, p50) in [
        (Side::Tcp, 21_000.0, 40.0),
        (Side::Crosslane, 310_000.0, 7.0),
    ] {
        comparison.add(
            side,
            &[
                (Metric::Rps, rps),
                (Metric::P50Us, p50),
                (Metric::P99Us, 2.0 * p50),
            ],
        );
    }
    let reason = (!accelerated).then(|| "of 2 ends: 2 tcp (no-window)".into());
    comparison.verdicts.push(Verdict {
        accelerated,
        reason,
        ring_share: None,
    });
    Report {
        machine: Machine::here(),
        programs: vec![("redis-server".into(), "7.0.15".into())],
        rounds: 1,
        seconds_per_round: Duration::from_secs(1).as_secs_f64(),
        workloads: vec![
            comparison,
            Comparison::new("iperf3".into(), "iperf3, 1 stream".into()),
        ],
    }
}

#[test]
fn the_page_shows_figures_machine_and_charts_and_needs_no_other_file() {
    let page = page(&report(true)).into_string();
    for expected in [
        "14.8×",
        "21.0 k",
        "310 k",
        "Redis GET, 1 client, &lt;64 B&gt;",
        "redis-server 7.0.15",
        "Requests per second, Redis and memcached",
    ] {
        assert!(page.contains(expected), "{expected} is missing");
    }
    assert_eq!(page.matches("<svg").count(), 4);
    for reference in [
        "http://", "https://", "src=", "href=", "url(", "@import", "<script",
    ] {
        assert!(
            !page.contains(reference),
            "{reference} refers to something outside"
        );
    }
    for number in ["NaN", "inf\"", "null"] {
        assert!(!page.contains(number), "{number} is no coordinate");
    }
}

#[test]
fn what_is_not_accelerated_is_said_on_the_page() {
    let page = page(&report(false)).into_string();
    assert!(page.contains("redis-get-c1 was not accelerated: of 2 ends: 2 tcp (no-window)"));
    assert!(page.contains("<strong>no</strong>"));
}
