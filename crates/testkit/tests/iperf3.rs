//! iperf3 in all its directions.

use crosslane_testkit::{Host, free_port, on_both_routes};
use serde_json::Value;

/// Run a client against a server, and return its report.
fn measure(host: &Host, options: &[&str]) -> Value {
    let port = free_port().to_string();
    let server = host
        .program("iperf3")
        .args(["-s", "-B", "127.0.0.1", "-p", &port])
        .start();
    server.wait_for_port(port.parse().expect("it was a number"));
    let witness = host.witness(port.parse().expect("it was a number"));
    let client = host
        .program("iperf3")
        .args(["-c", "127.0.0.1", "-p", &port, "-J", "-t", "2"]);
    let output = client.args(options).run().text();
    witness.assert_ring_share(0.5);
    let report: Value = serde_json::from_str(&output).expect("iperf3 -J prints JSON");
    assert_eq!(report.get("error"), None, "{output}");
    report
}

/// The bytes that one sum of the report names, which must be some.
fn bytes(report: &Value, sum: &str) -> u64 {
    let bytes = report["end"][sum]["bytes"].as_u64().unwrap_or(0);
    assert!(bytes > 10_000_000, "{sum} has {bytes} bytes: {report:#}");
    bytes
}

fn assert_streams(report: &Value, count: usize) {
    assert_eq!(
        report["end"]["streams"].as_array().map(Vec::len),
        Some(count),
        "{report:#}"
    );
}

fn one_stream(host: &Host) {
    let report = measure(host, &[]);
    assert!(bytes(&report, "sum_sent") >= bytes(&report, "sum_received"));
}

fn parallel(host: &Host) {
    let report = measure(host, &["-P", "4"]);
    assert_streams(&report, 4);
    assert!(bytes(&report, "sum_sent") >= bytes(&report, "sum_received"));
}

fn reverse(host: &Host) {
    let report = measure(host, &["-R", "-P", "2"]);
    assert_streams(&report, 2);
    assert!(bytes(&report, "sum_sent") >= bytes(&report, "sum_received"));
}

fn bidirectional(host: &Host) {
    let report = measure(host, &["--bidir"]);
    assert_streams(&report, 2);
    bytes(&report, "sum_received");
    bytes(&report, "sum_received_bidir_reverse");
}

fn small_writes(host: &Host) {
    bytes(&measure(host, &["-l", "1000", "-N"]), "sum_received");
}

fn from_a_file(host: &Host) {
    let file = host.file("bytes", []);
    let sized = std::fs::File::options().write(true).open(&file);
    sized
        .and_then(|file| file.set_len(500_000_000))
        .expect("a file can have holes");
    let file = file.to_str().expect("the folder's name is text");
    bytes(&measure(host, &["-F", file, "-Z"]), "sum_received");
}

on_both_routes!(
    one_stream,
    parallel,
    reverse,
    bidirectional,
    small_writes,
    from_a_file
);
