//! A program is killed that has yet to send again what stood unread in the ring when the socket went to another process.

use crosslane_testkit::{Host, Route};

use crate::talk::PYTHON;

/// Rounds of a connection each, whose sender is killed at any moment from when the reader's socket is passed on. Says how many
/// rounds there were, and how many whose reader has not got all that had been sent.
const ROUNDS: &str = r#"
import os, random, socket, subprocess, sys, threading, time

SENDER = """
import socket, sys
family, address = eval(sys.argv[1])
peer = socket.socket(family)
peer.connect(address)
for _ in range(1000):
    peer.sendall(b"word")
    peer.recv(4, socket.MSG_WAITALL)
peer.setblocking(False)
sent = 0
try:
    while sent < int(sys.argv[2]):
        sent += peer.send(b"".join(b"%07d " % at for at in range(sent // 8, sent // 8 + 1000))[sent % 8:])
except BlockingIOError:
    pass
peer.setblocking(True)
print(sent, flush=True)
peer.recv(1)
"""

READER = """
import socket, sys
ours = socket.socket(fileno=int(sys.argv[1]))
connection = socket.socket(fileno=socket.recv_fds(ours, 1, 1)[1][0])
sys.stdin.readline()
at = 0
try:
    while data := connection.recv(int(sys.argv[2])):
        words = b"".join(b"%07d " % word for word in range(at // 8, (at + len(data)) // 8 + 1))
        assert words[at % 8:].startswith(data), at
        at += len(data)
except ConnectionResetError:
    pass
print(at)
"""

def start(script, *arguments, **more):
    arguments = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, **more)

def is_whole(number):
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20000)
    listener.bind(("127.0.0.1", 0) if family == socket.AF_INET else f"{sys.argv[2]}/{number}")
    listener.listen()
    size = random.choice([100_000, 1_000_000, 3_900_000])
    sender = start(SENDER, (int(family), listener.getsockname()), size)
    connection = listener.accept()[0]
    for _ in range(1000):
        connection.sendall(connection.recv(4, socket.MSG_WAITALL))
    sent = sender.stdout.readline()
    ours, theirs = socket.socketpair()
    pieces = random.choice([1000, 65536, 1 << 20])
    reader = start(READER, theirs.fileno(), pieces, pass_fds=[theirs.fileno()], stdin=subprocess.PIPE)
    killer = threading.Timer(random.choice([0, random.uniform(0, 0.02)]), sender.kill)
    if random.random() < 0.5:
        killer.start()
    socket.send_fds(ours, [b"."], [connection.fileno()])
    if killer.ident is None:
        killer.start()
    if random.random() < 0.5:
        killer.join()
    connection.close()
    read = reader.communicate("go\n")[0]
    sender.wait()
    if read != sent:
        print("read", read.strip(), "of", sent, end="")
    return read == sent

seed = int(time.time() * 1000)
random.seed(seed)
family = getattr(socket, sys.argv[1])
deadline = time.monotonic() + 6
rounds = wrong = 0
while time.monotonic() < deadline:
    wrong += not is_whole(rounds)
    rounds += 1
print(rounds, "rounds with seed", seed)
print(wrong, "wrong")
"#;

fn no_byte_is_missing(family: &str, route: Route) {
    let host = Host::new(route);
    let program = host.program(PYTHON).run_flag("--unix");
    let folder = host.folder().display().to_string();
    let said = program.args(["-c", ROUNDS, family, &folder]).run().text();
    println!("{said}");
    assert!(said.ends_with("\n0 wrong\n"));
    if route == Route::Crosslane {
        assert!(host.stats().count("replays") > 0, "nothing was sent again");
    }
}

#[test]
fn what_a_killed_program_had_to_send_again_is_read_in_the_ring() {
    for route in [Route::Tcp, Route::Crosslane] {
        for family in ["AF_INET", "AF_UNIX"] {
            no_byte_is_missing(family, route);
        }
    }
}
