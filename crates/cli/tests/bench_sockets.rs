//! `crosslane bench sockets` as a person runs it.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const CROSSLANE: &str = env!("CARGO_BIN_EXE_crosslane");
/// Only a hang lasts this long.
const WATCHDOG: Duration = Duration::from_secs(120);

/// The bench with these arguments; builds the program that it runs, which is another package's.
fn bench(arguments: &str) -> Command {
    let folder = Path::new(CROSSLANE)
        .parent()
        .expect("an executable is in a folder");
    let mut build = Command::new(env!("CARGO"));
    build.args([
        "build",
        "--quiet",
        "--package",
        "crosslane-sockbench",
        "--target-dir",
    ]);
    build.arg(folder.parent().expect("of a target directory"));
    if folder.ends_with("release") {
        build.arg("--release");
    }
    assert!(
        build.status().expect("cargo starts").success(),
        "sockbench builds"
    );
    let mut bench = Command::new(CROSSLANE);
    bench
        .args(["bench", "sockets", "--quick"])
        .args(arguments.split(' '));
    bench
}

fn keys(line: &Value) -> Vec<&str> {
    line.as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect()
}

#[test]
fn json_lines_have_the_documented_form() {
    let mut bench =
        bench("--json --repeats 1 --cases rtt:64,stream:65536,connect --transports limit,tcp,unix");
    let output = bench.output().expect("the bench starts");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    assert!(lines.iter().all(|line| line["bench"] == "sockets"));
    let [machine, rows @ ..] = lines.as_slice() else {
        panic!("no line")
    };
    assert_eq!(machine["case"], "machine");
    for key in ["cpu", "cores", "kernel", "command", "date", "rounds"] {
        assert!(!machine[key].is_null(), "{key} is missing: {machine}");
    }
    let name = |row: &Value| format!("{} {}", row["case"], row["transport"]).replace('"', "");
    let names: Vec<_> = rows.iter().map(name).collect();
    let expected = [
        "rtt tcp",
        "rtt unix",
        "rtt limit",
        "stream tcp",
        "stream unix",
        "stream limit",
        "connect tcp",
        "connect unix",
    ];
    assert_eq!(names, expected);
    // The limit has trips enough for every percentile.
    assert_eq!(
        keys(&rows[2]),
        [
            "bench",
            "bytes",
            "case",
            "p50_ns",
            "p999_ns",
            "p99_ns",
            "ranges",
            "transport"
        ]
    );
    let trips = rows[2]["ranges"]["trips"][0].as_f64();
    assert!(trips >= Some(10_000.0), "{}", rows[2]);
    assert_eq!(
        keys(&rows[3]),
        [
            "bench",
            "bytes",
            "case",
            "gbps",
            "msgs_per_s",
            "ranges",
            "transport"
        ]
    );
    assert_eq!(
        keys(&rows[6]),
        ["bench", "case", "per_s", "ranges", "transport"]
    );
}

#[test]
fn the_table_has_a_column_for_each_transport() {
    let mut bench = bench("--repeats 1 --cases rtt:8 --transports tcp,unix");
    let output = bench.output().expect("the bench starts");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let header = text
        .lines()
        .find(|line| line.trim_start().starts_with("case"))
        .expect("a header");
    assert!(
        header.contains("tcp") && header.contains("unix"),
        "{header}"
    );
    assert!(!header.contains("vs tcp"), "nothing was compared: {header}");
}

#[test]
fn what_cannot_be_measured_is_said_before_measuring() {
    for (arguments, says) in [
        ("--cases rtt:9", "take 8"),
        ("--cases connect --transports limit", "nothing"),
    ] {
        let output = bench(arguments).output().expect("the bench starts");
        assert!(!output.status.success());
        assert!(
            String::from_utf8_lossy(&output.stderr).contains(says),
            "{output:?}"
        );
    }
}

#[test]
fn an_interrupt_ends_the_servers_and_clients_too() {
    let mut bench = bench("--repeats 200 --cases rtt:64 --transports tcp");
    let mut bench = bench
        .stdout(Stdio::null())
        .spawn()
        .expect("the bench starts");
    let children = wait_for(|| Some(children_of(&bench)).filter(|children| children.len() >= 2));
    interrupt(&bench);
    let status = wait_for(|| bench.try_wait().expect("it is our child"));
    assert_eq!(status.code(), Some(130));
    // Children that were killed may be zombies of nobody for a moment.
    wait_for(|| {
        children
            .iter()
            .all(|&pid| living_parent(pid).is_none())
            .then_some(())
    });
}

fn interrupt(bench: &Child) {
    let status = Command::new("kill")
        .args(["-INT", &bench.id().to_string()])
        .status();
    assert!(status.expect("kill starts").success());
}

fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + WATCHDOG;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            Instant::now() < deadline,
            "what is waited for does not happen"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn children_of(process: &Child) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("Linux has it").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| living_parent(pid) == Some(process.id()))
        .collect()
}

/// The parent of a process that is neither gone nor a zombie.
fn living_parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let _alive = fields.next().filter(|state| *state != "Z")?;
    fields.next()?.parse().ok()
}
