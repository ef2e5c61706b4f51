//! The benches as a person runs them, in their smallest form: every line is JSON, everything asked
//! for was measured, and what went over Crosslane was accelerated. No time is judged.

use crosslane_testkit::{Host, Route, binary};
use serde_json::Value;

/// The lines of a bench, the first of which describes the machine.
fn lines(bench: &str, arguments: &[&str]) -> Vec<Value> {
    let host = Host::without_monitor(Route::Tcp);
    let run = host.plain(binary("crosslane")).args(["bench", bench]);
    let output = run.args(arguments).args(["--quick", "--json"]).run();
    let parse = |line: &str| serde_json::from_str::<Value>(line).expect(line);
    let lines: Vec<Value> = output.text().lines().map(parse).collect();
    assert_eq!(lines[0]["case"], "machine");
    for key in ["cpu", "cores", "kernel", "command", "date", "rounds"] {
        assert!(!lines[0][key].is_null(), "{key} is missing: {}", lines[0]);
    }
    assert!(lines.iter().all(|line| line["bench"] == bench));
    for line in &lines[1..] {
        assert!(line["error"].is_null(), "{line}");
        if line["transport"] == "crosslane" {
            assert_eq!(line["accelerated"], true, "{line}");
        }
    }
    lines
}

fn number(line: &Value, key: &str) -> f64 {
    let value = line[key].as_f64();
    value.unwrap_or_else(|| panic!("{key} is no number in {line}"))
}

#[test]
fn every_way_of_waiting_is_measured_idle_and_under_load() {
    let lines = lines("wait", &["--repeats", "1", "--rates", "0,2000"]);
    let rows = &lines[1..];
    let mut named: Vec<_> = rows
        .iter()
        .map(|row| format!("{} {}", row["case"], row["way"]).replace('"', ""))
        .collect();
    // A kernel that refuses SO_BUSY_POLL is named in the notes instead.
    let notes = lines[0]["notes"].to_string();
    if notes.contains("tcp-busy-poll is left out") {
        eprintln!("SKIPPED: {notes}");
    } else {
        assert!(
            named.contains(&"load tcp-busy-poll".to_owned()),
            "{named:?}"
        );
    }
    named.retain(|name| !name.contains("busy-poll"));
    let ways = ["tcp", "tcp-spin", "sleep", "adaptive", "spin"];
    let expected = ["idle", "load"].map(|case| ways.map(|way| format!("{case} {way}")));
    assert_eq!(named, expected.concat());
    for row in rows {
        assert!(number(row, "server_cpu") >= 0.0);
        if row["case"] == "load" {
            assert!(number(row, "p50_ns") <= number(row, "p99_ns"));
            assert!(number(row, "answered_per_s") > 0.0);
        } else {
            assert!(row["p50_ns"].is_null(), "{row}");
        }
    }
    let load = rows.iter().filter(|row| row["case"] == "load");
    let best = load.filter(|row| row["frontier_p50"] == true).count();
    assert!(best > 0, "something is always on the frontier");
}

#[test]
fn a_client_that_waits_itself_is_measured_too() {
    let arguments = "--repeats 1 --rates 1000 --ways tcp,adaptive --pace poll --place free";
    let lines = lines("wait", &arguments.split(' ').collect::<Vec<_>>());
    assert_eq!(lines[0]["pace"], "poll");
    assert_eq!(lines.len(), 3);
    assert!(lines[1..].iter().all(|row| number(row, "client_cpu") > 0.0));
}

#[test]
fn connections_are_counted_in_memory_and_latency() {
    let lines = lines("connections", &["--repeats", "1", "--counts", "1,300"]);
    let rows = &lines[1..];
    let named: Vec<_> = rows
        .iter()
        .map(|row| format!("{} {}", row["connections"], row["transport"]).replace('"', ""))
        .collect();
    assert_eq!(named, ["1 tcp", "1 crosslane", "300 tcp", "300 crosslane"]);
    for row in rows {
        assert!(number(row, "p50_ns") <= number(row, "p99_ns"));
        let parts = ["program_bytes", "monitor_bytes", "shared_bytes"].map(|key| number(row, key));
        let sum: f64 = parts.iter().sum();
        assert!(
            (sum - number(row, "total_bytes")).abs() <= 0.001 * sum,
            "{row}"
        );
    }
    // A connection has a ring each way, of which at least a page each is touched; TCP has none.
    assert!(number(&rows[3], "shared_bytes") >= 300.0 * 8192.0);
    assert_eq!(number(&rows[2], "shared_bytes"), 0.0);
}

#[test]
fn everybody_who_is_installed_is_measured() {
    let lines = lines("peers", &["--repeats", "1"]);
    let mut expected = vec!["tcp", "unix", "pipe", "crosslane"];
    for (peer, name) in [
        ("ucx", "ucx is left out"),
        ("libfabric", "libfabric is left out"),
    ] {
        if lines[0]["notes"].to_string().contains(name) {
            eprintln!("SKIPPED: {}", lines[0]["notes"]);
        } else {
            expected.push(peer);
        }
    }
    for peer in expected {
        let rows = || lines.iter().filter(|line| line["transport"] == peer);
        let trip = rows().find(|row| row["case"] == "rtt").expect(peer);
        let figure = if peer == "libfabric" {
            "mean_ns"
        } else {
            "p50_ns"
        };
        assert!(number(trip, figure) > 0.0);
        let streams: Vec<_> = rows().filter(|row| row["case"] == "stream").collect();
        assert_eq!(
            streams.len(),
            if peer == "libfabric" { 0 } else { 3 },
            "{peer}"
        );
        assert!(streams.iter().all(|row| number(row, "gbps") > 0.0));
    }
}

#[test]
fn the_native_interface_is_measured_beside_sockets() {
    let lines = lines("api", &["--repeats", "1"]);
    let rows = &lines[1..];
    assert_eq!(rows.len(), 6 * 4, "six cases in four modes");
    for row in rows {
        let is_rtt = row["case"] == "rtt";
        let figure = if is_rtt { "p50_ns" } else { "gbps" };
        assert!(number(row, figure) > 0.0, "{row}");
        // What goes one way may overflow to TCP for a while when the receiver does not get to run.
        if row["mode"] != "tcp" && is_rtt {
            assert_eq!(row["accelerated"], true, "{row}");
        }
        assert_eq!(row["accelerated"].is_null(), row["mode"] == "tcp", "{row}");
    }
}

#[test]
fn more_connections_than_the_machine_allows_are_refused_before_measuring() {
    let host = Host::without_monitor(Route::Tcp);
    let bench = host.plain(binary("crosslane"));
    let output = bench
        .args(["bench", "connections", "--counts", "1,4000000000"])
        .finish();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("4000000064 descriptors"), "{said}");
}
