//! Python: asyncio, and multiprocessing with its ways to hand sockets to workers.

use crosslane_testkit::{Host, Program, free_port, on_both_routes};

const PYTHON: &str = "/usr/bin/python3";

/// Echoes lengths and bodies.
const ASYNC_SERVER: &str = r#"
import asyncio, sys

async def serve(reader, writer):
    while True:
        try:
            length = int.from_bytes(await reader.readexactly(4), "big")
        except asyncio.IncompleteReadError:
            break
        body = await reader.readexactly(length)
        writer.write(length.to_bytes(4, "big") + body)
        await writer.drain()
    writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), limit=1 << 20)
    await server.serve_forever()

asyncio.run(main())
"#;

const ASYNC_CLIENT: &str = r#"
import asyncio, random, sys

async def talk(number):
    source = random.Random(number)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]), limit=1 << 20)
    for _ in range(40):
        body = source.randbytes(source.randrange(60000))
        writer.write(len(body).to_bytes(4, "big") + body)
        await writer.drain()
        assert await reader.readexactly(4) == len(body).to_bytes(4, "big")
        assert await reader.readexactly(len(body)) == body
    writer.close()
    await writer.wait_closed()

async def main():
    await asyncio.gather(*(talk(number) for number in range(32)))
    print("OK")

asyncio.run(main())
"#;

/// A manager that serves objects, workers that get accepted sockets by fork and by descriptors
/// over AF_UNIX, and connections of multiprocessing's own: `serve PORT METHOD`, `ask PORT`.
const WORKERS: &str = r#"
import hashlib, multiprocessing, random, socket, sys
from multiprocessing.managers import BaseManager

def work(connection):
    with connection:
        while length := connection.recv(4, socket.MSG_WAITALL):
            left, digest = int.from_bytes(length, "big"), hashlib.sha256()
            while left:
                part = connection.recv(min(left, 65536))
                digest.update(part)
                left -= len(part)
            connection.sendall(digest.digest())

class Sums:
    def sum(self, body):
        return hashlib.sha256(body).digest()

class Manager(BaseManager):
    pass

def serve(port, method):
    context = multiprocessing.get_context(method)
    listener = socket.create_server(("127.0.0.1", port))
    print("ready", flush=True)
    workers = []
    for _ in range(4):
        connection, _ = listener.accept()
        worker = context.Process(target=work, args=(connection,))
        worker.start()
        connection.close()
        workers.append(worker)
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0, worker.exitcode

def ask(port):
    source = random.Random(port)
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
    for _ in range(60):
        for connection in connections:
            body = source.randbytes(source.randrange(1, 100000))
            connection.sendall(len(body).to_bytes(4, "big") + body)
            answer = connection.recv(32, socket.MSG_WAITALL)
            assert answer == hashlib.sha256(body).digest()
    for connection in connections:
        connection.close()
    print("OK")

def manage(port):
    Manager.register("Sums", Sums)
    server = Manager(address=("127.0.0.1", port), authkey=b"key").get_server()
    print("ready", flush=True)
    server.serve_forever()

def use(port):
    Manager.register("Sums")
    manager = Manager(address=("127.0.0.1", port), authkey=b"key")
    manager.connect()
    sums = manager.Sums()
    for length in range(0, 200000, 1000):
        body = random.randbytes(length)
        assert sums.sum(body) == hashlib.sha256(body).digest()
    print("OK")

if __name__ == "__main__":
    globals()[sys.argv[1]](int(sys.argv[2]), *sys.argv[3:])
"#;

/// A server that hears of several connections at once, each time after its client has written to some of them in an order of
/// its own: prints in how many of 1,000 rounds it was told another one.
const IN_ORDER: &str = r#"
import os, random, select, socket, sys

COUNT, ROUNDS = 12, 1000

def client(port, go, written):
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(COUNT)]
    for number, connection in enumerate(connections):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.send(bytes([number]))
    for _ in range(100):
        for connection in connections:
            connection.send(connection.recv(1))
    while os.read(go, 1):
        order = random.sample(range(COUNT), random.randint(2, COUNT))
        for number in order:
            connections[number].send(b"x")
        os.write(written, bytes([len(order), *order]))

def serve(listener, go, written):
    numbers, connections, epoll = {}, {}, select.epoll()
    for _ in range(COUNT):
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        fd = connection.fileno()
        numbers[fd], connections[fd] = connection.recv(1)[0], connection
        epoll.register(fd, select.EPOLLIN | select.EPOLLET)
    def hear(count):
        told = []
        while len(told) < count:
            for fd, _ in epoll.poll():
                connections[fd].recv(1)
                told.append(numbers[fd])
        return told
    for _ in range(100):
        for connection in connections.values():
            connection.send(b"y")
        hear(COUNT)
    wrong = 0
    for _ in range(ROUNDS):
        os.write(go, b"g")
        order = list(os.read(written, os.read(written, 1)[0]))
        wrong += hear(len(order)) != order
    print(wrong)

listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
(go, begin), (written, write) = os.pipe(), os.pipe()
if child := os.fork():
    os.close(go)
    serve(listener, begin, written)
    os.close(begin)
    os.waitpid(child, 0)
else:
    os.close(begin)
    client(int(sys.argv[1]), go, write)
"#;

fn asyncio_streams(host: &Host) {
    let port = free_port();
    let python = |script: &str| host.program(PYTHON).args(["-c", script, &port.to_string()]);
    let server = python(ASYNC_SERVER).start();
    server.wait_for_port(port);
    let witness = host.witness(port);
    assert_eq!(python(ASYNC_CLIENT).run().text(), "OK\n");
    witness.assert_ring_share(0.5);
    server.assert_running();
}

fn workers<'a>(host: &'a Host, words: &[&str], port: u16) -> Program<'a> {
    let file = host.file("workers.py", WORKERS);
    let program = host.program(PYTHON).arg(file).arg(words[0]);
    program.arg(port.to_string()).args(&words[1..])
}

fn accepted_sockets_go_to(host: &Host, method: &str) {
    let port = free_port();
    let server = workers(host, &["serve", method], port).start();
    server.wait_for_log("ready");
    let witness = host.witness(port);
    assert_eq!(workers(host, &["ask"], port).run().text(), "OK\n");
    let _ended = server.finish().expect_success();
    // Whether one that is sent as a descriptor is accelerated depends on when it is.
    if method == "fork" {
        witness.assert_ring_share(0.5);
    }
}

fn forked_workers(host: &Host) {
    accepted_sockets_go_to(host, "fork");
}

fn workers_that_are_sent_sockets(host: &Host) {
    accepted_sockets_go_to(host, "spawn");
}

fn a_manager_of_objects(host: &Host) {
    let port = free_port();
    let server = workers(host, &["manage"], port).start();
    server.wait_for_log("ready");
    let witness = host.witness(port);
    assert_eq!(workers(host, &["use"], port).run().text(), "OK\n");
    witness.assert_ring_share(0.5);
    server.assert_running();
}

fn in_the_order_in_which_they_were_written(host: &Host) {
    let port = free_port();
    let witness = host.witness(port);
    let program = host
        .program(PYTHON)
        .args(["-c", IN_ORDER, &port.to_string()]);
    let wrong: u32 = program.run().text().trim().parse().expect("a number");
    witness.assert_ring_share(0.5);
    // A connection that TCP has taken over from a reader without a processor tells nothing; without an order it is 850.
    assert!(wrong < 20, "{wrong} of 1000 in another order");
}

on_both_routes!(
    asyncio_streams,
    in_the_order_in_which_they_were_written,
    forked_workers,
    workers_that_are_sent_sockets,
    a_manager_of_objects,
);
