//! Programs that forbid themselves system calls by a filter while they have something unread.

use crosslane_testkit::{Host, Route, TALK, wait_until};

/// The kernel ends a program that makes any call but those that it makes natively from then on. Its peer, which makes calls on
/// their connection all the time, or sleeps in one, has sent what is unread, and goes on when it is answered.
const PROGRAM: &str = r#"
import ctypes, os, socket, struct, sys

BODY = """
import random
body = random.Random(7).randbytes({UNREAD})
rest = body[::-1]
"""
exec(BODY)
listener = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    # A program of its own, as two that share connections by fork are one party.
    os.execvp(sys.executable, [sys.executable, "-c", BODY + """
import socket, sys
{TALK}
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def ping():
    peer.sendall(b"ping")
    peer.recv(4)
talk_until_accelerated(peer, ping)
peer.sendall(b"quit")
peer.sendall(body)
flags = socket.MSG_DONTWAIT if sys.argv[2] == "busy" else 0
heard = None
while heard is None:
    try:
        heard = peer.recv(4, flags)
    except BlockingIOError:
        pass
assert heard == b"more", heard
peer.sendall(rest)
""", str(listener.getsockname()[1]), sys.argv[2]])

ALLOWED = {CALLS}
LOAD, KILL, ALLOW = (0x20, 0, 0, 0), (6, 0, 0, 0x80000000), (6, 0, 0, 0x7fff0000)
tests = [(0x15, len(ALLOWED) - index, 0, call) for index, call in enumerate(ALLOWED)]
lines = [LOAD, *tests, KILL, ALLOW]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(lines), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
ways = {"prctl": lambda: libc.prctl(22, 2, program, 0, 0), "seccomp": lambda: libc.syscall(317, 1, 0, program)}

connection = listener.accept()[0]
while (word := connection.recv(4)) != b"quit":
    connection.sendall(word)
# So much has come, and stays where it is.
connection.recv(int(sys.argv[3]), socket.MSG_PEEK | socket.MSG_WAITALL)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert ways[sys.argv[1]]() == 0, ctypes.get_errno()
heard = connection.recv(len(body), socket.MSG_WAITALL)
connection.sendall(b"more")
while part := connection.recv(65536):
    heard += part
print(len(heard), heard == body + rest, flush=True)
"#;

/// read, write, close, mmap, munmap, brk, rt_sigaction, rt_sigreturn, mremap, madvise, sendto, recvfrom, getsockname, getpeername,
/// futex, exit_group.
const CALLS: &str = "[0, 1, 3, 9, 11, 12, 13, 15, 25, 28, 44, 45, 51, 52, 202, 231]";

/// What stands in the ring then.
const UNREAD: u64 = 100_000;

fn seen(route: Route, way: &str, peer: &str) -> (String, Host) {
    let host = Host::new(route);
    let script = PROGRAM.replace("{TALK}", TALK).replace("{CALLS}", CALLS);
    let script = script.replace("{UNREAD}", &UNREAD.to_string());
    // The kernel promises no room for all of it: TCP's window grows when something is read only.
    let standing = if route == Route::Crosslane { UNREAD } else { 1 };
    let arguments = ["-c", &script, way, peer, &standing.to_string()];
    let program = host.program("/usr/bin/python3");
    let said = program.args(arguments).run_talks().text();
    (said, host)
}

#[test]
fn what_is_unread_arrives_after_a_filter() {
    for (way, peer) in [("prctl", "busy"), ("seccomp", "asleep")] {
        let (native, _) = seen(Route::Tcp, way, peer);
        assert_eq!(native, format!("{} True\n", 2 * UNREAD));
        let (ours, host) = seen(Route::Crosslane, way, peer);
        assert_eq!(ours, native, "{way}, {peer}");
        wait_until("the count of a finished program", || {
            (host.stats().reason_count("sandbox") > 0).then_some(())
        });
        let stats = host.stats();
        let [sent, received] =
            ["sent", "received"].map(|way| stats.count(&format!("ring_bytes_{way}")));
        assert_eq!(sent - received, UNREAD, "{way}, {peer}: {stats:?}");
        assert!(stats.count("replays") > 0, "{way}, {peer}: {stats:?}");
    }
}
