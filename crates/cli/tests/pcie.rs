//! `crosslane pcie` as its users meet it: the real command, its output and its errors.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn pcie(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_crosslane"))
        .arg("pcie")
        .args(arguments.split_whitespace())
        .output()
        .unwrap()
}

fn printed(arguments: &str) -> String {
    let output = pcie(arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn rows(arguments: &str) -> Vec<Value> {
    printed(arguments)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn refused(arguments: &str) -> String {
    let output = pcie(arguments);
    assert!(!output.status.success(), "{arguments} was accepted");
    assert!(
        output.stdout.is_empty(),
        "{arguments} printed something all the same"
    );
    String::from_utf8(output.stderr).unwrap()
}

#[track_caller]
fn near(row: &Value, field: &str, expected: f64) {
    let found = row[field]
        .as_f64()
        .unwrap_or_else(|| panic!("{field} in {row}"));
    assert!(
        (found - expected).abs() < 5e-4,
        "{field}: {found}, not {expected}"
    );
}

#[test]
fn bandwidth_of_every_size() {
    let rows = rows("bw --gen 3 --lanes 8 --mps 256 --mrrs 512 --sizes 1-1500 --json");
    assert_eq!(rows.len(), 1500);
    let row = &rows[63];
    assert_eq!(row["bytes"], 64);
    near(row, "write_gbps", 42.098);
    near(row, "read_gbps", 44.103);
    near(row, "read_write_gbps", 33.077);
    near(row, "ethernet_40g_gbps", 30.476);
    for field in [
        "write_per_s",
        "read_per_s",
        "read_write_per_s",
        "ethernet_40g_per_s",
    ] {
        assert!(row[field].as_f64().unwrap() > 5e7, "{field}");
    }
}

#[test]
fn nic_designs_as_published_and_corrected() {
    let published = &rows("nic --model simple --as-published --sizes 64 --json")[0];
    near(published, "bidirectional_gbps", 12.584);
    near(published, "tx_gbps", 20.673);
    near(published, "rx_gbps", 19.733);
    let corrected = &rows("nic --model dpdk --sizes 64 --json")[0];
    assert_eq!(corrected["model"], "dpdk");
    near(corrected, "rx_gbps", 23.467);
    assert_eq!(
        rows("nic --sizes 64,1500 --json").len(),
        10,
        "five designs of two sizes"
    );
}

#[test]
fn what_a_port_asks_of_a_design() {
    let text = printed("nic --rate 40G --size 128");
    assert!(
        text.contains("a frame every 29.60 ns") && text.contains("30.4 payload reads"),
        "{text}"
    );
    let row = &rows("nic --rate 100G --size 128 --model niq --json")[0];
    near(row, "interval_ns", 11.84);
    assert_eq!(row["keeps_up"], false);
    // What a design reads: 76 packets under way, and before dpdk's, its descriptors, sent and received.
    let of = |model: &str| {
        rows(&format!(
            "nic --rate 100G --size 128 --model {model} --json"
        ))[0]
            .clone()
    };
    assert_eq!(
        (&of("window")["tags"], &of("niq")["tags"]),
        (&0.into(), &77.into())
    );
    assert!(of("dpdk")["tags"].as_u64() > of("niq")["tags"].as_u64());
    assert!(of("dpdk")["read_buffer_bytes"].is_u64());
    assert_eq!(rows("nic --as-published --sizes 64 --json").len(), 3);
}

#[test]
fn a_transfer_explained() {
    let text = printed("explain --size 64 --gen 4 --lanes 16");
    for part in [
        "252.06 Gb/s",
        "MWr",
        "MRd",
        "CplD",
        "8 address",
        "4 LCRC",
        "165.38 Gb/s",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let rows = rows("explain --size 600 --json");
    let of = |kind: &str| {
        rows.iter()
            .filter(|row| row["row"] == kind)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of("packet").len(),
        3 + 2 + 3,
        "writes, requests, completions"
    );
    near(of("link")[0], "tlp_gbps", 57.885);
    let read = of("transfer")[1];
    assert_eq!(
        (&read["packets"], &read["down_bytes"]),
        (&5.into(), &660.0.into())
    );
    let header: u64 = of("part")
        .iter()
        .filter(|row| row["kind"] == "MWr")
        .map(|row| row["bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(header, 24);
    assert!(printed("explain --gen 6").contains("236 TLP bytes"));
}

#[test]
fn simulated_benchmarks_have_the_documented_fields() {
    let latency = &rows("sim --bench lat_rd --host E5-2630v4 --size 64 --window 8K --json")[0];
    assert_eq!(latency["bench"], "lat_rd");
    let (p50, p99) = (
        latency["p50_ns"].as_f64().unwrap(),
        latency["p99_ns"].as_f64().unwrap(),
    );
    assert!((p50 / 560.0 - 1.0).abs() < 0.05 && p99 >= p50, "{latency}");
    let plain = &rows("sim --bench bw_rd --host e5-2630v4 --size 64 --window 64M --json")[0];
    let translated =
        &rows("sim --bench bw_rd --host e5-2630v4 --size 64 --window 64M --iommu --json")[0];
    assert!(translated["gbps"].as_f64().unwrap() < 0.5 * plain["gbps"].as_f64().unwrap());
    for bench in ["lat_wrrd", "bw_wr", "bw_rdwr"] {
        assert_eq!(
            rows(&format!("sim --bench {bench} --cold --json"))[0]["bench"],
            bench
        );
    }
}

#[test]
fn a_host_whose_runs_differ_has_a_range() {
    let row = |host: &str| rows(&format!("sim --bench bw_wr --host {host} --json"))[0].clone();
    let differs = row("e3-1226v3");
    let [low, median, high] =
        ["gbps_p5", "gbps", "gbps_p95"].map(|field| differs[field].as_f64().unwrap());
    assert!(low < 0.5 * median && 1.5 * median < high, "{differs}");
    assert!(row("e5-2630v4").get("gbps_p5").is_none());
}

#[test]
fn hops_cost_their_forwarding_both_ways() {
    let mean = |hops: &str| {
        rows(&format!("sim --json {hops}"))[0]["mean_ns"]
            .as_f64()
            .unwrap()
    };
    let through = mean("--hops switch,ntb") - mean("");
    assert!(
        (through - (2.0 * (115.0 + 190.0) + 2.0 * 14.0)).abs() < 8.0,
        "{through}"
    );
}

#[test]
fn traces_can_be_looked_at() {
    let folder = tempfile_folder("traces");
    let (text, chrome) = (folder.join("trace.txt"), folder.join("trace.json"));
    let options = format!(
        "sim --transfers 100 --trace {} --chrome-trace {}",
        text.display(),
        chrome.display()
    );
    printed(&options);
    let text = std::fs::read_to_string(text).unwrap();
    assert_eq!(
        text.lines().filter(|line| !line.starts_with('#')).count(),
        200,
        "a request and an answer each"
    );
    let chrome: Value = serde_json::from_str(&std::fs::read_to_string(chrome).unwrap()).unwrap();
    let events = chrome["traceEvents"].as_array().unwrap();
    assert_eq!(events.iter().filter(|e| e["ph"] == "X").count(), 200);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_trace_has_every_size() {
    let folder = tempfile_folder("sizes");
    let (text, chrome) = (folder.join("trace.txt"), folder.join("trace.json"));
    printed(&format!(
        "sim --size 64,1024 --transfers 100 --trace {} --chrome-trace {}",
        text.display(),
        chrome.display()
    ));
    let text = std::fs::read_to_string(text).unwrap();
    assert!(
        text.contains("# lat_rd of 64 B") && text.contains("# lat_rd of 1024 B"),
        "{text}"
    );
    let chrome: Value = serde_json::from_str(&std::fs::read_to_string(chrome).unwrap()).unwrap();
    let events = chrome["traceEvents"].as_array().unwrap();
    assert!(
        events
            .iter()
            .any(|e| e["args"]["name"] == "lat_rd of 1024 B" && e["pid"] == 2)
    );
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_is_simulated_can_be_chosen() {
    let gbps = |options: &str| {
        let row = &rows(&format!("sim --size 512 --transfers 4000 --json {options}"))[0];
        row["gbps"].as_f64().unwrap()
    };
    let own = gbps("--bench bw_rd");
    assert!(gbps("--bench bw_rd --lanes 4") < 0.6 * own);
    assert!(gbps("--bench bw_rd --gen 4 --device ideal") > 1.5 * own);
    assert!(gbps("--bench bw_rd --contexts 2") < 0.5 * own);
    assert!(gbps("--bench bw_wr --write-gap 200") < 0.5 * gbps("--bench bw_wr"));
    let row = &rows("sim --device ideal --gen 5 --json")[0];
    assert_eq!(
        (&row["device"], &row["link"]),
        (&"ideal".into(), &"gen5 x8".into())
    );
    let text = printed("sim --transfers 100");
    assert!(text.contains("device nfp-6000, 21 reads at once"), "{text}");

    let folder = tempfile_folder("device");
    let path = folder.join("own-nic.json");
    let mut device: Value = serde_json::from_str(&printed("sim --print-device")).unwrap();
    device["issue_ns"] = 1150.0.into();
    std::fs::write(&path, device.to_string()).unwrap();
    let row = &rows(&format!("sim --device {} --json", path.display()))[0];
    assert_eq!(row["device"], "own-nic", "no longer what its name says");
    assert!(row["p50_ns"].as_f64().unwrap() > 1500.0);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_window_may_begin_within_a_page_and_lie_on_the_other_node() {
    let row = |options: &str| rows(&format!("sim --json {options}"))[0].clone();
    let misses = |start: &str| {
        let options = format!("--bench bw_rd --iommu --window 256K --start {start}");
        row(&options)["iotlb_misses"].as_u64().unwrap()
    };
    assert_eq!(misses("4K"), 64);
    assert!(misses("2K") > 64, "it lies on 65 pages");
    assert_eq!(row("--node 1")["p50_ns"], row("--remote")["p50_ns"]);
    assert!(row("--node 1")["p50_ns"].as_f64() > row("--node 0")["p50_ns"].as_f64());
}

#[test]
fn profiles_can_be_printed_changed_and_used() {
    let folder = tempfile_folder("profile");
    let path = folder.join("mine.json");
    let mut profile: Value = serde_json::from_str(&printed("sim --print-profile")).unwrap();
    let line = &rows("sim --print-profile --json")[0];
    assert_eq!(line, &profile, "one object, one line");
    profile["read_ns"] = 1301.5.into();
    std::fs::write(&path, profile.to_string()).unwrap();
    let slow = &rows(&format!("sim --host {} --json", path.display()))[0];
    assert!(slow["p50_ns"].as_f64().unwrap() > 1500.0);
    profile["read_ns"] = (-1.0).into();
    std::fs::write(&path, profile.to_string()).unwrap();
    assert!(refused(&format!("sim --host {}", path.display())).contains("read_ns is -1"));
    std::fs::write(&path, "{ nonsense").unwrap();
    let error = refused(&format!("sim --host {}", path.display()));
    assert!(
        error.contains("mine.json") && error.contains("line 1 column 3"),
        "{error}"
    );
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn this_machine_can_be_measured() {
    let rows = rows("bench --max-window 1M --steps 5000 --json");
    let of = |bench: &str| rows.iter().filter(|row| row["bench"] == bench).count();
    assert!(
        of("load") > 20 && of("stream") >= 12 && of("write_read") == 1,
        "{rows:?}"
    );
    assert!(
        rows.iter()
            .filter_map(|row| row["ns"].as_f64())
            .all(|ns| ns > 0.0)
    );
}

#[test]
fn a_file_can_be_a_window() {
    let folder = tempfile_folder("window");
    let path = folder.join("window");
    std::fs::write(&path, vec![0; 1 << 16]).unwrap();
    let found = rows(&format!(
        "bench --path {} --overwrite --max-window 64K --steps 2000 --json",
        path.display()
    ));
    assert!(
        found
            .iter()
            .any(|row| row["bench"] == "load" && row["window_bytes"] == 65536)
    );
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_file_is_measured_in_whole_and_refused_where_it_is_too_short() {
    let folder = tempfile_folder("lengths");
    let path = folder.join("window");
    let bench = |options: &str| format!("bench --path {} --overwrite {options}", path.display());
    std::fs::write(&path, vec![0; 100_000]).unwrap();
    let found = rows(&bench("--steps 1000 --json"));
    let largest = found
        .iter()
        .filter_map(|row| row["window_bytes"].as_u64())
        .max();
    assert_eq!(largest, Some(98_304), "24 whole pages");
    let output = pcie(&bench("--steps 1000 --max-window 16K"));
    let skipped = String::from_utf8(output.stderr).unwrap();
    assert!(skipped.contains("SKIPPED: one line per page"), "{skipped}");
    for (length, options, part) in [
        (
            100_000,
            "--max-window 1M",
            "give --max-window 98304 or less",
        ),
        (0, "", "make it larger first"),
        (0, "--max-window 64K", "make it larger first"),
        (100_000, "--node 0", "--node"),
        (100_000, "--pages huge", "--pages"),
    ] {
        std::fs::write(&path, vec![0; length]).unwrap();
        let error = refused(&bench(options));
        assert!(error.contains(part), "{options}: {error}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_report_is_of_the_link_that_was_asked_for() {
    let folder = tempfile_folder("report");
    let path = folder.join("page.html");
    let page = |options: &str| {
        let out = path.display();
        printed(&format!(
            "report --no-bench --transfers 100 --out {out} {options}"
        ));
        std::fs::read_to_string(&path).unwrap()
    };
    let plain = page("");
    assert!(plain.contains("data-rest=\"64\"") && plain.contains("no ECRC"));
    let other = page("--ecrc --addr 32 --rcb 128 --split-at-rcb");
    let rest = 128 | 7 << 16;
    assert!(other.contains(&format!("data-rest=\"{rest}\"")));
    assert!(other.contains("boundary 128 B, 32-bit addresses, ECRC, completions cut"));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn plots_are_svg() {
    let folder = tempfile_folder("plots");
    for command in ["bw", "nic", "nic --rate 100G", "latency", "explain"] {
        let path = folder.join(format!("{}.svg", command.replace(' ', "_")));
        printed(&format!("{command} --svg {}", path.display()));
        let svg = std::fs::read_to_string(path).unwrap();
        let drawn = if command == "explain" {
            "<rect"
        } else {
            "<polyline"
        };
        assert!(svg.starts_with("<svg") && svg.contains(drawn), "{command}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn csv_has_a_header_and_as_many_fields_in_every_row() {
    for command in [
        "bw",
        "nic",
        "nic --rate 100G",
        "explain --size 600",
        "latency",
        "sim --transfers 100",
        "bench --max-window 64K --steps 1000",
    ] {
        let text = printed(&format!("{command} --csv"));
        for table in text.split("\n\n").filter(|table| !table.trim().is_empty()) {
            let rows: Vec<usize> = table.trim().lines().map(fields).collect();
            assert!(rows.len() > 1 && rows[0] > 2, "{command}: {table}");
            assert!(rows.iter().all(|n| *n == rows[0]), "{command}: {rows:?}");
        }
    }
}

/// Fields of a CSV line, commas inside quotes not counted.
fn fields(line: &str) -> usize {
    line.split('"')
        .step_by(2)
        .map(|outside| outside.matches(',').count())
        .sum::<usize>()
        + 1
}

fn tempfile_folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("crosslane-pcie-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
