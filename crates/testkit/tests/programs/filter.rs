//! A connection that becomes the standard streams of a filter, as inetd does it: libc's own streams
//! read and write it, past the library.

use crosslane_testkit::{Host, Route, TALK, free_port, on_both_routes};

const PYTHON: &str = "/usr/bin/python3";

/// Echoes messages until it is told that the connection is accelerated, and leaves it to a filter:
/// `PORT PROGRAM...`.
const SERVER: &str = r#"
import socket, subprocess, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    for _ in range(3):
        connection = listener.accept()[0]
        while (message := connection.recv(6, socket.MSG_WAITALL)) != b"begin\n":
            assert message
            connection.sendall(message)
        filter = subprocess.Popen(sys.argv[2:], stdin=connection, stdout=connection)
        connection.close()
        filter.wait()
"#;

const CLIENT: &str = r#"
import socket, sys
for _ in range(3):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        connection.settimeout(20)
        stream = connection.makefile("rb")
        def talk(number):
            line = b"%05d\n" % number
            connection.sendall(line)
            assert stream.readline() == line, number
        talk_until_accelerated(connection, lambda: talk(0))
        connection.sendall(b"begin\n")
        for number in range(300):
            talk(number)
        connection.shutdown(socket.SHUT_WR)
        assert stream.read() == b""
print("OK")
"#;

fn filters_of_libc(host: &Host) {
    for filter in [
        &["/usr/bin/stdbuf", "-oL", "/usr/bin/tr", "x", "x"][..],
        &["/usr/bin/sed", "-u", "s/x/x/"],
        &["/usr/bin/grep", "--line-buffered", "."],
    ] {
        let port = free_port();
        let server = host.program(PYTHON).args(["-c", SERVER, &port.to_string()]);
        let server = server.args(filter).start();
        server.wait_for_port(port);
        let client = format!("{TALK}{CLIENT}");
        let client = host
            .program(PYTHON)
            .args(["-c", &client, &port.to_string()]);
        assert_eq!(client.run_talks().text(), "OK\n", "{filter:?}");
        let _ = server.finish().expect_success();
    }
    if host.route() == Route::Crosslane {
        let by_ring = host.stats().count("ring_bytes_sent");
        assert!(by_ring > 0, "no connection was accelerated before");
    }
}

on_both_routes! { filters_of_libc }
