//! The benches as a person runs them, in their smallest form: every line is JSON, everything asked
//! for was measured, and what went over Crosslane was accelerated. No time is judged.

use crosslane_testkit::{Host, Route, binary, rack, skipped};
use serde_json::Value;

/// The lines of a quick bench, the first of which describes the machine.
fn lines(bench: &str, arguments: &[&str]) -> Vec<Value> {
    lines_by(bench, &[arguments, &["--quick"]].concat())
}

/// The same by these arguments only.
fn lines_by(bench: &str, arguments: &[&str]) -> Vec<Value> {
    let host = Host::without_monitor(Route::Tcp);
    let run = host.plain(binary("crosslane")).args(["bench", bench]);
    let output = run.args(arguments).arg("--json").run();
    let parse = |line: &str| serde_json::from_str::<Value>(line).expect(line);
    let lines: Vec<Value> = output.text().lines().map(parse).collect();
    assert_eq!(lines[0]["case"], "machine");
    for key in ["cpu", "cores", "kernel", "command", "date", "rounds"] {
        assert!(!lines[0][key].is_null(), "{key} is missing: {}", lines[0]);
    }
    assert!(lines.iter().all(|line| line["bench"] == bench));
    number(&lines[0], "took_s");
    for line in &lines[1..] {
        assert!(line["error"].is_null(), "{line}");
        // What ends after one request stays on TCP.
        if line["transport"] == "crosslane" && line["case"] != "short" {
            assert_eq!(line["accelerated"], true, "{line}");
        }
    }
    lines
}

/// A 99th percentile is told of a thousand samples and more, and is no less than the median.
fn assert_percentiles(row: &Value) {
    let median = number(row, "p50_ns");
    let samples = ["trips", "answers", "requests", "fetches"]
        .iter()
        .find_map(|name| row["ranges"][*name][0].as_f64());
    match row["p99_ns"].as_f64() {
        Some(tail) => assert!(median <= tail, "{row}"),
        None => assert!(samples.is_some_and(|samples| samples < 1000.0), "{row}"),
    }
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
        skipped(&notes);
    } else {
        assert!(
            named.contains(&"load tcp-busy-poll".to_owned()),
            "{named:?}"
        );
    }
    if notes.contains("monitor is left out") {
        skipped(&notes);
    } else {
        assert!(named.contains(&"load monitor".to_owned()), "{named:?}");
    }
    named.retain(|name| !name.contains("busy-poll") && !name.contains("monitor"));
    let ways = ["tcp", "tcp-spin", "sleep", "adaptive", "spin"];
    let expected = ["idle", "load"].map(|case| ways.map(|way| format!("{case} {way}")));
    assert_eq!(named, expected.concat());
    for row in rows {
        assert!(number(row, "server_cpu") >= 0.0);
        if row["case"] == "load" {
            assert_percentiles(row);
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
        assert_percentiles(row);
        let parts = ["program_bytes", "monitor_bytes", "shared_bytes"].map(|key| number(row, key));
        let sum: f64 = parts.iter().sum();
        assert!(
            (sum - number(row, "total_bytes")).abs() <= 0.001 * sum,
            "{row}"
        );
    }
    // What a connection uses first of its two rings is in one page; TCP has none.
    assert!(number(&rows[3], "shared_bytes") >= 300.0 * 4096.0);
    assert_eq!(number(&rows[2], "shared_bytes"), 0.0);
}

#[test]
fn two_hosts_are_measured_beside_tcp_and_the_bare_window() {
    if !rack::can_run() {
        return;
    }
    let arguments = "--two-hosts --repeats 1 --cases rtt:64,stream:4096";
    let lines = lines("sockets", &arguments.split(' ').collect::<Vec<_>>());
    assert_eq!(lines[0]["hosts"], 2);
    let named: Vec<_> = lines[1..]
        .iter()
        .map(|row| format!("{} {}", row["case"], row["transport"]).replace('"', ""))
        .collect();
    let expected = [
        "rtt tcp",
        "rtt crosslane",
        "rtt lane",
        "rtt window",
        "stream tcp",
        "stream crosslane",
        "stream lane",
    ];
    assert_eq!(named, expected);
    for row in &lines[1..5] {
        assert_percentiles(row);
    }
    number(&lines[3], "overhead_ns");
}

#[test]
fn two_hosts_that_only_write_each_others_memory_are_measured() {
    if !rack::can_run() {
        return;
    }
    // Not quickly: what is posted comes late on a busy machine.
    let arguments = "--two-hosts --kind posted --repeats 1 --cases rtt:64";
    let lines = lines_by("sockets", &arguments.split(' ').collect::<Vec<_>>());
    assert_eq!(
        (&lines[0]["hosts"], &lines[0]["window"]),
        (&2.into(), &"posted".into())
    );
    let named: Vec<_> = lines[1..].iter().map(|row| &row["transport"]).collect();
    assert_eq!(named, ["tcp", "crosslane", "lane", "window"]);
    lines[1..].iter().for_each(assert_percentiles);
}

#[test]
fn a_message_is_followed_stage_by_stage() {
    // `cargo xtask test` has built the traced library; where it is missing, the bench says how to.
    let lines = lines("breakdown", &["--repeats", "1", "--bytes", "8,64,4096"]);
    let clocks = &lines[0]["clocks"];
    assert!(number(clocks, "within_ns") > 0.0 && number(clocks, "look_ns") > 0.0);
    for (row, bytes) in lines[1..].iter().zip([8.0, 64.0, 4096.0]) {
        assert_eq!(number(row, "bytes"), bytes);
        let stages = [
            "call", "lookup", "copy_in", "publish", "transfer", "poll", "copy_out", "return",
        ];
        let stages = stages.map(|stage| number(row, &format!("{stage}_ns")));
        let sum = stages.iter().sum::<f64>() + number(row, "rest_ns");
        assert!((sum - number(row, "whole_ns")).abs() < 1.0, "{row}");
        assert!(number(row, "plain_ns") > 0.0);
        // All stages but these last no longer than the counter's step on some machines.
        assert!(
            stages[4] > 0.0,
            "no message arrives before it is sent: {row}"
        );
    }
    assert_eq!(lines.len(), 4);
}

#[test]
fn nginx_serves_files_both_ways_over_both() {
    if !std::path::Path::new("/usr/sbin/nginx").is_file() {
        skipped("nginx is missing; run `cargo xtask setup`");
        return;
    }
    let lines = lines("files", &["--repeats", "1", "--bytes", "8192,2097152"]);
    let fetches: Vec<_> = (lines[1..].iter())
        .filter(|row| row["case"] == "fetch")
        .collect();
    assert_eq!(
        fetches.len(),
        2 * 2 * 3,
        "sizes, ways, transports and the limit"
    );
    for row in fetches {
        assert_percentiles(row);
        assert!(number(row, "gbps") > 0.0);
    }
    let requests = lines.iter().filter(|row| row["case"] == "requests");
    let rates: Vec<_> = requests.map(|row| number(row, "per_s")).collect();
    if lines[0]["notes"].to_string().contains("no wrk") {
        skipped(&lines[0]["notes"].to_string());
    } else {
        assert_eq!(rates.len(), 2 * 2, "ways, transports");
    }
    assert!(rates.iter().all(|rate| *rate > 0.0));
}

#[test]
fn stores_answer_every_mix_over_both() {
    let arguments = "--repeats 1 --bytes 16,4096 --clients 3 --mixes R95I5,R90U10";
    let arguments: Vec<_> = arguments.split(' ').collect();
    let installed = ["/usr/bin/redis-server", "/usr/bin/memcached"]
        .map(|program| std::path::Path::new(program).is_file());
    let count = installed.iter().filter(|is_there| **is_there).count();
    if count < installed.len() {
        skipped("redis-server or memcached is missing; run `cargo xtask setup`");
    }
    if count == 0 {
        return;
    }
    let lines = lines("stores", &arguments);
    assert_eq!(
        lines.len() - 1,
        count * 2 * 2 * 2,
        "mixes, sizes, transports"
    );
    for row in &lines[1..] {
        assert_percentiles(row);
        assert!(number(row, "per_s") > 0.0);
    }
}

#[test]
fn a_store_on_another_host_answers_over_tcp_and_over_the_window() {
    if !rack::can_run() {
        return;
    }
    if !std::path::Path::new("/usr/bin/redis-server").is_file() {
        skipped("redis-server is missing; run `cargo xtask setup`");
        return;
    }
    // On a busy machine the keys are written before two hosts have agreed on a window's part. By several clients, and not
    // quickly, most bytes are those of the requests.
    let arguments = "--two-hosts --repeats 1 --stores redis --mixes R100 --clients 10 --bytes 16";
    let lines = lines_by("stores", &arguments.split(' ').collect::<Vec<_>>());
    assert_eq!(lines[0]["hosts"], 2);
    let named: Vec<_> = lines[1..]
        .iter()
        .map(|row| format!("{} {}", row["case"], row["transport"]).replace('"', ""))
        .collect();
    assert_eq!(named, ["redis tcp", "redis crosslane"]);
    for row in &lines[1..] {
        assert_percentiles(row);
        assert!(number(row, "per_s") > 0.0);
    }
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
            skipped(&lines[0]["notes"].to_string());
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
    assert_eq!(rows.len(), 6 * 5, "six cases in five modes");
    for row in rows {
        let is_rtt = row["case"] == "rtt";
        let figure = if is_rtt { "p50_ns" } else { "gbps" };
        assert!(number(row, figure) > 0.0, "{row}");
        // What goes one way may overflow to TCP for a while when the receiver does not get to run.
        let is_shown = row["transport"] != "tcp" && row["transport"] != "runtime";
        if is_shown && is_rtt {
            assert_eq!(row["accelerated"], true, "{row}");
        }
        assert_eq!(row["accelerated"].is_null(), !is_shown, "{row}");
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
