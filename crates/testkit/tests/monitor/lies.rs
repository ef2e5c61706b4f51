//! Monitors that lie, hang or speak nonsense: connections stay on TCP, whole.

use crosslane_testkit::{Host, Process, Route, binary};

use crate::talk::{PYTHON, Talk};

/// Listens at `argv[1]` and misbehaves as `argv[2]` says.
const LIAR: &str = r#"
import fcntl, os, socket, struct, sys, threading, time

HELLO, REGISTER = 1, 2
WELCOME, REGISTERED, GRANT, REFUSED, RETIRE = 129, 130, 131, 132, 134
F_ADD_SEALS, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW = 1033, 1, 2, 4
how = sys.argv[2]

def memory(seals):
    fd = os.memfd_create("lie", os.MFD_ALLOW_SEALING)
    os.truncate(fd, 64 << 20)
    fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd

def serve(client):
    shared = memory(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
    while True:
        data, fds, _, _ = socket.recv_fds(client, 4096, 4)
        if not data:
            return
        for fd in fds:
            os.close(fd)
        magic, version, kind, token = struct.unpack_from("<IHHQ", data)
        def lanes(slot, role):
            return GRANT, 0, slot, role, 512, 4, 0, 0, 0, 0, 0, 0, 0
        def say(kind, *fields, fd=None, token=token, version=version, cut=None):
            message = struct.pack("<IHHQ", magic, version, kind, token)
            message += struct.pack("<%dI" % len(fields), *fields)
            socket.send_fds(client, [message[:cut]], [] if fd is None else [fd])
        if kind == HELLO and how == "garbage":
            client.send(b"garbage garbage garbage")
        elif kind == HELLO and how == "truncated":
            say(WELCOME, cut=9)
        elif kind == HELLO and how == "future":
            say(WELCOME, version=version + 1)
        elif kind == REGISTER and how != "silent":
            say(REGISTERED)
            if how == "no such slot":
                say(*lanes(9, 0), fd=shared)
            elif how == "no memory beside it":
                say(*lanes(0, 0))
            elif how == "memory that can shrink":
                say(*lanes(0, 0), fd=memory(F_SEAL_GROW))
            elif how == "memory of nobody else":
                say(*lanes(0, 0), fd=shared)
            elif how == "somebody else's end":
                say(*lanes(0, 0), fd=shared, token=token + (1 << 32))
                say(REFUSED, 4, token=token + 1)
            elif how == "no such reason":
                say(REFUSED, 999)
            elif how == "no such arena":
                say(RETIRE, 7)
            elif how == "twice":
                say(*lanes(0, 0), fd=shared)
                say(*lanes(1, 1))
                say(REFUSED, 5)
        if kind == (HELLO if how in ("garbage", "truncated", "future") else REGISTER):
            print("lied", flush=True)

listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(sys.argv[1])
listener.listen(16)
print("listening", flush=True)
while how == "deaf":
    print("lied", flush=True)
    time.sleep(1000)
while True:
    client = listener.accept()[0]
    if how == "hanging up":
        client.close()
        print("lied", flush=True)
        continue
    threading.Thread(target=serve, args=(client,), daemon=True).start()
"#;

/// What the liar does, and whether the library can tell that from slowness.
const LIES: [(&str, bool); 14] = [
    ("deaf", false),
    ("silent", false),
    ("hanging up", false),
    ("garbage", true),
    ("truncated", true),
    ("future", true),
    ("no such slot", true),
    ("no memory beside it", false),
    ("memory that can shrink", false),
    ("memory of nobody else", false),
    ("somebody else's end", false),
    ("no such reason", false),
    ("no such arena", false),
    ("twice", false),
];

fn start_liar(host: &Host, how: &str) -> Process {
    let socket = host.folder().join("monitor.sock");
    let liar = host.plain(PYTHON).args(["-c", LIAR]).arg(socket).arg(how);
    let liar = liar.start();
    liar.wait_for_log("listening");
    liar
}

#[test]
fn a_monitor_that_lies_or_hangs_costs_nothing_but_speed() {
    for (how, is_noticed) in LIES {
        let host = Host::without_monitor(Route::Tcp);
        let liar = start_liar(&host, how);
        // Without the command, which would not put up with this monitor.
        let library = binary("libcrosslane.so");
        let variables = [("LD_PRELOAD", library.to_str().expect("its name is text"))];
        let mut talk = Talk::with_both(&host, &variables);
        talk.go();
        talk.open();
        liar.wait_for_log("lied");
        talk.open();
        talk.wait_for_words(400);
        drop(liar.kill());
        // An honest one is told what was counted meanwhile, and serves the next connection.
        host.start_monitor();
        talk.open();
        talk.wait_for_words(50);
        crosslane_testkit::wait_until(&format!("what is counted of {how:?}"), || {
            let stats = host.stats();
            let is_counted = stats.count("control_errors") >= 2;
            (stats.count("connections") >= 6 && is_counted == is_noticed).then_some(())
        });
        for _ in 0..3 {
            talk.close();
        }
        talk.end();
    }
}
