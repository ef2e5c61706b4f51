//! What a program holds: descriptors, threads and mappings.

use crosslane_testkit::{Host, Route, wait_until};

/// Answers on threads.
const SERVER: &str = r#"
import socket, sys, threading

def answer(connection):
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.close()

listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
"#;

/// For each line: makes connections, uses them, has children use them, and tells what it holds when it has closed them.
const CLIENT: &str = r#"
import os, socket, sys

def ask(end):
    end.sendall(b"ping")
    assert end.recv(4) == b"ping"

for line in sys.stdin:
    ends = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(40)]
    for _ in range(100):
        for end in ends:
            ask(end)
    for end in ends[::2]:
        child = os.fork()
        if child == 0:
            ask(end)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    for end in ends:
        end.close()
    with open("/proc/self/maps") as maps:
        mappings = sum("crosslane" in line for line in maps)
    print(*(len(os.listdir(f"/proc/self/{what}")) for what in ("fd", "task")), mappings, flush=True)
"#;

#[test]
fn connections_and_children_leave_a_program_nothing_to_hold() {
    let host = Host::new(Route::Crosslane);
    let program = || {
        let program = host.program("/usr/bin/python3");
        program.run_flag("--eager").run_flag("1-65535")
    };
    let mut server = program().args(["-c", SERVER]).start();
    let port = server.next_line().expect("it says where it listens");
    let mut client = program()
        .args(["-c", CLIENT, &port])
        .with_open_input()
        .start();
    let mut held = Vec::new();
    for _ in 0..5 {
        client.write_line("go on");
        held.push(client.next_line().expect("it says what it holds"));
        wait_until("all connections to be over", || {
            let stats = host.stats();
            let kept = ["ends", "slots"].map(|name| stats.monitor_count(name));
            (kept == [0, 0]).then_some(())
        });
    }
    // What is made for the first connections stays.
    assert!(held[1..].iter().all(|now| *now == held[1]), "{held:?}");
    assert!(!held[1].ends_with(" 0"), "no mapping is seen: {held:?}");
    let stats = host.stats();
    assert!(stats.count("upgrades") > 300, "{stats:?}");
}
