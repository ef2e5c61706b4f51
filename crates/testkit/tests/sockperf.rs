//! sockperf, which counts and checks its own messages.

use crosslane_testkit::{Sides, free_port, on_all_routes};

/// Run the client in one of its modes against a server, and return what it prints.
fn measure(sides: &Sides, mode: &[&str]) -> String {
    let port = free_port();
    let address = ["--tcp", "-i", sides.address(), "-p", &port.to_string()].map(str::to_owned);
    let server = sides
        .server()
        .program("sockperf")
        .arg("server")
        .args(&address)
        .start();
    server.wait_for_port(port);
    let witness = sides.witness(port);
    let output = sides
        .client()
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

fn ping_pong(sides: &Sides) {
    for size in ["14", "64", "1400", "60000"] {
        assert_none_lost(&measure(
            sides,
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

fn under_load(sides: &Sides) {
    assert_none_lost(&measure(
        sides,
        &["under-load", "--mps", "20000", "--reply-every", "10"],
    ));
}

fn throughput(sides: &Sides) {
    let output = measure(sides, &["throughput", "-m", "1024", "--mps", "10000000"]);
    assert!(output.contains("BandWidth is"), "{output}");
}

on_all_routes!(ping_pong, under_load, throughput);
