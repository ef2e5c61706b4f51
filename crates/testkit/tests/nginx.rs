//! nginx with wrk and curl.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crosslane_testkit::{
    End, Process, Program, Route, Sides, free_port, on_all_routes, wait_until,
};

const NGINX: &str = "/usr/sbin/nginx";

/// An nginx that runs, and where.
struct Site {
    server: Process,
    configuration: PathBuf,
    port: u16,
    /// The same over a proxy, which keeps its connections to the former.
    proxy: u16,
    /// The same by HTTP/2, without TLS.
    http2: u16,
    /// The same, where each worker has a listener of its own.
    apart: u16,
}

impl Site {
    /// A server of `small` (100 bytes) and `large` (3 MB).
    fn open(sides: &Sides, sendfile: &str) -> Self {
        let host = sides.server();
        let ports = [(); 4].map(|()| free_port());
        // The workers have to find their files, and the monitor's socket.
        let mode = PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(host.folder(), mode).expect("the folder is the test's own");
        let www = host.folder().join("www");
        std::fs::create_dir(&www).expect("a folder can be made in the test's own");
        host.file("www/small", [b's'; 100]);
        host.file("www/large", large());
        let configuration = host.file("nginx.conf", configuration(sides, sendfile, ports));
        let server = nginx(host.program(NGINX), &configuration).start();
        for port in ports {
            server.wait_for_port(port);
        }
        let [port, proxy, http2, apart] = ports;
        Self {
            server,
            configuration,
            port,
            proxy,
            http2,
            apart,
        }
    }

    /// Have it start new workers, and wait until it has begun to.
    fn reload(&self, sides: &Sides) {
        let count = || self.server.log().matches("reconfiguring").count();
        let before = count();
        let tell = nginx(sides.server().plain(NGINX), &self.configuration);
        tell.args(["-s", "reload"]).run();
        wait_until("nginx to reload", || (count() > before).then_some(()));
    }

    /// The processes that serve, also those that only finish what they have begun.
    fn workers(&self) -> BTreeSet<u32> {
        let pid = self.server.pid();
        let path = format!("/proc/{pid}/task/{pid}/children");
        let children = std::fs::read_to_string(path).expect("nginx runs");
        let pids = children.split_whitespace().map(str::parse);
        pids.map(|pid| pid.expect("it is a number")).collect()
    }

    /// Whether all that serve are none of the `old`, and one of them does by rings, if it can.
    fn is_served_anew(&self, sides: &Sides, old: &BTreeSet<u32>) -> bool {
        let workers = self.workers();
        let is_new = workers.len() == 4 && workers.is_disjoint(old);
        let host = sides.server();
        let serves = |end: &End| {
            end.has_port(self.port) && workers.contains(&end.pid) && end.is_accelerated()
        };
        is_new && (host.route() == Route::Tcp || host.ends().iter().any(serves))
    }
}

fn nginx<'a>(program: Program<'a>, configuration: &Path) -> Program<'a> {
    // Short connections are to be accelerated, too.
    program
        .run_option("--eager", "1-65535")
        .args(["-e", "stderr", "-c"])
        .arg(configuration)
}

fn configuration(sides: &Sides, sendfile: &str, [port, proxy, http2, apart]: [u16; 4]) -> String {
    let (folder, address) = (sides.server().folder().display(), sides.address());
    // As on any Debian machine: root's nginx has workers that are somebody else.
    let user = match crosslane_testkit::is_root() {
        true => "user www-data;",
        false => "",
    };
    format!(
        "daemon off; {user} worker_processes 4; pid {folder}/nginx.pid; error_log stderr notice;
         events {{ worker_connections 512; }}
         http {{
             access_log off; sendfile {sendfile}; keepalive_requests 1000000;
             client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
             fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
             scgi_temp_path {folder}/scgi;
             upstream site {{ server {address}:{port}; keepalive 16; }}
             server {{
                 listen {address}:{port} backlog=1024; listen {address}:{http2} http2;
                 listen {address}:{apart} backlog=1024 reuseport;
                 root {folder}/www;
             }}
             server {{
                 listen {address}:{proxy} backlog=1024;
                 location / {{
                     proxy_pass http://site; proxy_http_version 1.1;
                     proxy_set_header Connection \"\";
                 }}
             }}
         }}"
    )
}

fn large() -> Vec<u8> {
    (0u8..=250).cycle().take(3_000_000).collect()
}

fn wrk<'a>(sides: &'a Sides, port: u16, path: &str, options: &[&str]) -> Program<'a> {
    let url = format!("http://{}:{port}/{path}", sides.address());
    let program = sides.client().program("wrk").args(["-t", "2"]);
    program.args(options).arg(url)
}

/// How many requests wrk has reported. None may have had another answer than it should.
fn requests(report: &str) -> u64 {
    for wrong in ["Non-2xx", CHANGED] {
        assert!(!report.contains(wrong), "{report}");
    }
    let requests = report
        .lines()
        .find_map(|line| line.trim().split_once(" requests in"));
    let requests = requests
        .and_then(|(count, _)| count.parse().ok())
        .unwrap_or(0);
    assert!(requests > 100, "{report}");
    requests
}

fn load(sides: &Sides, port: u16, path: &str, options: &[&str]) -> u64 {
    let report = wrk(sides, port, path, options).args(["-d", "2s"]);
    let report = report.run().text();
    assert!(!report.contains("Socket errors"), "{report}");
    requests(&report)
}

/// What is printed by wrk for each answer that is not `small`, with the script that this writes.
const CHANGED: &str = "the body came changed";

fn compare_small(sides: &Sides) -> String {
    let script = format!(
        "local small = string.rep('s', 100)
         function response(status, headers, body)
             if body ~= small then print('{CHANGED}') end
         end"
    );
    let path = sides.client().file("small.lua", script);
    path.display().to_string()
}

/// Get `large` so often, in one run of curl, and fail unless it comes whole each time.
fn get(sides: &Sides, port: u16, count: usize, options: &[&str]) {
    let url = format!("http://{}:{port}/large", sides.address());
    let names: Vec<_> = (0..count).map(|number| format!("got{number}")).collect();
    let requests = names.iter().flat_map(|name| ["-o", name, &url]);
    sides
        .client()
        .program("curl")
        .run_option("--eager", "1-65535")
        .arg("-sSf")
        .args(options)
        .args(requests)
        .run();
    for name in names {
        let got = std::fs::read(sides.client().folder().join(name)).expect("curl wrote it");
        assert!(got == large(), "the body came changed");
    }
}

fn keep_alive(sides: &Sides, port: impl Fn(&Site) -> u16) {
    let site = Site::open(sides, "on");
    let port = port(&site);
    let witness = sides.witness(port);
    let workers = sides.server().witness(port);
    load(sides, port, "small", &["-c", "32"]);
    load(sides, port, "large", &["-c", "8"]);
    witness.assert_ring_share(0.5);
    workers.assert_served_by(2);
}

fn kept_alive_connections(sides: &Sides) {
    keep_alive(sides, |site| site.port);
}

/// Each worker has a listener of its own (SO_REUSEPORT), among which the kernel distributes.
fn listeners_of_one_port(sides: &Sides) {
    keep_alive(sides, |site| site.apart);
}

fn without_sendfile(sides: &Sides) {
    let site = Site::open(sides, "off");
    let witness = sides.witness(site.port);
    load(sides, site.port, "large", &["-c", "8"]);
    witness.assert_ring_share(0.5);
}

/// Each of them is closed before it can have rings, and says so.
fn a_connection_for_each_request(sides: &Sides) {
    let site = Site::open(sides, "on");
    let script = compare_small(sides);
    let close = ["-c", "8", "-s", &script, "-H", "Connection: close"];
    let requests = load(sides, site.port, "small", &close);
    site.server.assert_running();
    let host = sides.client();
    if host.route() == Route::Crosslane {
        wait_until("the count of a finished program", || {
            (host.stats().reason_count("too-young") >= requests).then_some(())
        });
    }
}

fn bodies_are_whole(sides: &Sides) {
    let site = Site::open(sides, "on");
    let witness = sides.witness(site.port);
    get(sides, site.port, 20, &[]);
    witness.assert_accelerated();
}

fn bodies_are_whole_over_a_proxy(sides: &Sides) {
    for sendfile in ["on", "off"] {
        let sides = &sides.anew();
        let site = Site::open(sides, sendfile);
        let to = sides.witness(site.proxy);
        let behind = sides.server().witness(site.port);
        get(sides, site.proxy, 10, &[]);
        to.assert_accelerated();
        // The connections behind the proxy are kept, and can be looked at.
        behind.assert_port_accelerated();
    }
}

fn connections_to_a_proxy_and_behind_it_are_kept(sides: &Sides) {
    let site = Site::open(sides, "on");
    let to = sides.witness(site.proxy);
    let behind = sides.server().witness(site.port);
    load(sides, site.proxy, "small", &["-c", "16"]);
    to.assert_port_accelerated();
    behind.assert_port_accelerated();
}

/// A transfer for each connection: curl 7.88.1 fails with several, natively as well.
fn bodies_are_whole_over_http2(sides: &Sides) {
    let site = Site::open(sides, "on");
    let witness = sides.witness(site.http2);
    for _ in 0..6 {
        get(sides, site.http2, 1, &["--http2-prior-knowledge"]);
    }
    witness.assert_accelerated();
}

/// Old workers finish what they have begun, and new ones take what comes.
fn reloads_lose_no_request(sides: &Sides) {
    let site = Site::open(sides, "on");
    let witness = sides.witness(site.port);
    let url = format!("http://{}:{}/large", sides.address(), site.port);
    let slow = sides
        .client()
        .program("curl")
        .run_option("--eager", "1-65535")
        .args(["-sSf", "--limit-rate", "1M", "-o", "slow", &url])
        .start();
    for _ in 0..5 {
        get(sides, site.port, 4, &["-H", "Connection: close"]);
        site.reload(sides);
        get(sides, site.port, 4, &[]);
    }
    let _whole = slow.finish().expect_success();
    let got = std::fs::read(sides.client().folder().join("slow")).expect("curl wrote it");
    assert!(got == large(), "the body came changed");
    witness.assert_accelerated();
}

/// A client that keeps its connection until it is closed, and tells at its next line how many requests were answered, and how
/// many of them were asked once more because the connection was closed before any of the answer, as one that is kept may be.
const KEEPING_CLIENT: &str = r#"
import http.client, select, sys
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]))
def ask():
    connection.request("GET", "/small")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"s" * 100)
answered = again = 0
ask()
print("answered", flush=True)
while not select.select([0], [], [], 0)[0]:
    try:
        ask()
    except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
        connection.close()
        ask()
        again += 1
    answered += 1
print(answered, again)
"#;

/// Old workers close the connections that are kept, and new ones serve by rings.
fn kept_connections_come_to_new_workers(sides: &Sides) {
    let site = Site::open(sides, "on");
    let script = compare_small(sides);
    let options = ["-c", "16", "-d", "4s", "-s", &script];
    let load = wrk(sides, site.port, "small", &options).start();
    let words = [
        "-c",
        KEEPING_CLIENT,
        sides.address(),
        &site.port.to_string(),
    ];
    let client = sides.client().program("/usr/bin/python3").args(words);
    let mut client = client.with_open_input().start();
    assert_eq!(client.next_line().as_deref(), Some("answered"));
    let mut reloads = 0;
    while load.is_running() {
        let old = site.workers();
        site.reload(sides);
        wait_until("new workers to serve", || {
            client.assert_running();
            let is_over = !load.is_running();
            let is_served = site.is_served_anew(sides, &old);
            reloads += u32::from(is_served && !is_over);
            (is_served || is_over).then_some(())
        });
    }
    client.write_line("over");
    let said = client.finish().expect_success().text();
    let report = load.finish().expect_success().text();
    requests(&report);
    // A request may find its connection closed, natively as well.
    for none in ["connect", "timeout"] {
        let has_none = report.contains(&format!("{none} 0")) || !report.contains("Socket errors");
        assert!(has_none, "{report}");
    }
    assert!(reloads > 0, "{said}\n{report}");
}

on_all_routes!(
    kept_alive_connections,
    listeners_of_one_port,
    without_sendfile,
    a_connection_for_each_request,
    bodies_are_whole,
    bodies_are_whole_over_a_proxy,
    connections_to_a_proxy_and_behind_it_are_kept,
    bodies_are_whole_over_http2,
    reloads_lose_no_request,
);

/// A client that outlives its servers keeps their parts of a window, of which one between hosts has seven.
mod on_one_host {
    use super::kept_connections_come_to_new_workers;
    crosslane_testkit::on_all_routes!([tcp, crosslane](kept_connections_come_to_new_workers));
}
