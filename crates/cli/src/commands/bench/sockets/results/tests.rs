use super::*;

const CASE: Case = Case {
    kind: client::Case::Rtt,
    bytes: 64,
};

fn rtt(p50_ns: u64) -> Outcome {
    Outcome::Rtt {
        bytes: 64,
        trips: 10_000,
        p50_ns,
        p99_ns: 2 * p50_ns,
        p999_ns: 3 * p50_ns,
        cdf_ns: vec![p50_ns; CDF.len()],
    }
}

fn results(over: Transport, p50s: &[u64]) -> Results {
    let key = Key { case: CASE, over };
    let mut rounds = Rounds::new(&[key]);
    for &p50_ns in p50s {
        let measured = rounds::Measured {
            figures: rtt(p50_ns),
            verdict: None,
        };
        rounds.add(key, Ok(measured));
    }
    Results(rounds)
}

fn json(results: &Results, cdf: bool) -> Vec<String> {
    let text = |row| serde_json::to_string(row).expect("a row is JSON");
    results.rows(cdf).iter().map(text).collect()
}

#[test]
fn a_row_is_the_median_in_the_documented_form() {
    let results = results(Transport::Tcp, &[300, 100, 200]);
    let expected = r#"{"bench":"sockets","case":"rtt","bytes":64,"transport":"tcp","p50_ns":200,"p99_ns":400,"p999_ns":600"#;
    let ranges = r#""ranges":{"p50_ns":[100.0,300.0],"p999_ns":[300.0,900.0],"p99_ns":[200.0,600.0],"trips":[10000.0,10000.0]}"#;
    assert_eq!(json(&results, false), [format!("{expected},{ranges}}}")]);
    let with_points = format!(r#"{expected},"cdf_ns":[[0.0,200],[0.1,200],"#);
    assert!(json(&results, true)[0].starts_with(&with_points));
}

#[test]
fn a_failure_leaves_no_figure() {
    let mut results = results(Transport::Unix, &[100]);
    let key = Key {
        case: CASE,
        over: Transport::Unix,
    };
    results.0.add(key, Err(anyhow::anyhow!("hung")));
    assert_eq!(results.median(CASE, Transport::Unix, Figure::P50), None);
    assert!(json(&results, true)[0].ends_with(r#""transport":"unix","error":"hung"}"#));
}

#[test]
fn a_lane_adds_half_of_what_its_round_trip_takes_longer() {
    let key = |over| Key { case: CASE, over };
    let (lane, window) = (key(Transport::Lane), key(Transport::Window));
    let mut rounds = Rounds::new(&[lane, window]);
    for (key, p50_ns) in [(lane, 700), (window, 640)] {
        let (figures, verdict) = (rtt(p50_ns), None);
        rounds.add(key, Ok(rounds::Measured { figures, verdict }));
    }
    let results = Results(rounds);
    assert_eq!(results.overhead_ns(CASE), Some(30.0));
    let rows = json(&results, false);
    assert!(rows[0].contains(r#""transport":"lane","overhead_ns":30.0,"#));
    assert!(!rows[1].contains("overhead_ns"));
}
