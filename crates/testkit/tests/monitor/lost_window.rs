//! Windows that are lost, with a monitor that does things in an order of the test's.

use crosslane_testkit::{Host, Process, Route, binary, free_port};

use crate::talk::PYTHON;

/// A monitor that does only what is said on standard input: `grant NAME NUMBER` gives the server or the
/// client lanes in the window of that number, `lose NUMBER` takes it away, and nothing of what ends tell each
/// other about that is passed on before `settle`. With `drop` the next remainder gets lost.
const MONITOR: &str = r#"
import os, socket, struct, sys, threading

REGISTER, RELEASE, POSITION, REMAINDER = 2, 3, 11, 12
REGISTERED, GRANT = 130, 131
TO_PEER = 137 - POSITION
folder, port = sys.argv[1], int(sys.argv[2])
windows, ends, positions, told = {}, {}, {}, set()
is_settling = is_dropping = False
other = {"server": "client", "client": "server"}

def put(line):
    # Whole, whatever other threads put.
    os.write(1, f"{line}\n".encode())

def tell(name, what):
    if what not in told:
        told.add(what)
        put(what)

def window(number):
    if number not in windows:
        windows[number] = os.open(f"{folder}/window-{number}", os.O_RDWR | os.O_CREAT)
        os.truncate(windows[number], 1 << 20)
    return windows[number]

def say(name, kind, body=b"", fds=[]):
    client, version, token = ends[name]
    socket.send_fds(client, [struct.pack("<4sHHQ", b"XLAN", version, kind, token) + body], fds)

def grant(name, number):
    lanes = struct.pack("<6IQQQ", number, 0, name == "client", 512, 1, 1, 0, number, 0)
    say(name, GRANT, lanes, [window(number)])

def heard(client, data, fds):
    global is_dropping
    _, version, kind, token = struct.unpack_from("<4sHHQ", data)
    body = data[16:]
    name = next((name for name, end in ends.items() if end[2] == token and end[0] is client), None)
    if kind == REGISTER:
        is_server = socket.socket(fileno=os.dup(fds[0])).getsockname()[1] == port
        name = "server" if is_server else "client"
        ends[name] = client, version, token
        say(name, REGISTERED)
        tell(name, f"{name} registered" + " anew" * (f"{name} released" in told))
    elif kind == RELEASE:
        tell(name, f"{name} released")
    elif kind == POSITION:
        positions[name] = body
        tell(name, f"{name} has left the window")
        if is_settling:
            say(other[name], POSITION + TO_PEER, body)
    elif kind == REMAINDER:
        first, end = struct.unpack_from("<QQ", body, 12)
        tell(name, f"{name} had {end - first} lines")
        if is_dropping and end > first:
            is_dropping = False
            tell(name, "a remainder is lost")
            return
        say(other[name], REMAINDER + TO_PEER, body, fds)

def serve(client):
    while True:
        data, fds, _, _ = socket.recv_fds(client, 4096, 4)
        if not data:
            return
        heard(client, data, fds)
        for fd in fds:
            os.close(fd)

def obey():
    global is_settling, is_dropping
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "grant":
            grant(rest[0], int(rest[1]))
        elif word == "lose":
            os.truncate(windows[int(rest[0])], 0)
        elif word == "drop":
            is_dropping = True
        else:
            is_settling = True
            for name, body in list(positions.items()):
                say(other[name], POSITION + TO_PEER, body)
        put("done")

listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(f"{folder}/monitor.sock")
listener.listen(16)
threading.Thread(target=obey, daemon=True).start()
put("listening")
while True:
    client = listener.accept()[0]
    threading.Thread(target=serve, args=(client,), daemon=True).start()
"#;

/// Sends and receives so many numbers at each line, which must be all from 0 on in order; `hear` receives
/// them in another thread, and `edges` when edge-triggered epoll says so.
const PROGRAM: &str = r#"
import os, select, socket, sys, threading
name, port = sys.argv[1], int(sys.argv[2])
if name == "server":
    connection = socket.create_server(("127.0.0.1", port)).accept()[0]
else:
    connection = socket.create_connection(("127.0.0.1", port))
sent = received = 0
poller = None
def receive_by_edges(count):
    global poller, received
    if poller is None:
        connection.setblocking(False)
        poller = select.epoll()
        poller.register(connection, select.EPOLLIN | select.EPOLLET)
    wanted = received + count
    while received < wanted:
        assert poller.poll(30), "no edge"
        try:
            while True:
                number = connection.recv(8)
                assert number == b"%08d" % received, (number, received)
                received += 1
        except BlockingIOError:
            pass
def receive(count):
    global received
    for _ in range(count):
        number = connection.recv(8, socket.MSG_WAITALL)
        assert number == b"%08d" % received, (number, received)
        received += 1
def put(line):
    os.write(1, f"{line}\n".encode())
def hear(count):
    receive(count)
    put("heard")
for line in sys.stdin:
    word, count = line.split()
    if word == "send":
        for _ in range(int(count)):
            connection.sendall(b"%08d" % sent)
            sent += 1
    elif word == "recv":
        receive(int(count))
    elif word == "edges":
        receive_by_edges(int(count))
    else:
        threading.Thread(target=hear, args=(int(count),), daemon=True).start()
    put("done")
"#;

/// The monitor, and both programs, whose ends are registered.
struct Scene {
    monitor: Process,
    server: Process,
    client: Process,
}

impl Scene {
    fn new(host: &Host) -> Self {
        let port = free_port().to_string();
        let monitor = host.plain(PYTHON).args(["-c", MONITOR]).arg(host.folder());
        let monitor = monitor.arg(&port).with_open_input().start();
        monitor.wait_for_log("listening");
        // Without the command, which would not put up with this monitor.
        let library = binary("libcrosslane.so");
        let start = |name: &str| {
            let program = host.program(PYTHON).args(["-c", PROGRAM, name, &port]);
            let program = program.env("LD_PRELOAD", library.to_str().expect("its name is text"));
            program.with_open_input().start()
        };
        let server = start("server");
        server.wait_for_port(port.parse().expect("it is a port"));
        let client = start("client");
        let mut scene = Self {
            monitor,
            server,
            client,
        };
        scene.talk(20);
        scene.monitor.wait_for_log("client registered");
        scene.monitor.wait_for_log("server registered");
        scene
    }

    fn talk(&mut self, count: u32) {
        talk(&mut self.client, &mut self.server, count);
        talk(&mut self.server, &mut self.client, count);
    }

    fn grant_both(&mut self, window: u32) {
        order(&mut self.monitor, &format!("grant server {window}"));
        order(&mut self.monitor, &format!("grant client {window}"));
    }

    /// Whether the monitor has heard this of both.
    fn are(&self, what: &str) -> bool {
        let log = self.monitor.log();
        let has_told = |name| log.contains(&format!("{name} {what}"));
        has_told("server") && has_told("client")
    }

    /// The server is ready for these lanes, but nobody is there with it.
    fn grant_server(&mut self, window: u32) {
        order(&mut self.monitor, &format!("grant server {window}"));
        talk(&mut self.server, &mut self.client, 20);
    }
}

fn order(process: &mut Process, line: &str) {
    process.write_line(line);
    let mut said = || process.next_line().expect("it goes on");
    while said() != "done" {}
}

fn talk(from: &mut Process, to: &mut Process, count: u32) {
    order(from, &format!("send {count}"));
    order(to, &format!("recv {count}"));
}

#[test]
fn nobody_begins_in_lanes_that_the_other_end_has_left_for_later_ones() {
    let host = Host::without_monitor(Route::Tcp);
    let mut scene = Scene::new(&host);
    scene.grant_server(1);
    scene.grant_server(2);
    order(&mut scene.monitor, "grant client 1");
    scene.talk(100);
    order(&mut scene.monitor, "grant client 2");
    scene.talk(100);
}

#[test]
fn what_stood_in_a_lost_window_comes_also_when_other_lanes_are_granted_first() {
    let host = Host::without_monitor(Route::Tcp);
    let mut scene = Scene::new(&host);
    scene.grant_server(1);
    order(&mut scene.monitor, "grant client 1");
    order(&mut scene.client, "send 300");
    order(&mut scene.monitor, "lose 1");
    order(&mut scene.client, "send 1");
    scene.monitor.wait_for_log("client has left the window");
    scene.monitor.wait_for_log("server has left the window");

    scene.grant_both(2);
    order(&mut scene.monitor, "settle");
    order(&mut scene.server, "recv 301");
    let log = scene.monitor.log();
    let lines = log.lines().find_map(|line| {
        let count = line.strip_prefix("client had ")?.strip_suffix(" lines")?;
        count.parse::<u32>().ok()
    });
    assert!(lines.is_some_and(|lines| lines > 290), "{log}");

    // It goes on, in the lanes of a later registration.
    while !scene.are("registered anew") {
        scene.talk(1);
    }
    scene.grant_both(3);
    for _ in 0..100 {
        scene.talk(5);
    }
}

#[test]
fn a_remainder_that_gets_lost_is_sent_again() {
    let host = Host::without_monitor(Route::Tcp);
    let mut scene = Scene::new(&host);
    scene.grant_both(1);
    scene.talk(100);
    order(&mut scene.client, "send 300");
    order(&mut scene.monitor, "drop");
    order(&mut scene.monitor, "lose 1");
    order(&mut scene.client, "send 1");
    order(&mut scene.monitor, "settle");
    order(&mut scene.server, "recv 301");
    scene.monitor.wait_for_log("a remainder is lost");
    while !scene.are("released") {
        scene.talk(1);
    }
}

#[test]
fn a_receive_that_is_under_way_goes_on_by_tcp_when_the_lanes_are_gone() {
    let host = Host::without_monitor(Route::Tcp);
    let mut scene = Scene::new(&host);
    scene.grant_both(1);
    scene.talk(100);
    order(&mut scene.server, "hear 20");
    order(&mut scene.monitor, "settle");
    order(&mut scene.monitor, "lose 1");
    // The server's other thread and the client find that both are on TCP, and let the lanes go.
    while !scene.are("released") {
        talk(&mut scene.server, &mut scene.client, 1);
    }
    order(&mut scene.client, "send 20");
    scene.server.wait_for_log("heard");
}

#[test]
fn edges_come_over_later_lanes_too() {
    let host = Host::without_monitor(Route::Tcp);
    let mut scene = Scene::new(&host);
    let by_edges = |scene: &mut Scene| {
        order(&mut scene.client, "send 1");
        order(&mut scene.server, "edges 1");
        talk(&mut scene.server, &mut scene.client, 1);
    };
    scene.grant_both(1);
    for _ in 0..100 {
        by_edges(&mut scene);
    }
    order(&mut scene.monitor, "settle");
    order(&mut scene.monitor, "lose 1");
    while !scene.are("registered anew") {
        by_edges(&mut scene);
    }
    scene.grant_both(2);
    for _ in 0..100 {
        by_edges(&mut scene);
    }
}
