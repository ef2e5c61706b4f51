use super::*;

const CASE: Case = Case {
    kind: client::Case::Rtt,
    bytes: 64,
};

fn rtt(p50_ns: u64) -> Outcome {
    Outcome::Rtt {
        bytes: 64,
        trips: 1000,
        p50_ns,
        p99_ns: 2 * p50_ns,
        p999_ns: 3 * p50_ns,
    }
}

fn results(over: Transport, measured: Vec<anyhow::Result<Measured>>) -> Results {
    let mut results = Results::new(&[(CASE, over)]);
    measured
        .into_iter()
        .for_each(|measured| results.add(CASE, over, measured));
    results
}

fn json(results: &Results) -> Vec<String> {
    let text = |row| serde_json::to_string(row).expect("a row is JSON");
    results.rows().iter().map(text).collect()
}

#[test]
fn a_row_is_the_median_in_the_documented_form() {
    let round = |p50| {
        Ok(Measured {
            outcome: rtt(p50),
            verdict: None,
        })
    };
    let results = results(Transport::Tcp, vec![round(300), round(100), round(200)]);
    let expected = r#"{"bench":"sockets","case":"rtt","bytes":64,"transport":"tcp","p50_ns":200,"p99_ns":400,"p999_ns":600}"#;
    assert_eq!(json(&results), [expected]);
}

#[test]
fn one_round_that_was_not_accelerated_is_enough_to_warn() {
    let round = |accelerated: bool| {
        let reason = (!accelerated).then(|| "of 2 ends: 2 tcp (no-window)".to_owned());
        let verdict = Verdict {
            accelerated,
            reason,
            ring_share: Some(0.5),
        };
        Ok(Measured {
            outcome: rtt(100),
            verdict: Some(verdict),
        })
    };
    let results = results(Transport::Crosslane, vec![round(true), round(false)]);
    assert!(json(&results)[0].contains(r#""accelerated":false,"reason":"of 2 ends"#));
    assert!(results.complaints()[0].contains("no-window"));
    assert!(results.is_complete());
}

#[test]
fn a_failure_leaves_no_figure() {
    let round = Ok(Measured {
        outcome: rtt(100),
        verdict: None,
    });
    let results = results(Transport::Unix, vec![round, Err(anyhow::anyhow!("hung"))]);
    assert!(results.has_failed(CASE, Transport::Unix) && !results.is_complete());
    assert_eq!(results.median(CASE, Transport::Unix, Figure::P50), None);
    assert!(json(&results)[0].ends_with(r#""transport":"unix","error":"hung"}"#));
}
