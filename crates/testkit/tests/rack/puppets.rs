//! Two programs that do what they are told, one call at a time, at both ends of one connection.

use crosslane_testkit::rack::{ADDRESSES, Rack};
use crosslane_testkit::{End, Process, wait_or_tell};

pub const PORT: u16 = 6703;

/// `send N` bytes, `receive N`, or look (`try`) whether there are some; `close`, `shutdown`, `kill`; `read` to the end of
/// the stream and say what it was, behind how many bytes; become a program that does that knowing of TCP alone (`exec`).
const PUPPET: &str = r#"
import os, signal, socket, sys
READ = """
import socket, sys
connection, count = socket.socket(fileno=int(sys.argv[1])), 0
print("ok", flush=True)
try:
    while data := connection.recv(512):
        count += len(data)
    print(count, "end", flush=True)
except ConnectionResetError:
    print(count, "reset", flush=True)
"""
role, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
if role == "server":
    listener = socket.create_server((address, port))
    connection = listener.accept()[0]
else:
    connection = socket.create_connection((address, port))
def receive(count):
    while count:
        count -= len(connection.recv(min(count, 512)))
def read():
    count = 0
    try:
        while data := connection.recv(512):
            count += len(data)
        return f"{count} end"
    except ConnectionResetError:
        return f"{count} reset"
for line in sys.stdin:
    word, count = (line.split() + ["0"])[:2]
    answer = "ok"
    if word == "send":
        connection.sendall(b"L" * int(count))
    if word == "receive":
        receive(int(count))
    if word == "try":
        try:
            connection.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            answer = "nothing"
    if word == "close":
        connection.close()
    if word == "shutdown":
        connection.shutdown(socket.SHUT_WR)
    if word == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "read":
        answer = read()
    if word == "exec":
        connection.set_inheritable(True)
        plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        os.execve(sys.executable, ["python3", "-c", READ, str(connection.fileno())], plain)
    print(answer, flush=True)
"#;

/// A server on alpha, and a client on beta.
pub struct Puppets {
    pub server: Process,
    pub client: Process,
}

fn puppet(rack: &Rack, at: usize, role: &str) -> Process {
    let puppet = rack.hosts[at].program("python3");
    puppet
        .args(["-c", PUPPET, role, ADDRESSES[0], &PORT.to_string()])
        .with_open_input()
        .start()
}

/// Have one do something, which is done when this returns.
pub fn tell(puppet: &mut Process, order: &str, answer: &str) {
    puppet.write_line(order);
    assert_eq!(puppet.next_line().as_deref(), Some(answer), "{order}");
}

impl Puppets {
    /// Two that have a connection, over which nothing has gone.
    pub fn new(rack: &Rack) -> Self {
        let server = puppet(rack, 0, "server");
        server.wait_for_port(PORT);
        let client = puppet(rack, 1, "client");
        Self { server, client }
    }

    /// There are lanes for both ends, and neither has come into them, which each does in its next call.
    pub fn deal_lanes(&mut self, rack: &Rack) {
        // Their last calls here are those in which they ask for lanes.
        for _ in 0..3 {
            tell(&mut self.client, "send 1", "ok");
            tell(&mut self.server, "receive 1", "ok");
            tell(&mut self.server, "send 1", "ok");
            tell(&mut self.client, "receive 1", "ok");
        }
        let is_dealt = |at: usize| rack.status(at)["hosts"][0]["connections"] == 1;
        let ends = || format!("{:#?}, {:#?}", rack.ends(0, PORT), rack.ends(1, PORT));
        let both = || (is_dealt(0) && is_dealt(1)).then_some(());
        wait_or_tell("lanes for both ends", both, ends);
    }

    /// Talk until all goes by the lanes.
    pub fn go_to_lanes(&mut self, rack: &Rack) {
        let is_fast = |at: usize| rack.ends(at, PORT).iter().any(End::is_accelerated);
        let ends = || format!("{:#?}, {:#?}", rack.ends(0, PORT), rack.ends(1, PORT));
        let talk = || {
            for _ in 0..50 {
                tell(&mut self.client, "send 1", "ok");
                tell(&mut self.server, "receive 1", "ok");
                tell(&mut self.server, "send 1", "ok");
                tell(&mut self.client, "receive 1", "ok");
            }
            (is_fast(0) && is_fast(1)).then_some(())
        };
        wait_or_tell("an accelerated connection", talk, ends);
    }
}
