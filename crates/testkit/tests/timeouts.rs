//! Waits with a timeout under `crosslane run --wait spin`: a spin ends when the timeout does.

use crosslane_testkit::{Host, Route, free_port};

/// Debian's own, as another one in PATH may be a script that starts it.
const PYTHON: &str = "/usr/bin/python3";

/// Waits of a millisecond, in vain, on an accelerated connection. They take five seconds in all;
/// each of them lasting for a whole spin of 50 ms, the host's watchdog would end the program.
const PROGRAM: &str = r#"
import select, socket, sys

WAITS = 1600
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
poll, epoll = select.poll(), select.epoll()
poll.register(client, select.POLLIN)
epoll.register(client, select.EPOLLIN)
ways = {
    "poll": lambda: poll.poll(1),
    "select": lambda: select.select([client], [], [], 0.001)[0],
    "epoll": lambda: epoll.poll(0.001),
}
for way, wait in ways.items():
    for _ in range(1000):
        server.send(b"x" * 64)
        client.recv(64, socket.MSG_WAITALL)
        client.send(b"y" * 64)
        server.recv(64, socket.MSG_WAITALL)
    assert not any(wait() for _ in range(WAITS)), way
    server.send(b"x")
    assert wait(), way
    client.recv(1)
print("done")
"#;

#[test]
fn a_timeout_ends_a_spin() {
    let host = Host::new(Route::Crosslane);
    let port = free_port();
    let witness = host.witness(port);
    let program = host.program(PYTHON).run_option("--wait", "spin");
    let output = program.arg("-c").arg(PROGRAM).arg(port.to_string()).run();
    assert_eq!(output.text(), "done\n");
    witness.assert_accelerated();
}
