//! sockperf, which counts and checks its own messages.

use crosslane_testkit::{Host, free_port, on_both_routes};

/// Run the client in one of its modes against a server, and return what it prints.
fn measure(host: &Host, mode: &[&str]) -> String {
    let port = free_port();
    let address = ["--tcp", "-i", "127.0.0.1", "-p", &port.to_string()].map(str::to_owned);
    let server = host
        .program("sockperf")
        .arg("server")
        .args(&address)
        .start();
    server.wait_for_port(port);
    let witness = host.witness(port);
    let output = host
        .program("sockperf")
        .args(mode)
        .args(&address)
        .args(["-t", "1"])
        .run()
        .text();
    witness.assert_accelerated();
    server.assert_running();
    assert!(!output.contains("ERROR"), "{output}");
    output
}

fn assert_none_lost(output: &str) {
    assert!(
        output.contains(
            "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0"
        ),
        "{output}"
    );
}

fn ping_pong(host: &Host) {
    for size in ["14", "64", "1400", "60000"] {
        assert_none_lost(&measure(
            host,
            // sockperf keeps room for 600,000 messages a second unless told of a higher rate.
            &[
                "ping-pong",
                "-m",
                size,
                "--data-integrity",
                "--mps",
                "10000000",
            ],
        ));
    }
}

fn under_load(host: &Host) {
    assert_none_lost(&measure(
        host,
        &["under-load", "--mps", "20000", "--reply-every", "10"],
    ));
}

fn throughput(host: &Host) {
    let output = measure(host, &["throughput", "-m", "1024", "--mps", "10000000"]);
    assert!(output.contains("BandWidth is"), "{output}");
}

on_both_routes!(ping_pong, under_load, throughput);
