use super::*;
use crate::commands::bench::rounds::Measured;

fn figures(p50_ns: Option<f64>, answered_per_s: f64, server_cpu: f64) -> Figures {
    Figures {
        answers: 10_000,
        p50_ns,
        p99_ns: p50_ns.map(|ns| 3.0 * ns),
        p999_ns: p50_ns.map(|ns| 9.0 * ns),
        due_per_s: 1000.0,
        answered_per_s,
        server_cpu,
        client_cpu: 1.0,
        watts: None,
        has_device_queue: false,
    }
}

fn results(cells: &[(u32, Way, Figures)]) -> Results {
    let key = |&(per_second, way, _): &(u32, Way, Figures)| Key { per_second, way };
    let mut rounds = Rounds::new(&cells.iter().map(key).collect::<Vec<_>>());
    for cell in cells {
        let measured = Measured {
            figures: cell.2.clone(),
            verdict: None,
        };
        rounds.add(key(cell), Ok(measured));
    }
    Results {
        rounds,
        counts_client: false,
    }
}

#[test]
fn a_row_has_the_documented_form() {
    let results = results(&[
        (1000, Way::Tcp, figures(Some(70_001.0), 1000.0, 0.1)),
        (1000, Way::Adaptive, figures(Some(300.0), 1000.0, 0.05)),
    ]);
    let rows = results.rows();
    let json = |row: &Row| serde_json::to_string(row).expect("a row is JSON");
    assert_eq!(
        json(&rows[0]),
        r#"{"bench":"wait","case":"load","way":"tcp","transport":"tcp","per_second":1000,"p50_ns":70000,"p99_ns":210000,"p999_ns":630000,"due_per_s":1000.0,"answered_per_s":1000.0,"server_cpu":0.1,"client_cpu":1.0,"keeps_up":true,"frontier_p50":false,"frontier_p99":false,"ranges":{"answered_per_s":[1000.0,1000.0],"answers":[10000.0,10000.0],"client_cpu":[1.0,1.0],"due_per_s":[1000.0,1000.0],"p50_ns":[70000.0,70000.0],"p999_ns":[630000.0,630000.0],"p99_ns":[210000.0,210000.0],"server_cpu":[0.1,0.1]}}"#
    );
    assert!(json(&rows[1]).contains(r#""frontier_p50":true"#));
}

#[test]
fn an_idle_way_has_processor_time_and_no_latency() {
    let results = results(&[(0, Way::Spin, figures(None, 0.0, 0.001))]);
    let row = serde_json::to_string(&results.rows()[0]).expect("a row is JSON");
    assert!(
        row.contains(r#""case":"idle""#) && !row.contains("p50_ns") && !row.contains("keeps_up")
    );
    assert!(row.contains(r#""server_cpu":0.001"#));
}

#[test]
fn an_overloaded_way_is_named_and_is_not_on_the_frontier() {
    let results = results(&[
        (1000, Way::Tcp, figures(Some(1e9), 700.0, 0.01)),
        (1000, Way::Spin, figures(Some(300.0), 1000.0, 1.0)),
    ]);
    let on_frontier = |way| {
        results.is_on_frontier(
            Key {
                per_second: 1000,
                way,
            },
            Figures::p50_ns,
        )
    };
    assert_eq!(on_frontier(Way::Tcp), None);
    assert_eq!(on_frontier(Way::Spin), Some(true));
    assert!(results.complaints()[0].contains("OVERLOADED: tcp at 1 k requests/s: 700"));
}

#[test]
fn the_clients_time_counts_where_it_waits_as_the_server_does() {
    let mut dear = figures(Some(300.0), 1000.0, 0.1);
    dear.client_cpu = 2.0;
    let mut results = results(&[
        (1000, Way::Tcp, figures(Some(300.0), 1000.0, 0.2)),
        (1000, Way::Spin, dear),
    ]);
    let key = Key {
        per_second: 1000,
        way: Way::Spin,
    };
    assert_eq!(results.is_on_frontier(key, Figures::p50_ns), Some(true));
    results.counts_client = true;
    assert_eq!(results.is_on_frontier(key, Figures::p50_ns), Some(false));
}

#[test]
fn polling_without_a_queue_is_said() {
    let cell = |way| (1000, way, figures(Some(1.0), 1000.0, 0.1));
    assert!(results(&[cell(Way::Tcp)]).notes().is_empty());
    assert!(results(&[cell(Way::TcpBusyPoll)]).notes()[0].contains("no queue"));
}
