//! What libc writes and reads by itself, under names that programs rarely call: its bytes stand
//! between those that the program sends.

use crosslane_testkit::{Host, Route, free_port, on_both_routes};

const PYTHON: &str = "/usr/bin/python3";

/// Sends back what it gets: `PORT`.
const SERVER: &str = r#"
import socket, sys, threading
def echo(connection):
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.close()
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    while True:
        threading.Thread(target=echo, args=[listener.accept()[0]], daemon=True).start()
"#;

/// For each way: echoes, until the connection is accelerated, then bytes in that way between
/// others.
const CLIENT: &str = r#"
import ctypes, os, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.fdopen.restype = ctypes.c_void_p
libc.fputs.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
libc.fflush.argtypes = [ctypes.c_void_p]

class Arguments(ctypes.Structure):
    _fields_ = [("gp", ctypes.c_uint), ("fp", ctypes.c_uint), ("rest", ctypes.c_void_p), ("saved", ctypes.c_void_p)]

def vdprintf(fd):
    none = Arguments(48, 304, None, None)
    return libc["__vdprintf_chk"](fd, 1, b"bbbbb", ctypes.byref(none))

def aio(fd):
    AIOCB, FD, BUFFER, NOTIFY, SIGEV_NONE, EINPROGRESS = 168, 0, 16, 44, 1, 115
    bytes = ctypes.create_string_buffer(b"bbbbb", 5)
    request = ctypes.create_string_buffer(AIOCB)
    struct.pack_into("<i", request, FD, fd)
    struct.pack_into("<QQ", request, BUFFER, ctypes.addressof(bytes), 5)
    struct.pack_into("<i", request, NOTIFY, SIGEV_NONE)
    assert libc.aio_write(request) == 0
    while libc.aio_error(request) == EINPROGRESS:
        time.sleep(0.001)
    return libc.aio_return(request)

def stdout(fd):
    libc.fflush(None)
    saved = os.dup(1)
    os.dup2(fd, 1)
    written = libc.printf(b"bbbbb")
    libc.fflush(None)
    os.dup2(saved, 1)
    return written

ways = {
    "__send": lambda fd: libc["__send"](fd, b"bbbbb", 5, 0),
    "__write": lambda fd: libc["__write"](fd, b"bbbbb", 5),
    "dprintf": lambda fd: libc.dprintf(fd, b"bbbbb"),
    "__vdprintf_chk": vdprintf,
    "aio_write": aio,
    "printf": stdout,
    "fputs": None,
    "__read": lambda fd: libc.send(fd, b"bbbbb", 5, 0),
}
for name, way in ways.items():
    with socket.socket() as connection:
        connection.settimeout(20)
        if name == "fputs":
            stream = libc.fdopen(connection.fileno(), b"r+")
        connection.connect(("127.0.0.1", int(sys.argv[1])))
        for _ in range(400):
            connection.sendall(b"ping")
            assert connection.recv(4, socket.MSG_WAITALL) == b"ping"
        connection.sendall(b"aaaaa")
        if name == "fputs":
            libc.fputs(b"bbbbb", stream)
            libc.fflush(stream)
        else:
            assert way(connection.fileno()) == 5, name
        connection.sendall(b"ccccc")
        got = b""
        if name == "__read":
            connection.setblocking(True)
            bytes = ctypes.create_string_buffer(15)
            length = libc["__read"](connection.fileno(), bytes, 15)
            got = bytes.raw[:length]
        while len(got) < 15:
            got += connection.recv(15 - len(got))
        assert got == b"aaaaabbbbbccccc", (name, got)
print("OK")
"#;

fn ways_of_libc(host: &Host) {
    let port = free_port();
    let server = host.program(PYTHON).args(["-c", SERVER, &port.to_string()]);
    let server = server.start();
    server.wait_for_port(port);
    let client = host.program(PYTHON).args(["-c", CLIENT, &port.to_string()]);
    assert_eq!(client.run().text(), "OK\n");
    server.assert_running();
    if host.route() == Route::Crosslane {
        let by_ring = host.stats().count("ring_bytes_sent");
        assert!(by_ring >= 8 * 1000, "only {by_ring} bytes went by a ring");
    }
}

on_both_routes! { ways_of_libc }
