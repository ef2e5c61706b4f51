//! The program as it is used: a server process, a client process, one line of JSON.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use crosslane_sockbench::outcome::{Line, Listening, Outcome};

const PROGRAM: &str = env!("CARGO_BIN_EXE_crosslane-sockbench");

/// A program, run under a watchdog.
fn watched() -> Command {
    let mut command = Command::new("timeout");
    command.args(["60", PROGRAM]);
    command
}

struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(listen: &str) -> Self {
        Self::start_with(&["--listen", listen])
    }

    fn start_with(options: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        command
            .args(["--die-with-parent", "server"])
            .args(options)
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
            .args(["--warmup", "5", "--measure", "100"])
            .args(arguments.split(' '));
        command
            .stdin(Stdio::null())
            .output()
            .expect("the client starts")
    }

    /// Sends requests at this rate.
    fn load(&self, arguments: &str) -> Outcome {
        let mut command = watched();
        command.args(["load", "--connect", &self.address, "--warmup", "5"]);
        command.args(["--measure", "50"]).args(arguments.split(' '));
        let output = command.output().expect("the client starts");
        assert!(output.status.success(), "{arguments}: {output:?}");
        let line: Line = serde_json::from_slice(&output.stdout).expect("documented JSON");
        line.outcome
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
                ..
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
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: this machine has no IPv6 loopback"
        );
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
fn every_message_passes_through_pipes() {
    for (case, expected) in [("rtt", "p50_ns"), ("stream", "gbps")] {
        let mut command = watched();
        command.args(["client", "--connect", "pipe:", "--case", case]);
        command.args(["--warmup", "5", "--measure", "100"]);
        let output = command.output().expect("the client starts");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(expected), "{text}");
    }
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
    use std::io::Read;
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

/// How many requests fall due in this time, whatever the machine does meanwhile.
fn due(per_second: f64, seed: u64, milliseconds: u64) -> u64 {
    let arrivals = crosslane_sockbench::arrivals::Arrivals::new(per_second, seed);
    let within = arrivals.take_while(|&due_ns| due_ns < milliseconds * 1_000_000);
    within.count() as u64
}

#[test]
fn a_load_is_answered_in_full_however_the_server_receives_and_the_client_waits() {
    for receive in ["block", "spin"] {
        let server = Server::start_with(&["--receive", receive]);
        for pace in ["spin", "poll"] {
            let arguments = format!("--rate 5000 --pace {pace} --seed 3");
            let Outcome::Load {
                answers,
                p50_ns: Some(p50_ns),
                p99_ns: Some(p99_ns),
                server_cpu,
                client_cpu,
                ..
            } = server.load(&arguments)
            else {
                panic!("{receive}, {pace}: no latencies")
            };
            assert_eq!(answers, due(5e3, 3, 50), "{receive}, {pace}");
            assert!(p50_ns > 0 && p50_ns <= p99_ns && server_cpu > 0.0 && client_cpu > 0.0);
        }
    }
}

#[test]
fn more_load_than_a_server_can_take_is_answered_late_and_not_left_out() {
    let server = Server::start("tcp:127.0.0.1:0");
    let Outcome::Load { answers, .. } = server.load("--rate 1000000 --seed 1") else {
        panic!("another outcome")
    };
    assert_eq!(answers, due(1e6, 1, 50));
}

#[test]
fn an_idle_server_is_asked_for_its_processor_time_only() {
    let server = Server::start("tcp:127.0.0.1:0");
    match server.load("--rate 0") {
        Outcome::Load {
            answers: 0,
            p50_ns: None,
            server_cpu,
            ..
        } => assert!(server_cpu >= 0.0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_crowd_is_steered_from_outside() {
    for by in ["epoll", "poll"] {
        steer_a_crowd(by);
    }
}

fn steer_a_crowd(by: &str) {
    let server = Server::start_with(&["--crowd", "200", "--by", by]);
    let mut client = watched()
        .args(["crowd", "--connect", &server.address])
        .args(["--connections", "200", "--warmup", "5", "--measure", "20"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the client starts");
    let mut stdin = client.stdin.take().expect("piped");
    stdin
        .write_all(b"open\ntouch\ntouch\nmeasure\n")
        .expect("it listens");
    drop(stdin);
    let output = client.wait_with_output().expect("it is ours");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].contains(r#""ready":0"#) && lines[1].contains(r#""ready":200"#));
    match serde_json::from_str::<Line>(lines[4])
        .expect("JSON")
        .outcome
    {
        Outcome::Crowd {
            connections: 200,
            trips,
            p50_ns,
            p99_ns,
            ..
        } => assert!(trips > 0 && p50_ns <= p99_ns),
        other => panic!("{other:?}"),
    }
}

#[test]
fn more_connections_than_descriptors_are_refused_with_the_remedy() {
    let output = watched()
        .args(["crowd", "--connect", "tcp:127.0.0.1:1"])
        .args(["--connections", "9000000000"])
        .output()
        .expect("the client starts");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("9000000064 descriptors") && said.contains("ulimit"),
        "{said}"
    );
}
