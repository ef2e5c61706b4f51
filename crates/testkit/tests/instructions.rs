//! Instructions that a message takes in the program and the library, counted by callgrind, against the
//! counts that are kept: what takes more shows without a stopwatch.

use std::collections::BTreeMap;
use std::path::Path;

use crosslane_testkit::{Host, Route, binary};

/// The counts of one send and one receive, by the options of `crosslane-sockbench both`; or of a connection of one request.
const KEPT: &str = include_str!("instructions.json");

/// Compilers and C libraries differ by as much.
const TOLERANCE: f64 = 0.15;

/// Messages of a short and of a long run; their difference leaves out what begins and ends a run.
const SHORT: u64 = 2_000;
const LONG: u64 = 12_000;

#[test]
fn a_message_takes_no_more_instructions_than_before() {
    let kept: BTreeMap<String, f64> = serde_json::from_str(KEPT).expect("the counts are JSON");
    let host = Host::new(Route::Crosslane);
    let found: BTreeMap<&str, f64> = kept
        .keys()
        .map(|options| (options.as_str(), per_message(&host, options)))
        .collect();
    let text = serde_json::to_string(&found).expect("numbers");
    eprintln!("instructions per message: {text}");
    for (options, before) in &kept {
        let now = found[options.as_str()];
        let ratio = now / before;
        assert!(
            ratio < 1.0 + TOLERANCE,
            "a message of {options} takes {now} instructions, {ratio:.2} times the {before} before: {text}"
        );
        assert!(
            ratio > 1.0 - TOLERANCE,
            "a message of {options} takes {now} instructions only: keep that instead of {before}: {text}"
        );
    }
}

fn per_message(host: &Host, options: &str) -> f64 {
    let [short, long] = [SHORT, LONG].map(|messages| count(host, options, messages));
    ((long - short) as f64 / (LONG - SHORT) as f64).round()
}

/// All instructions of a run that sends so many messages, through rings but for those that have each a connection of their own.
fn count(host: &Host, options: &str, messages: u64) -> u64 {
    let is_brief = options.contains("--brief");
    let ring_bytes = || host.stats().count("ring_bytes_received");
    let brief_ones = || host.stats().reason_count("too-young");
    let before = (ring_bytes(), brief_ones());
    let file = host.folder().join(format!("{options}.{messages}"));
    let valgrind = host.program("valgrind");
    let valgrind = match is_brief {
        true => valgrind,
        false => valgrind.run_option("--eager", "1-65535"),
    };
    valgrind
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(binary("crosslane-sockbench"))
        .arg("both")
        .args(options.split(' '))
        .args(["--messages", &messages.to_string()])
        .run();
    if is_brief {
        // Both of their ends.
        assert_eq!(brief_ones() - before.1, 2 * messages);
        return totals_in(&file);
    }
    let by_ring = ring_bytes() - before.0;
    let bytes: u64 = options
        .split(' ')
        .nth(1)
        .and_then(|bytes| bytes.parse().ok())
        .expect("--bytes N");
    assert!(
        by_ring >= bytes * messages,
        "{by_ring} of {} bytes went by rings",
        bytes * messages
    );
    totals_in(&file)
}

/// The sum in a file of callgrind's.
fn totals_in(file: &Path) -> u64 {
    let text = std::fs::read_to_string(file).expect("callgrind has written its counts");
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    let total = total.expect("callgrind sums up");
    total.trim().parse().expect("one event was counted")
}
