//! Random programs of socket calls must see the same natively and under Crosslane.
//!
//! Longer runs: `cargo xtask fuzz-posix --minutes N`.

use std::path::{Path, PathBuf};

use crosslane_testkit::{Host, Program, Route, binary, tell};

/// Seeds from 0 on that are compared.
const SEEDS: &str = "60";
/// Enough to see what is wrong.
const ENOUGH: [&str; 4] = ["--enough", "3", "--shrink-seconds", "15"];
/// Of all bytes, pairs that stay on TCP for a while and ends within one process included.
const LEAST_RING_SHARE: f64 = 0.2;

/// A comparison of what programs see natively with what they see by each of `ways`.
fn hunt<'a>(host: &'a Host, ways: &[String], options: &[&str]) -> Program<'a> {
    let ways = ways.iter().flat_map(|way| ["--under", way]);
    host.plain(binary("crosslane-differ"))
        .arg("hunt")
        .args(ways)
        .args(options)
}

/// The ways in which Crosslane serves programs: connections are upgraded after some round trips,
/// from their first byte, or go to and fro.
fn ways() -> [String; 3] {
    let run = format!("{} run", binary("crosslane").display());
    [
        format!("{run} --"),
        format!("{run} --eager 1-65535 --"),
        format!("env CROSSLANE_CHAOS=5 {run} --"),
    ]
}

/// The same ways for AF_UNIX streams, which have no ports to be eager on.
fn unix_ways() -> [String; 2] {
    let run = format!("{} run --unix --", binary("crosslane").display());
    [run.clone(), format!("env CROSSLANE_CHAOS=5 {run}")]
}

/// The programs of differences that were found once, a file each.
fn corpus(name: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../exercise");
    let folder = folder.join(name);
    let entries = std::fs::read_dir(folder).expect("the corpus is part of the sources");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("it can be listed").path())
        .collect();
    files.sort();
    files
}

#[test]
fn the_kernel_agrees_with_itself() {
    let host = Host::new(Route::Tcp);
    let ways = ["env".to_owned()];
    let bounds = ["--first", "1000", "--seeds", "60", "--seconds", "10"];
    // As those that are compared with Crosslane.
    let options = [&bounds[..], &["--steady"]].concat();
    show(hunt(&host, &ways, &options));
}

#[test]
fn a_lie_is_found_and_told_in_few_steps() {
    let host = Host::new(Route::Tcp);
    let liar = host.file("liar", "\"$@\" | sed -u 's/=> ESPIPE/=> EINVAL/'\n");
    let ways = [format!("sh {}", liar.display())];
    let output = hunt(&host, &ways, &["--enough", "1", "--seconds", "60"]).finish();
    assert!(!output.status.success(), "{}", output.text());
    let steps = output
        .text()
        .lines()
        .filter(|line| line.starts_with("    "))
        .count();
    // A connection, and the call that is lied about.
    assert_eq!(steps, 2, "{}", output.text());
}

/// Play the corpus by each way on a host of its own, so that each has to show that it accelerates.
fn replay(ways: &[String], folder: &str) {
    let files = corpus(folder);
    let files: Vec<_> = files
        .iter()
        .map(|file| file.to_str().expect("a plain name"))
        .collect();
    let options: Vec<_> = ["--known", "--raw"].into_iter().chain(files).collect();
    for way in ways {
        let host = Host::new(Route::Crosslane);
        show(hunt(&host, std::slice::from_ref(way), &options));
        let stats = host.stats();
        assert!(stats.count("upgrades") > 0, "{way}: {stats:?}");
        let goes_back = !way.contains("CHAOS") || stats.count("downgrades") > 0;
        assert!(goes_back, "{way}: {stats:?}");
    }
}

/// Run it, and show what it forgives and leaves out also when the test passes.
fn show(hunt: Program<'_>) {
    let text = hunt.run().text();
    let is_loud = |line: &&str| {
        let is_left_out = line.starts_with("LEFT OUT ") && !line.starts_with("LEFT OUT 0 ");
        is_left_out || line.starts_with("WAVERING: ")
    };
    text.lines().filter(is_loud).for_each(tell);
    println!("{text}");
}

#[test]
fn programs_that_differed_once_see_the_same() {
    replay(&ways(), "corpus");
}

#[test]
fn programs_that_differed_once_over_unix_see_the_same() {
    replay(&unix_ways(), "corpus-unix");
}

/// Compare generated programs.
fn compare(ways: &[String], options: &[&str]) {
    let host = Host::new(Route::Crosslane);
    let witness = host.witness(0);
    // What comes and goes is told past the runner's capture, and left to `fuzz-posix`.
    let options = [options, &["--steady", "--seeds", SEEDS], &ENOUGH[..]].concat();
    show(hunt(&host, ways, &options));
    witness.assert_ring_share(LEAST_RING_SHARE);
}

#[test]
fn generated_programs_see_the_same() {
    // Differences on connections that go to and fro come and go; `fuzz-posix` looks for them.
    let [lazy, eager, _] = ways();
    compare(&[lazy, eager], &[]);
}

#[test]
fn generated_programs_over_unix_see_the_same() {
    let [lazy, _] = unix_ways();
    compare(&[lazy], &["--unix"]);
}
