//! What rings cost while there is much to carry, and after that.

use crosslane_testkit::{Host, Process, Route, free_port, wait_until};

/// Answers each of the words `ping!` and `bulk!`, the latter with 64 MiB behind it, so late that the client has
/// to sleep.
const SERVER: &str = r#"
import socket, sys, time
connection = socket.create_server(("127.0.0.1", int(sys.argv[1]))).accept()[0]
while word := connection.recv(5, socket.MSG_WAITALL):
    left = 64 << 20 if word == b"bulk!" else 0
    while left > 0:
        left -= len(connection.recv(min(left, 1 << 20)))
    time.sleep(0.005)
    connection.sendall(word)
"#;

const CLIENT: &str = r#"
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
bulk = bytes(64 << 20)
for line in sys.stdin:
    word = line.strip().encode()
    connection.sendall(word)
    if word == b"bulk!":
        connection.sendall(bulk)
    assert connection.recv(5, socket.MSG_WAITALL) == word
    print("ok", flush=True)
"#;

const PYTHON: &str = "/usr/bin/python3";

/// KiB of rings that are in memory and mapped in a process.
fn ring_kib(process: &Process) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{}/smaps", process.pid()));
    let (mut is_ring, mut total) = (false, 0);
    for line in maps.expect("the process runs").lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if first.contains('-') {
            is_ring = line.contains("crosslane-arena");
        } else if first == "Rss:" && is_ring {
            let words: Vec<&str> = line.split_whitespace().collect();
            total += words[1].parse::<u64>().expect("a number of KiB");
        }
    }
    total
}

#[test]
fn a_ring_that_has_grown_is_small_again_when_all_has_been_read() {
    let host = Host::new(Route::Crosslane);
    let port = free_port().to_string();
    let start = |script| {
        let program = host.program(PYTHON).args(["-c", script, &port]);
        program.with_open_input().start()
    };
    let server = start(SERVER);
    server.wait_for_port(port.parse().expect("it is a port"));
    let mut client = start(CLIENT);
    let mut say = |word: &str| {
        client.write_line(word);
        assert_eq!(client.next_line().as_deref(), Some("ok"));
        ring_kib(&client)
    };
    wait_until("the connection to be accelerated", || {
        say("ping!");
        let ends = host.ends();
        (ends.iter().filter(|end| end.is_accelerated()).count() == 2).then_some(())
    });
    let small = say("ping!");
    let grown = say("bulk!");
    assert!(grown > small + 700, "{small} KiB before, {grown} with bulk");
    wait_until("the memory to be given back", || {
        let left = say("ping!");
        (left < small + 400).then_some(())
    });
    say("bulk!");
    say("ping!");
}
