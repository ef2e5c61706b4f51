//! The program as it is used: a server process, a client process, one line of JSON. Without a
//! monitor every way goes over TCP, and the content must come through all the same.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crosslane_sockbench::outcome::{Line, Listening, Outcome};

const PROGRAM: &str = env!("CARGO_BIN_EXE_crosslane-apibench");

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(way: &str) -> (Server, String) {
    let mut command = Command::new(PROGRAM);
    command.args(["--die-with-parent", "--way", way, "server"]);
    command.env("CROSSLANE_RUNTIME_DIR", "/nonexistent");
    let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let stdout = server.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let listening: Listening = serde_json::from_str(&line).unwrap();
    (Server(server), listening.listening)
}

/// Runs a client under a watchdog.
fn measure(way: &str, address: &str, arguments: &str) -> Outcome {
    let mut command = Command::new("timeout");
    command.args(["60", PROGRAM, "--way", way, "client", "--connect", address]);
    command.args(["--warmup", "5", "--measure", "100"]);
    command.args(arguments.split(' ')).stdin(Stdio::null());
    command.env("CROSSLANE_RUNTIME_DIR", "/nonexistent");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{way} {arguments}: {said}");
    serde_json::from_slice::<Line>(&output.stdout)
        .unwrap()
        .outcome
}

#[test]
fn every_way_carries_every_case() {
    for way in ["sockets", "copy", "direct"] {
        let (_server, address) = serve(way);
        for bytes in [8, 64, 1000, 16384] {
            let arguments = format!("--case rtt --bytes {bytes}");
            let outcome = measure(way, &address, &arguments);
            assert!(
                matches!(outcome, Outcome::Rtt { trips: 1.., .. }),
                "{outcome:?}"
            );
        }
        for arguments in [
            "--case stream --bytes 64",
            "--case stream --bytes 65536",
            "--case batch --bytes 72",
        ] {
            let outcome = measure(way, &address, arguments);
            assert!(
                matches!(outcome, Outcome::Stream { messages: 1.., .. }),
                "{outcome:?}"
            );
        }
    }
}
