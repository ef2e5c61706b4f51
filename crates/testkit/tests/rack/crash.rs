//! A host that crashes: nothing comes from it any more, the ends of its connections neither, and its kernel knows none of
//! them when it is back. Beside each connection in the window there is one of the same program by TCP.

use std::time::{Duration, Instant};

use crosslane_testkit::rack::{ADDRESSES, POSTED, Plan, Rack, can_run};
use crosslane_testkit::{Process, Route, wait_until};

const ROUTES: [Route; 2] = [Route::Crosslane, Route::Tcp];

/// What docs/windows.md promises, and twice as much for a busy machine.
const SILENT_WITHIN: Duration = Duration::from_secs(16);

/// How long the impatient client waits for TCP, in milliseconds.
const USER_TIMEOUT: &str = "3000";

/// What TCP says when it gives up: the latter if it has learnt meanwhile that there is no way, after 3 to 4 seconds here.
const GIVEN_UP: [&str; 2] = ["ETIMEDOUT", "EHOSTUNREACH"];

/// How long one that has sent everything before the crash waits, in seconds: longer than the impatient client's error would take.
const LISTENS: &str = "10";

/// What has been sent to a busy server for so long is on TCP's account.
const SETTLED: Duration = Duration::from_secs(4);

/// Echoes on every connection, unless it has more to do than it can.
const SERVER: &str = r#"
import socket, sys, threading, time
def serve(connection):
    while data := connection.recv(65536):
        if data == b"busy":
            time.sleep(1000)
        connection.sendall(data)
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()
"#;

/// `talk`: some round trips. `busy`: keeps the server busy. `ask`: one round trip. `chat`: round trips without end. `listen`: waits
/// for a while. Prints what becomes of them.
const CLIENT: &str = r#"
import errno, socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def ask():
    connection.sendall(b"word")
    assert connection.recv(4) == b"word"
if sys.argv[3] == "probing":
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 2), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
if sys.argv[3] == "impatient":
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(sys.argv[4]))
for line in sys.stdin:
    try:
        if line.strip() == "busy":
            connection.sendall(b"busy")
        while line.strip() == "chat":
            ask()
        if line.strip() == "listen":
            connection.settimeout(int(sys.argv[5]))
            connection.recv(1)
        for _ in range({"talk": 50, "ask": 1}.get(line.strip(), 0)):
            ask()
        print("ok", flush=True)
    except OSError as error:
        print("ended", errno.errorcode.get(error.errno, "not yet"), flush=True)
        break
"#;

fn port(route: Route) -> u16 {
    match route {
        Route::Crosslane => 6703,
        Route::Tcp => 6704,
    }
}

/// Python at a host, with what it needs to know of the servers.
fn python(rack: &Rack, at: usize, route: Route, script: &str, words: &[&str]) -> Process {
    let python = match route {
        Route::Crosslane => rack.hosts[at].program("python3"),
        Route::Tcp => rack.hosts[at].plain("python3"),
    };
    let python = python.args(["-c", script, ADDRESSES[1], &port(route).to_string()]);
    python.args(words).with_open_input().start()
}

fn servers(rack: &Rack) -> [Process; 2] {
    ROUTES.map(|route| {
        let server = python(rack, 1, route, SERVER, &[]);
        server.wait_for_port(port(route));
        server
    })
}

/// Clients of one kind, one for each route.
fn clients(rack: &Rack, kind: &str) -> [Process; 2] {
    ROUTES.map(|route| python(rack, 0, route, CLIENT, &[kind, USER_TIMEOUT, LISTENS]))
}

fn tell(clients: &mut [Process; 2], line: &str) {
    clients
        .iter_mut()
        .for_each(|client| client.write_line(line));
}

/// Have clients talk until as many connections are in the window as there are kinds of clients.
fn talk_until_accelerated(rack: &Rack, kinds: &mut [&mut [Process; 2]]) {
    wait_until("accelerated connections", || {
        for client in kinds.iter_mut().flat_map(|kind| kind.iter_mut()) {
            client.write_line("talk");
            assert_eq!(client.next_line().as_deref(), Some("ok"));
        }
        let ends = rack.ends(0, port(Route::Crosslane));
        let fast = ends.iter().filter(|end| end.is_accelerated()).count();
        (fast == kinds.len()).then_some(())
    });
}

/// Have their servers do other things from now on.
fn keep_busy(clients: &mut [Process; 2]) {
    tell(clients, "busy");
    for client in clients {
        assert_eq!(client.next_line().as_deref(), Some("ok"));
    }
}

/// How both have ended, in the window and by TCP.
fn ends(clients: &mut [Process; 2]) -> [String; 2] {
    clients.each_mut().map(|client| {
        let line = client.next_line().unwrap_or_default();
        let how = line.strip_prefix("ended ");
        how.unwrap_or_else(|| panic!("it says {line:?}")).to_owned()
    })
}

/// Nothing of host beta is left, and nothing tells alpha so.
fn crash(rack: &Rack, servers: [Process; 2]) -> Instant {
    rack.cut();
    rack.hosts[1].kill_monitor();
    let _ = servers.map(Process::kill);
    Instant::now()
}

/// Wait until alpha's monitor takes beta for dead.
fn wait_until_silent(rack: &Rack) {
    let since = Instant::now();
    wait_until("beta to be taken for dead", || {
        let is_told = rack.hosts[0].monitor_log().contains("host is silent");
        (is_told && rack.status(0)["hosts"][0]["connected"] == false).then_some(())
    });
    let took = since.elapsed();
    println!("taken for dead after {took:?}");
    assert!(took < 2 * SILENT_WITHIN, "{took:?}");
}

/// Host beta is back, with servers for whoever connects anew.
fn come_back(rack: &Rack) -> [Process; 2] {
    rack.reboot(1);
    rack.hosts[1].start_monitor();
    rack.wait_for_window();
    servers(rack)
}

/// See that the window is given back, and taken by new connections.
fn use_window_again(rack: &Rack) {
    wait_until("all of the window to be free", || {
        let status = rack.status(0);
        let window = &status["hosts"][0]["windows"][0];
        (window["arenas_used"] == 0 && window["arenas_quarantined"] == 0).then_some(())
    });
    let mut new = clients(rack, "patient");
    talk_until_accelerated(rack, &mut [&mut new]);
}

#[test]
fn a_host_that_crashes_ends_connections_as_over_tcp_and_its_window_is_used_again() {
    if !can_run() {
        return;
    }
    let rack = Rack::new();
    let old_servers = servers(&rack);
    let [mut patient, mut impatient, mut probing, mut chatting] =
        ["patient", "impatient", "probing", "chatting"].map(|kind| clients(&rack, kind));
    talk_until_accelerated(
        &rack,
        &mut [&mut patient, &mut impatient, &mut probing, &mut chatting],
    );
    keep_busy(&mut probing);
    tell(&mut chatting, "chat");
    crash(&rack, old_servers);
    for asking in [&mut patient, &mut impatient, &mut probing] {
        tell(asking, "ask");
    }
    wait_until_silent(&rack);
    println!("impatient: {:?}", ends(&mut impatient));

    let _servers = come_back(&rack);
    println!("probing: {:?}", ends(&mut probing));
    assert_eq!(ends(&mut patient), ["ECONNRESET"; 2]);
    // What was answered, or not taken, when the host crashed may wait for ever, over TCP as well.
    let _ = chatting.map(Process::kill);
    use_window_again(&rack);
}

/// What is sent to them stands in the window, where TCP has nothing of it.
#[test]
fn what_is_sent_to_busy_programs_of_a_crashed_host_ends_as_over_tcp() {
    let (file, posted) = (Plan::default().kind, POSTED);
    for kind in [file, posted] {
        if can_run() {
            send_to_busy_programs(&Rack::of_kind(kind));
        }
    }
}

fn send_to_busy_programs(rack: &Rack) {
    let old_servers = servers(rack);
    let [mut patient, mut impatient, mut listening] =
        ["patient", "impatient", "impatient"].map(|kind| clients(rack, kind));
    let mut all = [&mut patient, &mut impatient, &mut listening];
    talk_until_accelerated(rack, &mut all);
    all.into_iter().for_each(keep_busy);
    // Which the server does not come to read, but its kernel has it, or would have.
    keep_busy(&mut listening);
    std::thread::sleep(SETTLED);
    let since = crash(rack, old_servers);
    tell(&mut patient, "ask");
    tell(&mut impatient, "ask");
    tell(&mut listening, "listen");
    let how = ends(&mut impatient);
    println!("impatient: {how:?} after {:?}", since.elapsed());
    assert!(how.iter().all(|how| GIVEN_UP.contains(&how.as_str())));
    // The monitor has no part in it.
    assert!(since.elapsed() < SILENT_WITHIN);
    assert_eq!(ends(&mut listening), ["not yet"; 2]);
    wait_until_silent(rack);

    let _servers = come_back(rack);
    assert_eq!(ends(&mut patient), ["ECONNRESET"; 2]);
    println!("patient: {:?} after the crash", since.elapsed());
    use_window_again(rack);
}
