//! nginx with wrk and curl.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crosslane_testkit::{Process, Program, Sides, free_port, on_all_routes, wait_until};

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
}

impl Site {
    /// A server of `small` (100 bytes) and `large` (3 MB).
    fn open(sides: &Sides, sendfile: &str) -> Self {
        let host = sides.server();
        let [port, proxy, http2] = [free_port(), free_port(), free_port()];
        // The workers have to find their files, and the monitor's socket.
        let mode = PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(host.folder(), mode).expect("the folder is the test's own");
        let www = host.folder().join("www");
        std::fs::create_dir(&www).expect("a folder can be made in the test's own");
        host.file("www/small", [b's'; 100]);
        host.file("www/large", large());
        let configuration = host.file(
            "nginx.conf",
            configuration(sides, sendfile, [port, proxy, http2]),
        );
        let server = nginx(host.program(NGINX), &configuration).start();
        for port in [port, proxy, http2] {
            server.wait_for_port(port);
        }
        Self {
            server,
            configuration,
            port,
            proxy,
            http2,
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
}

fn nginx<'a>(program: Program<'a>, configuration: &Path) -> Program<'a> {
    // Short connections are to be accelerated, too.
    program
        .run_option("--eager", "1-65535")
        .args(["-e", "stderr", "-c"])
        .arg(configuration)
}

fn configuration(sides: &Sides, sendfile: &str, [port, proxy, http2]: [u16; 3]) -> String {
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

fn load(sides: &Sides, port: u16, path: &str, options: &[&str]) {
    let url = format!("http://{}:{port}/{path}", sides.address());
    let report = sides
        .client()
        .program("wrk")
        .args(["-t", "2", "-d", "2s"])
        .args(options)
        .arg(url)
        .run()
        .text();
    assert!(!report.contains("Socket errors"), "{report}");
    assert!(!report.contains("Non-2xx"), "{report}");
    let requests = report
        .lines()
        .find_map(|line| line.trim().split_once(" requests in"));
    let requests: u64 = requests
        .and_then(|(count, _)| count.parse().ok())
        .unwrap_or(0);
    assert!(requests > 100, "{report}");
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

fn kept_alive_connections(sides: &Sides) {
    let site = Site::open(sides, "on");
    let witness = sides.witness(site.port);
    let workers = sides.server().witness(site.port);
    load(sides, site.port, "small", &["-c", "32"]);
    load(sides, site.port, "large", &["-c", "8"]);
    witness.assert_ring_share(0.5);
    workers.assert_served_by(2);
}

fn without_sendfile(sides: &Sides) {
    let site = Site::open(sides, "off");
    let witness = sides.witness(site.port);
    load(sides, site.port, "large", &["-c", "8"]);
    witness.assert_ring_share(0.5);
}

fn a_connection_for_each_request(sides: &Sides) {
    let site = Site::open(sides, "on");
    let close = ["-c", "8", "-H", "Connection: close"];
    load(sides, site.port, "small", &close);
    site.server.assert_running();
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

on_all_routes!(
    kept_alive_connections,
    without_sendfile,
    a_connection_for_each_request,
    bodies_are_whole,
    bodies_are_whole_over_a_proxy,
    connections_to_a_proxy_and_behind_it_are_kept,
    bodies_are_whole_over_http2,
    reloads_lose_no_request,
);
