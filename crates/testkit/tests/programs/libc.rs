//! What libc writes and reads by itself, and names and numbers that programs rarely call by: their
//! bytes stand between those that the program sends.

use crosslane_testkit::{Host, Route, TALK, free_port, on_both_routes};

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

/// What both clients begin a connection with.
const PING: &str = r#"
def ping(connection):
    connection.sendall(b"ping")
    assert connection.recv(4, socket.MSG_WAITALL) == b"ping"
"#;

/// For each way: echoes, until the connection is accelerated, then bytes in that way between
/// others.
const CLIENT: &str = r#"
import ctypes, os, platform, select, socket, struct, sys, termios, time
libc = ctypes.CDLL(None, use_errno=True)
SYS = {"x86_64": {"ioctl": 16, "select": 23, "pselect6": 270, "preadv2": 327, "pwritev2": 328}}.get(platform.machine(), {})
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

def vector(bytes):
    place = ctypes.addressof(bytes)
    return ctypes.create_string_buffer(struct.pack("<QQ", place, len(bytes.raw)))

def by_number(fd, name, bytes):
    last = ctypes.c_long(-1)
    return libc.syscall(SYS[name], fd, vector(bytes), ctypes.c_long(1), last, last, ctypes.c_long(0))

def pwritev2(fd):
    return by_number(fd, "pwritev2", ctypes.create_string_buffer(b"bbbbb", 5))

def preadv2(fd):
    bytes = ctypes.create_string_buffer(15)
    length = by_number(fd, "preadv2", bytes)
    return bytes.raw[:length]

def wait_by_number(fd):
    """All of them must see what has come."""
    masks = (ctypes.c_ulong * 16)()
    masks[fd // 64] = 1 << fd % 64
    time_left = (ctypes.c_long * 2)(10, 0)
    count = ctypes.c_long(fd + 1)
    assert libc.syscall(SYS["select"], count, masks, None, None, time_left) == 1, "select"
    assert masks[fd // 64] == 1 << fd % 64
    mask = (ctypes.c_ulong * 1)(0)
    packed = (ctypes.c_ulong * 2)(ctypes.addressof(mask), 8)
    assert libc.syscall(SYS["pselect6"], count, masks, None, None, time_left, packed) == 1, "pselect6"
    queued = ctypes.c_int(0)
    assert libc.syscall(SYS["ioctl"], fd, ctypes.c_long(termios.FIONREAD), ctypes.byref(queued)) == 0
    assert 0 < queued.value <= 15, queued

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
    "pwritev": lambda fd: os.pwritev(fd, [b"bbbbb"], -1, 0),
    "__read": lambda fd: libc.send(fd, b"bbbbb", 5, 0),
    "preadv": lambda fd: libc.send(fd, b"bbbbb", 5, 0),
}
if SYS:
    ways["SYS_pwritev2"] = pwritev2
    ways["SYS_preadv2"] = ways["SYS_select"] = ways["__read"]
for name, way in ways.items():
    with socket.socket() as connection:
        connection.settimeout(20)
        if name == "fputs":
            stream = libc.fdopen(connection.fileno(), b"r+")
        connection.connect(("127.0.0.1", int(sys.argv[1])))
        talk_until_accelerated(connection, lambda: ping(connection))
        for _ in range(400):
            ping(connection)
        connection.sendall(b"aaaaa")
        if name == "fputs":
            libc.fputs(b"bbbbb", stream)
            libc.fflush(stream)
        else:
            assert way(connection.fileno()) == 5, name
        connection.sendall(b"ccccc")
        got = b""
        connection.setblocking(True)
        if name == "SYS_select":
            wait_by_number(connection.fileno())
        if name == "SYS_preadv2":
            got = preadv2(connection.fileno())
        if name == "preadv":
            bytes = bytearray(15)
            got = bytes[:os.preadv(connection.fileno(), [bytes], -1)]
        if name == "__read":
            bytes = ctypes.create_string_buffer(15)
            length = libc["__read"](connection.fileno(), bytes, 15)
            got = bytes.raw[:length]
        while len(got) < 15:
            got += connection.recv(15 - len(got))
        assert got == b"aaaaabbbbbccccc", (name, got)
print("OK")
"#;

/// Leaves a connection with bytes in it to another program, in every way there is to become one.
const HEIR: &str = r#"
import ctypes, os, platform, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
SYS = {"x86_64": {"execve": 59, "execveat": 322}}.get(platform.machine(), {})
AT_FDCWD = -100
SHELL = b"/bin/sh"

def words(*words):
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)

ways = {
    "execve": lambda arguments, variables: libc.execve(SHELL, arguments, variables),
    "execveat": lambda arguments, variables: libc.execveat(AT_FDCWD, SHELL, arguments, variables, 0),
}
if SYS:
    ways["SYS_execve"] = lambda arguments, variables: libc.syscall(SYS["execve"], SHELL, arguments, variables)
    ways["SYS_execveat"] = lambda arguments, variables: libc.syscall(
        SYS["execveat"], AT_FDCWD, SHELL, arguments, variables, 0)

for name, way in ways.items():
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        connection.settimeout(20)
        talk_until_accelerated(connection, lambda: ping(connection))
        for _ in range(400):
            ping(connection)
        connection.sendall(b"0123456789")
        assert connection.recv(1, socket.MSG_PEEK) == b"0"
        connection.setblocking(True)
        child = os.fork()
        if child == 0:
            connection.set_inheritable(True)
            script = f"test $(head -c 10 <&{connection.fileno()}) = 0123456789 && echo heard >&{connection.fileno()}"
            way(words(b"sh", b"-c", script.encode()), words(b"PATH=/usr/bin:/bin"))
            os._exit(9)
        assert os.waitpid(child, 0)[1] == 0, name
        assert connection.recv(6, socket.MSG_WAITALL) == b"heard\n", name
print("OK")
"#;

fn talk(host: &Host, client: &str) {
    let port = free_port();
    let server = host.program(PYTHON).args(["-c", SERVER, &port.to_string()]);
    let server = server.start();
    server.wait_for_port(port);
    let client = format!("{TALK}{PING}{client}");
    let client = host
        .program(PYTHON)
        .args(["-c", &client, &port.to_string()]);
    assert_eq!(client.run_talks().text(), "OK\n");
    server.assert_running();
    if host.route() == Route::Crosslane {
        let by_ring = host.stats().count("ring_bytes_sent");
        assert!(by_ring >= 4 * 1000, "only {by_ring} bytes went by a ring");
    }
}

fn ways_of_libc(host: &Host) {
    talk(host, CLIENT);
}

fn ways_to_become_another_program(host: &Host) {
    talk(host, HEIR);
}

on_both_routes! { ways_of_libc, ways_to_become_another_program }
