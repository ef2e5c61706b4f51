//! The program as it is used: a server process, a client process, one line of JSON.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crosslane_sockbench::outcome::{Line, Listening, Outcome};

const PROGRAM: &str = env!("CARGO_BIN_EXE_crosslane-sockbench");

struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(listen: &str) -> Self {
        let mut command = Command::new(PROGRAM);
        command
            .args(["--die-with-parent", "server", "--listen", listen])
            .stdout(Stdio::piped());
        let mut process = command.spawn().expect("the server starts");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("the server says where it listens");
        let listening: Listening = serde_json::from_str(&line).expect("documented JSON");
        Self {
            process,
            address: listening.listening,
        }
    }

    /// Runs a client under a watchdog.
    fn measure(&self, arguments: &str) -> std::process::Output {
        let mut command = Command::new("timeout");
        command.args(["60", PROGRAM, "client", "--connect", &self.address]);
        command
            .args(["--warmup", "5", "--measure", "20"])
            .args(arguments.split(' '));
        command
            .stdin(Stdio::null())
            .output()
            .expect("the client starts")
    }

    fn outcome(&self, arguments: &str) -> Outcome {
        let output = self.measure(arguments);
        assert!(output.status.success(), "{arguments}: {output:?}");
        let line: Line = serde_json::from_slice(&output.stdout).expect("documented JSON");
        line.outcome
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process
            .kill()
            .expect("the server runs until it is killed");
        self.process.wait().expect("it was killed");
    }
}

fn every_case_gives_figures(listen: &str) {
    let server = Server::start(listen);
    for bytes in [8, 56, 64, 65536] {
        match server.outcome(&format!("--case rtt --bytes {bytes}")) {
            Outcome::Rtt {
                bytes: measured,
                trips,
                p50_ns,
                p99_ns,
                p999_ns,
            } => {
                assert!(measured == bytes && trips > 0 && p50_ns <= p99_ns && p99_ns <= p999_ns);
            }
            other => panic!("{other:?}"),
        }
        match server.outcome(&format!("--case stream --bytes {bytes}")) {
            Outcome::Stream {
                bytes: measured,
                messages,
                gbps,
                msgs_per_s,
            } => {
                assert!(measured == bytes && messages > 0 && gbps > 0.0 && msgs_per_s > 0.0);
            }
            other => panic!("{other:?}"),
        }
    }
    match server.outcome("--case connect") {
        Outcome::Connect { connections, per_s } => assert!(connections > 0 && per_s > 0.0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_case_gives_figures_over_tcp() {
    every_case_gives_figures("tcp:127.0.0.1:0");
}

#[test]
fn every_case_gives_figures_over_tcp_version_6() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("SKIPPED: this machine has no IPv6 loopback");
        return;
    }
    every_case_gives_figures("tcp:[::1]:0");
}

#[test]
fn every_case_gives_figures_over_unix_sockets() {
    every_case_gives_figures(&format!(
        "unix:@crosslane-sockbench-test-{}",
        std::process::id()
    ));
}

#[test]
fn a_size_without_room_for_the_check_is_refused() {
    let output = Server::start("tcp:127.0.0.1:0").measure("--case rtt --bytes 9");
    assert!(!output.status.success());
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("take 8"),
        "{output:?}"
    );
}

#[test]
fn a_server_survives_a_client_that_talks_nonsense() {
    use std::io::Write;
    let server = Server::start("tcp:127.0.0.1:0");
    let address = server.address.strip_prefix("tcp:").expect("a TCP address");
    let mut stranger = std::net::TcpStream::connect(address).expect("it listens");
    stranger.write_all(&[b'x'; 64]).expect("written");
    drop(stranger);
    assert!(matches!(
        server.outcome("--case rtt --bytes 8"),
        Outcome::Rtt { .. }
    ));
}

/// A relay that changes one byte now and then, as a broken transport would.
#[test]
fn a_transport_that_corrupts_is_found_out() {
    use std::io::{Read, Write};
    let server = Server::start("tcp:127.0.0.1:0");
    let to = server
        .address
        .strip_prefix("tcp:")
        .expect("a TCP address")
        .to_owned();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("tcp:{}", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("the client connects");
        let mut server = std::net::TcpStream::connect(to).expect("the server listens");
        let mut buffer = [0; 64];
        for number in 0.. {
            let bytes = client.read(&mut buffer).unwrap_or(0);
            buffer[0] ^= u8::from(number == 50);
            if bytes == 0 || server.write_all(&buffer[..bytes]).is_err() {
                return;
            }
            // The first part is the request, which is not answered.
            if number > 0 {
                let bytes = server.read(&mut buffer).unwrap_or(0);
                if bytes == 0 || client.write_all(&buffer[..bytes]).is_err() {
                    return;
                }
            }
        }
    });
    let output = Command::new("timeout")
        .args([
            "60",
            PROGRAM,
            "client",
            "--connect",
            &address,
            "--case",
            "rtt",
        ])
        .output()
        .expect("the client starts");
    assert_eq!(
        output.status.code(),
        Some(1),
        "neither counted nor hung: {output:?}"
    );
}
