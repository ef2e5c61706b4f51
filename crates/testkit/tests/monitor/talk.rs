//! A server and a client that talk for as long as a test wants, and check what they hear.

use crosslane_testkit::{Host, Process, Program, free_port};

/// Debian's own, as another one in PATH may be a script that starts it.
pub const PYTHON: &str = "/usr/bin/python3";

/// Echoes what it gets on each connection, but not before the line `go` on standard input.
const SERVER: &str = r#"
import socket, sys, threading

def echo(connection):
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.close()

listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
sys.stdin.readline()
while True:
    threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
"#;

/// `open` and `close` a connection by lines on standard input; on each that is open, count aloud
/// and compare the echo, a thousand times a second at most.
const CLIENT: &str = r#"
import os, socket, sys, threading, time

SHOUTS = 20

class Talk(threading.Thread):
    def __init__(self, port):
        super().__init__(daemon=True)
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.over = False
        self.count = 0
        # So many calls, none of which waits for the server.
        for _ in range(SHOUTS):
            self.socket.sendall(b"!")

    def hear(self, wanted):
        heard = b""
        while len(heard) < len(wanted):
            part = self.socket.recv(len(wanted) - len(heard))
            if not part:
                break
            heard += part
        if heard != wanted:
            print("heard", heard, "not", wanted, flush=True)
            os._exit(1)

    def run(self):
        self.hear(b"!" * SHOUTS)
        while not self.over:
            word = b"%08d" % self.count
            self.socket.sendall(word)
            self.hear(word)
            self.count += 1
            time.sleep(0.001)
        self.socket.close()

talks = []
for line in sys.stdin:
    if line == "open\n":
        talks.append(Talk(int(sys.argv[1])))
        talks[-1].start()
    elif line == "close\n":
        talk = talks.pop(0)
        talk.over = True
        talk.join()
    else:
        # Until the newest connection has exchanged so many words.
        while talks[-1].count < int(line):
            time.sleep(0.001)
    print(line.strip(), flush=True)
"#;

fn start(program: Program<'_>, script: &str, port: u16, variables: &[(&str, &str)]) -> Process {
    let program = program.args(["-c", script, &port.to_string()]);
    let program = variables
        .iter()
        .fold(program, |program, (name, value)| program.env(name, value));
    program.with_open_input().start()
}

/// Both programs.
pub struct Talk {
    pub server: Process,
    pub client: Process,
    pub port: u16,
}

impl Talk {
    /// Start both; nobody is connected and the server is silent.
    pub fn begin(host: &Host) -> Self {
        Self::begin_with(host, &[])
    }

    /// The same with variables in the client's environment.
    pub fn begin_with(host: &Host, variables: &[(&str, &str)]) -> Self {
        let port = free_port();
        let server = start(host.program(PYTHON), SERVER, port, &[]);
        let client = start(host.program(PYTHON), CLIENT, port, variables);
        Self::of(server, client, port)
    }

    /// The same with a server that knows nothing of Crosslane.
    pub fn with_plain_server(host: &Host, variables: &[(&str, &str)]) -> Self {
        let port = free_port();
        let server = start(host.plain(PYTHON), SERVER, port, &[]);
        let client = start(host.program(PYTHON), CLIENT, port, variables);
        Self::of(server, client, port)
    }

    /// The same with variables in the environment of both.
    pub fn with_both(host: &Host, variables: &[(&str, &str)]) -> Self {
        let port = free_port();
        let server = start(host.program(PYTHON), SERVER, port, variables);
        let client = start(host.program(PYTHON), CLIENT, port, variables);
        Self::of(server, client, port)
    }

    /// The same with another server, which says `listening`, too.
    pub fn with_server(host: &Host, script: &str) -> Self {
        let port = free_port();
        let server = start(host.program(PYTHON), script, port, &[]);
        let client = start(host.program(PYTHON), CLIENT, port, &[]);
        Self::of(server, client, port)
    }

    /// The same with a server that another program starts, which takes its command line last.
    pub fn with_server_under(host: &Host, starter: &str, arguments: &[&str]) -> Self {
        let port = free_port();
        let server = host.program(starter).args(arguments).arg(PYTHON);
        let server = start(server, SERVER, port, &[]);
        let client = start(host.program(PYTHON), CLIENT, port, &[]);
        Self::of(server, client, port)
    }

    fn of(mut server: Process, client: Process, port: u16) -> Self {
        assert_eq!(server.next_line().as_deref(), Some("listening"));
        Self {
            server,
            client,
            port,
        }
    }

    /// The server may answer now.
    pub fn go(&mut self) {
        self.server.write_line("go");
    }

    /// Begin one more connection.
    pub fn open(&mut self) {
        self.command("open");
    }

    /// End the oldest connection.
    pub fn close(&mut self) {
        self.command("close");
    }

    /// Wait until the newest connection has carried so many words, and back.
    pub fn wait_for_words(&mut self, count: u32) {
        self.command(&count.to_string());
    }

    fn command(&mut self, word: &str) {
        self.client.write_line(word);
        let heard = self.client.next_line();
        assert_eq!(heard.as_deref(), Some(word), "{}", self.client.log());
    }

    /// How many ends of its connections are accelerated.
    pub fn accelerated_ends(&self, host: &Host) -> usize {
        let ends = host.ends();
        let of_it = ends.iter().filter(|end| end.has_port(self.port));
        of_it.filter(|end| end.is_accelerated()).count()
    }

    /// Wait until so many ends are accelerated.
    pub fn wait_for_accelerated(&self, host: &Host, ends: usize) {
        crosslane_testkit::wait_until(&format!("{ends} accelerated ends"), || {
            self.client.assert_running();
            self.server.assert_running();
            (self.accelerated_ends(host) == ends).then_some(())
        });
    }

    /// Close what is open and see both programs end well.
    pub fn end(self) {
        let output = self.client.finish();
        assert!(output.status.success(), "{}", output.text());
        self.server.assert_running();
    }
}
