//! Ends of streams, of which TCP tells whatever has become of what stood before them in the window.

use std::time::{Duration, Instant};

use crosslane_testkit::rack::{ADDRESSES, Rack, can_run};
use crosslane_testkit::{End, Process, wait_until};

use crate::monitors;
use crate::puppets::{self, Puppets};
use crate::stalls;

const PORT: u16 = 6702;

/// Longer than programs bear with a monitor that says nothing.
const LATE: Duration = Duration::from_secs(3);

/// What a client sends last.
const LAST: usize = 8000;

/// Echoes, and prints how a connection has ended, behind how many bytes of the last message.
const SERVER: &str = r#"
import select, socket, sys
way, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
def receive(connection, waiter):
    while True:
        if waiter:
            waiter()
        while True:
            try:
                data = connection.recv(512)
            except BlockingIOError:
                break
            yield data
def waiter_for(connection):
    if way == "block":
        return None
    connection.setblocking(False)
    if way == "poll":
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        return poll.poll
    epoll = select.epoll()
    epoll.register(connection, select.EPOLLIN | select.EPOLLET)
    return epoll.poll
listener = socket.create_server((address, port))
while True:
    connection, last = listener.accept()[0], 0
    try:
        for data in receive(connection, waiter_for(connection)):
            last += data.count(b"L")
            if not data:
                print(last, "end", flush=True)
                break
            if b"L" not in data:
                connection.sendall(data)
    except ConnectionResetError:
        print(last, "reset", flush=True)
    connection.close()
"#;

/// `talk`: one round trip. `close`, `shutdown` and `kill`: sends the last message, and then that.
const CLIENT: &str = r#"
import os, signal, socket, sys, time
def connect():
    return socket.create_connection((sys.argv[1], int(sys.argv[2])))
connection = connect()
for line in sys.stdin:
    if line.strip() == "talk":
        connection.sendall(b"word")
        assert connection.recv(4) == b"word"
        print("ok", flush=True)
        continue
    # A doorbell that nobody needs any more may be on its way; the send takes it, and nobody else would.
    time.sleep(0.05)
    connection.sendall(b"L" * int(sys.argv[3]))
    if line.strip() == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if line.strip() == "close":
        connection.close()
    if line.strip() == "shutdown":
        connection.shutdown(socket.SHUT_WR)
    print("ended", flush=True)
"#;

fn server(rack: &Rack, way: &str) -> Process {
    let server = rack.hosts[0].program("python3");
    let server = server
        .args(["-c", SERVER, way, ADDRESSES[0], &PORT.to_string()])
        .start();
    server.wait_for_port(PORT);
    server
}

/// A client whose connection goes over the window.
fn client(rack: &Rack) -> Process {
    let client = rack.hosts[1].program("python3");
    let mut client = client
        .args(["-c", CLIENT, ADDRESSES[0], &PORT.to_string()])
        .arg(LAST.to_string())
        .with_open_input()
        .start();
    wait_until("an accelerated connection", || {
        for _ in 0..50 {
            client.write_line("talk");
            assert_eq!(client.next_line().as_deref(), Some("ok"));
        }
        let is_fast = |at| rack.ends(at, PORT).iter().any(End::is_accelerated);
        (is_fast(0) && is_fast(1)).then_some(())
    });
    client
}

/// The peer has sent and ended its stream before anybody knows that the window stands still. A peer that lives says
/// what is missing; otherwise the end is no end in good order.
#[test]
fn nothing_is_missing_without_an_error_from_a_window_that_stands_still() {
    if can_run() {
        end_while_it_stands_still(&stalls::mapped());
    }
}

/// The monitors hear of each other again before they give each other up.
#[test]
fn nothing_is_missing_without_an_error_where_a_monitor_is_late() {
    if !can_run() {
        return;
    }
    let rack = stalls::mapped();
    let mut stall = rack.stall();
    let mut server = server(&rack, "block");
    let mut client = client(&rack);
    stall.begin_in_silence(1);
    client.write_line("kill");
    assert_eq!(client.next_line(), None);
    std::thread::sleep(LATE);
    stall.speak();
    assert_eq!(server.next_line().as_deref(), Some("0 reset"));
}

/// End streams in every way, in a window that carries nothing, which nobody knows yet.
pub fn end_while_it_stands_still(rack: &Rack) {
    let mut stall = rack.stall();
    for way in ["block", "poll", "edge"] {
        let mut server = server(rack, way);
        for (how, expected) in [
            ("close", "0 reset".to_owned()),
            ("kill", "0 reset".to_owned()),
            ("shutdown", format!("{LAST} end")),
        ] {
            let mut client = client(rack);
            stall.begin_in_silence(1);
            client.write_line(how);
            let told = (how != "kill").then(|| "ended".to_owned());
            assert_eq!(client.next_line(), told);
            stall.speak();
            assert_eq!(server.next_line(), Some(expected), "{way}, {how}");
            client.kill();
            stall.end();
            rack.wait_for_window();
        }
        server.kill();
    }
}

/// Monitors that were started after the connections do not know in which window they are: that of who is told of the end, or
/// both.
#[test]
fn nothing_is_missing_without_an_error_where_the_monitors_are_new() {
    if !can_run() {
        return;
    }
    let rack = stalls::mapped();
    let mut stall = rack.stall();
    for new in [&[0][..], &[0, 1]] {
        let mut server = server(&rack, "block");
        for (how, expected) in [
            ("close", "0 reset".to_owned()),
            ("kill", "0 reset".to_owned()),
            ("shutdown", format!("{LAST} end")),
        ] {
            let mut client = client(&rack);
            monitors::renew(&rack, new, PORT);
            stall.begin_in_silence(1);
            client.write_line(how);
            let told = (how != "kill").then(|| "ended".to_owned());
            assert_eq!(client.next_line(), told);
            stall.speak();
            assert_eq!(server.next_line(), Some(expected), "{new:?}, {how}");
            client.kill();
            stall.end();
            rack.wait_for_window();
        }
        server.kill();
    }
}

/// The same of a peer that has come into its lane in that time, too, where it has never been seen.
#[test]
fn nothing_is_missing_without_an_error_of_a_peer_that_has_come_too_late() {
    if can_run() {
        enter_while_it_stands_still(&stalls::mapped());
    }
}

/// Come into a window that carries nothing, which nobody knows yet, and end the stream.
pub fn enter_while_it_stands_still(rack: &Rack) {
    let mut stall = rack.stall();
    // Where it has come into its lane after the call that sends, TCP has brought all, of which nobody can be sure.
    let resets = ["0 reset".to_owned(), format!("{LAST} reset")];
    for (how, expected) in [
        ("close", &resets[..]),
        ("kill", &resets),
        ("shutdown", &[format!("{LAST} end")]),
    ] {
        let mut puppets = Puppets::new(rack);
        puppets.deal_lanes(rack);
        puppets::tell(&mut puppets.client, "try", "nothing");
        stall.begin_in_silence(1);
        puppets::tell(&mut puppets.server, "try", "nothing");
        puppets::tell(&mut puppets.server, &format!("send {LAST}"), "ok");
        puppets.server.write_line(how);
        let told = (how != "kill").then(|| "ok".to_owned());
        assert_eq!(puppets.server.next_line(), told);
        stall.speak();
        puppets.client.write_line("read");
        let told = puppets.client.next_line().unwrap_or_default();
        assert!(expected.contains(&told), "{how}: {told}");
        stall.end();
        rack.wait_for_window();
    }
}

/// A program that knows nothing of lanes goes on with a socket, and the peer cannot see that.
#[test]
fn a_program_that_takes_over_a_socket_hears_all_from_a_window_that_stands_still() {
    if can_run() {
        exec_while_it_stands_still(&stalls::mapped());
    }
}

/// Become another program while the window carries nothing, which nobody knows yet, and while it carries all.
pub fn exec_while_it_stands_still(rack: &Rack) {
    let mut stall = rack.stall();
    for stands_still in [false, true] {
        let mut puppets = Puppets::new(rack);
        puppets.go_to_lanes(rack);
        if stands_still {
            stall.begin(1);
        }
        let since = Instant::now();
        puppets::tell(&mut puppets.server, "exec", "ok");
        println!("stands still: {stands_still}, exec: {:?}", since.elapsed());
        puppets::tell(&mut puppets.client, &format!("send {LAST}"), "ok");
        puppets::tell(&mut puppets.client, "close", "ok");
        let expected = Some(format!("{LAST} end"));
        assert_eq!(puppets.server.next_line(), expected, "{stands_still}");
        if stands_still {
            stall.end();
            rack.wait_for_window();
        }
    }
}

/// Nothing is in doubt where the window carries what is written, whoever ends the stream, and how.
#[test]
fn a_stream_ends_behind_all_its_bytes() {
    if can_run() {
        end_streams(&Rack::new());
    }
}

/// End streams in every way, in a window that carries all.
pub fn end_streams(rack: &Rack) {
    for way in ["block", "poll", "edge"] {
        let mut server = server(rack, way);
        for how in ["close", "kill", "shutdown"] {
            let mut client = client(rack);
            let since = Instant::now();
            client.write_line(how);
            let expected = Some(format!("{LAST} end"));
            assert_eq!(server.next_line(), expected, "{way}, {how}");
            println!("{way}, {how}: after {:?}", since.elapsed());
            client.kill();
        }
        server.kill();
    }
}

/// Monitors that were started after the connection do not know in which window it is.
#[test]
fn a_stream_ends_behind_all_its_bytes_also_where_the_monitors_are_new() {
    if !can_run() {
        return;
    }
    let rack = Rack::new();
    let mut server = server(&rack, "block");
    let mut client = client(&rack);
    monitors::renew(&rack, &[0, 1], PORT);
    let since = Instant::now();
    client.write_line("kill");
    assert_eq!(server.next_line(), Some(format!("{LAST} end")));
    println!("with new monitors: after {:?}", since.elapsed());
}

/// Where no monitor can say whether the window carries what is written, TCP is believed in the end.
#[test]
fn a_stream_ends_without_a_monitor_to_ask() {
    if !can_run() {
        return;
    }
    let rack = Rack::new();
    let mut server = server(&rack, "block");
    let mut client = client(&rack);
    for host in &rack.hosts {
        host.kill_monitor();
    }
    client.write_line("kill");
    assert_eq!(server.next_line(), Some(format!("{LAST} end")));
}
