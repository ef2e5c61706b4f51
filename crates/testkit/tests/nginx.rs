//! nginx with wrk and curl.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crosslane_testkit::{Host, Process, free_port, on_both_routes};

const NGINX: &str = "/usr/sbin/nginx";

fn configuration(host: &Host, port: u16, sendfile: &str) -> PathBuf {
    let folder = host.folder().display();
    // As on any Debian machine: root's nginx has workers that are somebody else.
    let user = match crosslane_testkit::is_root() {
        true => "user www-data;",
        false => "",
    };
    let text = format!(
        "daemon off; {user} worker_processes 2; pid {folder}/nginx.pid; error_log stderr warn;
         events {{ worker_connections 512; }}
         http {{
             access_log off; sendfile {sendfile}; keepalive_requests 1000000;
             client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
             fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
             scgi_temp_path {folder}/scgi;
             server {{ listen 127.0.0.1:{port} backlog=1024; root {folder}/www; }}
         }}"
    );
    host.file("nginx.conf", text)
}

/// A server of `small` (100 bytes) and `large` (3 MB).
fn serve(host: &Host, sendfile: &str) -> (Process, u16) {
    let port = free_port();
    // The workers have to find their files, and the monitor's socket.
    let mode = PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(host.folder(), mode).expect("the folder is the test's own");
    let www = host.folder().join("www");
    std::fs::create_dir(&www).expect("a folder can be made in the test's own");
    host.file("www/small", [b's'; 100]);
    host.file("www/large", large());
    let configuration = configuration(host, port, sendfile);
    let server = host
        .program(NGINX)
        .arg("-e")
        .arg("stderr")
        .arg("-c")
        .arg(configuration)
        .start();
    server.wait_for_port(port);
    (server, port)
}

fn large() -> Vec<u8> {
    (0u8..=250).cycle().take(3_000_000).collect()
}

fn load(host: &Host, port: u16, path: &str, options: &[&str]) {
    let url = format!("http://127.0.0.1:{port}/{path}");
    let report = host
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

fn kept_alive_connections(host: &Host) {
    let (_server, port) = serve(host, "on");
    let witness = host.witness(port);
    load(host, port, "small", &["-c", "32"]);
    load(host, port, "large", &["-c", "8"]);
    witness.assert_ring_share(0.5);
}

fn without_sendfile(host: &Host) {
    let (_server, port) = serve(host, "off");
    let witness = host.witness(port);
    load(host, port, "large", &["-c", "8"]);
    witness.assert_ring_share(0.5);
}

fn a_connection_for_each_request(host: &Host) {
    let (server, port) = serve(host, "on");
    load(host, port, "small", &["-c", "8", "-H", "Connection: close"]);
    server.assert_running();
}

fn bodies_are_whole(host: &Host) {
    let (_server, port) = serve(host, "on");
    let witness = host.witness(port);
    let url = format!("http://127.0.0.1:{port}/large");
    let requests = (0..20).flat_map(|_| ["-o", "got", &url]);
    host.program("curl").arg("-sSf").args(requests).run();
    let got = std::fs::read(host.folder().join("got")).expect("curl wrote it");
    assert!(got == large(), "the body came changed");
    witness.assert_accelerated();
}

on_both_routes!(
    kept_alive_connections,
    without_sendfile,
    a_connection_for_each_request,
    bodies_are_whole,
);
