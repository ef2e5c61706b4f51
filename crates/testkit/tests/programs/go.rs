//! A Go program, which makes its system calls itself: untouched, on TCP, and with the reason said.

use crosslane_testkit::{Host, Process, Route, free_port};

use super::{body, fetch, sha256, sha256_of};

const RCLONE: &str = "/usr/bin/rclone";

/// rclone as a server of the host's folder `shown`, run as `crosslane run` does it.
fn serve(host: &Host) -> (Process, u16) {
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let server = host
        .program(RCLONE)
        .args([
            "--config",
            "/dev/null",
            "serve",
            "http",
            "shown",
            "--addr",
            &address,
        ])
        .start();
    server.wait_for_port(port);
    (server, port)
}

fn show(host: &Host) -> Vec<u8> {
    let bytes = body(30, 5_000_000);
    std::fs::create_dir(host.folder().join("shown")).expect("the folder is the test's own");
    host.file("shown/file", &bytes);
    bytes
}

#[test]
fn its_server_is_left_alone_and_its_clients_are_told_why() {
    let host = Host::new(Route::Crosslane);
    let bytes = show(&host);
    let (server, port) = serve(&host);
    assert!(
        server.log().contains("it is a Go program"),
        "{}",
        server.log()
    );
    let name = |number| format!("got{number}");
    let url = format!("http://127.0.0.1:{port}/file");
    let requests = (0..8).flat_map(|number| ["-o".to_owned(), name(number), url.clone()]);
    let curl = host.program("curl").run_option("--eager", "1-65535");
    let _got = curl.explained("told").arg("-sSf").args(requests).run();
    for number in 0..8 {
        let got = host.folder().join(name(number));
        assert_eq!(sha256_of(&got), sha256(&bytes));
    }
    let told = std::fs::read_to_string(host.folder().join("told")).expect("it was told");
    let parse = |line| serde_json::from_str(line).expect("every line is JSON");
    let lines: Vec<serde_json::Value> = told.lines().map(parse).collect();
    let [end, summary] = &lines[..] else {
        panic!("one connection and the summary, not {told}");
    };
    assert_eq!(end["reason"], "no-peer", "{told}");
    let received = end["tcp_bytes_received"].as_u64();
    assert!(received > Some(40_000_000), "{told}");
    assert_eq!(end["ring_bytes_received"], 0, "{told}");
    assert_eq!(summary["accelerated"], 0, "{told}");
}

#[test]
fn its_client_is_left_alone_too() {
    let host = Host::new(Route::Crosslane);
    let bytes = show(&host);
    let (_server, port) = serve(&host);
    let url = format!("http://127.0.0.1:{port}/file");
    host.program(RCLONE)
        .explained("told")
        .args(["--config", "/dev/null", "copyurl", &url, "got"])
        .run();
    assert_eq!(sha256_of(&host.folder().join("got")), sha256(&bytes));
    let told = std::fs::read_to_string(host.folder().join("told")).expect("it was told");
    assert!(told.contains("it is a Go program"), "{told}");
    let strict = host.program(RCLONE).run_flag("--strict").arg("version");
    assert_eq!(strict.finish().status.code(), Some(125));
}

#[test]
fn natively_as_well() {
    let host = Host::new(Route::Tcp);
    let bytes = show(&host);
    let (_server, port) = serve(&host);
    fetch::all(&host, port, "file", 8, &sha256(&bytes));
}
