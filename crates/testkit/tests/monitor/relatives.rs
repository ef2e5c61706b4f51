//! Programs whose relatives use a set that they have inherited, also for a moment only: they are told what the kernel tells.

use crosslane_testkit::{Host, Route};

use crate::talk::PYTHON;

/// A peer that talks, says a word or listens when it is told to, and how to have somebody do what another process waits for.
const PRELUDE: &str = r#"
import ctypes, errno, fcntl, os, resource, select, socket, struct, subprocess, sys, threading, time

IN = select.EPOLLIN
WORDS = 600
TALKER = '''
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as peer:
    for line in sys.stdin:
        word = line.strip()
        if word == "talk":
            for _ in range(int(sys.argv[2])):
                peer.sendall(b"word")
                assert peer.recv(4, socket.MSG_WAITALL) == b"word"
        elif word == "say":
            peer.sendall(b"word")
        elif word == "hear":
            peer.recv(1)
        if word != "hear":
            print(word, flush=True)
'''

listener = socket.create_server(("127.0.0.1", 0))
epoll = select.epoll()

class Peer:
    def __init__(self):
        talker = [sys.executable, "-c", TALKER, str(listener.getsockname()[1]), str(WORDS)]
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process = subprocess.Popen(talker, **pipes)
        self.socket = listener.accept()[0]

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def say(self):
        self.tell("say")
        self.process.stdout.readline()

    def talk(self, fd=None):
        self.tell("talk")
        for _ in range(WORDS):
            if fd is not None:
                assert epoll.poll(5) == [(fd, IN)]
            self.socket.sendall(self.socket.recv(4, socket.MSG_WAITALL))
        self.process.stdout.readline()
        time.sleep(0.1)

class Line:
    def __init__(self):
        self.ends = os.pipe()

    def pull(self):
        os.write(self.ends[1], b"!")

    def wait(self):
        os.read(self.ends[0], 1)

def child(act):
    pid = os.fork()
    if pid == 0:
        act()
        sys.stdout.flush()
        os._exit(0)
    return pid

def tried(act, *arguments):
    try:
        act(*arguments)
        print("works", flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)

def touch():
    a, b = os.pipe()
    epoll.register(a, IN)
    epoll.unregister(a)

def restrict(forbidden):
    libc = ctypes.CDLL(None)
    lines = [struct.pack("HBBI", 0x20, 0, 0, 0)]
    for call in forbidden:
        lines += [struct.pack("HBBI", 0x15, 0, 1, call), struct.pack("HBBI", 0x06, 0, 0, 0x80000000)]
    lines.append(struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000))
    filter = ctypes.create_string_buffer(b"".join(lines))
    program = struct.pack("HxxxxxxQ", len(lines), ctypes.addressof(filter))
    program = ctypes.create_string_buffer(program)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(program)), 0, 0) == 0
"#;

/// Fail unless a program does under Crosslane what it does without. The library has had its connections in rings, or kept them from
/// there as two processes use their set.
fn assert_alike(program: &str) {
    let script = format!("{PRELUDE}\n{program}");
    let said = |host: &Host| {
        let program = host.program(PYTHON).args(["-c", &script]);
        program.run().text()
    };
    let host = Host::new(Route::Crosslane);
    assert_eq!(said(&host), said(&Host::new(Route::Tcp)));
    let stats = host.stats();
    let has_kept = stats.reason_count("epoll-shared") > 0;
    assert!(stats.count("upgrades") > 0 || has_kept, "{stats:?}");
}

#[test]
fn what_was_closed_before_it_was_a_connection_is_in_no_set() {
    assert_alike(
        r#"
gone = socket.create_server(("127.0.0.1", 0))
epoll.register(gone, IN)
number = gone.fileno()
gone.close()
peer = Peer()
peer.talk()
peer.say()
os.waitpid(child(touch), 0)
print(epoll.poll(0.2), peer.socket.fileno() == number)
tried(epoll.register, peer.socket, IN)
print(len(epoll.poll(5)))
"#,
    );
}

#[test]
fn what_a_child_has_deleted_before_it_was_a_connection_can_be_added() {
    assert_alike(
        r#"
near = socket.socket()
epoll.register(near, IN)
os.waitpid(child(lambda: epoll.unregister(near)), 0)
near.connect(listener.getsockname())
far = listener.accept()[0]
tried(epoll.register, near, IN)
far.sendall(b"word")
print(len(epoll.poll(5)))
peer = Peer()
epoll.register(peer.socket, IN)
peer.talk()
"#,
    );
}

#[test]
fn what_a_child_has_deleted_is_told_of_no_more() {
    assert_alike(
        r#"
peers = [Peer(), Peer()]
for peer in peers:
    epoll.register(peer.socket, IN)
    peer.talk(peer.socket.fileno())
epoll.unregister(peers[1].socket)
def delete():
    epoll.unregister(peers[0].socket)
    epoll.close()
os.waitpid(child(delete), 0)
peers[1].socket.close()
peers[0].say()
print(epoll.poll(0.2))
tried(epoll.register, peers[0].socket, IN)
print(len(epoll.poll(5)))
"#,
    );
}

/// It has come into rings while the set was another process's.
#[test]
fn what_stands_in_memory_unknown_to_its_set_is_told_of() {
    assert_alike(
        r#"
ask, answer = Line(), Line()
def use():
    ask.wait()
    epoll.poll(0)
    answer.pull()
    ask.wait()
user = child(use)
peer = Peer()
epoll.register(peer.socket, IN)
os.waitpid(child(lambda: None), 0)
ask.pull()
answer.wait()
peer.talk()
peer.say()
print(len(epoll.poll(5)), peer.socket.recv(9))
ask.pull()
os.waitpid(user, 0)
"#,
    );
}

#[test]
fn a_child_that_restricts_itself_before_it_uses_a_set_is_told() {
    const CALLS: &str = "[7, 271, 441, 55, 62, 257, 35, 230]";
    for forbidden in ["[]", CALLS] {
        assert_alike(&format!(
            r#"
peer = Peer()
epoll.register(peer.socket, IN)
peer.talk(peer.socket.fileno())
go = Line()
def wait():
    restrict({forbidden})
    go.wait()
    print(len(epoll.poll(5)), peer.socket.recv(9))
waiting = child(wait)
peer.socket.close()
time.sleep(0.3)
peer.say()
go.pull()
print(os.waitpid(waiting, 0)[1])
"#
        ));
    }
}

#[test]
fn a_process_whose_child_uses_its_set_though_restricted_is_told() {
    assert_alike(
        r#"
def use():
    restrict([])
    until = time.monotonic() + 2
    while time.monotonic() < until:
        for _, events in epoll.poll(0.001):
            assert events == IN
user = child(use)
peer = Peer()
epoll.register(peer.socket, IN)
peer.talk(peer.socket.fileno())
print(os.waitpid(user, 0)[1])
for _ in range(WORDS):
    peer.socket.sendall(b"word")
"#,
    );
}

/// The one that waits has the connection by a second number, or by one beyond what the limit allowed when it forked; its child,
/// which uses the set, too, has it not.
#[test]
fn who_alone_has_a_connection_is_told() {
    const LATE: &str = r#"
peer.socket = other(peer.socket)
epoll.register(peer.socket, IN)
number = peer.socket.fileno()
peer.talk(number)
"#;
    const NAMELESS: &str = r#"
first = peer.socket
epoll.register(first, IN)
number = first.fileno()
peer.socket = other(first)
peer.talk(number)
first.close()
"#;
    for names in [LATE, NAMELESS] {
        assert_alike(&format!(
            r#"
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
use = Line()
def wait():
    use.wait()
    epoll.poll(0)
    time.sleep(0.2)
    epoll.poll(2)
user = child(wait)
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
def other(socket_):
    return socket.socket(fileno=fcntl.fcntl(socket_.fileno(), fcntl.F_DUPFD_CLOEXEC, 100))
peer = Peer()
{names}
peer.tell("hear")
time.sleep(0.1)
peer.socket.sendall(b"x")
use.pull()
def say_later():
    time.sleep(1)
    peer.say()
threading.Thread(target=say_later).start()
begun = time.monotonic()
print(epoll.poll(6) == [(number, IN)], time.monotonic() - begun < 4)
os.waitpid(user, 0)
"#
        ));
    }
}

#[test]
fn who_watches_a_set_that_a_child_uses_by_another_set_is_told() {
    assert_alike(
        r#"
use, used = Line(), Line()
def serve():
    peer = Peer()
    use.wait()
    epoll.register(peer.socket, IN)
    peer.talk(peer.socket.fileno())
    used.pull()
    time.sleep(0.3)
    peer.say()
    use.wait()
    peer.process.kill()
server = child(serve)
outer = select.epoll()
outer.register(epoll.fileno(), IN)
os.waitpid(child(lambda: None), 0)
use.pull()
used.wait()
print(len(outer.poll(5)))
use.pull()
os.waitpid(server, 0)
"#,
    );
}
