//! Instructions that a message takes in the program and the library, counted by callgrind, against the
//! counts that are kept: what takes more shows without a stopwatch.

use std::collections::BTreeMap;

use crosslane_testkit::{Host, Route, binary};

/// The counts by bytes of the message, of one send and one receive.
const KEPT: &str = include_str!("instructions.json");

/// Compilers and C libraries differ by as much.
const TOLERANCE: f64 = 0.15;

/// Messages of a short and of a long run; their difference leaves out what begins and ends a run.
const SHORT: u64 = 2_000;
const LONG: u64 = 12_000;

#[test]
fn a_message_takes_no_more_instructions_than_before() {
    let kept: BTreeMap<u64, f64> = serde_json::from_str(KEPT).expect("the counts are JSON");
    let host = Host::new(Route::Crosslane);
    let found: BTreeMap<u64, f64> = kept
        .keys()
        .map(|bytes| (*bytes, per_message(&host, *bytes)))
        .collect();
    let text = serde_json::to_string(&found).expect("numbers");
    eprintln!("instructions per message, by bytes: {text}");
    for (bytes, before) in &kept {
        let now = found[bytes];
        let ratio = now / before;
        assert!(
            ratio < 1.0 + TOLERANCE,
            "a message of {bytes} B takes {now} instructions, {ratio:.2} times the {before} before: {text}"
        );
        assert!(
            ratio > 1.0 - TOLERANCE,
            "a message of {bytes} B takes {now} instructions only: keep that instead of {before}: {text}"
        );
    }
}

fn per_message(host: &Host, bytes: u64) -> f64 {
    let [short, long] = [SHORT, LONG].map(|messages| count(host, bytes, messages));
    ((long - short) as f64 / (LONG - SHORT) as f64).round()
}

/// All instructions of a run that sends so many messages through rings.
fn count(host: &Host, bytes: u64, messages: u64) -> u64 {
    let ring_bytes = || host.stats().count("ring_bytes_received");
    let before = ring_bytes();
    let file = host.folder().join(format!("{bytes}.{messages}"));
    let valgrind = host.program("valgrind").run_option("--eager", "1-65535");
    valgrind
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(binary("crosslane-sockbench"))
        .args(["both", "--bytes", &bytes.to_string()])
        .args(["--messages", &messages.to_string()])
        .run();
    let by_ring = ring_bytes() - before;
    assert!(
        by_ring >= bytes * messages,
        "{by_ring} of {} bytes went by rings",
        bytes * messages
    );
    totals(&std::fs::read_to_string(&file).expect("callgrind has written its counts"))
}

/// The sum in a file of callgrind's.
fn totals(text: &str) -> u64 {
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    let total = total.expect("callgrind sums up");
    total.trim().parse().expect("one event was counted")
}
