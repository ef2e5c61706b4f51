//! What `crosslane pcie` refuses, and how it says so.

use std::process::{Command, Output, Stdio};

fn pcie(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_crosslane"))
        .arg("pcie")
        .args(arguments.split_whitespace())
        .output()
        .unwrap()
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
fn are_refused(rows: &[(&str, [&str; 2])]) {
    for (arguments, parts) in rows {
        let error = refused(arguments);
        for part in parts {
            assert!(
                error.contains(part),
                "{arguments}: {part:?} is not in: {error}"
            );
        }
    }
}

#[test]
fn bad_settings_are_named_with_what_is_legal() {
    are_refused(&[
        ("bw --gen 9", ["9", "1 to 7"]),
        ("bw --lanes 5", ["5 lanes", "1, 2, 4, 8, 16 or 32"]),
        ("bw --mps 300", ["300", "128, 256, 512"]),
        ("bw --mps 1024 --mrrs 512", ["1024", "--mps 128 to 512"]),
        ("bw --sizes 0", ["size 0", "1 to 16777216"]),
        ("bw --sizes 9-1", ["9-1", "smaller size first"]),
        ("nic --model magic", ["magic", "simple, kernel, dpdk"]),
        (
            "nic --as-published --model niq",
            ["niq", "simple, kernel and dpdk"],
        ),
        ("nic --latency 500", ["--rate", "not provided"]),
        ("judge --with e5-2620v3", ["--host", "not provided"]),
        (
            "judge --host e5-2630v4 --with nowhere",
            ["nowhere", "e5-2637v3"],
        ),
        ("nic --rate 40Q", ["\"q\"", "M, G or T"]),
    ]);
}

#[test]
fn bad_input_is_named_with_what_is_legal() {
    are_refused(&[
        ("sim --host nowhere", ["nowhere", "e5-2630v4"]),
        ("sim --window 32 --size 64", ["window of 32", "--window 64"]),
        ("sim --offset 64", ["'64' for '--offset", "0 to 63"]),
        ("sim --page 5000 --iommu", ["5000", "power of two"]),
        ("sim --start 10", ["address 10", "multiples of 64"]),
        ("sim --contexts 0", ["'0' for '--contexts", "1 to 65536"]),
        ("sim --device magic", ["magic", "nfp-6000, ideal"]),
        ("sim --mrrs 128", ["256", "--mps 128 to 128"]),
        (
            "sim --host e3-1226v3 --remote",
            ["e3-1226v3", "one NUMA node"],
        ),
        (
            "latency --host e3-1226v3 --remote",
            ["e3-1226v3", "one NUMA node"],
        ),
        (
            "sim --trace-packets 5",
            ["--trace-packets 5", "--trace FILE"],
        ),
        ("bw --lanes y8", ["y8", "1, 2, 4, 8, 16 or 32"]),
        ("bw --mps 4Q", ["4Q", "128, 256, 512"]),
        ("bw --gen -1", ["-1", "1 to 7"]),
        ("bw --addr x", ["\"x\"", "32 or 64"]),
        ("latency --cold 2", ["'2' for '--cold", "0 to 1"]),
        (
            "fit --data /nonexistent",
            ["/nonexistent", "lat_dma_details.dat"],
        ),
        ("bench --path /dev/null", ["--overwrite", "required"]),
        ("bench --max-window 5", ["5", "4K to 1G"]),
        ("bw --lanes 0", ["'0' for '--lanes", "1, 2, 4, 8, 16 or 32"]),
        ("bw --sizes -5", ["-5", "1 to 16777216"]),
        ("bw --sizes 1e3", ["1e3", "1 to 16777216"]),
        ("explain --size 99G", ["99G", "1 to 16777216"]),
        ("nic --rate NaN", ["NaN", "1M to 100T"]),
        ("nic --rate -5G", ["-5G", "1M to 100T"]),
        ("fit --data . --base magic", ["--base", "e5-2630v4"]),
        (
            "judge --host e5-2630v4 --with magic",
            ["--with", "e5-2637v3"],
        ),
    ]);
}

#[test]
fn every_number_is_refused_with_its_range() {
    for (option, range) in [
        ("sim --window", "1 to 256G"),
        ("sim --start", "0 to 256G"),
        ("sim --offset", "0 to 63"),
        ("sim --iommu --page", "4K to 1G"),
        ("sim --node", "0 to 1"),
        ("sim --transfers", "100 to 100000000"),
        ("sim --seed", "0 to 18446744073709551615"),
        ("sim --trace-packets", "1 to 100000000"),
        ("sim --contexts", "1 to 65536"),
        ("sim --write-gap", "0 to 1000000 ns"),
        ("sim --packet-gap", "0 to 1000000 ns"),
        ("sim --tags", "1 to 1024"),
        ("sim --size", "1 to 16777216"),
        ("nic --rate 40G --latency", "1 to 10000000 ns"),
        ("nic --rate", "1M to 100T"),
        ("latency --cold", "0 to 1"),
        ("latency --walks", "0 to 1"),
        ("latency --hops", "0 to 32"),
        ("latency --hops 1 --hop-ns", "0 to 1000000 ns"),
        ("explain --size", "1 to 16777216"),
        ("bw --gen", "1 to 7"),
        ("bw --lanes", "1, 2, 4, 8, 16 or 32"),
        ("bw --mps", "128, 256, 512, 1024, 2048 or 4096"),
        ("bw --mrrs", "128, 256, 512, 1024, 2048 or 4096"),
        ("bw --rcb", "64, 128, 256 or 512"),
        ("bw --addr", "32 or 64"),
        ("bench --max-window", "4K to 1G"),
        ("bench --cpu", "0 to 1023"),
        ("bench --node", "0 to 1023"),
        ("bench --steps", "1000 to 1000000000"),
        ("judge --transfers", "100 to 1000000"),
        ("report --transfers", "100 to 1000000"),
    ] {
        for value in ["-1", "x", "NaN", "-inf", "1e99", "99999999999999999999"] {
            let error = refused(&format!("{option} {value}"));
            assert!(error.contains(range), "{option} {value}: {error}");
            assert!(error.contains(value), "{option} {value}: {error}");
        }
    }
}

#[test]
fn a_way_of_more_than_32_hops_is_refused() {
    let hops = |many: usize| {
        let hops = vec!["switch"; many].join(",");
        format!("sim --transfers 100 --hops {hops}")
    };
    assert!(pcie(&hops(32)).status.success());
    for many in [33, 256, 300] {
        let error = refused(&hops(many));
        assert!(
            error.contains(&many.to_string()) && error.contains("up to 32"),
            "{error}"
        );
    }
}

#[test]
fn output_that_cannot_be_written_is_refused_before_the_work() {
    for command in [
        "bw --svg",
        "nic --svg",
        "nic --rate 40G --svg",
        "latency --svg",
        "explain --svg",
        "bench --svg",
        "sim --trace",
        "sim --chrome-trace",
        "report --out",
    ] {
        for place in ["/nonexistent/file", "/tmp"] {
            let error = refused(&format!("{command} {place}"));
            assert!(error.contains(&format!("cannot write {place}")), "{error}");
        }
    }
}

#[test]
fn nobody_has_to_read_what_is_said() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_crosslane"))
        .args(["pcie", "bw", "--mps", "1024", "--mrrs", "512"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(1), "it did not panic");
}
