//! A sender makes no call on a socket any more while it has yet to send again what stood unread in the ring.

use crosslane_testkit::{Host, Route, TALK};

use crate::talk::PYTHON;

/// A connection whose reader's socket goes to another program, which reads it while the sender waits for a pipe. `{PROGRAM}` starts
/// Python. Says how much was read, and how many threads the sender has then.
const PASSED: &str = r#"
import os, socket, subprocess, sys, time

SENDER = """
import ctypes, os, select, socket, sys, time
family, address = eval(sys.argv[1])
peer = socket.socket(family)
peer.connect(address)
peer.sendall(b"word")
while peer.recv(4, socket.MSG_WAITALL) != b"over":
    peer.sendall(b"word")
peer.setblocking(False)
sent = 0
try:
    while sent < 3_000_000:
        sent += peer.send(b"".join(b"%07d " % at for at in range(sent // 8, sent // 8 + 1000))[sent % 8:])
except BlockingIOError:
    pass
peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
print(sent, flush=True)
# Until the socket has been passed, and a little longer.
passed = None
while passed is None or time.monotonic() < passed + 0.2:
    if passed is None and select.select([0], [], [], 0)[0]:
        os.read(0, 1)
        passed = time.monotonic()
    try:
        peer.recv(1)
    except BlockingIOError:
        time.sleep(0.01)
# Which all threads take part in.
os.setuid(os.getuid())
print("waits", flush=True)
if sys.stdin.read(1) == "!":
    # The others go on, which the program has none of.
    ctypes.CDLL(None).pthread_exit(None)
"""

READER = """
import socket, sys
connection = socket.socket(fileno=socket.recv_fds(socket.socket(fileno=int(sys.argv[1])), 1, 1)[1][0])
sys.stdin.readline()
connection.settimeout(30)
at = 0
while at < int(sys.argv[2]):
    data = connection.recv(100_000)
    words = b"".join(b"%07d " % word for word in range(at // 8, (at + len(data)) // 8 + 1))
    assert data and words[at % 8:].startswith(data), at
    at += len(data)
print(at)
"""

def start(program, *arguments, **more):
    arguments = [*program, "-c", *map(str, arguments)]
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more)

def threads(pid):
    return len(os.listdir(f"/proc/{pid}/task"))

family = getattr(socket, sys.argv[1])
listener = socket.socket(family)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20000)
listener.bind(("127.0.0.1", 0) if family == socket.AF_INET else sys.argv[2])
listener.listen()
sender = start([sys.executable], SENDER, (int(family), listener.getsockname()))
connection = listener.accept()[0]
talk_until_accelerated(connection, lambda: connection.sendall(connection.recv(4, socket.MSG_WAITALL)))
connection.recv(4, socket.MSG_WAITALL)
connection.sendall(b"over")
sent = int(sender.stdout.readline())
ours, theirs = socket.socketpair()
reader = start({PROGRAM}, READER, theirs.fileno(), sent, pass_fds=[theirs.fileno()])
socket.send_fds(ours, [b"."], [connection.fileno()])
connection.close()
sender.stdin.write("p")
sender.stdin.flush()
assert sender.stdout.readline() == "waits\n"
if sys.argv[3] == "ends":
    # With a reader that reads nothing.
    sender.communicate("!", timeout=30)
    reader.kill()
    print("ended")
    sys.exit()
read = int(reader.communicate("go\n", timeout=60)[0])
print("read", read - sent, "too many")
deadline = time.monotonic() + 10
while threads(sender.pid) > 1 and time.monotonic() < deadline:
    time.sleep(0.01)
print(threads(sender.pid), "thread")
sender.communicate(".")
"#;

/// What the script says in the end.
fn play(family: &str, program: &str, then: &str) -> String {
    let host = Host::new(Route::Crosslane);
    let path = host.folder().join("listener").display().to_string();
    let script = format!("{TALK}{PASSED}").replace("{PROGRAM}", program);
    let said = host
        .program(PYTHON)
        .run_flag("--unix")
        .args(["-c", &script, family, &path, then])
        .run_talks()
        .text();
    assert!(host.stats().count("replays") > 0, "nothing was sent again");
    said
}

const WITHOUT: &str = r#"["env", "-u", "LD_PRELOAD", sys.executable]"#;

#[test]
fn what_is_to_be_sent_again_comes_while_its_sender_waits_for_something_else() {
    for family in ["AF_INET", "AF_UNIX"] {
        for program in ["[sys.executable]", WITHOUT] {
            let said = play(family, program, "reads");
            assert_eq!(said, "read 0 too many\n1 thread\n");
        }
    }
}

/// Its last thread ends the process, and that is not the library's.
#[test]
fn a_program_whose_threads_have_ended_ends_though_something_is_to_be_sent_again() {
    assert_eq!(play("AF_INET", WITHOUT, "ends"), "ended\n");
}
