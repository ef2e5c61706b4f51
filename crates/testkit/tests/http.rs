//! Python's HTTP server with curl: bodies compared by SHA-256.

use std::path::Path;

use crosslane_testkit::{Process, Sides, free_port, on_all_routes};
use sha2::{Digest, Sha256};

/// Debian's own, as another one in PATH may be a script that starts it.
const PYTHON: &str = "/usr/bin/python3";

/// Answers GET from its folder, and POST with the SHA-256 of the body.
const SERVER: &str = r#"
import hashlib, http.server, sys

class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        left = int(self.headers["Content-Length"])
        digest = hashlib.sha256()
        while left:
            part = self.rfile.read(min(left, 1 << 16))
            digest.update(part)
            left -= len(part)
        answer = digest.hexdigest().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"#;

const MIB: usize = 1 << 20;

fn body(length: usize) -> Vec<u8> {
    let mut state = length as u64;
    let byte = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56).to_le_bytes()[0]
    };
    (0..length).map(byte).collect()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn sha256_of(path: &Path) -> String {
    sha256(&std::fs::read(path).expect("curl wrote it"))
}

fn serve(sides: &Sides) -> (Process, u16) {
    let port = free_port();
    let server = sides
        .server()
        .program(PYTHON)
        .args(["-c", SERVER, sides.address(), &port.to_string()])
        .start();
    server.wait_for_port(port);
    (server, port)
}

fn bodies_up_to_100_mib(sides: &Sides) {
    let address = sides.address();
    let (_server, port) = serve(sides);
    let witness = sides.witness(port);
    for length in [0, 1, 1000, 65_536, MIB + 1, 10 * MIB, 100 * MIB] {
        let bytes = body(length);
        sides.server().file("body", &bytes);
        let url = format!("http://{address}:{port}/body");
        sides
            .client()
            .program("curl")
            .args(["-sSf", "-o", "got", &url])
            .run();
        assert_eq!(
            sha256_of(&sides.client().folder().join("got")),
            sha256(&bytes),
            "{length} bytes"
        );
    }
    // A disk that pauses leaves bytes to TCP.
    witness.assert_ring_share(0.3);
}

fn uploads_up_to_100_mib(sides: &Sides) {
    let address = sides.address();
    let (_server, port) = serve(sides);
    let witness = sides.witness(port);
    for length in [1, 65_536, 10 * MIB, 100 * MIB] {
        let bytes = body(length);
        sides.client().file("body", &bytes);
        let url = format!("http://{address}:{port}/");
        let options = ["-sSf", "-H", "Expect:", "--data-binary", "@body", &url];
        let answer = sides.client().program("curl").args(options).run().text();
        assert_eq!(answer, sha256(&bytes), "{length} bytes");
    }
    witness.assert_ring_share(0.3);
}

fn one_connection_for_many_requests(sides: &Sides) {
    let address = sides.address();
    let (_server, port) = serve(sides);
    let witness = sides.witness(port);
    let bytes = body(100_000);
    sides.server().file("body", &bytes);
    let count = 300;
    let url = format!("http://{address}:{port}/body");
    let requests = (0..count).flat_map(|_| ["-o", "got", &url]);
    let report = sides
        .client()
        .program("curl")
        .args(["-sSf", "-w", "%{num_connects} %{size_download}\n"])
        .args(requests)
        .run()
        .text();
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(lines.len(), count);
    assert_eq!(lines[0], "1 100000");
    assert!(
        lines[1..].iter().all(|line| *line == "0 100000"),
        "{report}"
    );
    assert_eq!(
        sha256_of(&sides.client().folder().join("got")),
        sha256(&bytes)
    );
    witness.assert_accelerated();
}

fn many_clients_at_once(sides: &Sides) {
    const TIMES: usize = 6;
    let address = sides.address();
    let (_server, port) = serve(sides);
    let witness = sides.witness(port);
    let bytes = body(5 * MIB);
    sides.server().file("body", &bytes);
    // By one connection each, which is accelerated before it ends however busy the machine is.
    let url = format!("http://{address}:{port}/body?[1-{TIMES}]");
    let clients: Vec<_> = (0..12)
        .map(|index| {
            sides
                .client()
                .program("curl")
                .args(["-sSf", "-o", &format!("got{index}.#1"), &url])
                .start()
        })
        .collect();
    for (index, client) in clients.into_iter().enumerate() {
        drop(client.finish().expect_success());
        for time in 1..=TIMES {
            let got = sides.client().folder().join(format!("got{index}.{time}"));
            assert_eq!(sha256_of(&got), sha256(&bytes));
        }
    }
    witness.assert_accelerated();
}

on_all_routes!(
    bodies_up_to_100_mib,
    uploads_up_to_100_mib,
    one_connection_for_many_requests,
    many_clients_at_once,
);
