//! Epoll sets that a process has from its parent: who uses one alone keeps its connections in their rings.

use crosslane_testkit::{End, Host, Route, wait_until};

use crate::talk::{PYTHON, Talk};

/// Serves one connection by a set; at the line `on`, what `{THEN}` says becomes of both.
const SERVER: &str = r#"
import os, select, socket, sys, time

listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
sys.stdin.readline()
connection = listener.accept()[0]
connection.setblocking(False)
epoll = select.epoll()
epoll.register(connection, select.EPOLLIN)
control = select.epoll()
control.register(0, select.EPOLLIN)

def answer(timeout=None):
    for fd, events in epoll.poll(timeout):
        try:
            data = connection.recv(65536)
        except BlockingIOError:
            # The other one has been told, too.
            continue
        if not data:
            os._exit(0)
        connection.sendall(data)

def serve():
    while True:
        answer()

def until_told():
    while not control.poll(0):
        answer(0.01)
    sys.stdin.readline()

until_told()
{THEN}
"#;

/// What leaves one process with the set.
const LEFT_TO_ONE: [&str; 3] = [
    // The parent has not used it since, and waits for its child.
    "
if os.fork() == 0:
    print('over', flush=True)
    serve()
os.wait()
",
    // A child has used it, and ends while a child of its own goes on.
    "
if os.fork() == 0:
    answer(0)
    parent = os.getpid()
    if os.fork() == 0:
        while os.getppid() == parent:
            time.sleep(0.01)
        print('over', flush=True)
        serve()
    answer(0)
    os._exit(0)
os.wait()
sys.stdin.readline()
",
    // The child has used it, and has ended.
    "
child = os.fork()
if child == 0:
    answer(0)
    os._exit(0)
os.waitpid(child, 0)
print('over', flush=True)
serve()
",
];

#[test]
fn a_set_that_one_process_goes_on_with_keeps_its_connections_in_their_rings() {
    for then in LEFT_TO_ONE {
        let host = Host::new(Route::Crosslane);
        let mut talk = Talk::with_server(&host, &SERVER.replace("{THEN}", then));
        talk.go();
        talk.open();
        talk.wait_for_accelerated(&host, 2);
        talk.server.write_line("on");
        assert_eq!(talk.server.next_line().as_deref(), Some("over"), "{then}");
        talk.wait_for_words(1000);
        assert_eq!(talk.accelerated_ends(&host), 2, "{then}");
        let stats = host.stats();
        assert_eq!(stats.reason_count("epoll-shared"), 0, "{then}: {stats:?}");
        talk.close();
    }
}

#[test]
fn a_set_that_two_living_processes_use_leaves_its_connections_to_tcp() {
    const BOTH: &str = "
child = os.fork()
serve()
";
    let host = Host::new(Route::Crosslane);
    let mut talk = Talk::with_server(&host, &SERVER.replace("{THEN}", BOTH));
    talk.go();
    talk.open();
    talk.wait_for_accelerated(&host, 2);
    talk.server.write_line("on");
    wait_until("the connection to be left to TCP", || {
        let ends = host.ends();
        ends.iter()
            .any(|end| end.reason.as_deref() == Some("epoll-shared"))
            .then_some(())
    });
    talk.wait_for_words(100);
    assert_eq!(talk.accelerated_ends(&host), 0);
    talk.close();
}

/// A thread sleeps in a set, a child begins to use the set, and only then does the connection in it come to have rings, by what
/// another thread sends.
const ASLEEP_MEANWHILE: &str = r#"
import os, select, socket, sys, threading, time

epoll = select.epoll()
asked, ask = os.pipe()
answered, answer = os.pipe()
if os.fork() == 0:
    while os.read(asked, 1) == b"?":
        epoll.poll(0)
        os.write(answer, b"!")
    os._exit(0)

listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server = listener.accept()[0]
epoll.register(server, select.EPOLLIN)
heard = threading.Event()

def sleeper():
    if epoll.poll(20) == [(server.fileno(), select.EPOLLIN)]:
        heard.set()

thread = threading.Thread(target=sleeper)
thread.start()
time.sleep(0.2)
os.write(ask, b"?")
os.read(answered, 1)
for _ in range(1000):
    server.sendall(b"word")
    client.recv(4, socket.MSG_WAITALL)
    time.sleep(0.0005)
client.sendall(b"word")
print("heard", heard.wait(5), flush=True)
sys.stdin.readline()
os.write(ask, b".")
os.wait()
"#;

#[test]
fn who_sleeps_in_a_set_of_two_is_woken_though_its_connection_could_be_accelerated_meanwhile() {
    let host = Host::new(Route::Crosslane);
    let program = host.program(PYTHON).args(["-c", ASLEEP_MEANWHILE]);
    let mut program = program.with_open_input().start();
    assert_eq!(program.next_line().as_deref(), Some("heard True"));
    let ends = host.ends();
    let is_left = |end: &End| end.reason.as_deref() == Some("epoll-shared");
    assert!(ends.iter().any(is_left), "{ends:?}");
    program.write_line("over");
    assert!(program.finish().status.success());
}
