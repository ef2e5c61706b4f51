//! Children that inherit connections and end without a word.

use crosslane_testkit::{Host, Route, TALK, wait_until};

use crate::talk::Talk;

/// A child serves each connection, then ends as `{END}` says.
const FORKING_SERVER: &str = r#"
import os, socket, sys

listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
sys.stdin.readline()
while True:
    connection = listener.accept()[0]
    if os.fork():
        connection.close()
        continue
    while data := connection.recv(65536):
        connection.sendall(data)
    {END}
"#;

#[test]
fn children_that_end_without_a_word_leave_no_connection_behind() {
    for end in [
        "os._exit(0)",
        "os.kill(os.getpid(), 9)",
        "os.execvp('true', ['true'])",
    ] {
        let host = Host::new(Route::Crosslane);
        let mut talk = Talk::with_server(&host, &FORKING_SERVER.replace("{END}", end));
        talk.go();
        let mut rounds = 0;
        // The server finds out when it forks the next time.
        wait_until(&format!("one connection and no other after {end}"), || {
            talk.open();
            talk.wait_for_accelerated(&host, 2);
            let ends = host.ends().len();
            talk.close();
            rounds += 1;
            (rounds > 3 && ends == 2).then_some(())
        });
        talk.end();
    }
}

/// Both sides of a connection that is closed with unread bytes, after a child that had inherited it
/// was killed: at once, when it has run for a while, or when it has become another program.
const UNREAD: &str = r#"
import os, select, socket, sys, time

listener = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    # A program of its own, as two that share connections by fork are one party.
    os.execvp(sys.executable, [sys.executable, "-c", """
import errno, socket, sys
{TALK}
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def ping():
    peer.sendall(b"ping")
    peer.recv(4)
talk_until_accelerated(peer, ping)
peer.sendall(b"quit")
peer.sendall(b"unread")
try:
    print("read", peer.recv(100))
except OSError as error:
    print("read", errno.errorcode[error.errno])
""", str(listener.getsockname()[1])])

connection = listener.accept()[0]
while (data := connection.recv(4)) != b"quit":
    connection.sendall(data)
how = sys.argv[1]
child = os.fork()
if child == 0:
    if how == "exec":
        os.execvp("sleep", ["sleep", "1000"])
    time.sleep(1000)
if how != "at once":
    time.sleep(0.3)
if how != "exec":
    os.kill(child, 9)
    os.waitpid(child, 0)
select.select([connection], [], [])
connection.close()
os.kill(child, 9) if how == "exec" else os.wait()
"#;

#[test]
fn a_child_that_was_killed_does_not_share_the_connection_any_more() {
    for how in ["at once", "later", "exec"] {
        let seen = |route| {
            let host = Host::new(route);
            let script = UNREAD.replace("{TALK}", TALK);
            let program = host.program("/usr/bin/python3").args(["-c", &script, how]);
            let said = program.run_talks().text();
            let upgrades = match route {
                Route::Tcp => 0,
                Route::Crosslane => host.stats().count("upgrades"),
            };
            (said, upgrades)
        };
        let (native, _) = seen(Route::Tcp);
        assert_eq!(native, "read ECONNRESET\n");
        let (ours, upgrades) = seen(Route::Crosslane);
        assert_eq!(ours, native, "{how}");
        assert!(upgrades >= 2, "{how}: not accelerated");
    }
}

/// A connection whose owner forks before it has rings, and whose child lives on.
#[test]
fn a_connection_that_is_shared_before_it_has_rings_waits_for_its_only_owner() {
    const SERVER: &str = r#"
import os, signal, socket, sys

listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
sys.stdin.readline()
connection = listener.accept()[0]
child = os.fork()
if child == 0:
    signal.pause()
if os.fork() == 0:
    sys.stdin.readline()
    os.kill(child, 9)
    os._exit(0) if connection.close() is None else None
while data := connection.recv(65536):
    connection.sendall(data)
"#;
    let host = Host::new(Route::Crosslane);
    let mut talk = Talk::with_server(&host, SERVER);
    talk.go();
    talk.open();
    wait_until("the server's end to be shared", || {
        let ends = host.ends();
        ends.iter()
            .any(|end| end.reason.as_deref() == Some("shared"))
            .then_some(())
    });
    talk.server.write_line("kill");
    talk.wait_for_accelerated(&host, 2);
    talk.close();
}

/// Answers on its connection until the line `share`; then its child and it answer a thousand times each, in turns, and both keep
/// the connection until the next line, from which on it answers alone.
const SHARING_SERVER: &str = r#"
import os, select, socket, sys

ROUNDS = 1000
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
sys.stdin.readline()
connection = listener.accept()[0]

def answer():
    data = connection.recv(65536)
    connection.sendall(data)
    return data

while 0 not in select.select([0, connection], [], [])[0]:
    answer()
sys.stdin.readline()
(my_turn, yield_to_me), (its_turn, yield_to_it) = os.pipe(), os.pipe()
child = os.fork()
turn, give = (my_turn, yield_to_it) if child else (its_turn, yield_to_me)
if child == 0:
    os.write(yield_to_me, b".")
for _ in range(ROUNDS):
    os.read(turn, 1)
    assert len(answer()) == 8
    os.write(give, b".")
os.read(turn, 1)
if child == 0:
    os._exit(0)
print("over", flush=True)
sys.stdin.readline()
os.write(give, b".")
assert os.waitpid(child, 0)[1] == 0
while answer():
    pass
"#;

#[test]
fn a_connection_that_parent_and_child_use_in_turns_stays_in_its_rings() {
    const BYTES: u64 = 2 * 1000 * 8;
    let host = Host::new(Route::Crosslane);
    let mut talk = Talk::with_server(&host, SHARING_SERVER);
    talk.go();
    talk.open();
    talk.wait_for_accelerated(&host, 2);
    let before = host.stats();
    talk.server.write_line("share");
    assert_eq!(talk.server.next_line().as_deref(), Some("over"));
    let after = host.stats();
    let since = |name| after.count(name) - before.count(name);
    for name in ["ring_bytes_sent", "ring_bytes_received"] {
        // Of both ends.
        assert!(since(name) >= 2 * BYTES, "{name}: {after:?}");
    }
    for name in ["tcp_bytes_sent", "tcp_bytes_received", "downgrades"] {
        assert_eq!(since(name), 0, "{name}: {after:?}");
    }
    talk.server.write_line("alone");
    talk.wait_for_words(3000);
    assert_eq!(talk.accelerated_ends(&host), 2);
    talk.close();
    let _ended = talk.server.finish().expect_success();
}

/// Bursts of children, some of them killed, while the connection that they inherit goes on.
#[test]
fn bursts_of_children_leave_nothing_behind() {
    const SERVER: &str = r#"
import os, signal, socket, sys, threading

listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
sys.stdin.readline()
connection = listener.accept()[0]

def echo():
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.close()

threading.Thread(target=echo, daemon=True).start()
for line in sys.stdin:
    children = []
    for number in range(40):
        child = os.fork()
        if child == 0:
            if number % 4 == 0:
                signal.pause()
            if number % 4 == 1:
                connection.close()
            if number % 4 == 2:
                os.execvp("true", ["true"])
            os._exit(0)
        children.append(child)
    for child in children[::4]:
        os.kill(child, signal.SIGKILL)
    for child in children:
        os.waitpid(child, 0)
    print("over", flush=True)
"#;
    let host = Host::new(Route::Crosslane);
    let mut talk = Talk::with_server(&host, SERVER);
    talk.go();
    talk.open();
    talk.wait_for_accelerated(&host, 2);
    for _ in 0..3 {
        talk.server.write_line("burst");
        assert_eq!(talk.server.next_line().as_deref(), Some("over"));
    }
    wait_until("one connection, one slot and no lease", || {
        let stats = host.stats();
        let kept = ["ends", "slots", "leases"].map(|name| stats.monitor_count(name));
        (kept == [2, 1, 0] && host.ends().len() == 2).then_some(())
    });
    talk.wait_for_accelerated(&host, 2);
    talk.close();
    wait_until("nothing to be left", || {
        let stats = host.stats();
        let kept = ["ends", "slots"].map(|name| stats.monitor_count(name));
        (kept == [0, 0]).then_some(())
    });
}

/// A child that is made when there is no descriptor left by which the monitor could know of it. Its parent closes the connection,
/// then its peer does; what the peer has sent stands in memory that is nobody's any more as far as the monitor knows.
const UNLEASED: &str = r#"
import os, resource, socket, sys, time

listener = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    os.execvp(sys.executable, [sys.executable, "-c", """
import socket, sys, time
{TALK}
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def ping():
    peer.sendall(b"ping")
    peer.recv(4)
talk_until_accelerated(peer, ping)
peer.sendall(b"quit")
time.sleep(0.3)
peer.sendall(b"last words")
peer.close()
""", str(listener.getsockname()[1])])

connection = listener.accept()[0]
while (data := connection.recv(4)) != b"quit":
    connection.sendall(data)
lowest = os.dup(0)
os.close(lowest)
resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, lowest))
child = os.fork()
if child == 0:
    time.sleep(0.8)
    heard = b""
    while part := connection.recv(100):
        heard += part
    print(heard, flush=True)
    os._exit(0)
connection.close()
os.waitpid(child, 0)
"#;

#[test]
fn a_child_of_which_the_monitor_cannot_be_told_keeps_the_memory_of_its_connections() {
    for route in [Route::Tcp, Route::Crosslane] {
        let host = Host::new(route);
        let script = UNLEASED.replace("{TALK}", TALK);
        let program = host.program("/usr/bin/python3").args(["-c", &script]);
        assert_eq!(program.run_talks().text(), "b'last words'\n");
        if route == Route::Crosslane {
            let upgrades = host.stats().count("upgrades");
            assert!(upgrades >= 2, "not accelerated");
        }
    }
}
