//! Real programs over AF_UNIX streams.

use crosslane_testkit::{Host, Process, Route, binary, is_root, skipped, wait_until};

/// Debian's own, as another one in PATH may be a script that starts it.
const PYTHON: &str = "/usr/bin/python3";

/// Parent and child over a socket pair, a socket file and an abstract name; descriptors among the words.
/// Each end is held by one process alone.
const PROGRAM: &str = r#"
import asyncio, multiprocessing, os, socket

ROUNDS = 500

def in_child(play):
    pid = os.fork()
    if pid == 0:
        play()
        os._exit(0)
    return lambda: os.waitpid(pid, 0)[1]

def pipes():
    ours, theirs = multiprocessing.Pipe()
    def play():
        ours.close()
        while (message := theirs.recv()) is not None:
            theirs.send(message)
    wait = in_child(play)
    theirs.close()
    for round in range(ROUNDS):
        ours.send((round, "x" * round))
        assert ours.recv() == (round, "x" * round)
    ours.send(None)
    assert wait() == 0
    try:
        ours.recv()
    except EOFError:
        print("pipes")

async def serve(path):
    over = asyncio.Event()
    async def answer(reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()
        over.set()
    server = await asyncio.start_unix_server(answer, path)
    await over.wait()

async def ask(path):
    for attempt in range(1000):
        try:
            reader, writer = await asyncio.open_unix_connection(path)
            break
        except OSError:
            await asyncio.sleep(0.01)
    for round in range(ROUNDS):
        writer.write(b"line %d\n" % round)
        await writer.drain()
        assert await reader.readline() == b"LINE %d\n" % round
    writer.close()

def tasks(path):
    wait = in_child(lambda: asyncio.run(serve(path)))
    asyncio.run(ask(path))
    assert wait() == 0
    print("tasks")

def receive(end, bytes):
    data, descriptors = b"", []
    while len(data) < bytes:
        more, passed, _, _ = socket.recv_fds(end, bytes - len(data), 4)
        data, descriptors = data + more, descriptors + passed
    return data, descriptors

def descriptors():
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\0crosslane-test-%d" % os.getpid())
    listener.listen()
    def play():
        end = socket.socket(socket.AF_UNIX)
        end.connect(listener.getsockname())
        for round in range(ROUNDS):
            out, into = os.pipe()
            os.write(into, b"%d" % round)
            end.sendall(b"before")
            if round % 5 == 0:
                assert socket.send_fds(end, [b"!"], [out]) == 1
            end.sendall(b"after")
            os.close(out), os.close(into)
            assert end.recv(1) == b"."
    wait = in_child(play)
    end, _ = listener.accept()
    for round in range(ROUNDS):
        passes = round % 5 == 0
        data, passed = receive(end, 12 if passes else 11)
        assert data == (b"before!after" if passes else b"beforeafter"), data
        assert len(passed) == passes
        for descriptor in passed:
            assert os.read(descriptor, 10) == b"%d" % round
            os.close(descriptor)
        end.sendall(b".")
    assert wait() == 0
    assert end.recv(1) == b""
    print("descriptors")

pipes()
tasks(os.getcwd() + "/tasks.socket")
descriptors()
"#;

/// A host whose programs have sent more by ring than by the kernel.
fn assert_by_ring(host: &Host) {
    let stats = host.stats();
    let (ring, kernel) = (
        stats.count("ring_bytes_sent"),
        stats.count("tcp_bytes_sent"),
    );
    assert!(
        ring > kernel,
        "{ring} bytes by ring, {kernel} by the kernel: {stats:?}"
    );
}

#[test]
fn python_talks_by_pairs_files_and_abstract_names() {
    let host = Host::new(Route::Crosslane);
    let program = host
        .program(PYTHON)
        .run_flag("--unix")
        .args(["-c", PROGRAM]);
    assert_eq!(program.run().text(), "pipes\ntasks\ndescriptors\n");
    assert_by_ring(&host);
}

/// As containers that share a socket file have them.
#[test]
fn programs_in_namespaces_of_their_own_are_accelerated() {
    if !is_root() {
        return skipped("only root may make namespaces and have the monitor enter them");
    }
    let host = Host::new(Route::Crosslane);
    let elsewhere = || {
        let unshare = host.program("unshare").run_flag("--unix");
        unshare
            .args(["--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child"])
            .args(["--mount-proc", "--"])
    };
    let program = elsewhere().args([PYTHON, "-c", PROGRAM]);
    assert_eq!(program.run().text(), "pipes\ntasks\ndescriptors\n");
    assert_by_ring(&host);

    let (_server, socket) = redis(&host);
    let client = elsewhere().args(["redis-benchmark", "-s", &socket]);
    client.args(["-t", "get", "-n", "20000", "-q"]).run();
    assert_eq!(host.stats().reason_count("namespace"), 0);
    assert_by_ring(&host);
}

#[test]
fn without_the_option_nothing_is_touched() {
    let host = Host::new(Route::Crosslane);
    let program = host.program(PYTHON).args(["-c", PROGRAM]);
    assert_eq!(program.run().text(), "pipes\ntasks\ndescriptors\n");
    assert_eq!(host.stats().count("connections"), 0);
}

/// A pair that a process has both ends of, as event loops do to wake themselves.
const OWN_PAIR: &str = r#"
import socket, sys
a, b = socket.socketpair()
for _ in range(100):
    a.send(b"x")
    assert b.recv(1) == b"x"
print("ready", flush=True)
sys.stdin.read()
"#;

#[test]
fn a_pair_in_one_process_stays_with_the_kernel() {
    let host = Host::new(Route::Crosslane);
    let program = host.program(PYTHON).run_flag("--unix");
    let mut program = program.args(["-c", OWN_PAIR]).with_open_input().start();
    assert_eq!(program.next_line().as_deref(), Some("ready"));
    let ends = host.ends();
    let reasons: Vec<_> = ends.iter().map(|end| end.reason.as_deref()).collect();
    assert_eq!(reasons, [Some("own-pair"), Some("own-pair")], "{ends:?}");
}

/// There is always a call inside the kernel, so that bytes are never at rest there to be counted.
#[test]
fn a_stream_that_never_rests_enters_the_rings() {
    for _ in 0..5 {
        let host = Host::new(Route::Crosslane);
        let program = || {
            host.program(binary("crosslane-sockbench"))
                .run_flag("--unix")
        };
        let address = format!("unix:{}/stream.socket", host.folder().display());
        let mut server = program().args(["server", "--listen", &address]).start();
        assert!(server.next_line().is_some(), "it says where it listens");
        program()
            .args(["client", "--connect", &address, "--case", "stream"])
            .args(["--bytes", "64", "--warmup", "0", "--measure", "300"])
            .run();
        assert_by_ring(&host);
    }
}

/// Redis, and its socket file.
fn redis(host: &Host) -> (Process, String) {
    let socket = host.folder().join("redis.socket");
    let socket = socket
        .to_str()
        .expect("a temporary folder has a plain name");
    let server = host.program("redis-server").run_flag("--unix");
    let server = server
        .args(["--port", "0", "--save", "", "--unixsocket", socket])
        .start();
    wait_until("the server's socket", || {
        std::os::unix::net::UnixStream::connect(socket).ok()
    });
    (server, socket.to_owned())
}

#[test]
fn redis_over_its_socket_file() {
    let host = Host::new(Route::Crosslane);
    let (_server, socket) = redis(&host);
    let commands: String = (0..500)
        .map(|index| format!("SET key {index}\nGET key\n"))
        .collect();
    let answers: String = (0..500).map(|index| format!("OK\n{index}\n")).collect();
    let client = |path| host.program(path).run_flag("--unix").args(["-s", &socket]);
    assert_eq!(client("redis-cli").input(commands).run().text(), answers);
    client("redis-benchmark")
        .args(["-t", "get,set", "-n", "20000", "-c", "10", "-q"])
        .run();
    assert_by_ring(&host);
}

/// As Docker's engine talks to its clients: HTTP over a socket file, with answers of known length, chunked ones of unknown
/// length, and connections that are taken over for a raw stream.
const ENGINE: &str = r#"
import http.server, json, socketserver, sys

class Engine(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return "local"

    def log_message(self, *_):
        pass

    def answer(self, status, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def do_GET(self):
        if self.path == "/logs":
            self.answer(200, Transfer_Encoding="chunked")
            for line in [b"line %d\n" % line for line in range(2000)] + [b""]:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
            return
        body = json.dumps({"path": self.path}).encode()
        self.answer(200, Content_Length=str(len(body)))
        self.wfile.write(body)

    def do_POST(self):
        if self.headers["Upgrade"] == "tcp":
            self.answer(101, Connection="Upgrade", Upgrade="tcp")
            while line := self.rfile.readline():
                self.wfile.write(line.upper())
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(201, Content_Length=str(len(body)))
        self.wfile.write(body[::-1])

class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

Server(sys.argv[1], Engine).serve_forever()
"#;

const ENGINES_CLIENT: &str = r#"
import http.client, json, socket, sys

class Local(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])

engine = Local("engine")
def ask(method, path, body=None):
    engine.request(method, path, body)
    return engine.getresponse().read()

for round in range(300):
    assert json.loads(ask("GET", f"/containers/{round}")) == {"path": f"/containers/{round}"}
layer = bytes(range(256)) * 20_000
assert ask("POST", "/load", layer) == layer[::-1]
for _ in range(3):
    assert ask("GET", "/logs") == b"".join(b"line %d\n" % line for line in range(2000))
engine.request("POST", "/attach", headers={"Connection": "Upgrade", "Upgrade": "tcp"})
assert engine.getresponse().status == 101
stream = engine.sock.makefile("rwb")
for round in range(300):
    stream.write(b"word %d\n" % round)
    stream.flush()
    assert stream.readline() == b"WORD %d\n" % round
engine.sock.shutdown(socket.SHUT_WR)
assert stream.read() == b""
print("all")
"#;

#[test]
fn http_over_a_socket_file_as_dockers_engine_has_it() {
    for route in [Route::Tcp, Route::Crosslane] {
        let host = Host::new(route);
        let socket = host.folder().join("engine.socket");
        let socket = socket
            .to_str()
            .expect("a temporary folder has a plain name");
        let program = |path| host.program(path).run_flag("--unix");
        let _engine = program(PYTHON).args(["-c", ENGINE, socket]).start();
        crosslane_testkit::wait_until("the engine's socket", || {
            std::os::unix::net::UnixStream::connect(socket).ok()
        });
        let client = program(PYTHON).args(["-c", ENGINES_CLIENT, socket]);
        assert_eq!(client.run().text(), "all\n");
        let curl = program("curl").args(["-sS", "--unix-socket", socket]);
        let pages: Vec<String> = (0..200)
            .map(|page| format!("http://engine/{page}"))
            .collect();
        let answers: String = (0..200)
            .map(|page| format!("{{\"path\": \"/{page}\"}}"))
            .collect();
        assert_eq!(curl.args(&pages).run().text(), answers);
        if route == Route::Crosslane {
            assert_by_ring(&host);
        }
    }
}
