//! `crosslane window` and `crosslane bench window`, as people run them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const WATCHDOG: Duration = Duration::from_secs(120);

/// A file in memory, removed at the end.
struct Window(PathBuf);

impl Window {
    fn new(name: &str, bytes: u64) -> Self {
        let path = PathBuf::from(format!(
            "/dev/shm/crosslane-test-{name}-{}",
            std::process::id()
        ));
        std::fs::File::create(&path)
            .unwrap()
            .set_len(bytes)
            .unwrap();
        Self(path)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn crosslane(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crosslane"));
    command.args(words);
    command
}

/// Run to the end, but not for ever.
fn run(mut command: Command) -> Output {
    let child = start(&mut command);
    finish(&command, child)
}

fn start(command: &mut Command) -> Child {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn finish(command: &Command, mut child: Child) -> Output {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > WATCHDOG {
            child.kill().unwrap();
            panic!("{command:?}: still not done after {WATCHDOG:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{complaint}");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn probe_lists_the_memory_of_this_machine() {
    let rows = lines(&run(crosslane(&["window", "probe", "--json"])));
    let shm = rows
        .iter()
        .find(|row| row["place"] == "/dev/shm/...")
        .expect("tmpfs is mounted there");
    assert_eq!(
        (&shm["kind"], &shm["usable"]),
        (&"tmpfs".into(), &true.into())
    );
}

#[test]
fn both_sides_of_a_test_agree_and_what_was_there_before_means_nothing() {
    let window = Window::new("window-test", 1 << 20);
    let path = window.0.to_str().unwrap();
    for _ in 0..2 {
        let test = crosslane(&["window", "test", path, "--seconds", "0.05", "--json"]);
        let rows = lines(&run(test));
        let checks: BTreeSet<_> = rows
            .iter()
            .map(|row| (row["check"].to_string(), row["side"].as_u64()))
            .collect();
        assert_eq!(checks.len(), 10, "{rows:?}");
        assert!(rows.iter().all(|row| row["ok"] == true), "{rows:?}");
        let measured = rows.iter().filter(|row| !row["ns"].is_null());
        let measured: Vec<_> = measured
            .map(|row| (row["check"].as_str(), row["declared_ns"].as_u64()))
            .collect();
        assert_eq!(
            measured,
            [(Some("latency"), Some(100))],
            "as memory declares"
        );
        let lanes = rows.iter().filter(|row| row["check"] == "lanes");
        assert!(
            lanes
                .clone()
                .all(|row| row["count"].as_u64() > Some(100_000)),
            "{rows:?}"
        );
    }
}

#[test]
fn what_cannot_be_held_says_why() {
    let memory = format!("/dev/shm/crosslane-test-held-{}", std::process::id());
    for (place, memory, words) in [
        (
            "0000:17:00.0",
            &*memory,
            ["no bridge", "ntb:ADDRESS", "window probe"],
        ),
        (
            "ntb:ffff:ff:1f.7",
            "/proc/held",
            ["/proc/held", "not in memory", "tmpfs"],
        ),
        (
            "ntb:ffff:ff:1f.7",
            &*memory,
            ["ffff:ff:1f.7", "cannot open", "window probe"],
        ),
    ] {
        let output = run(crosslane(&["window", "hold", place, "--memory", memory]));
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        for word in words {
            assert!(complaint.contains(word), "no {word:?} in {complaint}");
        }
        assert!(!std::path::Path::new(memory).exists(), "nothing is made");
    }
}

#[test]
fn one_side_alone_says_what_to_do() {
    let window = Window::new("window-alone", 1 << 20);
    let path = window.0.to_str().unwrap();
    let output = run(crosslane(&[
        "window",
        "test",
        path,
        "--side",
        "0",
        "--patience",
        "1",
    ]));
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && complaint.contains("--side 1"),
        "{complaint}"
    );
}

#[test]
fn what_is_no_window_is_refused() {
    for (place, why) in [
        ("/dev/shm/crosslane-no-such-window", "truncate -s 64M"),
        ("0000:ff:1f.7", "cannot open"),
        ("/proc/self/exe", "cannot open"),
    ] {
        let output = run(crosslane(&["window", "test", place]));
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && complaint.contains(why),
            "{place}: {complaint}"
        );
    }
}

#[test]
fn the_bench_measures_every_kind() {
    let bench = crosslane(&[
        "bench",
        "window",
        "--quick",
        "--json",
        "--max-window",
        "256K",
    ]);
    let rows = lines(&run(bench));
    assert_eq!(rows[0]["bench"], "machine");
    assert!(rows[0]["took_s"].is_number(), "{}", rows[0]);
    let kinds: BTreeSet<_> = rows[1..]
        .iter()
        .filter_map(|row| row["kind"].as_str())
        .collect();
    let mut wanted = vec![
        "read",
        "read_bandwidth",
        "write",
        "write_bandwidth",
        "write_read",
    ];
    if std::thread::available_parallelism().unwrap().get() > 1 {
        wanted.extend(["one_way", "one_way_best", "overhead", "overhead_best"]);
    }
    assert_eq!(kinds, wanted.into_iter().collect());
    let is_figure = |row: &Value| row["ns"].as_f64().is_some() || row["gbps"].as_f64().is_some();
    assert!(rows[1..].iter().all(is_figure), "{rows:?}");
    for kind in ["read", "write", "write_read"] {
        let rows = rows.iter().filter(|row| row["kind"] == kind);
        let of = |key: &str| {
            let numbers = rows.clone().map(|row| row[key].as_u64().unwrap());
            numbers.collect::<BTreeSet<_>>()
        };
        assert_eq!(of("bytes"), BTreeSet::from([8, 64, 512, 2048]), "{kind}");
        let offsets = BTreeSet::from([0, 8, 56, 60, 63]);
        assert_eq!(of("offset"), offsets, "{kind}");
    }
}

/// Node 0 is everywhere.
#[test]
fn a_named_window_is_measured_by_the_processors_of_a_node() {
    let window = Window::new("of-a-node", 16 << 10);
    let place = window.0.to_str().unwrap();
    let bench = ["bench", "window", place, "--overwrite", "--quick", "--json"];
    let rows = lines(&run(crosslane(&[&bench[..], &["--node", "0"]].concat())));
    assert_eq!((&rows[0]["node"], rows.len() > 10), (&0.into(), true));
    let refused = run(crosslane(&[&bench[..], &["--node", "1000"]].concat()));
    let said = String::from_utf8_lossy(&refused.stderr);
    let words = "there is no NUMA node 1000: this machine has 0";
    assert!(!refused.status.success() && said.contains(words), "{said}");
}

/// Two processes share nothing but the window, as two hosts do.
#[test]
fn messages_go_to_the_host_that_answers_and_back() {
    let window = Window::new("answered", 4 << 20);
    let place = window.0.to_str().unwrap();
    let bench = ["bench", "window", place, "--overwrite", "--json"];
    // What was there before means nothing to either.
    for _ in 0..2 {
        let mut answer = crosslane(&[&bench[..], &["--answer"]].concat());
        let answering = start(&mut answer);
        let ask = [&bench[..], &["--other-host", "--quick"]].concat();
        let rows = lines(&run(crosslane(&ask)));
        let answered = lines(&finish(&answer, answering));
        assert_eq!(rows[0]["bench"], "machine");
        let of_kind = |kind: &str| {
            let rows = rows.iter().filter(|row| row["kind"] == kind);
            let named = rows.map(|row| (row["variant"].to_string(), row["bytes"].to_string()));
            named.collect::<BTreeSet<_>>().len()
        };
        // Six sizes by three carriers, of which one is what the others are held against.
        assert_eq!((of_kind("one_way"), of_kind("overhead")), (18, 12));
        assert!(of_kind("write_bandwidth") > 0);
        assert_eq!(answered.len(), 1, "{answered:?}");
        assert!(
            answered[0]["messages"].as_u64() > Some(1000),
            "{answered:?}"
        );
    }
}

#[test]
fn a_bench_that_nobody_answers_says_what_to_do() {
    let window = Window::new("unanswered", 4 << 20);
    let place = window.0.to_str().unwrap();
    for (role, remedy) in [("--other-host", "--answer"), ("--answer", "--other-host")] {
        let words = [
            "bench",
            "window",
            place,
            "--overwrite",
            "--patience",
            "1",
            role,
        ];
        let output = run(crosslane(&words));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        for word in ["nobody has answered", remedy, "other host"] {
            assert!(said.contains(word), "no {word:?} in {said}");
        }
    }
}

/// Whoever waits in a lane looks at no clock.
#[test]
fn a_bench_whose_other_host_is_gone_ends() {
    let window = Window::new("abandoned", 4 << 20);
    let place = window.0.to_str().unwrap();
    let bench = ["bench", "window", place, "--overwrite", "--patience", "3"];
    let [mut ask, mut answer] =
        ["--other-host", "--answer"].map(|role| crosslane(&[&bench[..], &[role]].concat()));
    let (mut answering, asking) = (start(&mut answer), start(&mut ask));
    std::thread::sleep(Duration::from_secs(3));
    assert!(answering.try_wait().unwrap().is_none(), "it takes longer");
    answering.kill().unwrap();
    answering.wait().unwrap();
    let output = finish(&ask, asking);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("has said nothing for 3s"), "{said}");
}

/// Each is large enough to be opened.
#[test]
fn small_windows_are_told_of_or_measured_as_far_as_they_go() {
    let least = Window::new("least", 8 << 10);
    let refused = run(crosslane(&["window", "test", least.0.to_str().unwrap()]));
    let said = String::from_utf8_lossy(&refused.stderr);
    let words = "4096 bytes at each side are too few to be tested; 8192 at least";
    assert!(!refused.status.success() && said.contains(words), "{said}");
    assert!(!said.contains("panicked"), "{said}");

    let small = Window::new("small", 16 << 10);
    let place = small.0.to_str().unwrap();
    let checks = lines(&run(crosslane(&[
        "window",
        "test",
        place,
        "--seconds",
        "0.01",
        "--json",
    ])));
    assert!(checks.iter().all(|row| row["ok"] == true), "{checks:?}");
    let bench = ["bench", "window", place, "--overwrite", "--quick", "--json"];
    let output = run(crosslane(&bench));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("SKIPPED: messages: halves of 8192 bytes"),
        "{said}"
    );
    let rows = lines(&output);
    let as_lanes_do = rows
        .iter()
        .filter(|row| row["variant"] == "as lanes do, fenced");
    let sizes: Vec<_> = as_lanes_do
        .filter_map(|row| row["bytes"].as_u64())
        .collect();
    assert_eq!(sizes, [8, 64, 256, 1024, 4096]);
}

#[test]
fn the_window_of_a_rack_is_overwritten_only_if_that_is_confirmed() {
    let window = Window::new("of-a-rack", 4 << 20);
    std::fs::write(&window.0, [&b"XLWINDOW"[..], &vec![0; 4 << 20]].concat()).unwrap();
    let place = window.0.to_str().unwrap();
    let test = [
        "window",
        "test",
        place,
        "--seconds",
        "0.01",
        "--bytes",
        "4096",
    ];
    let refused = run(crosslane(&test));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("crosslane rack status"),
        "{said}"
    );
    assert!(std::fs::read(&window.0).unwrap().starts_with(b"XLWINDOW"));
    let confirmed = run(crosslane(&[&test[..], &["--overwrite"]].concat()));
    assert!(confirmed.status.success(), "{confirmed:?}");
}

#[test]
fn a_window_that_is_not_there_can_be_made() {
    let refused = run(crosslane(&[
        "window",
        "test",
        "/dev/shm/crosslane-test-none",
    ]));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("truncate -s 64M /dev/shm/crosslane-test-none"),
        "{said}"
    );
    let none = run(crosslane(&["window", "test", "/dev/shm/x", "--bytes", "0"]));
    assert_eq!(none.status.code(), Some(2));
}
