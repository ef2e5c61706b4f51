//! Programs that write garbage into the memory that they share with a peer: the peer's connection
//! with them is reset at worst, and its others go on.

use crosslane_testkit::{Host, Route, wait_until};

use crate::talk::{PYTHON, Talk};

/// Talks to an echo server until it has the memory of a ring, then writes random bytes all over that
/// memory while it sends and receives: `PORT SEED`.
const SCRIBBLER: &str = r#"
import ctypes, random, re, socket, sys, time

chance = random.Random(int(sys.argv[2]))
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.settimeout(0.2)

def arenas():
    for line in open("/proc/self/maps"):
        if "memfd:crosslane-arena" in line:
            first, end = (int(address, 16) for address in re.match("(\\w+)-(\\w+)", line).groups())
            yield first, end - first

def talk():
    try:
        connection.sendall(bytes(300))
        while connection.recv(65536):
            pass
    except OSError:
        pass

# A monitor that gets no processor is late.
deadline = time.monotonic() + 60
while not list(arenas()):
    assert time.monotonic() < deadline, "no ring"
    connection.sendall(b"word")
    assert len(connection.recv(4, socket.MSG_WAITALL)) == 4
for _ in range(20):
    for first, length in arenas():
        if chance.random() < 0.5:
            ctypes.memset(first, chance.randrange(256), length)
        else:
            for _ in range(2000):
                ctypes.memset(first + chance.randrange(min(length, 1 << 16)), chance.randrange(256), 1)
    talk()
print("scribbled")
"#;

#[test]
fn a_peer_that_scribbles_harms_its_own_connection_only() {
    let host = Host::new(Route::Crosslane);
    let mut talk = Talk::begin(&host);
    talk.go();
    talk.open();
    talk.wait_for_accelerated(&host, 2);
    for seed in 0..6 {
        let port = talk.port.to_string();
        let scribbler = host
            .program(PYTHON)
            .args(["-c", SCRIBBLER, &port, &seed.to_string()]);
        assert_eq!(scribbler.run().text(), "scribbled\n");
        talk.server.assert_running();
    }
    wait_until("lies to be noticed", || {
        (host.stats().count("peer_lies") > 0).then_some(())
    });
    assert!(host.stats().reason_count("peer-lied") > 0);
    talk.wait_for_words(400);
    assert_eq!(talk.accelerated_ends(&host), 2);
    talk.close();
    talk.end();
}
