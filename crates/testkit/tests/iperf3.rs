//! iperf3 in all its directions.

use crosslane_testkit::{Sides, free_port, on_all_routes};
use serde_json::Value;

/// Run a client against a server, and return its report.
fn measure(sides: &Sides, options: &[&str]) -> Value {
    let port = free_port().to_string();
    let server = sides
        .server()
        .program("iperf3")
        .args(["-s", "-B", sides.address(), "-p", &port])
        .start();
    server.wait_for_port(port.parse().expect("it was a number"));
    let witness = sides.witness(port.parse().expect("it was a number"));
    let client = sides.client().program("iperf3").args([
        "-c",
        sides.address(),
        "-p",
        &port,
        "-J",
        "-t",
        "2",
    ]);
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

fn one_stream(sides: &Sides) {
    let report = measure(sides, &[]);
    assert!(bytes(&report, "sum_sent") >= bytes(&report, "sum_received"));
}

fn parallel(sides: &Sides) {
    let report = measure(sides, &["-P", "4"]);
    assert_streams(&report, 4);
    assert!(bytes(&report, "sum_sent") >= bytes(&report, "sum_received"));
}

fn reverse(sides: &Sides) {
    let report = measure(sides, &["-R", "-P", "2"]);
    assert_streams(&report, 2);
    assert!(bytes(&report, "sum_sent") >= bytes(&report, "sum_received"));
}

fn bidirectional(sides: &Sides) {
    let report = measure(sides, &["--bidir"]);
    assert_streams(&report, 2);
    bytes(&report, "sum_received");
    bytes(&report, "sum_received_bidir_reverse");
}

fn small_writes(sides: &Sides) {
    bytes(&measure(sides, &["-l", "1000", "-N"]), "sum_received");
}

fn from_a_file(sides: &Sides) {
    let file = sides.client().file("bytes", []);
    let sized = std::fs::File::options().write(true).open(&file);
    sized
        .and_then(|file| file.set_len(500_000_000))
        .expect("a file can have holes");
    let file = file.to_str().expect("the folder's name is text");
    bytes(&measure(sides, &["-F", file, "-Z"]), "sum_received");
}

on_all_routes!(
    one_stream,
    parallel,
    reverse,
    bidirectional,
    small_writes,
    from_a_file
);
