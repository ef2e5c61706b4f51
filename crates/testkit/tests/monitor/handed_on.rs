//! Connections whose sockets go to other processes are accelerated there.

use crosslane_testkit::{Host, Route, TALK, wait_until};

use crate::talk::Talk;

/// Accepts one connection and echoes on it; then, for the line `on`, hands it to another program by
/// `{HAND_ON}` and says who that is. For the line `close`, closes its own copy.
const SERVER: &str = r#"
import os, socket, subprocess, sys, threading

ECHO = """
import os, socket, sys
{RECEIVE}
while data := connection.recv(65536):
    connection.sendall(data)
"""

class Handed(Exception):
    pass

listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
sys.stdin.readline()
connection = listener.accept()[0]
listener.close()
over, is_over = os.pipe()

def echo():
    import select
    while True:
        ready = select.select([connection, over], [], [])[0]
        if over in ready:
            return
        connection.sendall(connection.recv(65536))

if {TALKS_FIRST}:
    echoing = threading.Thread(target=echo)
    echoing.start()
sys.stdin.readline()
if {TALKS_FIRST}:
    os.write(is_over, b".")
    echoing.join()
connection.set_inheritable(True)
number = str(connection.fileno())
{HAND_ON}
sys.stdin.readline()
connection.close()
os.wait()
"#;

const BY_MESSAGE: &str = r#"
connection.set_inheritable(False)
ours, theirs = socket.socketpair()
worker = subprocess.Popen({PROGRAM} + ["-c", ECHO, str(theirs.fileno())], pass_fds=[theirs.fileno()])
socket.send_fds(ours, [b"."], [connection.fileno()])
print(worker.pid, flush=True)
"#;

const RECEIVE_MESSAGE: &str = "connection = socket.socket(fileno=socket.recv_fds(\
                               socket.socket(fileno=int(sys.argv[1])), 1, 1)[1][0])";

const BY_FORK_AND_EXEC: &str = r#"
worker = os.fork()
if worker == 0:
    os.execvp({PROGRAM}[0], {PROGRAM} + ["-c", ECHO, number])
print(worker, flush=True)
"#;

const BY_SPAWN: &str = r#"
print(os.posix_spawnp({PROGRAM}[0], {PROGRAM} + ["-c", ECHO, number], os.environ), flush=True)
"#;

/// The child of a vfork that closes all descriptors but this one before it becomes another program.
const BY_SUBPROCESS: &str = r#"
worker = subprocess.Popen({PROGRAM} + ["-c", ECHO, number], pass_fds=[connection.fileno()])
print(worker.pid, flush=True)
"#;

const INHERITED: &str = "connection = socket.socket(fileno=int(sys.argv[1]))";

const WITH: &str = r#"["/usr/bin/python3"]"#;
const WITHOUT: &str = r#"["env", "-u", "LD_PRELOAD", "/usr/bin/python3"]"#;

fn server((hand_on, receive): (&str, &str), program: &str, talks_first: bool) -> String {
    let talks_first = if talks_first { "True" } else { "False" };
    SERVER
        .replace("{HAND_ON}", hand_on)
        .replace("{RECEIVE}", receive)
        .replace("{PROGRAM}", program)
        .replace("{TALKS_FIRST}", talks_first)
}

const WAYS: [(&str, &str); 3] = [
    (BY_MESSAGE, RECEIVE_MESSAGE),
    (BY_FORK_AND_EXEC, INHERITED),
    (BY_SPAWN, INHERITED),
];

/// Start a talk, and hand its server's end on. Returns the process that has it.
fn hand_on(host: &Host, talk: &mut Talk, talks_first: bool) -> u32 {
    talk.go();
    talk.open();
    if talks_first {
        talk.wait_for_accelerated(host, 2);
    }
    talk.server.write_line("on");
    let worker = talk.server.next_line().expect("the server says to whom");
    worker.parse().expect("it is a process")
}

fn wait_for_acceleration_of(host: &Host, pid: u32) {
    wait_until("the connection to be accelerated where it is now", || {
        let ends = host.ends();
        let are_fast = ends.len() == 2 && ends.iter().all(|end| end.is_accelerated());
        (are_fast && ends.iter().any(|end| end.pid == pid)).then_some(())
    });
}

/// The client has heard what it said; the server ends with the connection.
fn finish(mut talk: Talk) {
    talk.close();
    let output = talk.client.finish();
    assert!(output.status.success(), "{}", output.text());
    let _ = talk.server.finish().expect_success();
}

#[test]
fn who_gets_a_connection_has_it_accelerated() {
    for way in WAYS {
        for talks_first in [true, false] {
            expect_acceleration_after(way, talks_first);
        }
    }
}

/// What the child registers nobody knows, so that only what is in the rings is lent by it.
#[test]
fn who_gets_a_connection_by_vfork_has_it_accelerated_if_it_was() {
    expect_acceleration_after((BY_SUBPROCESS, INHERITED), true);
}

fn expect_acceleration_after(way: (&str, &str), talks_first: bool) {
    let host = Host::new(Route::Crosslane);
    let mut talk = Talk::with_server(&host, &server(way, WITH, talks_first));
    let worker = hand_on(&host, &mut talk, talks_first);
    talk.server.write_line("close");
    wait_for_acceleration_of(&host, worker);
    let resumed = host.stats().count("resumes") > 0;
    assert_eq!(resumed, talks_first, "only lanes are returned to");
    finish(talk);
}

#[test]
fn it_stays_on_tcp_while_the_giver_has_it_too() {
    for way in WAYS {
        let host = Host::new(Route::Crosslane);
        let mut talk = Talk::with_server(&host, &server(way, WITH, true));
        let worker = hand_on(&host, &mut talk, true);
        talk.wait_for_words(1000);
        assert!(host.ends().iter().all(|end| !end.is_accelerated()));
        talk.server.write_line("close");
        wait_for_acceleration_of(&host, worker);
        finish(talk);
    }
}

#[test]
fn it_stays_on_tcp_with_a_program_without_crosslane() {
    for way in WAYS {
        let host = Host::new(Route::Crosslane);
        let mut talk = Talk::with_server(&host, &server(way, WITHOUT, true));
        hand_on(&host, &mut talk, true);
        talk.server.write_line("close");
        talk.wait_for_words(1000);
        assert!(host.ends().iter().all(|end| !end.is_accelerated()));
        finish(talk);
    }
}

/// A server whose connection becomes the standard input and output of another program, by `{SPAWN}`,
/// and which goes on with it afterwards.
const STANDARD_STREAMS: &str = r#"
import os, socket, subprocess, sys

PEER = """
import socket, sys
{TALK}
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))

def talk(rounds):
    for number in range(rounds):
        word = b"%04d\\n" % number
        peer.sendall(word)
        assert peer.recv(5, socket.MSG_WAITALL) == word

talk_until_accelerated(peer, lambda: talk(1))
peer.sendall(b"over\\n")
peer.sendall(b"for the child\\n")
print("peer:", peer.recv(100), flush=True)
peer.sendall(b"done\\n")
talk(100)
"""

listener = socket.create_server(("127.0.0.1", 0))
peer = subprocess.Popen([sys.executable, "-c", PEER, str(listener.getsockname()[1])])
connection = listener.accept()[0]

def echo(rounds):
    for _ in range(rounds):
        connection.sendall(connection.recv(5, socket.MSG_WAITALL))

while (word := connection.recv(5, socket.MSG_WAITALL)) != b"over\n":
    assert word
    connection.sendall(word)
environment = dict(os.environ)
if sys.argv[1] == "without":
    environment.pop("LD_PRELOAD", None)
shell = ["/bin/sh", "-c", "read word; echo got $word"]
{SPAWN}
print("server:", connection.recv(5, socket.MSG_WAITALL), flush=True)
echo(100)
print("peer ended with", peer.wait())
"#;

#[test]
fn a_connection_may_be_the_standard_input_of_another_program() {
    let ways = [
        "subprocess.run(shell, stdin=connection, stdout=connection, env=environment)",
        "subprocess.run(shell, stdin=connection, stdout=connection, env=environment, \
         preexec_fn=lambda: None)",
        "os.waitpid(os.posix_spawn(shell[0], shell, environment, file_actions=[\
         (os.POSIX_SPAWN_DUP2, connection.fileno(), number) for number in (0, 1)]), 0)",
    ];
    for way in ways {
        let script = STANDARD_STREAMS.replace("{SPAWN}", way);
        let script = script.replace("{TALK}", TALK);
        let run = |host: &Host, with: &str| {
            let program = host.program(crate::talk::PYTHON);
            program.args(["-c", &script, with]).run_talks().text()
        };
        let native = run(&Host::new(Route::Tcp), "with");
        for with in ["with", "without"] {
            let host = Host::new(Route::Crosslane);
            assert_eq!(run(&host, with), native, "{way}");
            assert!(
                host.stats().count("upgrades") >= 2,
                "{way}: not accelerated"
            );
        }
    }
}

/// A server that has its connection read otherwise than from the ring, by `{LEAVE}`, while something stands unread there whose sender
/// has shut down.
const LEFT_UNREAD: &str = r#"
import os, socket, subprocess, sys

PEER = """
import os, socket, sys
{TALK}
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))

def talk():
    peer.sendall(b"word")
    assert peer.recv(4, socket.MSG_WAITALL) == b"word"

talk_until_accelerated(peer, talk)
peer.sendall(b"over")
peer.sendall(b"for the worker")
peer.shutdown(socket.SHUT_WR)
os.write(int(sys.argv[2]), b".")
try:
    peer.recv(1)
except ConnectionResetError:
    pass
"""

listener = socket.create_server(("127.0.0.1", 0))
is_shut, shut = os.pipe()
arguments = [str(listener.getsockname()[1]), str(shut)]
peer = subprocess.Popen([sys.executable, "-c", PEER] + arguments, pass_fds=[shut])
connection = listener.accept()[0]
while (word := connection.recv(4, socket.MSG_WAITALL)) != b"over":
    assert word
    connection.sendall(word)
os.read(is_shut, 1)
{LEAVE}
"#;

/// It goes to another program, in a message, and the server leaves its own copy by `{CLOSE}`.
const TO_WORKER: &str = r#"
WORKER = """
import socket, sys
passed = socket.recv_fds(socket.socket(fileno=int(sys.argv[1])), 1, 1)[1][0]
print("got", socket.socket(fileno=passed).recv(100, socket.MSG_WAITALL), flush=True)
"""
environment = dict(os.environ)
if sys.argv[1] == "without":
    environment.pop("LD_PRELOAD", None)
ours, theirs = socket.socketpair()
number = str(theirs.fileno())
worker = subprocess.Popen([sys.executable, "-c", WORKER, number], pass_fds=[theirs.fileno()], env=environment)
socket.send_fds(ours, [b"."], [connection.fileno()])
{CLOSE}
assert worker.wait() == 0
"#;

/// The server restricts its system calls, to all there are.
const TO_SANDBOX: &str = r#"
import ctypes, struct
libc = ctypes.CDLL(None)
code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(code)))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0
print("got", connection.recv(100, socket.MSG_WAITALL), flush=True)
"#;

const LEFT: &str = "for the worker";

/// What the worker has said, and what `crosslane run --explain` has, where the host runs Crosslane.
fn leave_unread(host: &Host, worker: &str, leave: &str) -> (String, String) {
    let script = LEFT_UNREAD.replace("{TALK}", TALK);
    let script = script.replace("{LEAVE}", leave);
    let server = host.program(crate::talk::PYTHON).explained("told");
    let said = server.args(["-c", &script, worker]).run_talks().text();
    let told = std::fs::read_to_string(host.folder().join("told"));
    (said, told.unwrap_or_default())
}

#[test]
fn bytes_that_nobody_gets_are_counted() {
    // By a close, by the end of the process, and without another program.
    let closes = ["connection.close()", "connection.detach()"];
    let ways = closes.map(|close| TO_WORKER.replace("{CLOSE}", close));
    for leave in ways.iter().map(String::as_str).chain([TO_SANDBOX]) {
        let host = Host::new(Route::Crosslane);
        let (said, told) = leave_unread(&host, "without", leave);
        assert_eq!(said.trim(), "got b''", "{leave}");
        let stats = host.stats();
        let counted = ["stranded_bytes", "rescued_bytes"].map(|name| stats.count(name));
        assert_eq!(counted, [LEFT.len() as u64, 0], "{leave}");
        let lost = format!("\"stranded_bytes\":{}", LEFT.len());
        assert_eq!(
            told.matches(&lost).count(),
            2,
            "of the end, and of all: {told}"
        );
    }
}

#[test]
fn bytes_that_a_program_under_crosslane_gets_are_not_lost() {
    for close in ["connection.close()", "connection.detach()"] {
        let host = Host::new(Route::Crosslane);
        let leave = TO_WORKER.replace("{CLOSE}", close);
        let (said, _) = leave_unread(&host, "with", &leave);
        assert_eq!(said.trim(), format!("got b'{LEFT}'"), "{leave}");
        let stats = host.stats();
        let [stranded, rescued] = ["stranded_bytes", "rescued_bytes"].map(|name| stats.count(name));
        assert_eq!(stranded, rescued, "{leave}");
    }
}
