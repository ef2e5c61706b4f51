//! An idle connection wakes nobody: neither the programs nor the monitor run while nothing comes.

use std::thread::sleep;
use std::time::Duration;

use crosslane_testkit::{Host, Process, Route, free_port, wait_until};

use crate::talk::PYTHON;

/// Echoes on one connection, waiting as `argv[2]` says.
const SERVER: &str = r#"
import select, socket, sys
connection = socket.create_server(("127.0.0.1", int(sys.argv[1]))).accept()[0]
poller = select.epoll() if sys.argv[2] == "epoll" else select.poll()
poller.register(connection, select.EPOLLIN)
while True:
    if sys.argv[2] != "recv":
        poller.poll()
    data = connection.recv(4096)
    if not data:
        break
    connection.sendall(data)
"#;

/// Has words echoed as often as it is told to, and waits for what never comes.
const CLIENT: &str = r#"
import select, socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for line in sys.stdin:
    if line.strip() == "rest":
        break
    for _ in range(1000):
        connection.sendall(b"word")
        connection.recv(4, socket.MSG_WAITALL)
    print("talked", flush=True)
print("idle", flush=True)
connection.recv(1)
"#;

/// How often the threads of a process have been put on a processor.
fn runs(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let of_task = |task: std::io::Result<std::fs::DirEntry>| -> Option<u64> {
        let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let lines = status.lines().filter(|line| line.contains("ctxt_switches"));
        Some(
            lines
                .filter_map(|line| line.rsplit('\t').next()?.parse::<u64>().ok())
                .sum(),
        )
    };
    tasks.filter_map(of_task).sum()
}

#[test]
fn an_idle_connection_wakes_nobody() {
    for way in ["recv", "poll", "epoll"] {
        let host = Host::new(Route::Crosslane);
        let port = free_port().to_string();
        let start = |script: &str| -> Process {
            host.program(PYTHON)
                .args(["-c", script, &port, way])
                .with_open_input()
                .start()
        };
        let server = start(SERVER);
        server.wait_for_port(port.parse().expect("it is one"));
        let mut client = start(CLIENT);
        wait_until("both ends to be accelerated", || {
            client.write_line("talk");
            assert_eq!(client.next_line().as_deref(), Some("talked"));
            let ends = host.ends();
            let accelerated = ends.iter().filter(|end| end.is_accelerated());
            (accelerated.count() == 2).then_some(())
        });
        client.write_line("rest");
        assert_eq!(client.next_line().as_deref(), Some("idle"));
        let monitor = u32::try_from(host.stats().monitor_count("pid")).expect("it is one");
        let pids = [server.pid(), client.pid(), monitor];
        // On a busy machine they take a while to go to sleep.
        wait_until(&format!("two seconds without a run ({way})"), || {
            let before = pids.map(runs);
            sleep(Duration::from_secs(2));
            (pids.map(runs) == before).then_some(())
        });
    }
}
