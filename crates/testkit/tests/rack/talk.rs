//! A client on beta that talks to an echo on alpha.

use crosslane_testkit::rack::{ADDRESSES, Rack};
use crosslane_testkit::{End, Process, Program, wait_until};

/// Echoes on every connection.
const ECHO: &str = r#"
import socket, sys, threading
def serve(connection):
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.close()
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()
"#;

/// Says each line of its input 200 times over one connection, and checks the echoes; `new` opens
/// another connection first, and `sandbox` has the kernel end the program at any thread's ppoll(2).
const TALK: &str = r#"
import ctypes, socket, struct, sys
def connect():
    return socket.create_connection((sys.argv[1], int(sys.argv[2])))
def restrict():
    libc = ctypes.CDLL(None, use_errno=True)
    load, is_ppoll, kill, allow = (0x20, 0, 0, 0), (0x15, 0, 1, 271), (6, 0, 0, 0x80000000), (6, 0, 0, 0x7fff0000)
    code = b"".join(struct.pack("HBBI", *line) for line in (load, is_ppoll, kill, allow))
    code = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(code)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.syscall(317, 1, 1, program) == 0, ctypes.get_errno()
connection = connect()
for line in sys.stdin:
    if line.strip() == "new":
        connection = connect()
    if line.strip() == "sandbox":
        restrict()
    for number in range(200):
        said = f"{number} {line}".encode()
        connection.sendall(said)
        heard = b""
        while len(heard) < len(said):
            heard += connection.recv(65536)
        assert heard == said, (heard, said)
    print("ok", flush=True)
"#;

/// Where the echo listens.
pub const TALK_PORT: u16 = 6700;

/// A client, and the echo unless another client has it.
pub struct Talk<'a> {
    rack: &'a Rack,
    who: Who,
    client: Process,
    server: Option<Process>,
}

/// Where an echo listens, and which user it and its clients are, if not root.
#[derive(Clone, Copy)]
struct Who {
    port: u16,
    user: Option<u32>,
}

impl Who {
    fn start(self, rack: &Rack, at: usize, script: &str) -> Process {
        self.program(rack, at, script).start()
    }

    fn program<'a>(self, rack: &'a Rack, at: usize, script: &str) -> Program<'a> {
        let python = match self.user {
            None => rack.hosts[at].program("python3"),
            Some(user) => rack.hosts[at]
                .program("setpriv")
                .arg(format!("--reuid={user}"))
                .arg(format!("--regid={user}"))
                // Another python3 may be where only root can go.
                .args(["--clear-groups", "--", "/usr/bin/python3"]),
        };
        let python = python.args(["-c", script, ADDRESSES[0], &self.port.to_string()]);
        python.with_open_input()
    }
}

impl<'a> Talk<'a> {
    /// An echo on alpha, and a client on beta.
    pub fn new(rack: &'a Rack) -> Self {
        Self::at(rack, TALK_PORT, None)
    }

    /// The same at another port, and as another user, to whom the hosts' folders must be open.
    pub fn at(rack: &'a Rack, port: u16, user: Option<u32>) -> Self {
        let who = Who { port, user };
        Self::between(rack, who, |who| who.start(rack, 1, TALK))
    }

    /// As [`Talk::new`], with a client of which `crosslane run` tells, as JSON, in this file of its host's folder.
    pub fn explained(rack: &'a Rack, name: &str) -> Self {
        let (port, user) = (TALK_PORT, None);
        let client = |who: &Who| who.program(rack, 1, TALK).explained(name).start();
        Self::between(rack, Who { port, user }, client)
    }

    fn between(rack: &'a Rack, who: Who, client: impl FnOnce(&Who) -> Process) -> Self {
        let server = who.start(rack, 0, ECHO);
        server.wait_for_port(who.port);
        Self {
            rack,
            client: client(&who),
            who,
            server: Some(server),
        }
    }

    /// Have the client end, and wait for that.
    pub fn end(self) {
        let _ = self.client.finish().expect_success();
    }

    /// Another client of the same server.
    pub fn another(&self) -> Self {
        Self {
            rack: self.rack,
            who: self.who,
            client: self.who.start(self.rack, 1, TALK),
            server: None,
        }
    }

    /// Say `line` and hear it.
    pub fn go(&mut self, line: &str) {
        self.client.write_line(line);
        assert_eq!(self.client.next_line().as_deref(), Some("ok"));
    }

    /// Whether both hosts show an accelerated connection.
    pub fn is_accelerated(&self) -> bool {
        let is_fast = |at| {
            self.rack
                .ends(at, self.who.port)
                .iter()
                .any(End::is_accelerated)
        };
        is_fast(0) && is_fast(1)
    }

    /// Talk over new connections until one is accelerated.
    pub fn until_accelerated(&mut self) {
        wait_until("an accelerated connection", || {
            self.go("new");
            self.is_accelerated().then_some(())
        });
    }

    /// What `crosslane ss` says of the newest connection at a host.
    pub fn reason(&mut self, at: usize) -> String {
        wait_until("a reason", || {
            self.go("more");
            let ends = self.rack.ends(at, self.who.port);
            let mut reasons = ends.iter().filter_map(|end| end.reason.clone());
            reasons.find(|reason| reason != "too-young" && reason != "no-peer")
        })
    }

    /// Kill the client. Returns the echo.
    pub fn kill_client(self) -> Option<Process> {
        self.client.kill();
        self.server
    }
}
