//! Two hosts on one machine: two network namespaces with a veth pair between them, a monitor in
//! each, and a window file in tmpfs that both open.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crosslane_testkit::{End, Host, Process, Program, Route, binary, is_root, wait_until};
use serde_json::Value;

/// Alpha's and beta's addresses.
const ADDRESS: [&str; 2] = ["10.91.7.1", "10.91.7.2"];
const NAMES: [&str; 2] = ["alpha", "beta"];

/// Namespaces for one test, gone with it.
struct Network {
    namespaces: [String; 2],
}

impl Network {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let of = |name: &str| format!("xl{}-{number}-{name}", std::process::id());
        let network = Self {
            namespaces: NAMES.map(of),
        };
        let [alpha, beta] = &network.namespaces;
        ip(&["netns", "add", alpha]);
        ip(&["netns", "add", beta]);
        ip(&[
            "link", "add", "lane", "netns", alpha, "type", "veth", "peer", "name", "lane", "netns",
            beta,
        ]);
        for (namespace, address) in network.namespaces.iter().zip(ADDRESS) {
            let address = format!("{address}/24");
            ip(&["-n", namespace, "addr", "add", &address, "dev", "lane"]);
            ip(&["-n", namespace, "link", "set", "lane", "up"]);
            ip(&["-n", namespace, "link", "set", "lo", "up"]);
        }
        network
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            // One that is still in use is told about by the next test of the same name.
            let _ = Command::new("ip")
                .args(["netns", "del", namespace])
                .status();
        }
    }
}

fn ip(arguments: &[&str]) {
    let status = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::null())
        .status();
    let status = status.expect("ip-netns(8) is installed");
    assert!(status.success(), "ip {}", arguments.join(" "));
}

/// Two hosts and what is between them. The hosts come first, so that their programs are gone when
/// the rest goes.
struct Rack {
    hosts: [Host; 2],
    window: PathBuf,
    _network: Network,
}

/// What a test changes before the monitors start.
struct Plan {
    /// Connections over windows that a user of each may have, if not the usual.
    quota: [Option<usize>; 2],
    /// Instead of the `[[allow]]` that `crosslane rack init` writes, if any.
    allow: [Option<&'static str>; 2],
    /// Instead of the right fingerprint of the other host.
    wrong_key: [bool; 2],
    window_bytes: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            quota: [None, None],
            allow: [None, None],
            wrong_key: [false, false],
            window_bytes: 64 << 20,
        }
    }
}

/// Namespaces need root: without it these tests cannot run, and say so.
fn can_run() -> bool {
    if !is_root() {
        eprintln!("SKIPPED: two hosts are two network namespaces, which only root can make");
    }
    is_root()
}

impl Rack {
    fn new() -> Self {
        let rack = Self::with(&Plan::default());
        rack.wait_for_window();
        rack
    }

    fn with(plan: &Plan) -> Self {
        let network = Network::new();
        let of =
            |namespace: &String| Host::without_monitor(Route::Crosslane).in_namespace(namespace);
        let [alpha, beta] = &network.namespaces;
        let hosts = [of(alpha), of(beta)];
        let window = PathBuf::from(format!("/dev/shm/{}", network.namespaces[0]));
        let prints = [0, 1].map(|at| init(&hosts[at], NAMES[at]));
        for at in 0..2 {
            let print = match plan.wrong_key[at] {
                true => prints[at].clone(),
                false => prints[1 - at].clone(),
            };
            let bytes = plan.window_bytes.to_string();
            crosslane(&hosts[at], &["rack", "add"])
                .args(["--address", ADDRESS[1 - at], "--fingerprint", &print])
                .args(["--window-bytes", &bytes, "--window"])
                .arg(&window)
                .arg("--rack")
                .arg(hosts[at].folder().join("rack.toml"))
                .arg(NAMES[1 - at])
                .run();
            rewrite(&hosts[at], plan.allow[at], plan.quota[at]);
        }
        let hosts = hosts.map(|host| {
            let file = host.folder().join("rack.toml");
            host.with_monitor_option("--rack", file)
        });
        hosts.iter().for_each(Host::start_monitor);
        Self {
            hosts,
            window,
            _network: network,
        }
    }

    fn wait_for_window(&self) {
        for (at, name) in NAMES.iter().enumerate() {
            wait_until(&format!("{name}'s window to open"), || {
                let status = self.status(at);
                let state = &status["hosts"][0]["windows"][0]["state"];
                (state == "open").then_some(())
            });
        }
    }

    fn status(&self, at: usize) -> Value {
        let output = crosslane(&self.hosts[at], &["rack", "status", "--json"]).run();
        serde_json::from_str(&output.text()).expect("one JSON object")
    }

    /// A Redis server on `at`.
    fn redis(&self, at: usize, port: u16) -> Process {
        let server = self.hosts[at]
            .program("redis-server")
            .args(["--port", &port.to_string(), "--bind", ADDRESS[at]])
            .args(["--save", "", "--protected-mode", "no"])
            .start();
        server.wait_for_port(port);
        server
    }

    /// A program on the host other than the server's, with the options that take it there.
    fn client_of(&self, server: usize, program: &str, port: u16) -> Program<'_> {
        let port = port.to_string();
        self.hosts[1 - server]
            .program(program)
            .args(["-h", ADDRESS[server], "-p", &port])
    }

    /// The connections of `port` at host `at`.
    fn ends(&self, at: usize, port: u16) -> Vec<End> {
        let ends = self.hosts[at].ends().into_iter();
        ends.filter(|end| end.has_port(port)).collect()
    }

    /// Wait until both hosts show `count` accelerated connections of `port`.
    fn wait_for_accelerated(&self, port: u16, count: usize) {
        for (at, name) in NAMES.iter().enumerate() {
            wait_until(&format!("{count} at {name}"), || {
                let ends = self.ends(at, port);
                let fast = ends.iter().filter(|end| end.is_accelerated()).count();
                (fast >= count).then_some(())
            });
        }
    }
}

impl Drop for Rack {
    fn drop(&mut self) {
        // It is there unless no monitor came so far.
        let _ = std::fs::remove_file(&self.window);
    }
}

fn crosslane<'a>(host: &'a Host, arguments: &[&str]) -> Program<'a> {
    host.plain(binary("crosslane")).args(arguments)
}

/// Make a host's key and configuration. Returns its fingerprint.
fn init(host: &Host, name: &str) -> String {
    let output = crosslane(host, &["rack", "init", "--name", name, "--rack"])
        .arg(host.folder().join("rack.toml"))
        .run();
    let text = output.text();
    let print = text.lines().find(|line| line.starts_with("sha256:"));
    print.expect("a fingerprint is printed").to_owned()
}

fn rewrite(host: &Host, allow: Option<&str>, quota: Option<usize>) {
    let path = host.folder().join("rack.toml");
    let mut text = std::fs::read_to_string(&path).expect("it was just written");
    if let Some(allow) = allow {
        text = text.replacen("[[allow]]\nusers = [0]\n", allow, 1);
    }
    if let Some(quota) = quota {
        let of = |number| format!("connections_per_user = {number}");
        text = text.replacen(&format!("# {}", of(4096)), &of(quota), 1);
    }
    std::fs::write(&path, text).expect("it was just written");
}

#[test]
fn redis_here_and_its_clients_there() {
    if !can_run() {
        return;
    }
    for server in 0..2 {
        let rack = Rack::new();
        let port = 6400;
        let _server = rack.redis(server, port);
        let load = rack
            .client_of(server, "redis-benchmark", port)
            .args(["-t", "get,set", "-n", "300000", "-c", "20", "-P", "4", "-q"])
            .start();
        rack.wait_for_accelerated(port, 20);
        let ends = rack.ends(server, port);
        let over: Vec<_> = ends.iter().filter(|end| end.is_accelerated()).collect();
        assert!(
            over.iter()
                .all(|end| end.window.as_deref() == Some("alpha-beta")),
            "{over:#?}"
        );
        println!("{}", load.finish().expect_success().text());
        let stats = rack.hosts[server].stats();
        let (ring, tcp) = (
            stats.count("ring_bytes_received"),
            stats.count("tcp_bytes_received"),
        );
        assert!(ring > 10 * tcp, "{ring} bytes by the window, {tcp} by TCP");
    }
}

#[test]
fn every_byte_arrives_on_the_other_host() {
    if !can_run() {
        return;
    }
    let rack = Rack::new();
    let seed = std::env::var("CROSSLANE_SEED").unwrap_or_else(|_| "11".to_owned());
    let server = rack.hosts[0]
        .program(binary("crosslane-stress"))
        .args(["serve", "--port", "6500", "--address", ADDRESS[0]])
        .args(["--seed", &seed])
        .with_open_input()
        .start();
    server.wait_for_port(6500);
    let to = format!("{}:6500", ADDRESS[0]);
    let output = rack.hosts[1]
        .program(binary("crosslane-stress"))
        .args(["connect", "--to", &to, "--seed", &seed, "--seconds", "8"])
        .run();
    println!("{}", output.text());
    server.assert_running();
    let upgrades = rack.hosts[0].stats().count("upgrades");
    assert!(upgrades > 0, "nothing went by the window");
}

#[test]
fn iperf3_in_both_directions() {
    if !can_run() {
        return;
    }
    let rack = Rack::new();
    let server = rack.hosts[0]
        .program("iperf3")
        .args(["-s", "-B", ADDRESS[0], "-p", "6600"])
        .start();
    server.wait_for_port(6600);
    for options in [&[][..], &["-R"], &["-P", "3"]] {
        let output = rack.hosts[1]
            .program("iperf3")
            .args(["-c", ADDRESS[0], "-p", "6600", "-J", "-t", "2"])
            .args(options)
            .run()
            .text();
        let report: Value = serde_json::from_str(&output).expect("iperf3 -J prints JSON");
        assert_eq!(report.get("error"), None, "{output}");
        let bytes = report["end"]["sum_received"]["bytes"].as_u64();
        assert!(bytes > Some(10_000_000), "{options:?}: {report:#}");
    }
    let stats = rack.hosts[0].stats();
    assert!(stats.count("ring_bytes_received") > 10_000_000);
    assert!(stats.count("ring_bytes_sent") > 10_000_000);
}

/// Echoes on every connection.
const ECHO: &str = r#"
import socket, sys, threading
def serve(connection):
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.close()
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()
"#;

/// Says each line of its input 200 times over one connection, and checks the echoes; `new` opens
/// another connection first.
const TALK: &str = r#"
import socket, sys
def connect():
    return socket.create_connection((sys.argv[1], int(sys.argv[2])))
connection = connect()
for line in sys.stdin:
    if line.strip() == "new":
        connection = connect()
    for number in range(200):
        said = f"{number} {line}".encode()
        connection.sendall(said)
        heard = b""
        while len(heard) < len(said):
            heard += connection.recv(65536)
        assert heard == said, (heard, said)
    print("ok", flush=True)
"#;

struct Talk<'a> {
    rack: &'a Rack,
    client: Process,
    _server: Option<Process>,
}

const TALK_PORT: u16 = 6700;

fn client(rack: &Rack) -> Process {
    let port = TALK_PORT.to_string();
    let client = rack.hosts[1].program("python3");
    client
        .args(["-c", TALK, ADDRESS[0], &port])
        .with_open_input()
        .start()
}

impl<'a> Talk<'a> {
    /// An echo on alpha, and a client on beta.
    fn new(rack: &'a Rack) -> Self {
        let port = TALK_PORT.to_string();
        let server = rack.hosts[0]
            .program("python3")
            .args(["-c", ECHO, ADDRESS[0], &port])
            .start();
        server.wait_for_port(TALK_PORT);
        Self {
            rack,
            client: client(rack),
            _server: Some(server),
        }
    }

    /// Another client of the same server.
    fn another(&self) -> Self {
        Self {
            rack: self.rack,
            client: client(self.rack),
            _server: None,
        }
    }

    fn go(&mut self, line: &str) {
        self.client.write_line(line);
        assert_eq!(self.client.next_line().as_deref(), Some("ok"));
    }

    fn is_accelerated(&self) -> bool {
        let is_fast = |at| {
            self.rack
                .ends(at, TALK_PORT)
                .iter()
                .any(End::is_accelerated)
        };
        is_fast(0) && is_fast(1)
    }

    /// Talk over new connections until one is accelerated.
    fn until_accelerated(&mut self) {
        wait_until("an accelerated connection", || {
            self.go("new");
            self.is_accelerated().then_some(())
        });
    }

    /// What `crosslane ss` says of the newest connection at a host.
    fn reason(&mut self, at: usize) -> String {
        wait_until("a reason", || {
            self.go("more");
            let ends = self.rack.ends(at, TALK_PORT);
            let mut reasons = ends.iter().filter_map(|end| end.reason.clone());
            reasons.find(|reason| reason != "too-young" && reason != "no-peer")
        })
    }
}

#[test]
fn connections_outlive_either_monitor_and_new_ones_are_accelerated_again() {
    if !can_run() {
        return;
    }
    let rack = Rack::new();
    let mut talk = Talk::new(&rack);
    talk.go("first");
    wait_until("the first connection in the window", || {
        talk.go("more");
        talk.is_accelerated().then_some(())
    });
    for at in [0, 1, 0] {
        rack.hosts[at].kill_monitor();
        talk.go("without a monitor");
        rack.hosts[at].start_monitor();
        rack.wait_for_window();
        talk.go("with a new one");
        talk.until_accelerated();
    }
    // What the dead monitors had given out is given back in the end.
    drop(talk);
    wait_until("all of the window to be free", || {
        let status = rack.status(0);
        let window = &status["hosts"][0]["windows"][0];
        (window["arenas_used"] == 0 && window["arenas_quarantined"] == 0).then_some(())
    });
}

#[test]
fn a_host_with_a_wrong_key_is_refused() {
    if !can_run() {
        return;
    }
    for liar in 0..2 {
        let rack = Rack::with(&Plan {
            wrong_key: [liar == 0, liar == 1],
            ..Plan::default()
        });
        // The one that connects is told in any case.
        wait_until("the trouble to be told", || {
            let status = rack.status(0);
            let host = &status["hosts"][0];
            (host["connected"] == false && host["trouble"].is_string()).then_some(())
        });
        let mut talk = Talk::new(&rack);
        for at in 0..2 {
            assert_eq!(talk.reason(at), "no-window");
        }
    }
}

#[test]
fn who_is_not_allowed_stays_on_tcp_and_is_told_why() {
    if !can_run() {
        return;
    }
    let nobody = "[[allow]]\nusers = [0]\nprograms = [\"other\"]\n";
    for strict in 0..2 {
        let mut plan = Plan::default();
        plan.allow[strict] = Some(nobody);
        let rack = Rack::with(&plan);
        rack.wait_for_window();
        let mut talk = Talk::new(&rack);
        assert_eq!(talk.reason(strict), "rack-policy");
        assert_eq!(talk.reason(1 - strict), "peer-policy");
    }
}

#[test]
fn a_user_has_as_many_connections_as_allowed() {
    if !can_run() {
        return;
    }
    for strict in 0..2 {
        let mut plan = Plan::default();
        plan.quota[strict] = Some(1);
        let rack = Rack::with(&plan);
        rack.wait_for_window();
        let mut one = Talk::new(&rack);
        wait_until("the only connection in the window", || {
            one.go("more");
            one.is_accelerated().then_some(())
        });
        let mut other = one.another();
        wait_until("the other to be refused", || {
            other.go("more");
            let ends = rack.ends(strict, TALK_PORT);
            let is_refused = |end: &End| end.reason.as_deref() == Some("rack-quota");
            ends.iter().any(is_refused).then_some(())
        });
        let fast = rack.ends(strict, TALK_PORT);
        assert_eq!(fast.iter().filter(|end| end.is_accelerated()).count(), 1);
    }
}

#[test]
fn a_full_window_leaves_the_others_on_tcp() {
    if !can_run() {
        return;
    }
    // Room for one part: one pair of processes.
    let rack = Rack::with(&Plan {
        window_bytes: 700 << 10,
        ..Plan::default()
    });
    rack.wait_for_window();
    let mut one = Talk::new(&rack);
    wait_until("the first pair in the window", || {
        one.go("more");
        one.is_accelerated().then_some(())
    });
    let mut other = one.another();
    for at in 0..2 {
        wait_until("the other to be refused", || {
            other.go("more");
            let ends = rack.ends(at, TALK_PORT);
            let is_refused = |end: &End| end.reason.as_deref() == Some("window-full");
            ends.iter().any(is_refused).then_some(())
        });
    }
    let Talk {
        client: gone,
        _server: server,
        ..
    } = one;
    gone.kill();
    wait_until("the part to be given out again", || {
        other.go("new");
        let ends = rack.ends(1, TALK_PORT);
        ends.iter().any(End::is_accelerated).then_some(())
    });
    drop(server);
}

/// Opens 60 connections to the other monitor; some say nothing, some nonsense.
const CROWD: &str = r#"
import socket, sys
crowd = [socket.create_connection((sys.argv[1], 7411)) for _ in range(60)]
for number, stranger in enumerate(crowd):
    if number % 2:
        try:
            stranger.sendall(bytes([number]) * 4096)
        except OSError:
            pass
print("there", flush=True)
sys.stdin.read()
"#;

#[test]
fn strangers_at_the_door_keep_nobody_out() {
    if !can_run() {
        return;
    }
    let rack = Rack::new();
    let mut crowd = rack.hosts[0]
        .plain("python3")
        .args(["-c", CROWD, ADDRESS[1]])
        .with_open_input()
        .start();
    assert_eq!(crowd.next_line().as_deref(), Some("there"));
    // Who was connected stays so, and who comes anew gets in.
    rack.wait_for_window();
    let mut talk = Talk::new(&rack);
    talk.until_accelerated();
    rack.hosts[0].kill_monitor();
    rack.hosts[0].start_monitor();
    rack.wait_for_window();
    talk.until_accelerated();
    crowd.assert_running();
}
