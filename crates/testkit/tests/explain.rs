//! `crosslane run --explain`: what it tells about real programs at their end.

use std::os::unix::process::ExitStatusExt;

use crosslane_testkit::redis::Redis;
use crosslane_testkit::{Host, Route, TALK, binary, skipped};
use serde_json::Value;

const PYTHON: &str = "/usr/bin/python3";

/// A Redis client of few lines, so that a test can say how each connection ends.
const CLIENT: &str = r#"
import os, signal, socket, sys

def connect():
    return socket.create_connection(("127.0.0.1", int(sys.argv[1])))

def ping(connection, times=1):
    for _ in range(times):
        connection.sendall(b"PING\r\n")
        assert connection.recv(100) == b"+PONG\r\n"

def ping_until_accelerated(connection):
    return talk_until_accelerated(connection, lambda: ping(connection))
"#;

fn client(script: &str) -> String {
    format!("{TALK}{CLIENT}\n{script}")
}

/// The objects in the file: the ends, and the summary.
fn told(host: &Host, name: &str) -> (Vec<Value>, Value) {
    let text = std::fs::read_to_string(host.folder().join(name)).expect("it was told");
    let parse = |line: &str| serde_json::from_str(line).expect("every line is JSON");
    let mut lines: Vec<Value> = text.lines().map(parse).collect();
    let summary = lines.pop().expect("there is a summary");
    (lines, summary)
}

/// What is told of a client that does this, and what it has said itself.
fn ran(host: &Host, redis: &Redis<'_>, script: &str) -> (Vec<Value>, Value, String) {
    let said = host
        .program(PYTHON)
        .explained("told")
        .args(["-c", &client(script), &redis.port.to_string()])
        .run_talks()
        .text();
    let (ends, summary) = told(host, "told");
    (ends, summary, said)
}

fn number(said: &str) -> u64 {
    said.trim().parse().expect("it is a number")
}

#[test]
fn accelerated_connections_and_others_are_told_apart() {
    let host = Host::new(Route::Crosslane);
    let redis = Redis::start(&host, &[]);
    let script = "
a, b = connect(), connect()
before = ping_until_accelerated(a)
ping(a, 5000)
ping(b)
print(before + 5000)
";
    let (ends, summary, said) = ran(&host, &redis, script);
    let pings = number(&said);
    let [ref long, ref short] = ends[..] else {
        panic!("two connections, not {ends:#?}");
    };
    let (long, short) = match long["state"] == "accelerated" {
        true => (long, short),
        false => (short, long),
    };
    let peer = format!("127.0.0.1:{}", redis.port);
    for end in [long, short] {
        assert_eq!(end["peer"], *peer, "{end}");
        assert_eq!(end["ended"], true, "{end}");
        assert!(end["local"].as_str().unwrap().starts_with("127.0.0.1:"));
    }
    let bytes = |end: &Value, names: [&str; 2]| -> u64 {
        names.iter().map(|name| end[*name].as_u64().unwrap()).sum()
    };
    let sent = ["ring_bytes_sent", "tcp_bytes_sent"];
    let received = ["ring_bytes_received", "tcp_bytes_received"];
    let moved = (bytes(long, sent), bytes(long, received));
    assert_eq!(moved, (6 * pings, 7 * pings));
    assert!(long["ring_bytes_sent"].as_u64() > Some(20_000), "{long}");
    assert_eq!((bytes(short, sent), bytes(short, received)), (6, 7));
    assert_eq!(short["reason"], "too-young");
    assert!(short["remedy"].as_str().unwrap().contains("--eager"));
    assert_eq!(
        (&summary["ends"], &summary["accelerated"]),
        (&2.into(), &1.into())
    );
}

/// One is looked at meanwhile; of another a signal ends the connect, with which the kernel goes on.
#[test]
fn connections_that_take_long_to_connect_are_known_and_not_refused() {
    let host = Host::new(Route::Crosslane);
    for check in ["looked_at_while_connecting", "interrupted_while_connecting"] {
        host.program(binary("crosslane-posix"))
            .run_option("--eager", "1-65535")
            .explained(check)
            .args(["--only", check])
            .run();
        let (ends, _) = told(&host, check);
        let of_the_monitor = ["quota", "unconnected", "not-stream"];
        let is_refused = |end: &Value| of_the_monitor.iter().any(|told| end["reason"] == *told);
        // Both of the connection, and of the one that was in its way.
        assert_eq!(ends.len(), 4, "{check}: {ends:#?}");
        assert!(!ends.iter().any(is_refused), "{check}: {ends:#?}");
    }
}

/// Both ends of a connection, for so many round trips that they ask for rings.
const TWO_ENDS: &str = r#"
import socket
listener = socket.create_server(("127.0.0.1", 0))
near = socket.create_connection(listener.getsockname())
far, _ = listener.accept()
for _ in range(100):
    near.sendall(b"request")
    assert far.recv(7, socket.MSG_WAITALL) == b"request"
    far.sendall(b"answer")
    assert near.recv(6, socket.MSG_WAITALL) == b"answer"
"#;

#[test]
fn what_a_set_had_before_the_connection_is_told() {
    let host = Host::new(Route::Crosslane);
    let connects = "near = socket.create_connection(listener.getsockname())";
    let in_a_set = "near = socket.socket()
import select
epoll = select.epoll()
epoll.register(near, select.EPOLLIN | select.EPOLLEXCLUSIVE)
near.connect(listener.getsockname())";
    let run = host.program(PYTHON).explained("told");
    run.args(["-c", &TWO_ENDS.replace(connects, in_a_set)])
        .run();
    let (ends, _) = told(&host, "told");
    let early = ends.iter().filter(|end| end["reason"] == "epoll-early");
    assert_eq!((early.count(), ends.len()), (1, 2), "{ends:#?}");
}

#[test]
fn ends_of_af_unix_are_named_by_their_inodes() {
    const PARENT_AND_CHILD: &str = r#"
import os, socket
near, far = socket.socketpair()
names = ["unix:%d" % os.fstat(end.fileno()).st_ino for end in (near, far)]
child = os.fork()
end, other = (far, near) if child == 0 else (near, far)
other.close()
for _ in range(300):
    if child:
        end.sendall(b"word")
    assert end.recv(4) == b"word"
    if not child:
        end.sendall(b"word")
if child:
    os.waitpid(child, 0)
    print(*sorted(names))
"#;
    let host = Host::new(Route::Crosslane);
    let run = host.program(PYTHON).run_flag("--unix").explained("told");
    let said = run.args(["-c", PARENT_AND_CHILD]).run().text();
    let (ends, _) = told(&host, "told");
    let mut names: Vec<_> = ends
        .iter()
        .filter_map(|end| end["local"].as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(names.join(" "), said.trim_end(), "{ends:#?}");
    let is_accelerated = |end: &Value| end["state"] == "accelerated";
    assert!(ends.iter().all(is_accelerated), "{ends:#?}");
}

#[test]
fn who_has_too_many_connections_is_told_which_quota_to_raise() {
    let host = Host::without_monitor(Route::Crosslane).with_monitor_option("--ends-per-user", "0");
    host.start_monitor();
    let run = host.program(PYTHON).explained("told");
    run.args(["-c", TWO_ENDS]).run();
    let (ends, summary) = told(&host, "told");
    let is_told = |end: &Value| {
        let remedy = end["remedy"].as_str().unwrap_or_default();
        end["reason"] == "quota" && remedy.contains("--ends-per-user")
    };
    assert!(ends.len() == 2 && ends.iter().all(is_told), "{ends:#?}");
    assert_eq!(summary["reasons"], serde_json::json!({"quota": 2}));
}

const MULTIPATH: &str = r#"
import socket
MPTCP = 262
with socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP) as listener:
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    near = socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP)
    near.connect(listener.getsockname())
    far, _ = listener.accept()
    for _ in range(40):
        near.sendall(b"word")
        assert far.recv(100) == b"word"
        far.sendall(b"answer")
        assert near.recv(100) == b"answer"
"#;

#[test]
fn multipath_tcp_is_left_to_the_kernel_and_told() {
    let is_on = std::fs::read("/proc/sys/net/mptcp/enabled").is_ok_and(|on| on == b"1\n");
    if !is_on {
        return skipped("this kernel has no MPTCP, or net.mptcp.enabled is 0");
    }
    let host = Host::new(Route::Crosslane);
    host.program(PYTHON)
        .explained("told")
        .args(["-c", MULTIPATH])
        .run();
    let (ends, _) = told(&host, "told");
    let is_told = |end: &Value| end["reason"] == "option" && end["tcp_bytes_sent"] != 0;
    assert!(ends.len() == 2 && ends.iter().all(is_told), "{ends:#?}");
}

/// A program without Crosslane makes a connection, and passes it on.
const RECEIVED: &str = r#"
import subprocess
maker = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
socket.send_fds(socket.socket(fileno=int(sys.argv[2])), [b"it"], [connection.fileno()])
"""
near, far = socket.socketpair()
number = str(far.fileno())
subprocess.run([sys.executable, "-c", maker, sys.argv[1], number], pass_fds=[far.fileno()], env={}, check=True)
_, descriptors, *_ = socket.recv_fds(near, 100, 1)
ping(socket.socket(fileno=descriptors[0]), 500)
"#;

#[test]
fn a_connection_of_a_program_without_crosslane_is_told() {
    let host = Host::new(Route::Crosslane);
    let redis = Redis::start(&host, &[]);
    let (ends, ..) = ran(&host, &redis, RECEIVED);
    let is_told = |end: &Value| end["reason"] == "foreign" && end["tcp_bytes_sent"] == 3000;
    assert!(ends.len() == 1 && ends.iter().all(is_told), "{ends:#?}");
}

/// A connection of another process, taken by both ways there are.
const TAKEN: &str = r#"
import ctypes, errno
GETFD = 438
libc = ctypes.CDLL(None, use_errno=True)
told, tell = os.pipe()
child = os.fork()
if child == 0:
    kept = connect()
    ping_until_accelerated(kept)
    os.write(tell, b"%d" % kept.fileno())
    signal.pause()
number = int(os.read(told, 10))
of = os.pidfd_open(child)
taken = [libc.syscall(GETFD, of, number, 0), libc.pidfd_getfd(of, number, 0)]
if taken == [-1, -1] and ctypes.get_errno() == errno.EPERM:
    print("not permitted", flush=True)
else:
    for descriptor in taken:
        os.close(descriptor)
os.kill(child, signal.SIGTERM)
os.waitpid(child, 0)
"#;

#[test]
fn a_connection_that_is_taken_out_of_another_process_is_foreign_to_the_taker() {
    let host = Host::new(Route::Crosslane);
    let redis = Redis::start(&host, &[]);
    let (ends, _, said) = ran(&host, &redis, TAKEN);
    if said.contains("not permitted") {
        return skipped("pidfd_getfd is not permitted here");
    }
    let count = |of: &dyn Fn(&&Value) -> bool| ends.iter().filter(of).count();
    let foreign = count(&|end| end["reason"] == "foreign");
    let kept = count(&|end| end["ring_bytes_sent"].as_u64() > Some(0));
    assert_eq!((ends.len(), foreign, kept), (2, 1, 1), "{ends:#?}");
}

#[test]
fn a_file_alone_gets_the_table() {
    let host = Host::new(Route::Crosslane);
    let redis = Redis::start(&host, &[]);
    let told = host.folder().join("told");
    host.program(PYTHON)
        .run_option("--explain-to", told.to_str().expect("it is plain"))
        .args([
            "-c",
            &client("ping_until_accelerated(connect())"),
            &redis.port.to_string(),
        ])
        .run_talks();
    let text = std::fs::read_to_string(told).expect("it was told");
    assert!(text.contains("1 of 1 ends of connections"), "{text}");
}

/// One that was killed, one that has called `_exit`, and one that goes on in a child.
#[test]
fn nothing_is_lost_with_the_processes() {
    let host = Host::new(Route::Crosslane);
    let redis = Redis::start(&host, &[]);
    let script = r#"
def child(end):
    pid = os.fork()
    if pid == 0:
        ping_until_accelerated(connect())
        end()
    os.waitpid(pid, 0)
for _ in range(5):
    child(lambda: os.kill(os.getpid(), signal.SIGKILL))
    child(lambda: os._exit(0))
shared = connect()
before = ping_until_accelerated(shared)
child(lambda: (ping(shared, 500), os._exit(0)))
address = "%s:%d" % shared.getsockname()
print(address, before + 500)
"#;
    let (ends, summary, said) = ran(&host, &redis, script);
    assert_eq!(ends.len(), 12, "{ends:#?}");
    for end in &ends {
        assert!(end["ring_bytes_sent"].as_u64() > Some(0), "{end}");
        assert_eq!(end["ended"], true, "{end}");
    }
    let (address, pings) = said.split_once(' ').expect("two words");
    let shared = ends.iter().filter(|end| end["local"] == address);
    let sent = shared.map(|end| {
        end["ring_bytes_sent"].as_u64().unwrap() + end["tcp_bytes_sent"].as_u64().unwrap()
    });
    let all = 6 * number(pings);
    assert_eq!(sent.max(), Some(all), "what parent and child have sent");
    assert_eq!(
        (&summary["left_out"], &summary["open"]),
        (&0.into(), &0.into())
    );
}

/// A call that sleeps on a descriptor that is closed meanwhile, then another connection.
const OUTLIVING: &str = r#"
import os, select, socket, sys, threading, time

def pair():
    listener = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(listener.getsockname())
    far, _ = listener.accept()
    listener.close()
    return near, far

def poll(fd):
    sleeper = select.poll()
    sleeper.register(fd, select.POLLIN)
    sleeper.poll(500)

def write(fd):
    os.write(fd, bytes(MUCH))

MUCH = 16 << 20
call = {"read": lambda fd: os.read(fd, 100), "poll": poll, "write": write}[sys.argv[1]]
near, far = pair()
thread = threading.Thread(target=call, args=[near.fileno()])
thread.start()
time.sleep(0.2)
os.close(near.detach())
other = os.open("/dev/null", os.O_RDONLY)
client, server = pair()
if call is write:
    assert len(far.recv(MUCH, socket.MSG_WAITALL)) == MUCH
else:
    far.sendall(b"hello")
thread.join()

def talk():
    client.sendall(b"request")
    assert server.recv(7, socket.MSG_WAITALL) == b"request"
    server.sendall(b"answer")
    assert client.recv(6, socket.MSG_WAITALL) == b"answer"

before = talk_until_accelerated(client, talk)
for _ in range(1000):
    talk()
print(before + 1000)
"#;

/// The kernel keeps a socket for the call that sleeps on it; the entry goes to the next connection at once.
#[test]
fn a_call_that_outlives_its_descriptor_is_not_counted_with_the_next_connection() {
    for call in ["read", "poll", "write"] {
        let host = Host::new(Route::Crosslane);
        let said = host
            .program(PYTHON)
            .explained("told")
            .args(["-c", &format!("{TALK}{OUTLIVING}"), call])
            .run_talks()
            .text();
        let talks = number(&said);
        let (ends, _) = told(&host, "told");
        let long = ends.iter().filter(|end| end["state"] == "accelerated");
        let moved = long.map(|end| {
            let total =
                |ring: &str, tcp: &str| end[ring].as_u64().unwrap() + end[tcp].as_u64().unwrap();
            let sent = total("ring_bytes_sent", "tcp_bytes_sent");
            (sent, total("ring_bytes_received", "tcp_bytes_received"))
        });
        let mut moved: Vec<_> = moved.collect();
        moved.sort_unstable();
        let (requests, answers) = (7 * talks, 6 * talks);
        assert_eq!(
            moved,
            [(answers, requests), (requests, answers)],
            "{call}: {ends:#?}"
        );
    }
}

/// After a signal the kernel begins the call again by its number, and knows nothing of rings.
#[test]
fn a_number_by_which_a_call_still_sleeps_names_no_accelerated_connection() {
    let script = r#"
import ctypes, os, signal, socket, threading, time

def sleep():
    buffer = ctypes.create_string_buffer(100)
    count = libc.recv(number, buffer, 100, 0)
    got.append(buffer.raw[:count])

libc, got = ctypes.CDLL(None), []
signal.signal(signal.SIGUSR1, lambda *_: None)
signal.siginterrupt(signal.SIGUSR1, False)
listener = socket.create_server(("127.0.0.1", 0))
near = socket.create_connection(listener.getsockname())
far, _ = listener.accept()
number = near.fileno()
thread = threading.Thread(target=sleep)
thread.start()
time.sleep(0.2)
os.close(near.detach())
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
assert client.fileno() == number
for _ in range(200):
    client.sendall(b"request")
    assert server.recv(7, socket.MSG_WAITALL) == b"request"
    server.sendall(b"answer")
    assert client.recv(6, socket.MSG_WAITALL) == b"answer"
signal.pthread_kill(thread.ident, signal.SIGUSR1)
time.sleep(0.2)
server.sendall(b"hello")
thread.join()
assert got == [b"hello"], got
"#;
    let host = Host::new(Route::Crosslane);
    let run = host.program(PYTHON).explained("told");
    run.args(["-c", script]).run();
    let (ends, _) = told(&host, "told");
    assert!(ends.iter().any(|end| end["reason"] == "call"), "{ends:#?}");
}

#[test]
fn thousands_of_connections_take_few_rows() {
    let host = Host::new(Route::Crosslane);
    let redis = Redis::start(&host, &["--maxclients", "4000"]);
    let script = "
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
kept = [connect() for _ in range(1500)]
for connection in kept: ping(connection)
ping_until_accelerated(kept[0])
for _ in range(1000): ping(connect())
";
    let output = host
        .program(PYTHON)
        .run_option("--wait", "sleep")
        .run_flag("--explain")
        .args(["-c", &client(script), &redis.port.to_string()])
        .run_talks();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains("1 of 2500 ends of connections were accelerated"),
        "{text}"
    );
    assert!(text.contains("too-young (2499): "), "{text}");
    assert!(text.lines().count() < 8, "{text}");
    let row = text
        .lines()
        .find(|line| line.contains("2499") && line.contains("tcp"));
    assert!(row.is_some_and(|row| row.contains("127.0.0.1:*")), "{text}");
}

#[test]
fn the_program_ends_as_it_would_without() {
    let host = Host::new(Route::Crosslane);
    let run = |script: &str| {
        let shell = host.program("/bin/sh").explained("told");
        shell.args(["-c", script]).finish().status
    };
    assert_eq!(run("exit 3").code(), Some(3));
    assert_eq!(run("kill -SEGV $$").signal(), Some(11));
    // The parent passes it on.
    assert_eq!(run("kill -TERM $PPID; sleep 1000").signal(), Some(15));
    let (ends, summary) = told(&host, "told");
    assert_eq!((ends.len(), &summary["ends"]), (0, &0.into()));
    assert!(
        summary["note"]
            .as_str()
            .unwrap()
            .contains("no TCP connection")
    );
    let missing = host.program("/no/such/program").explained("told").finish();
    assert_eq!(missing.status.code(), Some(127));
}

#[test]
fn a_monitor_that_was_started_anew_is_told() {
    let host = Host::new(Route::Crosslane);
    let redis = Redis::start(&host, &[]);
    let script =
        client("ping(connect(), 500); print('done', flush=True); input(); ping(connect())");
    let mut process = host
        .program(PYTHON)
        .explained("told")
        .args(["-c", &script, &redis.port.to_string()])
        .with_open_input()
        .start();
    process.wait_for_log("done");
    host.kill_monitor();
    host.start_monitor();
    process.write_line("");
    let _output = process.finish().expect_success();
    let (_, summary) = told(&host, "told");
    assert!(
        summary["note"].as_str().unwrap().contains("started anew"),
        "{summary}"
    );
}
